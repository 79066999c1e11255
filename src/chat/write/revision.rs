//! Editing and deleting messages: who may, and what it comes to.
//!
//! An edit is its sender's alone. A deletion is the sender's, and in a group an OWNER's or ADMIN's too: it is how a group is moderated.
//! What a SYSTEM message says happened, and nobody takes it back. A deletion wins over every edit.

use std::sync::Arc;

use crate::chat::write::conversation_queue::Work;
use crate::chat::{Chat, Error, Result};
use crate::model::{
    Body, Content, ConversationId, Message, MessageId, MessageKind, Revision, Role, Timestamp,
    UserId,
};

/// A change of a message as a user wants it.
pub(crate) struct RevisionDraft {
    pub(crate) message: MessageId,
    /// How often somebody had left some conversation when its user was known to be there.
    pub(crate) leave_epoch: u64,
    wish: Wish,
}

enum Wish {
    Edit(Body),
    Delete,
}

impl Chat {
    /// Replaces the text of a message of the viewer's own. The same text again changes nothing.
    pub async fn edit(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: MessageId,
        body: String,
    ) -> Result<Arc<Message>> {
        let leave_epoch = self.leave_epoch();
        self.participation_to_write(viewer, conversation).await?;
        // Whether it may be empty depends on the message.
        let body = Body::parse(body, self.0.bounds.body_bytes_max, true)
            .map_err(|error| bad_body(&error))?;
        let draft = RevisionDraft {
            message,
            leave_epoch,
            wish: Wish::Edit(body),
        };
        self.work(conversation, viewer, |reply| Work::Revise(draft, reply))
            .await
    }

    /// Takes a message back. Again, it changes nothing.
    pub async fn delete(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<Arc<Message>> {
        let leave_epoch = self.leave_epoch();
        self.participation_to_write(viewer, conversation).await?;
        let draft = RevisionDraft {
            message,
            leave_epoch,
            wish: Wish::Delete,
        };
        self.work(conversation, viewer, |reply| Work::Revise(draft, reply))
            .await
    }
}

impl RevisionDraft {
    pub(crate) fn bytes(&self) -> usize {
        match &self.wish {
            Wish::Edit(body) => body.as_str().len() + 256,
            Wish::Delete => 256,
        }
    }

    /// Whether it takes a role to do it.
    pub(crate) fn is_by_role(&self, present: &Message, user: &UserId) -> bool {
        present.sender != *user && matches!(self.wish, Wish::Delete)
    }

    /// What becomes of the message, `None` where nothing does. Without a role: as a MEMBER.
    pub(crate) fn revision(
        self,
        present: &Message,
        user: &UserId,
        role: Option<Role>,
        now: Timestamp,
    ) -> Result<Option<Revision>> {
        if present.kind == MessageKind::System {
            return Err(Error::Forbidden(
                "what a system message says happened cannot be changed",
            ));
        }
        let is_own = present.sender == *user;
        match self.wish {
            Wish::Edit(_) if !is_own => Err(Error::Forbidden("only its sender may edit a message")),
            Wish::Edit(body) => edit(present, body, now),
            Wish::Delete if !is_own && role.is_none_or(|role| role == Role::Member) => {
                Err(Error::Forbidden(
                    "only its sender, or an owner or admin of the group, may delete a message",
                ))
            }
            Wish::Delete => Ok(present.deleted_at.is_none().then_some(Revision::Deletion)),
        }
    }
}

fn edit(present: &Message, body: Body, now: Timestamp) -> Result<Option<Revision>> {
    let Some(content) = &present.content else {
        return Err(Error::bad_input(
            &["input", "messageId"],
            "the message is deleted",
        ));
    };
    if body.as_str().is_empty() && content.attachments.is_empty() {
        return Err(bad_body(&crate::model::TextError::Blank));
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

fn bad_body(error: &crate::model::TextError) -> Error {
    Error::bad_input(&["input", "body"], format!("the body {error}"))
}
