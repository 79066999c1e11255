//! Text of a live message: chunks as writers send them, rows as stores hold them, and the body that rows make up.

use crate::model::text::{is_refused_in_body, parse_line};
use crate::model::{Body, TextError};

/// State of a live message in the writer's words.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct LiveStatus(String);

impl LiveStatus {
    pub const BYTES_MAX: usize = 128;

    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse_line(text, Self::BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text of one write. Empty if the writer is only still at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveChunk(String);

impl LiveChunk {
    pub const BYTES_MAX: usize = 4 * 1024;

    /// Parses the text of a client. A body takes the same characters.
    pub fn parse(text: String) -> Result<Self, TextError> {
        if text.len() > Self::BYTES_MAX {
            return Err(TextError::TooLong {
                bytes: text.len(),
                bytes_max: Self::BYTES_MAX,
            });
        }
        if text.chars().any(is_refused_in_body) {
            return Err(TextError::ControlInBody);
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Extent of a row in the text of its writer, in bytes. Rows sort by their ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveExtent {
    pub end: u32,
    pub position: u32,
}

impl LiveExtent {
    /// Position after every row that ends there or earlier.
    pub const fn up_to(end: u32) -> Self {
        Self {
            end,
            position: u32::MAX,
        }
    }
}

/// Row of a live message's text. Its key holds its extent, so no row is ever rewritten with another text. Rows of one writer
/// may overlap, and agree where they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveText {
    position: u32,
    text: String,
}

impl LiveText {
    /// `None` for a row that is empty or ends after the longest body.
    pub fn new(position: u32, text: String) -> Option<Self> {
        let end = usize::try_from(position).ok()?.checked_add(text.len())?;
        (!text.is_empty() && end <= Body::BYTES_MAX).then_some(Self { position, text })
    }

    pub fn extent(&self) -> LiveExtent {
        let length = u32::try_from(self.text.len()).expect("a row is at most as long as a body");
        LiveExtent {
            end: self.position + length,
            position: self.position,
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Unbroken beginning of a writer's text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveBody(String);

impl LiveBody {
    /// Text that was read before.
    pub fn of_checked(text: String) -> Self {
        Self(text)
    }

    pub fn into_text(self) -> String {
        self.0
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Number of bytes.
    pub fn end(&self) -> u32 {
        u32::try_from(self.0.len()).expect("a row ends within the longest body")
    }

    /// Appends the part of a row that lies beyond the body. A row after a hole adds nothing: the row that fills the hole
    /// ends later, or comes earlier in the order of ends. Returns whether the body grew.
    pub fn append(&mut self, row: &LiveText) -> bool {
        let (length, position) = (self.0.len(), row.position as usize);
        let Some(shared) = length.checked_sub(position) else {
            return false;
        };
        let beyond = row.text.get(shared..).unwrap_or_default();
        self.0.push_str(beyond);
        !beyond.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(position: u32, text: &str) -> LiveText {
        LiveText::new(position, text.to_owned()).unwrap()
    }

    #[test]
    fn overlapping_rows_make_one_text() {
        let mut body = LiveBody::default();
        for (added, expected, grows) in [
            (row(0, "The ä"), "The ä", true),
            (row(7, "late"), "The ä", false),
            (row(4, "änsw"), "The änsw", true),
            (row(0, "The"), "The änsw", false),
            (row(9, "er"), "The änswer", true),
        ] {
            assert_eq!(body.append(&added), grows);
            assert_eq!(body.as_str(), expected);
        }
        assert_eq!(body.end(), 11);
    }

    #[test]
    fn a_row_has_text_and_ends_within_the_longest_body() {
        let end = u32::try_from(Body::BYTES_MAX).unwrap();
        assert!(LiveText::new(0, String::new()).is_none());
        assert!(LiveText::new(end, "x".to_owned()).is_none());
        assert!(LiveText::new(u32::MAX, "x".to_owned()).is_none());
        let last = row(end - 2, "ä").extent();
        assert_eq!((last.position, last.end), (end - 2, end));
    }

    #[test]
    fn a_chunk_is_bounded_and_has_the_characters_of_a_body() {
        let parse = |text: &str| LiveChunk::parse(text.to_owned());
        for text in ["", " ", "a\tb\r\n", &"x".repeat(4_096)] {
            assert_eq!(parse(text).unwrap().as_str(), text);
        }
        assert_eq!(parse("a\u{7}"), Err(TextError::ControlInBody));
        let long = parse(&"x".repeat(4_097));
        assert!(matches!(long, Err(TextError::TooLong { .. })));
        assert!(LiveStatus::parse("thinking").is_ok() && LiveStatus::parse("").is_err());
    }

    proptest! {
        /// A writer's rows in the order of their ends, whatever of them a store has, make up a beginning of its text.
        #[test]
        fn rows_make_up_a_beginning_of_the_text(cuts in proptest::collection::vec((0..40_usize, 1..12_usize), 0..20)) {
            let text: String = ('a'..='z').chain('A'..='N').collect();
            let mut rows: Vec<_> = cuts
                .into_iter()
                .map(|(at, length)| {
                    let end = (at + length).min(text.len());
                    row(u32::try_from(at).unwrap(), &text[at..end])
                })
                .collect();
            rows.sort_by_key(LiveText::extent);
            let mut body = LiveBody::default();
            for added in &rows {
                body.append(added);
            }
            prop_assert!(text.starts_with(body.as_str()));
            // The longest beginning without a hole.
            let is_there = |at: usize| rows.iter().any(|row| {
                let extent = row.extent();
                (extent.position as usize..extent.end as usize).contains(&at)
            });
            let unbroken = (0..text.len()).take_while(|at| is_there(*at)).count();
            prop_assert_eq!(body.as_str().len(), unbroken);
        }
    }
}
