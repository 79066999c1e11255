//! Import: the decision about each row, and the values that follow from a row.

use super::pair;
use crate::model::{
    AppKey, Conversation, ConversationId, Emoji, IdempotencyKey, Message, MessageId, ReportId,
    Timestamp, UserId,
};
use crate::store::{ImportRow, Imported, Result};

/// Refusal of a participant of a conversation without room.
const FULL: &str = "a conversation has at most 20,000 participants";
/// Refusal of a conversation whose app key leads to another one.
const APP_KEY_TAKEN: &str = "another conversation has this `appKey` already";

/// Key of a row: a row of an import is unchanged if the store has one with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store) enum RowKey<'a> {
    User(&'a UserId),
    EveryoneRevoked(Timestamp),
    Block(&'a UserId, &'a UserId),
    Report(ReportId),
    Conversation(ConversationId),
    Participant(ConversationId, &'a UserId),
    Message(ConversationId, MessageId),
    Reaction(ConversationId, MessageId, &'a Emoji, &'a UserId),
    Pin(ConversationId, MessageId),
}

impl<'a> RowKey<'a> {
    pub(in crate::store) fn of(row: &'a ImportRow) -> Self {
        match row {
            ImportRow::User { user, .. } => Self::User(user),
            ImportRow::EveryoneRevoked(moment) => Self::EveryoneRevoked(*moment),
            ImportRow::Block { user, blocked, .. } => Self::Block(user, blocked),
            ImportRow::Report(report) => Self::Report(report.id),
            ImportRow::Conversation { conversation, .. } => Self::Conversation(conversation.id),
            ImportRow::Participant {
                conversation, user, ..
            } => Self::Participant(*conversation, user),
            ImportRow::Message(message) | ImportRow::ChangedMessage(message, _) => {
                Self::Message(message.conversation, message.id)
            }
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => Self::Reaction(*conversation, *message, emoji, user),
            ImportRow::Pin {
                conversation,
                message,
                ..
            } => Self::Pin(*conversation, *message),
        }
    }

    /// The conversation of a row, and the message of a reaction or pin.
    pub(in crate::store) fn owner(self) -> (Option<ConversationId>, Option<MessageId>) {
        match self {
            Self::User(_) | Self::EveryoneRevoked(_) | Self::Block(..) | Self::Report(_) => {
                (None, None)
            }
            Self::Conversation(id) | Self::Participant(id, _) | Self::Message(id, _) => {
                (Some(id), None)
            }
            Self::Reaction(id, message, ..) | Self::Pin(id, message) => (Some(id), Some(message)),
        }
    }
}

/// A store under import, with the rows that the import has added so far.
pub(in crate::store) trait ImportTarget<'a> {
    /// Whether it has a row. A pin or reaction that has ended counts, and so does the pin of a deleted message.
    fn has(&mut self, row: RowKey<'a>) -> Result<bool>;

    /// Number of present participants of a conversation.
    fn joined(&self, id: ConversationId) -> u64;

    /// All present and former participants of a direct conversation. `None` for a group.
    fn direct_participants(&self, id: ConversationId) -> Option<Vec<&UserId>>;

    /// Claims a pair of users. Returns false if it leads to another conversation.
    fn claim_pair(&mut self, one: &UserId, other: &UserId, id: ConversationId) -> Result<bool>;

    /// Claims an app key. Returns false if it leads to another conversation.
    fn claim_app_key(&mut self, key: &'a AppKey, conversation: &Conversation) -> Result<bool>;

    /// Adds a row that is not there.
    fn add(&mut self, row: &'a ImportRow) -> Result<()>;
}

/// Decides about the next row of an import, and adds it.
pub(in crate::store) fn add_row<'a>(
    target: &mut impl ImportTarget<'a>,
    row: &'a ImportRow,
) -> Result<Imported> {
    let key = RowKey::of(row);
    let (conversation, message) = key.owner();
    let is_part = !matches!(key, RowKey::Conversation(_));
    if let Some(id) = conversation.filter(|_| is_part) {
        if !target.has(RowKey::Conversation(id))? {
            return Ok(Imported::ConversationMissing);
        }
        if let Some(message) = message
            && !target.has(RowKey::Message(id, message))?
        {
            return Ok(Imported::MessageMissing);
        }
    }
    if target.has(key)? {
        return Ok(Imported::Unchanged);
    }
    if let Some(why) = refusal(target, row)? {
        return Ok(Imported::Refused(why));
    }
    target.add(row)?;
    Ok(Imported::Added)
}

/// Claims what a row needs for itself: room, a pair or an app key. Returns why it cannot have it.
fn refusal<'a>(
    target: &mut impl ImportTarget<'a>,
    row: &'a ImportRow,
) -> Result<Option<&'static str>> {
    if let ImportRow::Conversation {
        conversation,
        profile,
        ..
    } = row
        && let Some(key) = &profile.app_key
    {
        let is_claimed = target.claim_app_key(key, conversation)?;
        return Ok((!is_claimed).then_some(APP_KEY_TAKEN));
    }
    let RowKey::Participant(id, user) = RowKey::of(row) else {
        return Ok(None);
    };
    if target.joined(id) >= Conversation::PARTICIPANTS_MAX as u64 {
        return Ok(Some(FULL));
    }
    let Some(present) = target.direct_participants(id) else {
        return Ok(None);
    };
    let (one, other) = match pair::of_imported(id, &present, user) {
        Ok(Some((one, other))) => (one.clone(), other.clone()),
        Ok(None) => return Ok(None),
        Err(why) => return Ok(Some(why)),
    };
    let is_claimed = target.claim_pair(&one, &other, id)?;
    Ok((!is_claimed).then_some(pair::TAKEN))
}

/// The expiry of the idempotency key of an imported message, by which a retry of a send from before
/// the import is recognised. `None` if it has expired.
pub(in crate::store) fn key_expiry(message: &Message, now: Timestamp) -> Option<Timestamp> {
    let expires_at = message
        .id
        .moment()
        .plus_micros(IdempotencyKey::LIFETIME_MICROS);
    (expires_at > now).then_some(expires_at)
}

/// The activity of a conversation: the time of the last message or a later given one, else that of
/// the creation.
pub(in crate::store) fn activity(
    created_at: Timestamp,
    given: Option<Timestamp>,
    last_message: Option<MessageId>,
) -> Timestamp {
    given
        .max(last_message.map(MessageId::moment))
        .unwrap_or(created_at)
}
