//! Rows of the outbox as bytes: a version, then postcard. Ids that follow from others are left out.

use crate::model::{
    ConversationId, OrderKey, OutboxEvent, OutboxEventKind, OutboxRow, TimeUuid, Timestamp, UserId,
};
use crate::store::{Error, Result};

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
