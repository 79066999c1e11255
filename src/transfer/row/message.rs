//! Rows of the lines of messages. A message that is too large for a store becomes several, if the operator allows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{LOSSY, Result, input_hash, message_id, metadata, name, optional, past};
use crate::model::{
    Attachment, Body, Content, ConversationId, IdempotencyKey, Mentions, Message, MessageId,
    MessageKind, MessageStep, MessageSteps, Metadata, Parts, TextError, Timestamp,
    text::parse_line,
};
use crate::store::ImportRow;
use crate::transfer::line::{self, MessageLine};
use crate::transfer::rules::{LineContext, LineRows, Losses};

pub(super) fn message_rows(line: MessageLine, context: &LineContext) -> Result<LineRows> {
    let lines = match context.rules.is_lossy {
        true => split(line),
        false => vec![line],
    };
    let rows = lines.into_iter().map(|line| message_row(line, context.now));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let added = rows.len() as u64 - 1;
    Ok(LineRows {
        rows,
        losses: Losses {
            split_messages: added.min(1),
            added_messages: added,
            ..Losses::default()
        },
    })
}

/// The line, and one for each further message that its body and its attachments need. These come right behind the first one,
/// and have nothing of its replies, mentions, keys and metadata.
fn split(mut line: MessageLine) -> Vec<MessageLine> {
    // A deletion clears the content, and a broken id is refused with its line.
    let (None, Some(id)) = (&line.deleted_at, MessageId::parse(&line.id)) else {
        return vec![line];
    };
    let body = line.body.take().unwrap_or_default();
    let mut bodies = split_body(&body).into_iter().map(ToOwned::to_owned);
    let mut files = split_attachments(line.attachments.take().unwrap_or_default()).into_iter();
    (line.body, line.attachments) = (bodies.next(), files.next());
    let mut lines = vec![line];
    for number in 1.. {
        let (body, attachments) = (bodies.next(), files.next());
        if body.is_none() && attachments.is_none() {
            break;
        }
        let first = &lines[0];
        let further = MessageLine {
            id: id.part(number).to_string(),
            sender: first.sender.clone(),
            kind: first.kind,
            edited_at: first.edited_at.clone(),
            body,
            attachments,
            conversation_id: first.conversation_id,
            ..MessageLine::default()
        };
        lines.push(further);
    }
    lines
}

/// Parts of a body within the bound, cut behind a line or a word where one ends in their second half. Blank parts are left out.
fn split_body(body: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), body);
    while rest.len() > Body::BYTES_MAX {
        let boundary = |at: usize| (0..=at).rev().find(|at| rest.is_char_boundary(*at));
        let end = boundary(Body::BYTES_MAX).unwrap_or_default();
        let half = boundary(end / 2).unwrap_or_default();
        let behind = |separator: fn(char) -> bool| {
            let (at, char) = rest[half..end].rmatch_indices(separator).next()?;
            Some(half + at + char.len())
        };
        let cut = behind(|char| char == '\n').or_else(|| behind(char::is_whitespace));
        let (part, after) = rest.split_at(cut.unwrap_or(end));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    if parts.len() > 1 {
        parts.retain(|part| !part.trim().is_empty());
    }
    parts
}

