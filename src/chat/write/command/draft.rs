//! Draft of a message: the input of a send, and its validation.

use super::WriterCheck;
use super::profile::check_web_url;
use crate::chat::access::authority::Authority;
use crate::chat::bounds::Bounds;
use crate::chat::error::{Error, Result};
use crate::model::{
    Attachment, Body, Content, IdempotencyKey, InputHash, Mentions, MessageId, MessageStep,
    MessageSteps, Metadata, Parts, UserId, text,
};

/// Message as received from the client.
#[derive(Debug, Clone, Default)]
pub struct DraftInput {
    pub body: String,
    pub attachments: Vec<AttachmentDraft>,
    /// JSON text.
    pub metadata: Option<String>,
    pub reply_to: Option<MessageId>,
    pub mentioned_usernames: Vec<String>,
    pub mentions_everyone: bool,
    pub steps: Vec<MessageStep>,
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct AttachmentDraft {
    pub url: String,
    pub mime_type: String,
    pub name: Option<String>,
    pub size_bytes: Option<f64>,
    pub width: Option<i32>,
    pub height: Option<i32>,
    pub duration_ms: Option<i32>,
    pub thumbnail_url: Option<String>,
}

/// Message that obeys every rule that needs no read of the store.
#[derive(Debug, Clone)]
pub struct Draft {
    pub(crate) content: Content,
    pub(crate) reply_to: Option<MessageId>,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) hash: InputHash,
    /// Approximate size in a queue and in a batch.
    pub(crate) bytes: usize,
    /// Check of the sender, which the queue repeats.
    pub(crate) check: WriterCheck,
    /// Error of a send that is refused: a retry still finds the message of its first attempt.
    pub(crate) refusal: Option<Error>,
    /// Whether a service sends it, under its own name or in that of a sender who has not acted in the
    /// conversation yet.
    pub(crate) is_by_service: bool,
    /// Seconds after the sender's last send before which this one is refused. 0: no wait.
    pub(crate) slow_mode_seconds: u32,
}

impl Draft {
    pub fn parse(input: DraftInput, bounds: &Bounds) -> Result<Self> {
        let attachments = parse_attachments(input.attachments)?;
        let body = Body::parse(input.body, bounds.body_bytes_max, !attachments.is_empty())
            .map_err(|error| Error::bad_input(&["input", "body"], format!("the body {error}")))?;
        let metadata = input
            .metadata
            .map(|text| Metadata::parse(&text, bounds.metadata_bytes_max))
            .transpose()
            .map_err(|error| {
                Error::bad_input(&["input", "metadata"], format!("the metadata {error}"))
            })?;
        let key = input
            .idempotency_key
            .as_deref()
            .map(parse_key)
            .transpose()?;
        let users = parse_mentioned(&input.mentioned_usernames)?;
        let steps = parse_steps(input.steps, &body)?;
        let content = Content {
            body,
            attachments,
            metadata,
            edited_at: None,
            mentions: Mentions::new(users, input.mentions_everyone),
            steps,
            is_interrupted: false,
            unknown_parts: Parts::default(),
        };
        let hash = InputHash::of_send(&content, input.reply_to);
        let bytes = content_bytes(&content) + 256;
        Ok(Self {
            content,
            reply_to: input.reply_to,
            key,
            hash,
            bytes,
            check: WriterCheck::of_server(Authority::Membership),
            refusal: None,
            is_by_service: false,
            slow_mode_seconds: 0,
        })
    }

    /// The message that a server sends for a silent writer. Steps for which there is no room are left out.
    pub(crate) fn interrupted(
        input: DraftInput,
        steps: &MessageSteps,
        bounds: &Bounds,
    ) -> Result<Self> {
        let steps = match fit_beside(steps, input.body.len()) {
            true => steps.as_slice().to_vec(),
            false => Vec::new(),
        };
        let mut draft = Self::parse(DraftInput { steps, ..input }, bounds)?;
        draft.content.is_interrupted = true;
        Ok(draft)
    }
}

/// Users whom a message names as mentioned.
pub(crate) fn parse_mentioned(usernames: &[String]) -> Result<Vec<UserId>> {
    const PATH: &[&str] = &["input", "mentionedUsernames"];
    let users = usernames.iter().map(|name| {
        UserId::parse(name)
            .map_err(|error| Error::bad_input(PATH, format!("a mentioned username {error}")))
    });
    // The bound of a list of strings, before they are looked at.
    if usernames.len() > Mentions::COUNT_MAX {
        return Err(too_many_mentions(PATH));
    }
    let users: Vec<_> = users.collect::<Result<_>>()?;
    if Mentions::new(users.clone(), false).is_within_bounds() {
        Ok(users)
    } else {
        Err(too_many_mentions(PATH))
    }
}

