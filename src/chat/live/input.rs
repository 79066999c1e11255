//! Input of a live write, and its validation.

use crate::chat::error::{Error, Result};
use crate::model::{
    ConversationId, IdempotencyKey, LiveChunk, LiveStatus, MessageId, MessageStep, MessageSteps,
    WriterName,
};

/// Live write as received from the client.
#[derive(Debug, Clone)]
pub struct LiveWriteInput {
    pub conversation: ConversationId,
    pub key: String,
    pub writer: String,
    /// Bytes of the text before this one.
    pub position: i32,
    pub text: String,
    /// `None` leaves the status as it is; `Some(None)` clears it.
    pub status: Option<Option<String>>,
    /// `None` leaves the steps as they are.
    pub steps: Option<Vec<MessageStep>>,
    pub reply_to: Option<MessageId>,
}

/// Live write that obeys every rule that needs no read of the store.
#[derive(Debug, Clone)]
pub(super) struct LiveDraft {
    pub(super) conversation: ConversationId,
    pub(super) key: IdempotencyKey,
    pub(super) writer: WriterName,
    pub(super) position: usize,
    pub(super) text: LiveChunk,
    pub(super) status: Option<Option<LiveStatus>>,
    pub(super) steps: Option<MessageSteps>,
    pub(super) reply_to: Option<MessageId>,
}

impl LiveDraft {
    pub(super) fn parse(input: LiveWriteInput, body_bytes_max: usize) -> Result<Self> {
        let key = IdempotencyKey::parse(&input.key).map_err(|_| {
            let message = format!(
                "a key is 1 to {} bytes of printable ASCII",
                IdempotencyKey::BYTES_MAX
            );
            Error::bad_input(&["input", "key"], message)
        })?;
        let writer = WriterName::parse(&input.writer).map_err(|error| {
            Error::bad_input(&["input", "writer"], format!("the writer {error}"))
        })?;
        let position = usize::try_from(input.position).map_err(|_| {
            Error::bad_input(&["input", "position"], "the position is not negative")
        })?;
        let text = LiveChunk::parse(input.text)
            .map_err(|error| Error::bad_input(&["input", "text"], format!("the text {error}")))?;
        let draft = Self {
            conversation: input.conversation,
            key,
            writer,
            position,
            text,
            status: parse_status(input.status)?,
            steps: input.steps.map(parse_steps).transpose()?,
            reply_to: input.reply_to,
        };
        if !draft.text.as_str().is_empty() && draft.end() > body_bytes_max {
            let message = format!(
                "a message has at most {body_bytes_max} bytes: send this one, and begin another"
            );
            return Err(Error::bad_input(&["input", "text"], message));
        }
        Ok(draft)
    }

    fn end(&self) -> usize {
        self.position.saturating_add(self.text.as_str().len())
    }
}

fn parse_status(status: Option<Option<String>>) -> Result<Option<Option<LiveStatus>>> {
    let parse = |text: String| {
        LiveStatus::parse(&text)
            .map_err(|error| Error::bad_input(&["input", "status"], format!("the status {error}")))
    };
    status.map(|text| text.map(parse).transpose()).transpose()
}

fn parse_steps(steps: Vec<MessageStep>) -> Result<MessageSteps> {
    MessageSteps::parse(steps).map_err(|error| Error::bad_input(&["input", "steps"], error))
}

/// Relation of a text to the text that is stored before it and in its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fit<'a> {
    /// The position lies after the end, or inside a character.
    Ahead,
    /// Another text is stored there.
    Different,
    /// All of it is stored.
    Known,
    /// The part that begins at the end of the stored text.
    Beyond(&'a str),
}

/// Compares a text with the stored one from a position on.
pub(super) fn fit<'a>(stored: &str, position: usize, text: &'a str) -> Fit<'a> {
    let Some(known) = stored.get(position..) else {
        return Fit::Ahead;
    };
    let shared = known.len().min(text.len());
    if known.as_bytes()[..shared] != text.as_bytes()[..shared] {
        return Fit::Different;
    }
    // Equal bytes up to the end of one of both texts end with a character.
    match text.get(shared..) {
        None | Some("") => Fit::Known,
        Some(beyond) => Fit::Beyond(beyond),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> LiveWriteInput {
        LiveWriteInput {
            conversation: ConversationId::random(),
            key: "k".to_owned(),
            writer: "w".to_owned(),
            position: 0,
            text: "Hello".to_owned(),
            status: None,
            steps: None,
            reply_to: None,
        }
    }

    #[test]
    fn a_text_is_compared_with_what_is_stored() {
        let stored = "Hällo";
        for (position, text, expected) in [
            (0, "Hällo, you", Fit::Beyond(", you")),
            (6, "!", Fit::Beyond("!")),
            (6, "", Fit::Known),
            (0, "", Fit::Known),
            (1, "ällo", Fit::Known),
            (3, "l", Fit::Known),
            (3, "lo!", Fit::Different),
            (0, "Hö", Fit::Different),
            (7, "!", Fit::Ahead),
            (2, "x", Fit::Ahead),
        ] {
            assert_eq!(fit(stored, position, text), expected, "{position} {text}");
        }
    }

    #[test]
    fn a_refusal_names_the_input() {
        let path = |change: fn(&mut LiveWriteInput)| {
            let mut input = input();
            change(&mut input);
            match LiveDraft::parse(input, 16 * 1_024) {
                Err(Error::BadInput { path, .. }) => path[1],
                other => panic!("not refused: {other:?}"),
            }
        };
        assert_eq!(path(|input| input.key.clear()), "key");
        assert_eq!(path(|input| input.writer = "x".repeat(65)), "writer");
        assert_eq!(path(|input| input.position = -1), "position");
        assert_eq!(path(|input| input.text = "x".repeat(4_097)), "text");
        assert_eq!(path(|input| input.text = "\u{7}".to_owned()), "text");
        assert_eq!(path(|input| input.position = 16 * 1_024 - 4), "text");
        assert_eq!(
            path(|input| input.status = Some(Some(String::new()))),
            "status"
        );
        let steps = |input: &mut LiveWriteInput| {
            let step = MessageStep {
                key: String::new(),
                title: "t".to_owned(),
                state: crate::model::MessageStepState::Done,
                detail: None,
            };
            input.steps = Some(vec![step]);
        };
        assert_eq!(path(steps), "steps");
        let last = LiveWriteInput {
            position: 16 * 1_024 - 5,
            status: Some(None),
            ..input()
        };
        assert!(LiveDraft::parse(last, 16 * 1_024).is_ok());
    }
}
