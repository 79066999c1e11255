//! Live messages: rows of messages while they are written.
//!
//! A row of text has its extent in its key, so that no write is ever lost to another one. No row is deleted by hand: rows
//! expire, and every read is bounded below.

use crate::model::{
    ConversationId, IdempotencyKey, LiveExtent, LiveKey, LiveMessage, LiveStart, LiveStatus,
    LiveStop, LiveText, LiveWriters, MessageSteps, OutboxShard, Timestamp, UserId, WriterNumber,
};
use crate::store::intercepted::store_trait;

/// Time for which a store keeps the text of a live message after its last write.
pub const LIVE_TEXT_LIFETIME_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Time for which a store keeps the list of writers after a claim, at least: as long as any text of a live message.
pub const LIVE_WRITERS_LIFETIME_MICROS: i64 = LIVE_TEXT_LIFETIME_MICROS + LiveMessage::LIFE_MICROS;
/// Minutes for which a conversation lists a live message.
pub const LIVE_LISTED_MINUTES: u32 = 10;
/// Time for which an entry of the due queue outlives its minute. By then the text has expired.
pub const DUE_LIVE_LIFETIME_MICROS: i64 = 2 * LIVE_TEXT_LIFETIME_MICROS;

pub const MINUTE_MICROS: i64 = 60 * 1_000_000;

/// The minute of a moment, counted from 1970.
pub fn minute_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.micros().div_euclid(MINUTE_MICROS)).unwrap_or_default()
}

/// The begin of a minute.
pub fn begin_of_minute(minute: u32) -> Timestamp {
    Timestamp::from_micros(i64::from(minute) * MINUTE_MICROS)
}

/// Claim of the next entry in the list of writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriterClaim {
    /// The first one begins the live message.
    First {
        start: LiveStart,
        writers: LiveWriters,
    },
    Next {
        seen: LiveWriters,
        to: LiveWriters,
    },
}

/// One write of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveWrite {
    pub writer: WriterNumber,
    /// `None` if the writer is only still at work.
    pub text: Option<LiveText>,
    /// `None` leaves the status as it is; `Some(None)` clears it.
    pub status: Option<Option<LiveStatus>>,
    /// `None` leaves the steps as they are.
    pub steps: Option<MessageSteps>,
    pub at: Timestamp,
}

/// Rows of one writer's text that lie after an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveTextQuery {
    pub live: LiveKey,
    pub writer: WriterNumber,
    pub after: LiveExtent,
    pub limit: usize,
}

/// A live message in the list of its conversation, for one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveListing {
    /// Counted from 1970.
    pub minute: u32,
    pub live: LiveKey,
    pub sender: UserId,
    pub key: IdempotencyKey,
}

/// Part of the due queue: the entries of one shard in some minutes, in the order of minutes and ids.
#[derive(Debug, Clone)]
pub struct DueLiveQuery {
    pub shard: OutboxShard,
    pub from: u32,
    pub up_to: u32,
    /// The query continues after this minute and live message.
    pub after: Option<(u32, LiveKey)>,
    pub limit: usize,
}

store_trait! {
    implement live_operations;

    /// The part of a store that holds live messages. The chat decides who may write, and when a live message ends.
    pub trait LiveStore: Send + Sync + 'static {
        /// Claims the next entry in the list of writers. A compare-and-set: false, and nothing is written, if the list is not the
        /// one that was seen. After an error either may be true.
        fn claim_live_writer(&self, live: LiveKey, claim: &'a WriterClaim) -> bool;

        /// Live messages without their texts. `None` for one that nobody has begun, and for one that has expired.
        fn live_messages(&self, keys: &'a [LiveKey]) -> Vec<Option<LiveMessage>>;

        /// Rows of a writer's text in the order of their extents: at most `limit`. Rows up to the extent of the query are not read.
        fn live_texts(&self, query: &'a LiveTextQuery) -> Vec<LiveText>;

        /// Writes one row of text, and raises the time of the last write. Status and steps are registers: of two writes, that of
        /// the later moment stays. Idempotent. A write to a live message that nobody has begun shows nowhere.
        fn write_live(&self, live: LiveKey, write: &'a LiveWrite) -> ();

        /// Persists the request to stop. A register: of two, the later stays.
        fn stop_live(&self, live: LiveKey, stop: &'a LiveStop) -> ();

        /// Persists that a live message ended without a message. A register: the later moment stays.
        fn discard_live(&self, live: LiveKey, at: Timestamp) -> ();

        /// Lists a live message in its conversation for [`LIVE_LISTED_MINUTES`], and adds it to the due queue for another minute.
        /// Idempotent.
        fn list_live(&self, listing: &'a LiveListing, due_minute: u32) -> ();

        /// The list of a conversation from a minute on, the newest minute first: at most `limit`. A live message has an entry in
        /// each minute with a write.
        fn listed_lives(&self, conversation: ConversationId, from_minute: u32, limit: usize) -> Vec<LiveListing>;

        /// Entries of the due queue, each as a listing for the minute in which it is due. None is taken off: the reader advances.
        fn due_lives(&self, query: &'a DueLiveQuery) -> Vec<LiveListing>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_begins_with_its_first_microsecond() {
        let at = Timestamp::from_micros;
        for (micros, minute) in [(0, 0), (59_999_999, 0), (60_000_000, 1), (-1, 0)] {
            assert_eq!(minute_of(at(micros)), minute, "{micros}");
        }
        assert_eq!(minute_of(begin_of_minute(29_000_000)), 29_000_000);
    }
}
