//! Content of a message: text, attachments, mentions and the client's metadata, each within its bound.

use super::text::{is_blank, is_refused_in_body};
use super::{Mentions, Metadata, TextError};

/// Content of a message. An edit or a deletion replaces it as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Content {
    pub body: Body,
    pub attachments: Vec<Attachment>,
    pub metadata: Option<Metadata>,
    pub edited_at: Option<super::Timestamp>,
    /// Stores encode it behind the content of the first version, where there are any.
    #[serde(skip)]
    pub mentions: Mentions,
}

/// Text of a message. Empty only beside attachments.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Body(String);

impl Body {
    pub const BYTES_DEFAULT: usize = 16 * 1024;
    /// The longest one that a deployment may allow. With all else that a message may have, and the entries of 32 participants
    /// with the longest names, Cassandra takes 23 KiB in one batch and refuses 24.
    pub const BYTES_MAX: usize = 20 * 1024;

    /// Parses the text of a client. `may_be_empty` if the message has attachments. White space and
    /// invisible characters alone are refused even then.
    pub fn parse(text: String, bytes_max: usize, may_be_empty: bool) -> Result<Self, TextError> {
        // Most bodies are plain ASCII, which the bytes alone show.
        let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !is_plain && text.chars().any(is_refused_in_body) {
            return Err(TextError::ControlInBody);
        }
        if !text.is_empty() && is_blank(&text) {
            return Err(TextError::Blank);
        }
        Self::from_history(text, bytes_max, may_be_empty)
    }

    /// Parses the text of an import. Earlier versions accepted control characters.
    pub fn from_history(
        text: String,
        bytes_max: usize,
        may_be_empty: bool,
    ) -> Result<Self, TextError> {
        if text.len() > bytes_max {
            return Err(TextError::TooLong {
                bytes: text.len(),
                bytes_max,
            });
        }
        if text.chars().all(char::is_whitespace) && !(text.is_empty() && may_be_empty) {
            return Err(TextError::Blank);
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Description of a file that is stored elsewhere. Wideroom never fetches the file.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Attachment {
    pub url: String,
    pub mime_type: String,
    pub name: Option<String>,
    /// Size in bytes. GraphQL represents it as a float, which is exact up to 2^53.
    pub size_bytes: Option<u64>,
    pub width: Option<u32>,
    pub height: Option<u32>,
}

impl Eq for Attachment {}

impl Attachment {
    pub const COUNT_MAX: usize = 10;
    /// Bound of all attachments of a message together, by [`Attachment::bytes`].
    pub const BYTES_MAX: usize = 8 * 1024;
    pub const URL_BYTES_MAX: usize = 2_048;
    pub const NAME_BYTES_MAX: usize = 255;
    pub const MIME_TYPE_BYTES_MAX: usize = 127;
    pub const SIZE_BYTES_MAX: u64 = 1 << 53;

    /// Weight of the attachment: the bytes of its texts, and 32 for the rest.
    pub fn bytes(&self) -> usize {
        self.url.len() + self.mime_type.len() + self.name.as_ref().map_or(0, String::len) + 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_bounded_and_not_blank() {
        let parse = |text: &str, empty| Body::parse(text.to_owned(), 8, empty);
        assert!(parse("hello", false).is_ok());
        assert_eq!(parse("", false), Err(TextError::Blank));
        assert!(parse("", true).is_ok());
        assert_eq!(parse("\u{2003}\n", true), Err(TextError::Blank));
        assert_eq!(
            parse("ninebytes", false),
            Err(TextError::TooLong {
                bytes: 9,
                bytes_max: 8
            })
        );
    }

    #[test]
    fn a_body_holds_no_control_characters_but_those_of_text() {
        let parse = |text: &str| Body::parse(text.to_owned(), 64, false);
        assert!(parse("a\tb\r\nc").is_ok());
        for code in (0..0x20).chain(0x7f..0xa0) {
            let char = char::from(code);
            let expected = if matches!(char, '\t' | '\n' | '\r') {
                None
            } else {
                Some(TextError::ControlInBody)
            };
            assert_eq!(parse(&format!("a{char}b")).err(), expected, "{code:x}");
            assert!(
                Body::from_history(format!("a{char}b"), 64, false).is_ok(),
                "history stays"
            );
        }
        // Joiners and direction marks are part of the text of many scripts.
        assert!(parse("نگار\u{200c}ها \u{2067}שלום\u{2069}").is_ok());
    }
}
