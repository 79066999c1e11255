//! Command to edit or delete a message, and the rules for it.
//!
//! Only its sender may edit a message. Its sender may delete it, and in a group also an OWNER or
//! ADMIN: groups are moderated by deletion. SYSTEM messages are immutable. A deletion wins over
//! every edit.

use super::WriterCheck;
use super::draft::parse_mentioned;
use crate::chat::error::{Error, Result};
use crate::model::{
    Body, Content, Mentions, Message, MessageId, MessageKind, Revision, Role, TextError, Timestamp,
    UserId,
};

#[derive(Clone)]
pub(crate) struct RevisionDraft {
    pub(crate) message: MessageId,
    pub(crate) check: WriterCheck,
    kind: RevisionDraftKind,
}

/// Edit as received from the client. Mentions that are `None` stay.
#[derive(Debug, Clone, Default)]
pub struct EditInput {
    pub body: String,
    pub mentioned_usernames: Option<Vec<String>>,
    pub mentions_everyone: Option<bool>,
}

impl From<String> for EditInput {
    fn from(body: String) -> Self {
        Self {
            body,
            ..Self::default()
        }
    }
}

#[derive(Clone)]
enum RevisionDraftKind {
    Edit(EditDraft),
    Deletion,
}

#[derive(Clone)]
struct EditDraft {
    body: Body,
    mentioned: Option<Vec<UserId>>,
    mentions_everyone: Option<bool>,
}

impl RevisionDraft {
    pub(crate) fn edit(
        message: MessageId,
        input: EditInput,
        body_bytes_max: usize,
        check: WriterCheck,
    ) -> Result<Self> {
        // Whether the body may be empty depends on the message.
        let body =
            Body::parse(input.body, body_bytes_max, true).map_err(|error| bad_body(&error))?;
        Ok(Self {
            message,
            check,
            kind: RevisionDraftKind::Edit(EditDraft {
                body,
                mentioned: input
                    .mentioned_usernames
                    .map(|names| parse_mentioned(&names))
                    .transpose()?,
                mentions_everyone: input.mentions_everyone,
            }),
        })
    }

    pub(crate) fn deletion(message: MessageId, check: WriterCheck) -> Self {
        Self {
            message,
            check,
            kind: RevisionDraftKind::Deletion,
        }
    }

    /// Approximate size in a queue.
    pub(crate) fn bytes(&self) -> usize {
        match &self.kind {
            RevisionDraftKind::Edit(edit) => {
                let names = edit.mentioned.iter().flatten();
                let names: usize = names.map(|user| user.as_str().len() + 64).sum();
                edit.body.as_str().len() + names + 256
            }
            RevisionDraftKind::Deletion => 256,
        }
    }

    /// Whether the edit mentions everyone anew.
    pub(crate) fn mentions_everyone(&self) -> bool {
        match &self.kind {
            RevisionDraftKind::Edit(edit) => edit.mentions_everyone == Some(true),
            RevisionDraftKind::Deletion => false,
        }
    }

    pub(crate) fn is_edit(&self) -> bool {
        matches!(self.kind, RevisionDraftKind::Edit(_))
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
            RevisionDraftKind::Edit(draft) => edit(message, draft, now),
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

fn edit(message: &Message, draft: EditDraft, now: Timestamp) -> Result<Option<Revision>> {
    let Some(content) = &message.content else {
        return Err(Error::bad_input(
            &["input", "messageId"],
            "the message is deleted",
        ));
    };
    let EditDraft {
        body,
        mentioned,
        mentions_everyone,
    } = draft;
    if body.as_str().is_empty() && content.attachments.is_empty() {
        return Err(bad_body(&TextError::Blank));
    }
    let present = &content.mentions;
    let mentions = Mentions::new(
        mentioned.unwrap_or_else(|| present.users().to_vec()),
        mentions_everyone.unwrap_or(present.everyone),
    );
    if body == content.body && mentions == *present && !content.is_interrupted {
        return Ok(None);
    }
    let newly_mentioned = mentions.beyond(present);
    let content = Content {
        body,
        edited_at: Some(now),
        mentions,
        is_interrupted: false,
        ..content.clone()
    };
    Ok(Some(Revision::Edit {
        content,
        newly_mentioned,
    }))
}

fn bad_body(error: &TextError) -> Error {
    Error::bad_input(&["input", "body"], format!("the body {error}"))
}
