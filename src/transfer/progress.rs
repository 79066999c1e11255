//! Progress of an export: its counts, its omitted messages, and the position in its file.

use std::collections::BTreeSet;

use super::line::Line;
use crate::model::{ConversationId, Emoji, MessageId, ReportId, UserId};

/// Counts of written lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportCounts {
    pub users: u64,
    pub conversations: u64,
    pub participants: u64,
    pub messages: u64,
    pub reactions: u64,
    /// All lines, header and end included.
    pub lines: u64,
}

impl ExportCounts {
    pub(super) fn add(&mut self, line: &Line) {
        self.lines += 1;
        match line {
            Line::Header(_) | Line::Block(_) | Line::Pin(_) | Line::Report(_) | Line::End(_) => {}
            Line::User(_) => self.users += 1,
            Line::Conversation(_) => self.conversations += 1,
            Line::Participant(_) => self.participants += 1,
            Line::Message(_) => self.messages += 1,
            Line::Reaction(_) => self.reactions += 1,
        }
    }
}

/// An unreadable message, which the export leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    pub conversation: ConversationId,
    pub message: MessageId,
    pub why: String,
}

/// Omitted messages, by conversation.
pub type LeftOut = BTreeSet<(ConversationId, MessageId)>;

/// The progress of an earlier run.
#[derive(Debug, Clone, Default)]
pub struct Written {
    pub counts: ExportCounts,
    pub left_out: LeftOut,
    pub(super) position: Position,
}

/// The line after which an export resumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Position {
    #[default]
    Start,
    Header,
    User(UserId),
    /// A user, and the last of the users whom they block.
    Block(UserId, UserId),
    Conversation(ConversationId, Within),
    Report(ReportId),
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Within {
    Conversation,
    Participant(UserId),
    Message(MessageId),
    /// The message of the pin.
    Pin(MessageId),
    Reaction(MessageId, (Emoji, UserId)),
}

impl Written {
    /// Whether an earlier run has written anything.
    pub fn is_begun(&self) -> bool {
        self.counts != ExportCounts::default()
    }
}

impl Position {
    /// The position after a line. `None` if its ids are malformed.
    pub(super) fn after(line: &Line) -> Option<Self> {
        let user = |name: &str| UserId::parse(name).ok();
        let within = |id: uuid::Uuid, within| Position::Conversation(ConversationId(id), within);
        Some(match line {
            Line::Header(_) => Position::Header,
            Line::User(line) => Position::User(user(&line.username)?),
            Line::Block(line) => Position::Block(user(&line.username)?, user(&line.blocked)?),
            Line::Conversation(line) => within(line.id, Within::Conversation),
            Line::Participant(line) => within(
                line.conversation_id,
                Within::Participant(user(&line.username)?),
            ),
            Line::Message(line) => within(
                line.conversation_id,
                Within::Message(MessageId::parse(&line.id)?),
            ),
            Line::Pin(line) => within(
                line.conversation_id,
                Within::Pin(MessageId::parse(&line.message_id)?),
            ),
            Line::Reaction(line) => {
                let reaction = (Emoji::kept(&line.emoji), user(&line.username)?);
                within(
                    line.conversation_id,
                    Within::Reaction(MessageId::parse(&line.message_id)?, reaction),
                )
            }
            Line::Report(line) => Position::Report(ReportId::parse(&line.id)?),
            Line::End(_) => Position::End,
        })
    }
}
