//! Reports of users and messages, for services.

use strum::{FromRepr, VariantArray};

use super::{
    Attachment, ConversationId, Message, MessageId, OrderKey, TimeUuid, Timestamp, UserId,
};

/// Id of a report: a timeuuid, so that reports are in the order of their time.
pub type ReportId = TimeUuid;

/// Reason of a report. Stores persist the index in the list of variants, so never reorder it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromRepr, VariantArray, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(u8)]
pub enum ReportReason {
    Spam,
    Harassment,
    Hate,
    Sexual,
    Violence,
    SelfHarm,
    Illegal,
    Other,
}

impl ReportReason {
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// A reason of a later version is [`Self::Other`].
    pub fn from_number(number: u8) -> Self {
        Self::from_repr(number).unwrap_or(Self::Other)
    }
}

/// Outcome of a resolved report. Stores persist the numbers, so never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReportOutcome {
    Dismissed = 1,
    Acted = 2,
}

/// Resolution of a report by a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportResolution {
    pub outcome: ReportOutcome,
    pub by: UserId,
    pub at: Timestamp,
}

/// State by which services list reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportState {
    Open,
    Dismissed,
    Acted,
}

/// Report of a user, or of a message with a copy of its content at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub id: ReportId,
    pub reporter: UserId,
    /// The sender of the message, or the user who was named.
    pub user: UserId,
    pub reason: ReportReason,
    pub note: Option<String>,
    pub conversation: Option<ConversationId>,
    pub message: Option<MessageId>,
    /// The beginning of the message's body.
    pub body: Option<String>,
    pub attachments: Vec<Attachment>,
    /// `None` while the report is open.
    pub resolution: Option<ReportResolution>,
}

impl Report {
    /// Bound of the copy of a body.
    pub const BODY_BYTES_MAX: usize = 4 * 1024;
    pub const NOTE_BYTES_MAX: usize = 1024;
    /// Lifetime of a report in the store.
    pub const LIFETIME_MICROS: i64 = 400 * 24 * 3_600 * 1_000_000;

    /// A report without a conversation belongs to this one in the outbox, which does not exist.
    pub const NO_CONVERSATION: ConversationId = ConversationId(uuid::Uuid::nil());

    pub fn state(&self) -> ReportState {
        match self
            .resolution
            .as_ref()
            .map(|resolution| resolution.outcome)
        {
            None => ReportState::Open,
            Some(ReportOutcome::Dismissed) => ReportState::Dismissed,
            Some(ReportOutcome::Acted) => ReportState::Acted,
        }
    }

    /// The conversation of the report's event in the outbox.
    pub fn outbox_conversation(&self) -> ConversationId {
        self.conversation.unwrap_or(Self::NO_CONVERSATION)
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.id.order_key() <= Self::expired_to(now)
    }

    /// Reports up to this position have expired.
    pub fn expired_to(now: Timestamp) -> OrderKey {
        OrderKey::first_at(now.plus_micros(-Self::LIFETIME_MICROS)).before()
    }

    /// Copies the content of a message.
    pub fn copy(&mut self, message: &Message) {
        let content = message.content.as_ref();
        self.body = content.map(|content| {
            let body = content.body.as_str();
            let ends = (0..=Self::BODY_BYTES_MAX.min(body.len())).rev();
            let end = ends.into_iter().find(|end| body.is_char_boundary(*end));
            body[..end.unwrap_or_default()].to_owned()
        });
        self.attachments = content.map_or_else(Vec::new, |content| content.attachments.clone());
    }
}

impl ReportResolution {
    /// The resolution that sets a state. `None` for one that opens the report again.
    pub fn of(state: ReportState, by: UserId, at: Timestamp) -> Option<Self> {
        let outcome = match state {
            ReportState::Open => return None,
            ReportState::Dismissed => ReportOutcome::Dismissed,
            ReportState::Acted => ReportOutcome::Acted,
        };
        Some(Self { outcome, by, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_its_number() {
        for (index, reason) in ReportReason::VARIANTS.iter().copied().enumerate() {
            assert_eq!(usize::from(reason.number()), index);
            assert_eq!(ReportReason::from_number(reason.number()), reason);
        }
        assert_eq!(ReportReason::from_number(200), ReportReason::Other);
    }
}