fn too_many_mentions(path: &'static [&'static str]) -> Error {
    let message = format!(
        "a message mentions at most {} users, whose names take {} bytes together",
        Mentions::COUNT_MAX,
        Mentions::BYTES_MAX
    );
    Error::bad_input(path, message)
}

/// Idempotency key of `sendMessage` or `createGroupConversation`.
pub(crate) fn parse_key(text: &str) -> Result<IdempotencyKey> {
    IdempotencyKey::parse(text).map_err(|_| {
        let message = format!(
            "an idempotencyKey is 1 to {} bytes of printable ASCII",
            IdempotencyKey::BYTES_MAX
        );
        Error::bad_input(&["input", "idempotencyKey"], message)
    })
}

fn content_bytes(content: &Content) -> usize {
    let attachments: usize = content.attachments.iter().map(Attachment::bytes).sum();
    content.body.as_str().len()
        + attachments
        + content
            .metadata
            .as_ref()
            .map_or(0, |metadata| metadata.as_str().len())
        + mention_bytes(&content.mentions)
        + step_bytes(&content.steps)
        + content.unknown_parts.bytes()
}

/// Bytes of the texts, and of what stands beside them.
fn step_bytes(steps: &MessageSteps) -> usize {
    steps.bytes() + 8 * steps.as_slice().len()
}

fn parse_steps(steps: Vec<MessageStep>, body: &Body) -> Result<MessageSteps> {
    const PATH: &[&str] = &["input", "steps"];
    let steps = MessageSteps::parse(steps).map_err(|error| Error::bad_input(PATH, error))?;
    if !fit_beside(&steps, body.as_str().len()) {
        let bytes_max = Body::BYTES_MAX;
        let message = format!("the body and the steps take at most {bytes_max} bytes together");
        return Err(Error::bad_input(PATH, message));
    }
    Ok(steps)
}

/// Whether a message has room for its body and its steps: a store takes both in one batch.
fn fit_beside(steps: &MessageSteps, body_bytes: usize) -> bool {
    steps.is_empty() || body_bytes + step_bytes(steps) <= Body::BYTES_MAX
}

/// Bytes of the names, and of their rows.
fn mention_bytes(mentions: &Mentions) -> usize {
    2 * mentions.bytes() + 64 * mentions.users().len()
}

fn parse_attachments(drafts: Vec<AttachmentDraft>) -> Result<Vec<Attachment>> {
    let refuse = |message: String| Error::bad_input(&["input", "attachments"], message);
    if drafts.len() > Attachment::COUNT_MAX {
        return Err(refuse(format!(
            "a message has at most {} attachments",
            Attachment::COUNT_MAX
        )));
    }
    let attachments = drafts
        .into_iter()
        .map(|draft| parse_attachment(draft).map_err(refuse))
        .collect::<Result<Vec<_>>>()?;
    let bytes: usize = attachments.iter().map(Attachment::bytes).sum();
    if bytes > Attachment::BYTES_MAX {
        return Err(refuse(format!(
            "the attachments of a message take {} bytes together, and {bytes} is more",
            Attachment::BYTES_MAX
        )));
    }
    Ok(attachments)
}

fn parse_attachment(draft: AttachmentDraft) -> Result<Attachment, String> {
    let check = |what: &str, text: &str, bytes_max: usize| {
        if text.is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
            return Err(format!(
                "an attachment's {what} is 1 to {bytes_max} bytes without control characters"
            ));
        }
        Ok(())
    };
    check("url", &draft.url, Attachment::URL_BYTES_MAX)?;
    check(
        "mimeType",
        &draft.mime_type,
        Attachment::MIME_TYPE_BYTES_MAX,
    )?;
    if let Some(name) = &draft.name {
        text::parse_name(name, Attachment::NAME_BYTES_MAX)
            .map_err(|error| format!("an attachment's name {error}"))?;
    }
    check_web_url("an attachment's url", &draft.url)?;
    if let Some(url) = &draft.thumbnail_url {
        check("thumbnailUrl", url, Attachment::URL_BYTES_MAX)?;
        check_web_url("an attachment's thumbnailUrl", url)?;
    }
    if !is_mime_type(&draft.mime_type) {
        return Err("an attachment's mimeType looks like image/png".to_owned());
    }
    let size_bytes = draft.size_bytes.map(parse_size).transpose()?;
    let length = |what: &str, value: Option<i32>| {
        value
            .map(|value| {
                u32::try_from(value).map_err(|_| format!("an attachment's {what} is not negative"))
            })
            .transpose()
    };
    Ok(Attachment {
        width: length("width", draft.width)?,
        height: length("height", draft.height)?,
        duration_ms: length("durationMs", draft.duration_ms)?,
        thumbnail_url: draft.thumbnail_url,
        url: draft.url,
        mime_type: draft.mime_type,
        name: draft.name,
        size_bytes,
    })
}

