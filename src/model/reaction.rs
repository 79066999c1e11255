//! Reactions: one emoji of one user to one message, on or off.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use super::UserId;

/// All emoji in their full spelling, indexed by that spelling without U+FE0F. The library's own lookup would accept a digit as a keycap.
static ALL: LazyLock<HashMap<String, &'static str>> = LazyLock::new(|| {
    let toned =
        |emoji: &'static emojis::Emoji| emoji.skin_tones().into_iter().flatten().chain([emoji]);
    emojis::iter()
        .flat_map(toned)
        .map(|emoji| (bare(emoji.as_str()), emoji.as_str()))
        .collect()
});

fn bare(text: &str) -> String {
    text.replace('\u{fe0f}', "")
}

/// One Unicode emoji in its fully qualified spelling, with U+FE0F if the spelling includes it.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Emoji(Arc<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one emoji of Unicode, as 👍")]
pub struct EmojiError;

impl Emoji {
    /// Longer texts are refused without a lookup.
    pub const BYTES_MAX: usize = 64;
    /// Maximum number of different emoji on a message at a time.
    pub const KINDS_MAX: usize = 20;
    /// Maximum number of different emoji of one user on a message at a time: nobody takes the others' share.
    pub const KINDS_OF_USER_MAX: usize = 5;

    /// Accepts spellings with and without U+FE0F and normalises them to one.
    pub fn parse(text: &str) -> Result<Self, EmojiError> {
        if text.len() > Self::BYTES_MAX {
            return Err(EmojiError);
        }
        let known = ALL
            .get(bare(text).as_str())
            .filter(|_| has_whole_spelling(text));
        known.map(|emoji| Self((*emoji).into())).ok_or(EmojiError)
    }

    /// Emoji from the store, without validation: the Unicode list may have differed when it was stored.
    pub fn kept(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// U+FE0F selects the emoji presentation of the character before it. Alone or doubled it is invalid.
fn has_whole_spelling(text: &str) -> bool {
    !text.starts_with('\u{fe0f}') && !text.contains("\u{fe0f}\u{fe0f}")
}

impl fmt::Display for Emoji {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All reactions to one message with one emoji.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaction {
    pub emoji: Emoji,
    /// Number of users with this reaction. Zero after all have removed it.
    pub count: u32,
    /// Whether the count is a lower bound.
    pub is_capped: bool,
    pub has_viewer: bool,
    /// The first [`Reaction::USERS_MAX`] users, ordered by username (bytewise).
    pub users: Vec<UserId>,
}

impl Reaction {
    pub const COUNT_MAX: u32 = 1_000;
    /// Time for which a store keeps the end of a reaction, so that an import does not bring it back.
    pub const END_LIFETIME_MICROS: i64 = 35 * 24 * 3_600 * 1_000_000;
    pub const USERS_MAX: usize = 100;
    /// Maximum number of rows read for one emoji, removed reactions included.
    pub const ROWS_MAX: usize = 2_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<String> {
        Emoji::parse(text)
            .ok()
            .map(|emoji| emoji.as_str().to_owned())
    }

    #[test]
    fn every_spelling_of_an_emoji_is_one_kind() {
        assert_eq!(kind("❤"), kind("❤\u{fe0f}"));
        assert_eq!(kind("❤").as_deref(), Some("❤\u{fe0f}"));
        let skins =
            |emoji: &'static emojis::Emoji| emoji.skin_tones().into_iter().flatten().chain([emoji]);
        for emoji in emojis::iter().flat_map(skins) {
            let full = Some(emoji.as_str().to_owned());
            assert_eq!(
                (kind(emoji.as_str()), kind(&bare(emoji.as_str()))),
                (full.clone(), full),
                "{emoji}"
            );
            assert!(emoji.as_str().len() <= Emoji::BYTES_MAX);
        }
        assert!(ALL.len() > 3_700, "{}", ALL.len());
    }

    #[test]
    fn skin_tones_flags_families_and_keycaps_are_emoji() {
        for text in ["👍", "👍🏽", "🇪🇺", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "👨‍👩‍👧‍👦", "1️⃣", "🫩"]
        {
            assert!(kind(text).is_some(), "{text}");
        }
        assert_ne!(kind("👍"), kind("👍🏽"));
    }

    #[test]
    fn a_text_other_than_one_emoji_is_refused() {
        let long = "👨‍👩‍👧‍👦".repeat(4);
        for text in [
            "",
            " ",
            "1",
            "1\u{fe0f}",
            "#",
            "a",
            "ok",
            ":+1:",
            "👍👍",
            "👍 ",
            "🇪",
            "\u{fe0f}",
            "\u{fe0f}👍",
            "❤\u{fe0f}\u{fe0f}",
            &long,
        ] {
            assert_eq!(kind(text), None, "{text:?}");
        }
    }
}
