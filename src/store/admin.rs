//! Administration of a whole store: import, export, verification and notes.

use std::sync::Arc;

use super::intercepted::store_trait;
use super::rules::import::RowKey;
use super::{Error, Result, Store};
use crate::model::{
    Ban, Conversation, ConversationId, ConversationProfile, Emoji, Flags, InputHash, Membership,
    Message, MessageId, OrderKey, Participant, Profile, ReadMarker, Report, Restriction, TimeUuid,
    Timestamp, UserId,
};

/// Name of the note with the secret of [`Store::direct_ids`]. It is in backups, and in no export.
pub const NOTE_DIRECT_SECRET: &str = "direct_secret";

/// Name of the note with [`Store::imported_at`], in RFC 3339.
pub const NOTE_IMPORTED_AT: &str = "imported_at";

/// Name of the note with [`Store::restored_at`], in RFC 3339.
pub const NOTE_RESTORED_AT: &str = "restored_at";

/// Name of the note that marks a store as an earlier state of itself: a backup, until a server is started on it, and a store that
/// lost commits.
pub const NOTE_EARLIER_STATE: &str = "earlier_state";

/// Notes that a store was restored from a copy: cursors of streams from before are expired.
pub async fn note_restored(store: &dyn StoreAdmin, now: Timestamp) -> Result<()> {
    let restored_at = now.to_string();
    store.set_note(NOTE_RESTORED_AT, Some(&restored_at)).await?;
    store.set_note(NOTE_EARLIER_STATE, None).await
}

store_trait! {
    implement scan_operations;

    /// Scans of whole tables, in an order of the store's own. A scan continues after any key, also one that is gone.
    /// Writes that run meanwhile may show or not.
    pub trait ScanStore: Send + Sync + 'static {
        /// All users with a profile, in an order of the store's own: at most `limit` after one of them.
        /// Fewer only at the end.
        fn all_users(&self, after: Option<&'a UserId>, limit: usize) -> Vec<(UserId, Profile)>;

        /// All conversations, in an order of the store's own, each with its [`activity_to_give`].
        fn all_conversations(&self, after: Option<ConversationId>, limit: usize) -> Vec<(Conversation, Option<Timestamp>)>;
    }
}

