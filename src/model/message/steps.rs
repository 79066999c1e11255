//! Steps of the work behind a message, such as calls of tools.

use crate::model::TextError;
use crate::model::text::{is_refused_in_body, parse_line};

/// State of a step. Stores persist the index, so never reorder it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MessageStepState {
    Running,
    /// It waits for a person.
    Waiting,
    Done,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MessageStep {
    /// Distinguishes the step from the others of its message.
    pub key: String,
    pub title: String,
    pub state: MessageStepState,
    pub detail: Option<String>,
}

impl MessageStep {
    pub const KEY_BYTES_MAX: usize = 64;
    pub const TITLE_BYTES_MAX: usize = 128;
    pub const DETAIL_BYTES_MAX: usize = 512;

    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        let detail = self.detail.as_ref().map_or(0, String::len);
        self.key.len() + self.title.len() + detail
    }

    fn check(&self) -> Result<(), (&'static str, TextError)> {
        parse_line(&self.key, Self::KEY_BYTES_MAX).map_err(|error| ("key", error))?;
        parse_line(&self.title, Self::TITLE_BYTES_MAX).map_err(|error| ("title", error))?;
        let Some(detail) = &self.detail else {
            return Ok(());
        };
        if detail.len() > Self::DETAIL_BYTES_MAX {
            let (bytes, bytes_max) = (detail.len(), Self::DETAIL_BYTES_MAX);
            return Err(("detail", TextError::TooLong { bytes, bytes_max }));
        }
        if detail.chars().any(is_refused_in_body) {
            return Err(("detail", TextError::ControlInBody));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepsError {
    #[error("a message has at most {} steps", MessageSteps::COUNT_MAX)]
    TooMany,
    #[error(
        "the steps have {bytes} bytes of UTF-8 together, and {} is the most",
        MessageSteps::BYTES_MAX
    )]
    TooLong { bytes: usize },
    #[error("two steps have the same key")]
    SameKey { index: usize },
    #[error("the {field} {error}")]
    Text {
        index: usize,
        field: &'static str,
        error: TextError,
    },
}

/// Steps of one message, in the order given, within their bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct MessageSteps(Box<[MessageStep]>);

impl MessageSteps {
    pub const COUNT_MAX: usize = 20;
    pub const BYTES_MAX: usize = 4 * 1024;

    pub fn parse(steps: Vec<MessageStep>) -> Result<Self, StepsError> {
        if steps.len() > Self::COUNT_MAX {
            return Err(StepsError::TooMany);
        }
        for (index, step) in steps.iter().enumerate() {
            let checked = step.check();
            checked.map_err(|(field, error)| StepsError::Text {
                index,
                field,
                error,
            })?;
            if steps[..index].iter().any(|other| other.key == step.key) {
                return Err(StepsError::SameKey { index });
            }
        }
        let bytes = steps.iter().map(MessageStep::bytes).sum();
        if bytes > Self::BYTES_MAX {
            return Err(StepsError::TooLong { bytes });
        }
        Ok(Self(steps.into()))
    }

    pub fn as_slice(&self) -> &[MessageStep] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(MessageStep::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(key: &str) -> MessageStep {
        MessageStep {
            key: key.to_owned(),
            title: "Read the report".to_owned(),
            state: MessageStepState::Running,
            detail: Some("first line\nsecond".to_owned()),
        }
    }

    #[test]
    fn steps_keep_their_order_within_their_bounds() {
        let keys: Vec<_> = (0..20).rev().map(|number| number.to_string()).collect();
        let steps: Vec<_> = keys.iter().map(|key| step(key)).collect();
        let parsed = MessageSteps::parse(steps.clone()).unwrap();
        assert_eq!(parsed.as_slice(), steps);
        let more = [steps, vec![step("more")]].concat();
        assert_eq!(MessageSteps::parse(more), Err(StepsError::TooMany));
    }

    #[test]
    fn a_step_out_of_bounds_is_named() {
        let refused = |change: fn(&mut MessageStep)| {
            let mut second = step("b");
            change(&mut second);
            MessageSteps::parse(vec![step("a"), second]).unwrap_err()
        };
        let field = |error| match error {
            StepsError::Text { index, field, .. } => (index, field),
            error @ (StepsError::TooMany
            | StepsError::TooLong { .. }
            | StepsError::SameKey { .. }) => {
                panic!("{error}")
            }
        };
        assert_eq!(field(refused(|step| step.key.clear())), (1, "key"));
        assert_eq!(
            field(refused(|step| step.title = "x".repeat(129))),
            (1, "title")
        );
        let long = refused(|step| step.detail = Some("x".repeat(513)));
        assert_eq!(field(long), (1, "detail"));
        let control = refused(|step| step.detail = Some("\u{7}".to_owned()));
        assert_eq!(field(control), (1, "detail"));
        let same = refused(|step| step.key = "a".to_owned());
        assert_eq!(same, StepsError::SameKey { index: 1 });
        let all: Vec<_> = (0..9)
            .map(|number| MessageStep {
                detail: Some("x".repeat(512)),
                ..step(&number.to_string())
            })
            .collect();
        let together = MessageSteps::parse(all);
        assert!(matches!(together, Err(StepsError::TooLong { .. })));
    }
}