fn parse_size(size: f64) -> Result<u64, String> {
    if size.fract() != 0.0 || !(0.0..=Attachment::SIZE_BYTES_MAX as f64).contains(&size) {
        return Err("an attachment's sizeBytes is a whole number, not negative".to_owned());
    }
    Ok(size as u64)
}

/// `type/subtype`, with parameters behind a semicolon (RFC 9110, 8.3.1).
fn is_mime_type(text: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(url: &str) -> AttachmentDraft {
        AttachmentDraft {
            url: url.to_owned(),
            mime_type: "image/png".to_owned(),
            ..AttachmentDraft::default()
        }
    }

    fn path_of(input: DraftInput) -> &'static [&'static str] {
        match Draft::parse(input, &Bounds::default()) {
            Err(Error::BadInput { path, .. }) => path,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_refusal_names_the_input() {
        let said = || DraftInput {
            body: "hello".to_owned(),
            ..DraftInput::default()
        };
        assert_eq!(path_of(DraftInput::default()), ["input", "body"]);
        assert_eq!(
            path_of(DraftInput {
                body: "x".repeat(16 * 1024 + 1),
                ..said()
            }),
            ["input", "body"]
        );
        assert_eq!(
            path_of(DraftInput {
                idempotency_key: Some("tab\t".to_owned()),
                ..said()
            }),
            ["input", "idempotencyKey"]
        );
        assert_eq!(
            path_of(DraftInput {
                body: "bell\u{7}".to_owned(),
                ..said()
            }),
            ["input", "body"]
        );
        let long = format!("\"{}\"", "x".repeat(2 * 1024));
        assert_eq!(
            path_of(DraftInput {
                metadata: Some(long),
                ..said()
            }),
            ["input", "metadata"]
        );
        for names in [
            vec!["x".repeat(129)],
            vec!["a".to_owned(); 51],
            vec![String::new()],
        ] {
            let input = DraftInput {
                mentioned_usernames: names,
                ..said()
            };
            assert_eq!(path_of(input), ["input", "mentionedUsernames"]);
        }
        for url in ["javascript:alert(1)", "file:///etc/passwd", "no url", ""] {
            assert_eq!(
                path_of(DraftInput {
                    attachments: vec![attachment(url)],
                    ..said()
                }),
                ["input", "attachments"]
            );
        }
        let many = vec![attachment("https://example.org/a.png"); 11];
        assert_eq!(
            path_of(DraftInput {
                attachments: many,
                ..said()
            }),
            ["input", "attachments"]
        );
    }

    #[test]
    fn a_picture_alone_is_a_message() {
        let input = DraftInput {
            attachments: vec![attachment("https://example.org/a.png")],
            ..DraftInput::default()
        };
        assert!(Draft::parse(input, &Bounds::default()).is_ok());
    }

    #[test]
    fn the_hash_of_a_send_covers_its_whole_input() {
        let hash = |input| Draft::parse(input, &Bounds::default()).unwrap().hash;
        let said = |body: &str| DraftInput {
            body: body.to_owned(),
            ..DraftInput::default()
        };
        assert_eq!(hash(said("a")), hash(said("a")));
        assert_ne!(hash(said("a")), hash(said("b")));
        let with_metadata = |text: &str| DraftInput {
            metadata: Some(text.to_owned()),
            ..said("a")
        };
        let mentioning = |names: &[&str], mentions_everyone| DraftInput {
            mentioned_usernames: names.iter().map(|name| (*name).to_owned()).collect(),
            mentions_everyone,
            ..said("a")
        };
        assert_eq!(hash(said("a")), hash(mentioning(&[], false)));
        assert_eq!(
            hash(mentioning(&["ann", "ben"], false)),
            hash(mentioning(&["ben", "ann", "ben"], false))
        );
        assert_ne!(hash(said("a")), hash(mentioning(&["ann"], false)));
        assert_ne!(hash(said("a")), hash(mentioning(&[], true)));
        assert_ne!(hash(said("a")), hash(with_metadata(r#"{"a": 1}"#)));
        assert_ne!(
            hash(with_metadata(r#"{"a": 2}"#)),
            hash(with_metadata(r#"{"a": 1}"#))
        );
        assert_eq!(
            hash(with_metadata(r#"{"b": 1e2, "a": 1}"#)),
            hash(with_metadata(r#"{"a":1,"b":100.0}"#)),
            "both texts have the same value"
        );
    }
}
