//! Writers of a live message: a list that only grows. The last writer's text is shown, and its position in the list is its
//! number.

use crate::model::text::parse_line;
use crate::model::{TextError, Timestamp};

/// Name of a writer: one process, and one try of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct WriterName(String);

impl WriterName {
    pub const BYTES_MAX: usize = 64;

    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse_line(text, Self::BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Number of a writer, from 1 on. A later writer has a greater one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct WriterNumber(u8);

impl WriterNumber {
    /// `None` if no writer has this number.
    pub fn new(number: u8) -> Option<Self> {
        let is_one = (1..=LiveWriters::COUNT_MAX).contains(&usize::from(number));
        is_one.then_some(Self(number))
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Entry of the list of writers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LiveWriter {
    /// `None` for the server that sends the text of a silent writer.
    pub name: Option<WriterName>,
    pub claimed_at: Timestamp,
}

/// Reason why a list takes no further entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WritersError {
    #[error("a server sends the text of a silent writer")]
    Closed,
    #[error("the live message has had {} writers", LiveWriters::COUNT_MAX)]
    Full,
}

/// Writers of a live message in the order of their claims. The entry of a server that ends it is the last one.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct LiveWriters(Vec<LiveWriter>);

impl LiveWriters {
    pub const COUNT_MAX: usize = 32;

    pub fn entries(&self) -> &[LiveWriter] {
        &self.0
    }

    /// Whether a server has claimed the end of the list: no writer follows.
    pub fn is_closed(&self) -> bool {
        self.0.last().is_some_and(|last| last.name.is_none())
    }

    pub fn number_of(&self, name: &WriterName) -> Option<WriterNumber> {
        let found = self
            .0
            .iter()
            .position(|entry| entry.name.as_ref() == Some(name))?;
        WriterNumber::new(u8::try_from(found + 1).ok()?)
    }

    /// Number of the writer whose text is shown. `None` for an empty list.
    pub fn shown(&self) -> Option<WriterNumber> {
        let named = self.0.len() - usize::from(self.is_closed());
        WriterNumber::new(u8::try_from(named).ok()?)
    }

    /// Time of the last claim of a writer. A server that ends the list is none.
    pub fn claimed_at(&self) -> Option<Timestamp> {
        let named = self.0.iter().filter(|entry| entry.name.is_some());
        named.map(|entry| entry.claimed_at).max()
    }

    /// The list after the claim of a further writer.
    pub fn with_writer(&self, name: WriterName, at: Timestamp) -> Result<Self, WritersError> {
        if self.is_closed() {
            return Err(WritersError::Closed);
        }
        if self.0.len() >= Self::COUNT_MAX {
            return Err(WritersError::Full);
        }
        Ok(self.with(Some(name), at))
    }

    /// The list after the claim of a server that ends it.
    pub fn closed(&self, at: Timestamp) -> Result<Self, WritersError> {
        if self.is_closed() {
            return Err(WritersError::Closed);
        }
        Ok(self.with(None, at))
    }

    fn with(&self, name: Option<WriterName>, claimed_at: Timestamp) -> Self {
        let mut entries = self.0.clone();
        entries.push(LiveWriter { name, claimed_at });
        Self(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> WriterName {
        WriterName::parse(text).unwrap()
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn the_last_writer_is_shown_and_a_closed_list_stays_as_it_is() {
        let none = LiveWriters::default();
        assert_eq!((none.shown(), none.claimed_at()), (None, None));
        let one = none.with_writer(name("a"), at(1)).unwrap();
        let two = one.with_writer(name("b"), at(2)).unwrap();
        let numbers = ["a", "b", "c"].map(|text| two.number_of(&name(text)).map(WriterNumber::get));
        assert_eq!(numbers, [Some(1), Some(2), None]);
        let closed = two.closed(at(3)).unwrap();
        for list in [&two, &closed] {
            assert_eq!(list.shown(), WriterNumber::new(2));
            assert_eq!(list.claimed_at(), Some(at(2)));
        }
        let refused = [closed.with_writer(name("c"), at(4)), closed.closed(at(4))];
        assert_eq!(refused, [const { Err(WritersError::Closed) }; 2]);
    }

    #[test]
    fn a_list_takes_so_many_writers_and_its_end() {
        let full = (0..32).fold(LiveWriters::default(), |list, number| {
            list.with_writer(name(&number.to_string()), at(number))
                .unwrap()
        });
        let further = full.with_writer(name("x"), at(99));
        assert_eq!(further, Err(WritersError::Full));
        let closed = full.closed(at(99)).unwrap();
        assert_eq!(closed.shown().map(WriterNumber::get), Some(32));
        assert_eq!((WriterNumber::new(0), WriterNumber::new(33)), (None, None));
    }

    #[test]
    fn a_name_has_one_to_64_bytes() {
        assert!(WriterName::parse(&"x".repeat(64)).is_ok());
        for refused in ["", " ", "a\nb", &"x".repeat(65)] {
            assert!(WriterName::parse(refused).is_err(), "{refused:?}");
        }
    }
}