fn split_attachments(lines: Vec<line::AttachmentLine>) -> Vec<Vec<line::AttachmentLine>> {
    let (mut groups, mut bytes) = (vec![Vec::new()], 0);
    for line in lines {
        let weight = line.bytes();
        let group = groups.last().expect("there is one group at least");
        if group.len() == Attachment::COUNT_MAX || bytes + weight > Attachment::BYTES_MAX {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += weight;
        groups.last_mut().expect("there is one").push(line);
    }
    groups
}

fn message_row(line: MessageLine, now: Timestamp) -> Result<ImportRow> {
    let kind = line.kind.unwrap_or(MessageKind::Text);
    let deleted_at = past("deletedAt", line.deleted_at, now)?;
    let edited_at = past("editedAt", line.edited_at, now)?;
    let attachments = attachments(line.attachments.unwrap_or_default())?;
    let metadata_bytes_max = match kind {
        MessageKind::Text => Metadata::BYTES_MAX,
        MessageKind::System => Metadata::SYSTEM_BYTES_MAX,
    };
    let metadata = metadata(line.metadata, metadata_bytes_max)?;
    let mentions = mentions(
        line.mentions.unwrap_or_default(),
        line.mentions_everyone.unwrap_or_default(),
    )?;
    let steps = steps(line.steps.unwrap_or_default())?;
    // A deletion clears the content, even if the file still has it.
    let content = match deleted_at {
        Some(_) => None,
        None => {
            let may_be_empty = kind == MessageKind::System || !attachments.is_empty();
            let body =
                Body::from_history(line.body.unwrap_or_default(), Body::BYTES_MAX, may_be_empty)
                    .map_err(|error| bad_body(&error))?;
            Some(Content {
                body,
                attachments,
                metadata,
                edited_at,
                mentions,
                steps,
                is_interrupted: line.is_interrupted.unwrap_or_default(),
                unknown_parts: parts(line.parts.unwrap_or_default())?,
            })
        }
    };
    let client_key = optional("clientKey", line.client_key, |key| {
        IdempotencyKey::parse(&key)
    })?;
    let hash = line.input_hash.map(|text| input_hash(&text)).transpose()?;
    let message = Arc::new(Message {
        conversation: ConversationId(line.conversation_id),
        id: message_id("id", &line.id, now)?,
        sender: name(&line.sender)?,
        kind,
        content,
        reply_to: line
            .reply_to
            .map(|id| message_id("replyTo", &id, now))
            .transpose()?,
        client_key,
        deleted_at,
        has_reactions: false,
        pin: None,
    });
    Ok(match hash {
        Some(hash) => ImportRow::ChangedMessage(message, hash),
        None => ImportRow::Message(message),
    })
}

fn bad_body(error: &TextError) -> String {
    if let TextError::TooLong { .. } = error {
        return format!("`body` {error}; {LOSSY} it in several messages");
    }
    format!("`body` {error}")
}

fn mentions(names: Vec<String>, everyone: bool) -> Result<Mentions> {
    let users = names.iter().map(|one| name(one));
    let mentions = Mentions::new(users.collect::<Result<_>>()?, everyone);
    if !mentions.is_within_bounds() {
        return Err(format!(
            "`mentions` has at most {} names of {} bytes together",
            Mentions::COUNT_MAX,
            Mentions::BYTES_MAX
        ));
    }
    Ok(mentions)
}

fn steps(lines: Vec<line::StepLine>) -> Result<MessageSteps> {
    let steps = lines.into_iter().map(MessageStep::from);
    MessageSteps::parse(steps.collect()).map_err(|error| format!("`steps`: {error}"))
}

/// The parts of a message that only a later version knows.
fn parts(lines: BTreeMap<u32, String>) -> Result<Parts> {
    let mut parts = Parts::default();
    if lines.len() > Parts::COUNT_MAX {
        return Err(format!("`parts` has at most {} entries", Parts::COUNT_MAX));
    }
    for (number, text) in lines {
        if Content::is_known_part(number) {
            return Err(format!(
                "`parts` has {number}, which is a field of the line"
            ));
        }
        let part = URL_SAFE_NO_PAD.decode(&text);
        parts.put(number, part.map_err(|_| "a part is base64url".to_owned())?);
    }
    if parts.bytes() > Parts::BYTES_MAX {
        return Err(format!("`parts` has at most {} bytes", Parts::BYTES_MAX));
    }
    Ok(parts)
}

/// The attachments of one message.
pub(super) fn attachments(lines: Vec<line::AttachmentLine>) -> Result<Vec<Attachment>> {
    if lines.len() > Attachment::COUNT_MAX {
        return Err(format!(
            "`attachments` has {} entries, and {} is the most",
            lines.len(),
            Attachment::COUNT_MAX
        ));
    }
    let attachments = lines
        .into_iter()
        .map(attachment)
        .collect::<Result<Vec<_>>>()?;
    let bytes: usize = attachments.iter().map(Attachment::bytes).sum();
    if bytes > Attachment::BYTES_MAX {
        return Err(format!(
            "`attachments` has {bytes} bytes, and {} is the most",
            Attachment::BYTES_MAX
        ));
    }
    Ok(attachments)
}

fn attachment(line: line::AttachmentLine) -> Result<Attachment> {
    let attachment = Attachment::from(line);
    let parse_url = |name: &str, url: &str| {
        parse_line(url, Attachment::URL_BYTES_MAX)
            .map_err(|error| format!("`{name}` of an attachment {error}"))?;
        let is_of = |scheme: &&str| url.len() > scheme.len() && url.starts_with(*scheme);
        if ["http://", "https://"].iter().any(is_of) {
            Ok(())
        } else {
            Err(format!(
                "`{name}` of an attachment must begin with http:// or https://"
            ))
        }
    };
    parse_url("url", &attachment.url)?;
    if let Some(url) = &attachment.thumbnail_url {
        parse_url("thumbnailUrl", url)?;
    }
    parse_line(&attachment.mime_type, Attachment::MIME_TYPE_BYTES_MAX)
        .map_err(|error| format!("`mimeType` of an attachment {error}"))?;
    optional("name", attachment.name.as_deref(), |name| {
        parse_line(name, Attachment::NAME_BYTES_MAX)
    })?;
    let size_bytes = attachment.size_bytes;
    if size_bytes.is_some_and(|bytes| bytes > Attachment::SIZE_BYTES_MAX) {
        return Err(format!(
            "`sizeBytes` of an attachment is at most {}",
            Attachment::SIZE_BYTES_MAX
        ));
    }
    Ok(attachment)
}
