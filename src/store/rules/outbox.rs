//! Rows of the outbox, positions of its readers and dead letters as bytes: a version, then the rest. Ids that follow from others are
//! left out.

use uuid::Uuid;

use crate::model::{
    ConversationId, OrderKey, OutboxEvent, OutboxEventKind, OutboxRow, TimeUuid, Timestamp, UserId,
};
use crate::store::{DeadLetter, Error, ReaderLease, ReaderPosition, Result};

const TABLE: &str = "outbox";
const VERSION: u8 = 1;

#[derive(serde::Serialize, serde::Deserialize)]
struct StoredEvent {
    /// Number of the kind.
    kind: u8,
    /// `None` if it is the id of the row.
    id: Option<TimeUuid>,
    /// `None` if it is the id of the event.
    message: Option<TimeUuid>,
    user: Option<UserId>,
}

/// Bytes of the events of a row.
pub(in crate::store) fn encode(row: &OutboxRow) -> Vec<u8> {
    let event = |event: &OutboxEvent| StoredEvent {
        kind: event.kind.number(),
        id: (event.id != row.id).then_some(event.id),
        message: (event.message != event.id).then_some(event.message),
        user: event.user.clone(),
    };
    let stored: Vec<_> = row.events.iter().map(event).collect();
    postcard::to_extend(&stored, vec![VERSION]).expect("plain data serialises")
}

/// The row of these bytes. Events of kinds that a later version writes are passed over.
pub(in crate::store) fn decode(
    id: TimeUuid,
    conversation: ConversationId,
    bytes: &[u8],
) -> Result<OutboxRow> {
    let corrupt = |cause| Error::Corrupt {
        table: TABLE,
        cause,
    };
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Err(corrupt("the version of a row is not known".into()));
    };
    let stored: Vec<StoredEvent> =
        postcard::from_bytes(body).map_err(|error| corrupt(Box::new(error)))?;
    let event = |stored: StoredEvent| {
        let own = stored.id.unwrap_or(id);
        Some(OutboxEvent {
            id: own,
            kind: OutboxEventKind::from_number(stored.kind)?,
            message: stored.message.unwrap_or(own),
            user: stored.user,
        })
    };
    Ok(OutboxRow {
        id,
        conversation,
        events: stored.into_iter().filter_map(event).collect(),
    })
}

/// Position up to which rows are whole that were read in the order of their ids up to `end`, one more
/// than `limit` of them at most. Ids are unique, so more than that have never the same one.
pub(in crate::store) fn read_to(ids: &[TimeUuid], limit: usize, end: OrderKey) -> OrderKey {
    match ids {
        [.., last] if ids.len() > limit => {
            let before = last.order_key().before();
            let is_one_id = ids.first() == Some(last);
            if is_one_id { last.order_key() } else { before }
        }
        _ => end,
    }
}

const POSITIONS: &str = "outbox_positions";

/// The version, the position, and of a lease the holder and its end.
pub(in crate::store) fn encode_reader(reader: &ReaderPosition) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&reader.position.0);
    if let Some(lease) = &reader.lease {
        bytes.extend_from_slice(lease.holder.as_bytes());
        bytes.extend_from_slice(&lease.until.micros().to_be_bytes());
    }
    bytes
}

pub(in crate::store) fn decode_reader(bytes: &[u8]) -> Result<ReaderPosition> {
    let read = || {
        let body = bytes.strip_prefix(&[VERSION])?;
        let (position, rest) = body.split_first_chunk::<16>()?;
        let lease = if rest.is_empty() {
            None
        } else {
            let (holder, until) = rest.split_first_chunk::<16>()?;
            Some(ReaderLease {
                holder: Uuid::from_bytes(*holder),
                until: Timestamp::from_micros(i64::from_be_bytes(until.try_into().ok()?)),
            })
        };
        Some(ReaderPosition {
            position: OrderKey(*position),
            lease,
        })
    };
    read().ok_or_else(|| Error::Corrupt {
        table: POSITIONS,
        cause: "it is no position of a reader".into(),
    })
}

const DEAD: &str = "outbox_dead";

#[derive(serde::Serialize, serde::Deserialize)]
struct StoredDeadLetter {
    conversation: [u8; 16],
    kind: u8,
    id: TimeUuid,
    message: Option<TimeUuid>,
    user: Option<UserId>,
    part: String,
    died_at: i64,
    tries: u32,
    reason: String,
}

pub(in crate::store) fn encode_dead(letter: &DeadLetter) -> Vec<u8> {
    let event = &letter.event;
    let stored = StoredDeadLetter {
        conversation: *letter.conversation.0.as_bytes(),
        kind: event.kind.number(),
        id: event.id,
        message: (event.message != event.id).then_some(event.message),
        user: event.user.clone(),
        part: letter.part.clone(),
        died_at: letter.died_at.micros(),
        tries: letter.tries,
        reason: letter.reason.clone(),
    };
    postcard::to_extend(&stored, vec![VERSION]).expect("plain data serialises")
}