store_trait! {
    implement admin_operations;

    /// The operator's side of a store: whole-store reads and writes that no client causes.
    ///
    /// An export reads `all_…` in pieces that continue after any position. Writes that run meanwhile
    /// may be in it or not.
    pub trait StoreAdmin: Store + 'static {
        /// Imports rows in order, all or nothing as far as faults go; each row has its own outcome. An
        /// import publishes no event.
        fn import(&self, rows: &'a [ImportRow]) -> Vec<Imported>;

        /// Counts the messages of a conversation after the import of many, so that the first reader of
        /// `messageCount` does not wait for a whole history. An embedded store counts as it imports.
        fn count_imported(&self, conversation: ConversationId) -> ();

        /// All present and former participants of a conversation, by username bytes. Roles are those
        /// that were given, not the effective ones.
        fn all_participants(&self, conversation: ConversationId, after: Option<&'a UserId>, limit: usize)
        -> Vec<(UserId, Membership, ImportPositions)>;

        /// All messages of a conversation, the oldest first: at most `limit` after one of them. Damaged
        /// rows are among them.
        fn all_messages(&self, conversation: ConversationId, after: Option<MessageId>, limit: usize) -> Vec<StoredMessage>;

        /// All reactions to a message that are on, by emoji and username bytes.
        fn all_reactions(&self, conversation: ConversationId, message: MessageId, after: Option<&'a (Emoji, UserId)>, limit: usize)
        -> Vec<(Emoji, UserId)>;

        /// Verifies the next piece of the store: whether derived rows agree with messages and
        /// participants, which are the truth. Derived are heads, counts, lists of inboxes, pairs, and on
        /// a cluster the index of buckets. With `repair`, every row that disagrees is corrected.
        fn verify(&self, after: Option<&'a VerifyPosition>, repair: bool) -> Verified;

        /// A value that an operator's tool wants to find again, such as the progress of an import. It is
        /// persisted with the next or an earlier import, never before it.
        fn note(&self, name: &'a str) -> Option<String>;

        fn set_note(&self, name: &'a str, value: Option<&'a str>) -> ();

        /// Sets a note if there is none of this name (compare-and-set). The answer is the persisted
        /// value: the same for all concurrent callers, on any server. Such a note is never removed.
        fn note_once(&self, name: &'a str, value: &'a str) -> String;

        /// Switches the outbox on from this time, or off. This server's writes follow at once, those of
        /// the others with their next [`Store::outbox_since`].
        fn set_outbox(&self, since: Option<Timestamp>) -> ();

        /// Rewrites the files of the store, so that none of them holds a deleted or overwritten value. It needs
        /// the time and the free space of a copy. A cluster does this by itself, in its own time.
        fn compact(&self) -> ();
    }
}

/// One row of an import. A row that the store has already stays as it is, so an import can be repeated.
#[derive(Debug, Clone)]
pub enum ImportRow {
    User {
        user: UserId,
        profile: Profile,
        restriction: Restriction,
    },
    /// The moment before which everyone's tokens are refused.
    EveryoneRevoked(Timestamp),
    /// One that is on.
    Block {
        user: UserId,
        blocked: UserId,
        since: Timestamp,
    },
    Conversation {
        conversation: Conversation,
        last_activity: Option<Timestamp>,
        profile: ConversationProfile,
    },
    Participant {
        conversation: ConversationId,
        user: UserId,
        membership: Membership,
        positions: ImportPositions,
        /// Only for a banned user.
        ban: Option<Ban>,
    },
    Message(Arc<Message>),
    /// A message whose content is no longer what was sent, with the hash of the send: a retry is still
    /// recognised.
    ChangedMessage(Arc<Message>, InputHash),
    /// One that is on.
    Reaction {
        conversation: ConversationId,
        message: MessageId,
        emoji: Emoji,
        user: UserId,
    },
    /// One that is on.
    Pin {
        conversation: ConversationId,
        message: MessageId,
        by: UserId,
        at: Timestamp,
    },
    Report(Box<Report>),
}

impl ImportRow {
    pub fn conversation(&self) -> Option<ConversationId> {
        RowKey::of(self).owner().0
    }
}

/// How far a participant has come, and how they have set their entry, as an import brings it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportPositions {
    /// The receipts' maximum.
    pub read_up_to: Option<MessageId>,
    /// From where on all is unread, where that is not just behind `read_up_to`: what was marked unread lies before that, what one joined
    /// to or sent oneself behind it.
    pub unread_from: Option<MessageId>,
    pub delivered_up_to: Option<MessageId>,
    pub flags: Flags,
}

impl ImportPositions {
    /// The positions of a participant whose entry's marker is at `read`.
    pub fn of(participant: &Participant, read: OrderKey, flags: Flags) -> Self {
        Self {
            read_up_to: TimeUuid::from_order_key(participant.read_up_to),
            unread_from: (read != participant.read_up_to).then(|| TimeUuid::first_after(read)),
            delivered_up_to: TimeUuid::from_order_key(participant.delivered_up_to),
            flags,
        }
    }

    /// The marker that follows. `None` where nothing was read.
    pub fn marker(&self) -> Option<ReadMarker> {
        match (self.unread_from, self.read_up_to) {
            (Some(from), _) => Some(ReadMarker {
                epoch: 1,
                up_to: from.order_key().before(),
            }),
            (None, Some(read_up_to)) => Some(ReadMarker {
                epoch: 0,
                up_to: read_up_to.order_key(),
            }),
            (None, None) => None,
        }
    }
}

/// The activity that an import must give, so that a conversation stands there where it stands here. `None` where it follows from the last
/// message, or from the making.
pub fn activity_to_give(
    conversation: &Conversation,
    last_message: Option<MessageId>,
    last_activity: Timestamp,
) -> Option<Timestamp> {
    let follows = last_message.map_or(conversation.created_at, MessageId::moment);
    (last_activity != follows).then_some(last_activity)
}

/// A message as the store holds it, for reads of whole histories: a damaged row is a value of the list, and ends no read.
#[derive(Debug, Clone)]
pub struct StoredMessage {
    pub id: MessageId,
    /// `Err` says why the row cannot be read.
    pub message: Result<Arc<Message>, String>,
}

impl StoredMessage {
    /// Wraps a decoded row. A failure of the store itself stays an error.
    pub fn of(id: MessageId, read: Result<Message>) -> Result<Self> {
        let message = match read {
            Ok(message) => {
                let metadata = message
                    .content
                    .as_ref()
                    .and_then(|content| content.metadata.as_ref());
                let damage = metadata.and_then(|metadata| metadata.json().err());
                damage.map_or_else(
                    || Ok(Arc::new(message)),
                    |damage| Err(format!("its metadata {damage}")),
                )
            }
            Err(Error::Corrupt { cause, .. }) => Err(format!("its row cannot be read: {cause}")),
            Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_))) => return Err(error),
        };
        Ok(Self { id, message })
    }
}

