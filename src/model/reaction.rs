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
    /// Maximum number of kinds that a user takes back from a message in 35 days: their remains cost the readers.
    pub const ENDED_OF_USER_MAX: usize = 50;

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

    /// Emoji by a short name as other systems write it: `tada`, `:tada:`, `+1::skin-tone-2`.
    pub fn of_short_name(text: &str) -> Option<Self> {
        let name = text.trim_matches(':');
        let (name, tone) = match name.split_once("::") {
            Some((name, tone)) => (name, Some(skin_tone(tone)?)),
            None => (name, None),
        };
        let emoji = emojis::get_by_shortcode(name)?;
        let emoji = match tone {
            Some(tone) => emoji.with_skin_tone(tone)?,
            None => emoji,
        };
        Some(Self(emoji.as_str().into()))
    }

    /// Name of a custom emoji of another system, as `:name:`, which an import keeps in the place of an emoji.
    pub fn of_custom_name(text: &str) -> Option<Self> {
        let name = text.trim_matches(':');
        let is_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '+' | '.');
        let is_short = !name.is_empty() && name.len() + 2 <= Self::BYTES_MAX;
        (is_short && name.chars().all(is_name)).then(|| Self(format!(":{name}:").into()))
    }

    /// Parses the emoji of a reaction that is there: one that was put on, or that an import kept by its name.
    pub fn parse_existing(text: &str) -> Result<Self, EmojiError> {
        let named = || Self::of_custom_name(text).filter(|named| named.as_str() == text);
        Self::parse(text).or_else(|error| named().ok_or(error))
    }

    /// Emoji from the store, without validation: the Unicode list may have differed when it was stored.
    pub fn kept(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn skin_tone(name: &str) -> Option<emojis::SkinTone> {
    Some(match name {
        "skin-tone-2" => emojis::SkinTone::Light,
        "skin-tone-3" => emojis::SkinTone::MediumLight,
        "skin-tone-4" => emojis::SkinTone::Medium,
        "skin-tone-5" => emojis::SkinTone::MediumDark,
        "skin-tone-6" => emojis::SkinTone::Dark,
        _ => return None,
    })
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
    fn an_emoji_has_short_names_and_a_custom_one_a_name() {
        let short = |text: &str| Emoji::of_short_name(text).map(|emoji| emoji.to_string());
        assert_eq!(short(":tada:").as_deref(), Some("🎉"));
        assert_eq!(short("+1").as_deref(), Some("👍"));
        assert_eq!(short("+1::skin-tone-2").as_deref(), Some("👍🏻"));
        for text in ["party_parrot", ":", "", "+1::skin-tone-9", "🎉"] {
            assert_eq!(short(text), None, "{text}");
        }
        let custom = |text: &str| Emoji::of_custom_name(text).map(|emoji| emoji.to_string());
        assert_eq!(custom("party_parrot").as_deref(), Some(":party_parrot:"));
        assert_eq!(custom(&"x".repeat(63)), None);
        assert_eq!(custom("a b"), None);
        assert_eq!(custom("::"), None);
        assert!(Emoji::parse_existing(":party_parrot:").is_ok());
        assert!(Emoji::parse_existing("party_parrot").is_err());
        assert!(Emoji::parse(":party_parrot:").is_err(), "nobody adds one");
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
