//! Content of a message: text, attachments, mentions, steps and the client's metadata, each within its bound.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::text::{is_blank, is_refused_in_body};
use super::{Mentions, MessageSteps, Metadata, TextError};

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
    /// Steps of the work behind the message. Stores encode them in a part, as the next one; see [`Content::parts`].
    #[serde(skip)]
    pub steps: MessageSteps,
    /// Whether the writer fell silent, and a server sent what there was. An edit ends it.
    #[serde(skip)]
    pub is_interrupted: bool,
    /// Parts that only a later version knows. Stores keep them.
    #[serde(skip)]
    pub unknown_parts: Parts,
}

/// Fields of an attachment that the first version has not.
type AttachmentPart = (Option<u32>, Option<String>);

impl Content {
    /// Number of the part with durations and thumbnails: one [`AttachmentPart`] for each attachment.
    const ATTACHMENTS: u32 = 1;
    /// Number of the part with the steps.
    const STEPS: u32 = 2;
    /// Number of the part of a message that the writer did not end. Its value is true.
    const INTERRUPTION: u32 = 3;

    /// Parts that the content of an earlier version has not, the unknown ones included.
    pub fn parts(&self) -> Parts {
        let mut parts = self.input_parts();
        if self.is_interrupted {
            parts.put_value(Self::INTERRUPTION, &true);
        }
        for (number, part) in self.unknown_parts.iter() {
            parts.put(number, part.to_vec());
        }
        parts
    }

    /// Parts that follow from the input of a send.
    pub fn input_parts(&self) -> Parts {
        let mut parts = Parts::default();
        put_attachments(&mut parts, &self.attachments);
        if !self.steps.is_empty() {
            parts.put_value(Self::STEPS, &self.steps);
        }
        parts
    }

    /// Whether it has a part, so that an earlier version does not read it.
    pub fn has_parts(&self) -> bool {
        self.attachments.iter().any(Attachment::has_part)
            || !self.steps.is_empty()
            || self.is_interrupted
            || !self.unknown_parts.is_empty()
    }

    /// The content with its parts, as a store holds them.
    pub fn with_parts(mut self, mut parts: Parts) -> Result<Self, postcard::Error> {
        take_attachments(&mut parts, &mut self.attachments)?;
        self.steps = parts.take_value(Self::STEPS)?.unwrap_or_default();
        self.is_interrupted = parts.take_value(Self::INTERRUPTION)?.unwrap_or_default();
        self.unknown_parts = parts;
        Ok(self)
    }

    /// Whether this version knows a part of this number.
    pub const fn is_known_part(number: u32) -> bool {
        matches!(number, Self::ATTACHMENTS | Self::STEPS | Self::INTERRUPTION)
    }
}

/// Puts the part of attachments that have more than the fields of the first version.
pub fn put_attachments(parts: &mut Parts, attachments: &[Attachment]) {
    if attachments.iter().any(Attachment::has_part) {
        let each = attachments.iter();
        let each = each.map(|one| (&one.duration_ms, &one.thumbnail_url));
        parts.put_value(Content::ATTACHMENTS, &each.collect::<Vec<_>>());
    }
}

pub fn take_attachments(
    parts: &mut Parts,
    attachments: &mut [Attachment],
) -> Result<(), postcard::Error> {
    let found = parts.take_value::<Vec<AttachmentPart>>(Content::ATTACHMENTS)?;
    for (attachment, part) in attachments.iter_mut().zip(found.unwrap_or_default()) {
        (attachment.duration_ms, attachment.thumbnail_url) = part;
    }
    Ok(())
}

/// Optional parts of a stored value, by number (tag-length-value). A later version adds a part, and no form. A reader
/// keeps the parts that it does not know, and passes over them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parts(BTreeMap<u32, Vec<u8>>);

impl Parts {
    /// Bound of the unknown parts of one import line, and of their bytes together.
    pub const COUNT_MAX: usize = 16;
    pub const BYTES_MAX: usize = 4 * 1024;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.0.values().map(|part| part.len() + 8).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.0
            .iter()
            .map(|(number, part)| (*number, part.as_slice()))
    }

    pub fn put(&mut self, number: u32, part: Vec<u8>) {
        self.0.insert(number, part);
    }

    /// Puts a value, encoded by postcard.
    pub fn put_value(&mut self, number: u32, value: &impl Serialize) {
        let part = postcard::to_stdvec(value).expect("plain data serialises");
        self.put(number, part);
    }

    /// Takes a part out, and decodes it. Bytes behind the value belong to a later version.
    pub fn take_value<T: DeserializeOwned>(
        &mut self,
        number: u32,
    ) -> Result<Option<T>, postcard::Error> {
        let part = self.0.remove(&number);
        part.map(|part| postcard::from_bytes(&part)).transpose()
    }
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
    /// Stores encode it in a part, as the next one; see [`Content::parts`].
    #[serde(skip)]
    pub duration_ms: Option<u32>,
    #[serde(skip)]
    pub thumbnail_url: Option<String>,
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
        let texts = [&self.name, &self.thumbnail_url].into_iter().flatten();
        self.url.len() + self.mime_type.len() + texts.map(String::len).sum::<usize>() + 32
    }

    /// Whether it has more than the fields of the first version.
    pub const fn has_part(&self) -> bool {
        self.duration_ms.is_some() || self.thumbnail_url.is_some()
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