/// Finding of [`StoreAdmin::verify`]: a [`StoredMessage`] that cannot be read. Nothing repairs it; a
/// deletion of the message removes it.
pub const DAMAGED_MESSAGE: &str = "a damaged message";

/// The outcome of one row of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imported {
    Added,
    /// It was there already, and stays as it was.
    Unchanged,
    /// Its conversation is not there (yet): nothing of it was kept.
    ConversationMissing,
    /// The message of this reaction or pin is not there (yet): nothing of it was kept.
    MessageMissing,
    /// It cannot be kept beside what is there; the sentence says why.
    Refused(&'static str),
}

/// The position of a verification, in the store's own terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyPosition(pub(crate) Vec<u8>);

impl VerifyPosition {
    /// The stage of a position, and the key after which its next piece begins.
    pub(in crate::store) fn parts(position: Option<&Self>) -> (u8, Option<&[u8]>) {
        match position.and_then(|position| position.0.split_first()) {
            Some((stage, from)) => (*stage, Some(from).filter(|from| !from.is_empty())),
            None => (0, None),
        }
    }

    /// The position after a piece of a stage: the last key if more may follow, else the next stage.
    pub(in crate::store) fn after(stage: u8, stages: usize, last: Option<Vec<u8>>) -> Option<Self> {
        match last {
            Some(key) => Some(Self([&[stage], key.as_slice()].concat())),
            None => (usize::from(stage) + 1 < stages).then(|| Self(vec![stage + 1])),
        }
    }
}

/// Something that does not agree with history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The same for all of its kind.
    pub what: &'static str,
    /// The conversation, entry or message.
    pub example: String,
    pub is_repaired: bool,
}

impl Finding {
    pub(in crate::store) fn of(
        what: &'static str,
        example: impl Into<String>,
        is_repaired: bool,
    ) -> Self {
        Self {
            what,
            example: example.into(),
            is_repaired,
        }
    }
}

/// The result of verifying one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    pub findings: Vec<Finding>,
    /// Rows.
    pub looked_at: u64,
    /// The position after which the next piece begins. `None` at the end.
    pub next: Option<VerifyPosition>,
}

impl Verified {
    /// Adds a finding.
    pub(in crate::store) fn found(
        &mut self,
        what: &'static str,
        example: impl Into<String>,
        is_repaired: bool,
    ) {
        self.findings.push(Finding::of(what, example, is_repaired));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Role;

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn places_say_where_unread_begins_where_that_is_not_behind_the_receipt() {
        let participant = |read_up_to: OrderKey| Participant {
            conversation: ConversationId(uuid::Uuid::nil()),
            user: UserId::parse("ann").unwrap(),
            membership: Membership::joined(Role::Member),
            read_up_to,
            is_read_by_service: false,
            delivered_up_to: OrderKey::MIN,
        };
        let (min, five, nine) = (OrderKey::MIN, id(5).order_key(), id(9).order_key());
        // The receipt, the marker, and whether a message of that microsecond is read then.
        for (receipt, read) in [
            (min, min),
            (five, five),
            (five, nine),
            (five, min),
            (min, five),
            (nine, five.before()),
            (min, five.before()),
        ] {
            let positions = ImportPositions::of(&participant(receipt), read, Flags::default());
            let marker = positions.marker().unwrap_or_default().up_to;
            for micros in 4..=10 {
                assert_eq!(
                    id(micros).order_key() <= marker,
                    id(micros).order_key() <= read,
                    "{receipt:?} {read:?} {micros}"
                );
            }
            // Once more, it is the same.
            assert_eq!(
                ImportPositions::of(&participant(receipt), marker, Flags::default()),
                positions
            );
        }
    }
}
