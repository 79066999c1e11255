//! Rows of the outbox, positions of its readers and dead letters as bytes: a version, then the rest. Ids that follow from others are
//! left out.
//!
//! Behind the rest stand the users whom edits mention anew, if there are any. Servers of version 0.2 pass over these bytes.

use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::model::{
    ConversationId, Mentions, OrderKey, OutboxEvent, OutboxEventKind, OutboxRow, TimeUuid,
    Timestamp, UserId,
};
use crate::store::{DeadLetter, Error, HeldPosition, ReaderLease, ReaderPosition, Result};

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

/// Users whom events mention anew, by the indices of the events.
type NewMentions = Vec<(usize, Mentions)>;

/// Bytes of the events of a row.
pub(in crate::store) fn encode(row: &OutboxRow) -> Vec<u8> {
    let event = |event: &OutboxEvent| StoredEvent {
        kind: event.kind.number(),
        id: (event.id != row.id).then_some(event.id),
        message: (event.message != event.id).then_some(event.message),
        user: event.user.clone(),
    };
    let stored: Vec<_> = row.events.iter().map(event).collect();
    let bytes = postcard::to_extend(&stored, vec![VERSION]).expect("plain data serialises");
    let mentions = row.events.iter().map(|event| event.newly_mentioned.clone());
    let mentions = mentions.enumerate().filter(|(_, one)| !one.is_empty());
    with_mentions(bytes, &mentions.collect())
}

fn with_mentions(bytes: Vec<u8>, mentions: &NewMentions) -> Vec<u8> {
    if mentions.is_empty() {
        return bytes;
    }
    postcard::to_extend(mentions, bytes).expect("plain data serialises")
}

/// Reads a value behind its version, and the new mentions behind it.
fn read_stored<T: DeserializeOwned>(table: &'static str, bytes: &[u8]) -> Result<(T, NewMentions)> {
    let corrupt = |cause| Error::Corrupt { table, cause };
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Err(corrupt("the version of the value is not known".into()));
    };
    let read = || match postcard::take_from_bytes(body)? {
        (stored, []) => Ok((stored, NewMentions::new())),
        (stored, mentions) => Ok((stored, postcard::from_bytes(mentions)?)),
    };
    read().map_err(|error: postcard::Error| corrupt(Box::new(error)))
}

/// The row of these bytes. Events of kinds that a later version writes are passed over.
pub(in crate::store) fn decode(
    id: TimeUuid,
    conversation: ConversationId,
    bytes: &[u8],
) -> Result<OutboxRow> {
    let (stored, mut mentions) = read_stored::<Vec<StoredEvent>>(TABLE, bytes)?;
    let event = |(index, stored): (usize, StoredEvent)| {
        let own = stored.id.unwrap_or(id);
        let newly = mentions.iter_mut().find(|(of, _)| *of == index);
        Some(OutboxEvent {
            id: own,
            kind: OutboxEventKind::from_repr(stored.kind)?,
            message: stored.message.unwrap_or(own),
            user: stored.user,
            newly_mentioned: newly.map_or(Mentions::NONE, |(_, newly)| std::mem::take(newly)),
        })
    };
    Ok(OutboxRow {
        id,
        conversation,
        events: stored.into_iter().enumerate().filter_map(event).collect(),
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

/// Version of a position that holds conversations.
const WITH_HELD: u8 = 2;
const HELD_BYTES: usize = 32;

/// The version, the position, of held conversations the number and each with its position, and of a lease the holder and its end.
pub(in crate::store) fn encode_reader(reader: &ReaderPosition) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&reader.position.0);
    if !reader.held.is_empty() {
        bytes[0] = WITH_HELD;
        bytes.push(u8::try_from(reader.held.len()).expect("a position holds few conversations"));
        for held in &reader.held {
            bytes.extend_from_slice(held.conversation.0.as_bytes());
            bytes.extend_from_slice(&held.position.0);
        }
    }
    if let Some(lease) = &reader.lease {
        bytes.extend_from_slice(lease.holder.as_bytes());
        bytes.extend_from_slice(&lease.until.micros().to_be_bytes());
    }
    bytes
}

pub(in crate::store) fn decode_reader(bytes: &[u8]) -> Result<ReaderPosition> {
    let read = || {
        let (version, body) = bytes.split_first()?;
        let (position, rest) = body.split_first_chunk::<16>()?;
        let (held, rest) = match *version {
            VERSION => (Vec::new(), rest),
            WITH_HELD => {
                let (count, rest) = rest.split_first()?;
                let (held, rest) = rest.split_at_checked(usize::from(*count) * HELD_BYTES)?;
                (
                    held.chunks_exact(HELD_BYTES)
                        .filter_map(decode_held)
                        .collect(),
                    rest,
                )
            }
            _ => return None,
        };
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
            held,
            lease,
        })
    };
    read().ok_or_else(|| Error::Corrupt {
        table: POSITIONS,
        cause: "the value is not the position of a reader".into(),
    })
}

