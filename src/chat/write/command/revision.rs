//! Command to edit or delete a message, and the rules for it.
//!
//! Only its sender may edit a message. Its sender may delete it, and in a group also an OWNER or
//! ADMIN: groups are moderated by deletion. SYSTEM messages are immutable. A deletion wins over
//! every edit.

use crate::chat::error::{Error, Result};
use crate::model::{
    Body, Content, Message, MessageId, MessageKind, Revision, Role, TextError, Timestamp, UserId,
};

pub(crate) struct RevisionDraft {
    pub(crate) message: MessageId,
    /// Leave epoch in which the user was known to take part.
    pub(crate) leave_epoch: u64,
    kind: RevisionDraftKind,
}

enum RevisionDraftKind {
    Edit(Body),
    Deletion,
}

impl RevisionDraft {
    pub(crate) fn edit(
        message: MessageId,
        body: String,
        body_bytes_max: usize,
        leave_epoch: u64,
    ) -> Result<Self> {
        // Whether the body may be empty depends on the message.
        let body = Body::parse(body, body_bytes_max, true).map_err(|error| bad_body(&error))?;
        Ok(Self {
            message,
            leave_epoch,
            kind: RevisionDraftKind::Edit(body),
        })
    }

    pub(crate) fn deletion(message: MessageId, leave_epoch: u64) -> Self {
        Self {
            message,
            leave_epoch,
            kind: RevisionDraftKind::Deletion,
        }
    }

    /// Approximate size in a queue.
    pub(crate) fn bytes(&self) -> usize {
        match &self.kind {
            RevisionDraftKind::Edit(body) => body.as_str().len() + 256,
            RevisionDraftKind::Deletion => 256,
        }
    }

    /// Whether the decision depends on the user's role.
    pub(crate) fn needs_role(&self, message: &Message, user: &UserId) -> bool {
        message.sender != *user && matches!(self.kind, RevisionDraftKind::Deletion)
    }

    /// The revision of the message; `None` if nothing changes. A user without a role has the rights
    /// of a MEMBER.
    pub(crate) fn revision(
        self,
        message: &Message,
        user: &UserId,
        role: Option<Role>,
        now: Timestamp,
    ) -> Result<Option<Revision>> {
        if message.kind == MessageKind::System {
            return Err(Error::Forbidden("a SYSTEM message cannot be changed"));
        }
        let is_own = message.sender == *user;
        match self.kind {
            RevisionDraftKind::Edit(_) if !is_own => {
                Err(Error::Forbidden("only its sender may edit a message"))
            }
            RevisionDraftKind::Edit(body) => edit(message, body, now),
            RevisionDraftKind::Deletion
                if !is_own && role.is_none_or(|role| role == Role::Member) =>
            {
                Err(Error::Forbidden(
                    "only its sender, or an owner or admin of the group, may delete a message",
                ))
            }
            RevisionDraftKind::Deletion => {
                Ok(message.deleted_at.is_none().then_some(Revision::Deletion))
            }
        }
    }
}

fn edit(message: &Message, body: Body, now: Timestamp) -> Result<Option<Revision>> {
    let Some(content) = &message.content else {
        return Err(Error::bad_input(
            &["input", "messageId"],
            "the message is deleted",
        ));
    };
    if body.as_str().is_empty() && content.attachments.is_empty() {
        return Err(bad_body(&TextError::Blank));
    }
    if body == content.body {
        return Ok(None);
    }
    Ok(Some(Revision::Content(Content {
        body,
        edited_at: Some(now),
        ..content.clone()
    })))
}

fn bad_body(error: &TextError) -> Error {
    Error::bad_input(&["input", "body"], format!("the body {error}"))
}