/// The letter of these bytes. `None` for an event of a kind that a later version writes.
pub(in crate::store) fn decode_dead(bytes: &[u8]) -> Result<Option<DeadLetter>> {
    let corrupt = |cause| Error::Corrupt { table: DEAD, cause };
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Err(corrupt("the version of a dead letter is not known".into()));
    };
    let stored: StoredDeadLetter =
        postcard::from_bytes(body).map_err(|error| corrupt(Box::new(error)))?;
    let Some(kind) = OutboxEventKind::from_number(stored.kind) else {
        return Ok(None);
    };
    Ok(Some(DeadLetter {
        conversation: ConversationId(Uuid::from_bytes(stored.conversation)),
        event: OutboxEvent {
            id: stored.id,
            kind,
            message: stored.message.unwrap_or(stored.id),
            user: stored.user,
        },
        part: stored.part,
        died_at: Timestamp::from_micros(stored.died_at),
        tries: stored.tries,
        reason: stored.reason,
    }))
}

/// The time in [`crate::store::NOTE_OUTBOX_SINCE`].
pub(in crate::store) fn since(note: Option<&str>) -> Option<Timestamp> {
    note.and_then(Timestamp::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(micros: i64) -> TimeUuid {
        TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn row(events: Vec<OutboxEvent>) -> OutboxRow {
        OutboxRow {
            id: id(9),
            conversation: ConversationId(uuid::Uuid::nil()),
            events,
        }
    }

    fn read(row: &OutboxRow, bytes: &[u8]) -> Result<OutboxRow> {
        decode(row.id, row.conversation, bytes)
    }

    #[test]
    fn a_row_survives_the_round_trip() {
        let joined = OutboxEvent {
            id: id(8),
            kind: OutboxEventKind::ParticipantAdded,
            message: id(9),
            user: Some(UserId::parse("ann").unwrap()),
        };
        let late = OutboxEvent::message_added(id(3));
        let created = OutboxEvent::conversation_created(id(9));
        for events in [
            vec![OutboxEvent::message_added(id(9))],
            vec![joined, OutboxEvent::message_added(id(9))],
            vec![late],
            vec![created],
            Vec::new(),
        ] {
            let row = row(events);
            assert_eq!(read(&row, &encode(&row)).unwrap(), row);
        }
        let single = row(vec![OutboxEvent::message_added(id(9))]);
        assert_eq!(encode(&single).len(), 6, "a send costs few bytes");
    }

    #[test]
    fn rows_are_whole_up_to_the_one_that_was_too_many() {
        let end = OrderKey::MAX;
        let ids = [id(1), id(2), id(2), id(3)];
        assert_eq!(read_to(&ids, 4, end), end);
        assert_eq!(read_to(&ids, 3, end), id(3).order_key().before());
        assert_eq!(read_to(&ids[..3], 2, end), id(2).order_key().before());
        assert_eq!(read_to(&ids[1..3], 1, end), id(2).order_key());
        assert_eq!(read_to(&[], 1, end), end);
    }

    #[test]
    fn positions_and_dead_letters_survive_the_round_trip() {
        let free = ReaderPosition {
            position: id(7).order_key(),
            lease: None,
        };
        let held = ReaderPosition {
            lease: Some(ReaderLease {
                holder: Uuid::from_u128(3),
                until: Timestamp::from_micros(9),
            }),
            ..free
        };
        for position in [free, held] {
            assert_eq!(decode_reader(&encode_reader(&position)).unwrap(), position);
        }
        for bytes in [&[][..], &[VERSION], &[9; 17], &[VERSION; 20]] {
            assert!(decode_reader(bytes).is_err());
        }
        let letter = DeadLetter {
            conversation: ConversationId(Uuid::from_u128(4)),
            event: OutboxEvent::message_added(id(5)),
            part: "notification".to_owned(),
            died_at: Timestamp::from_micros(6),
            tries: 3,
            reason: "it answers 404".to_owned(),
        };
        assert_eq!(decode_dead(&encode_dead(&letter)).unwrap(), Some(letter));
        assert!(decode_dead(&[]).is_err());
    }

    #[test]
    fn events_of_later_versions_are_passed_over_and_later_rows_refused() {
        let one = row(vec![
            OutboxEvent::message_added(id(8)),
            OutboxEvent::message_added(id(9)),
        ]);
        let mut bytes = encode(&one);
        // The version, the number of events, and the kind of the first.
        bytes[2] = 200;
        assert_eq!(read(&one, &bytes).unwrap().events, one.events[1..]);
        bytes[0] = VERSION + 1;
        assert!(read(&one, &bytes).is_err());
        assert!(read(&one, &[]).is_err());
    }
}