fn decode_held(bytes: &[u8]) -> Option<HeldPosition> {
    let (conversation, position) = bytes.split_first_chunk::<16>()?;
    Some(HeldPosition {
        conversation: ConversationId(Uuid::from_bytes(*conversation)),
        position: OrderKey(position.try_into().ok()?),
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
    let bytes = postcard::to_extend(&stored, vec![VERSION]).expect("plain data serialises");
    let mentions = Some(event.newly_mentioned.clone()).filter(|one| !one.is_empty());
    with_mentions(bytes, &mentions.into_iter().enumerate().collect())
}

/// The letter of these bytes. `None` for an event of a kind that a later version writes.
pub(in crate::store) fn decode_dead(bytes: &[u8]) -> Result<Option<DeadLetter>> {
    let (stored, mentions) = read_stored::<StoredDeadLetter>(DEAD, bytes)?;
    let newly_mentioned = mentions.into_iter().next();
    let Some(kind) = OutboxEventKind::from_repr(stored.kind) else {
        return Ok(None);
    };
    Ok(Some(DeadLetter {
        conversation: ConversationId(Uuid::from_bytes(stored.conversation)),
        event: OutboxEvent {
            id: stored.id,
            kind,
            message: stored.message.unwrap_or(stored.id),
            user: stored.user,
            newly_mentioned: newly_mentioned.map_or(Mentions::NONE, |(_, newly)| newly),
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

    /// An edit that mentions a user anew.
    fn mentioning(micros: i64) -> OutboxEvent {
        OutboxEvent {
            id: id(micros),
            kind: OutboxEventKind::MessageEdited,
            message: id(3),
            user: None,
            newly_mentioned: Mentions::new(vec![UserId::parse("ann").unwrap()], false),
        }
    }

    #[test]
    fn version_0_2_reads_a_row_without_its_new_mentions() {
        let row = row(vec![mentioning(9)]);
        let bytes = encode(&row);
        let stored: Vec<StoredEvent> = postcard::from_bytes(&bytes[1..]).unwrap();
        assert_eq!(stored.len(), 1);
    }

    #[test]
    fn a_row_survives_the_round_trip() {
        let joined = OutboxEvent {
            id: id(8),
            kind: OutboxEventKind::ParticipantAdded,
            message: id(9),
            user: Some(UserId::parse("ann").unwrap()),
            newly_mentioned: Mentions::NONE,
        };
        let mentioning = mentioning(8);
        let late = OutboxEvent::message_added(id(3));
        let created = OutboxEvent::conversation_created(id(9));
        for events in [
            vec![OutboxEvent::message_added(id(9))],
            vec![joined, OutboxEvent::message_added(id(9))],
            vec![late],
            vec![created],
            vec![OutboxEvent::message_added(id(9)), mentioning],
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
            held: Vec::new(),
            lease: None,
        };
        let leased = ReaderPosition {
            lease: Some(ReaderLease {
                holder: Uuid::from_u128(3),
                until: Timestamp::from_micros(9),
            }),
            ..free.clone()
        };
        let held = |count: u128| {
            let one = |number| HeldPosition {
                conversation: ConversationId(Uuid::from_u128(number)),
                position: id(6).order_key(),
            };
            (0..count).map(one).collect::<Vec<_>>()
        };
        for position in [free, leased] {
            for count in [0, 1, 64] {
                let position = ReaderPosition {
                    held: held(count),
                    ..position.clone()
                };
                assert_eq!(decode_reader(&encode_reader(&position)).unwrap(), position);
            }
        }
        for bytes in [
            &[][..],
            &[VERSION],
            &[9; 17],
            &[VERSION; 20],
            &[WITH_HELD; 18],
        ] {
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
        let of_edit = DeadLetter {
            event: mentioning(5),
            ..letter.clone()
        };
        for letter in [letter, of_edit] {
            assert_eq!(decode_dead(&encode_dead(&letter)).unwrap(), Some(letter));
        }
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
