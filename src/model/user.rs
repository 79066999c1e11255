//! Users: the username from the token, a profile, and the restriction of a user.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use super::text::{is_bidirectional_control, is_shown};
use super::{ChangeId, Metadata, Timestamp};

/// Username: the `sub` claim of the token. Compared bytewise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct UserId(Arc<str>);

impl<'de> Deserialize<'de> for UserId {
    /// Copies the name once: serde's own way to an `Arc<str>` copies it twice, and each row of a page
    /// has a name.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = UserId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a username")
            }

            fn visit_str<E>(self, name: &str) -> Result<UserId, E> {
                Ok(UserId(name.into()))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserIdError {
    #[error("a username must not be empty")]
    Empty,
    #[error("a username has at most {} bytes of UTF-8", UserId::BYTES_MAX)]
    TooLong,
    #[error("a username must not hold control characters")]
    Control,
    #[error("a username must not begin or end with a blank")]
    BlankEnd,
    #[error("a username must show at least one character")]
    Invisible,
    #[error("a username must not hold bidirectional controls")]
    Bidirectional,
    #[error("the name `{}` is reserved for erased users", UserId::ERASED)]
    Erased,
}

impl UserId {
    pub const BYTES_MAX: usize = 128;
    const ERASED: &str = "wideroom:erased";
    /// Beginning of the username of every agent, and of nobody else's.
    pub const AGENT_PREFIX: &str = "agent:";

    /// The name that takes the place of an erased user's. Nobody can sign in with it, nor be imported.
    pub fn erased() -> Self {
        Self(Self::ERASED.into())
    }

    pub fn is_erased(&self) -> bool {
        self.as_str() == Self::ERASED
    }

    /// Whether the user is an agent: a program, without an inbox, presence and receipts. The name alone decides, on every
    /// server and for good, so that nothing stored can disagree.
    pub fn is_agent(&self) -> bool {
        self.as_str().starts_with(Self::AGENT_PREFIX)
    }

    pub fn parse(text: &str) -> Result<Self, UserIdError> {
        if text.is_empty() {
            return Err(UserIdError::Empty);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(UserIdError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(UserIdError::Control);
        }
        Ok(Self(text.into()))
    }

    /// Parses the name of somebody who acts, joins or is described: any but [`UserId::erased`].
    pub fn parse_living(text: &str) -> Result<Self, UserIdError> {
        let user = Self::parse(text)?;
        if user.is_erased() {
            return Err(UserIdError::Erased);
        }
        Ok(user)
    }

    /// Parses a name that may be new: of a token, of an input that adds or describes a user, of an import from another system. Names
    /// that a store has already need not have this form: [`UserId::parse_living`] addresses them.
    pub fn parse_new(text: &str) -> Result<Self, UserIdError> {
        let user = Self::parse_living(text)?;
        if !text.chars().any(is_shown) {
            return Err(UserIdError::Invisible);
        }
        if text.trim() != text {
            return Err(UserIdError::BlankEnd);
        }
        if text.chars().any(is_bidirectional_control) {
            return Err(UserIdError::Bidirectional);
        }
        Ok(user)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A set of users can be searched by a name alone.
impl Borrow<str> for UserId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Profile that a user publishes. Users without a stored profile have an empty one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub display_name: Option<String>,
    pub avatar_url: Option<String>,
    /// The app's own data about the user. Services write it, everyone sees it.
    pub metadata: Option<Metadata>,
    pub last_seen_at: Option<Timestamp>,
}

/// Online state of a user. `chat` decides which viewers may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    pub is_online: bool,
    /// `None` for a user who was never online.
    pub last_seen_at: Option<Timestamp>,
}

/// Suspension of a user. The user may not sign in or send while it holds, and no group adds them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Suspension {
    pub since: Timestamp,
    /// `None`: until restored.
    pub until: Option<Timestamp>,
    pub reason: Option<String>,
}

impl Suspension {
    pub const REASON_BYTES_MAX: usize = 255;

    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Restriction of one user, or of everyone.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Restriction {
    pub suspension: Option<Suspension>,
    /// Tokens issued before this moment are refused. A maximum: it never goes back.
    pub tokens_from: Option<Timestamp>,
}

impl Restriction {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Block of one user by another, or the end of one: a register, whose last change wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub blocked: UserId,
    pub is_on: bool,
    /// Id of the last change. Its moment is that of the change.
    pub change: ChangeId,
}

impl Block {
    /// Users that one user blocks at most.
    pub const COUNT_MAX: usize = 1_000;
    /// Blocks of one user that are kept, ended ones included.
    pub const KEPT_MAX: usize = 2_000;
    /// Time for which the end of a block is kept, for streams that resume.
    pub const END_LIFETIME_MICROS: i64 = 35 * 24 * 3_600 * 1_000_000;

    /// Whether a store may drop it: an end that no stream asks for any more.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let lifetime = self.change.moment().plus_micros(Self::END_LIFETIME_MICROS);
        !self.is_on && lifetime <= now
    }
}

impl Profile {
    pub const DISPLAY_NAME_BYTES_MAX: usize = 128;
    pub const AVATAR_URL_BYTES_MAX: usize = 2_048;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_bounded_text_without_control_characters() {
        assert!(UserId::parse("alice@example.org").is_ok());
        assert!(UserId::parse("Ärzte ohne Grenzen 🚑").is_ok());
        assert_eq!(UserId::parse(""), Err(UserIdError::Empty));
        assert_eq!(UserId::parse(&"a".repeat(129)), Err(UserIdError::TooLong));
        assert_eq!(UserId::parse("a\u{0}b"), Err(UserIdError::Control));
        assert_eq!(UserId::parse("a\u{85}b"), Err(UserIdError::Control));
    }

    #[test]
    fn a_new_name_shows_what_it_is() {
        for name in [
            "bob",
            "Ärzte ohne Grenzen 🚑",
            "auth0|5f7c8ec7",
            "نگار\u{200c}ها",
            "❤\u{fe0f}",
        ] {
            assert!(UserId::parse_new(name).is_ok(), "{name:?}");
        }
        for (name, error) in [
            ("bob ", UserIdError::BlankEnd),
            ("\u{a0}bob", UserIdError::BlankEnd),
            ("bob\u{3000}", UserIdError::BlankEnd),
            (" ", UserIdError::Invisible),
            ("\u{200b}\u{2060}", UserIdError::Invisible),
            ("\u{3164}", UserIdError::Invisible),
            ("\u{200d}\u{fe0f} ", UserIdError::Invisible),
            ("bob\u{202e}gro.elpmaxe", UserIdError::Bidirectional),
            ("\u{2067}bob\u{2069}", UserIdError::Bidirectional),
            ("bob\u{200f}", UserIdError::Bidirectional),
        ] {
            assert_eq!(UserId::parse_new(name), Err(error), "{name:?}");
            assert!(UserId::parse_living(name).is_ok(), "a store may have it");
        }
        assert_eq!(UserId::parse_new(""), Err(UserIdError::Empty));
        assert_eq!(
            UserId::parse_new("wideroom:erased"),
            Err(UserIdError::Erased)
        );
    }

    #[test]
    fn an_agent_is_known_by_the_beginning_of_its_name() {
        let is_agent = |name: &str| UserId::parse(name).unwrap().is_agent();
        assert!(is_agent("agent:helper") && is_agent("agent:"));
        for name in ["agent", "Agent:helper", "my agent:", "agents:helper"] {
            assert!(!is_agent(name), "{name:?}");
        }
    }

    #[test]
    fn nobody_has_the_name_of_erased_users() {
        let erased = UserId::erased();
        assert_eq!(UserId::parse("wideroom:erased"), Ok(erased.clone()));
        let refused = UserId::parse_living(erased.as_str());
        assert_eq!(refused, Err(UserIdError::Erased));
        assert!(UserId::parse_living("wideroom:erase").is_ok());
    }
}
