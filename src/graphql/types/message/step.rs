//! Steps of the work behind a message.

use async_graphql::{Enum, InputObject, Object};

use crate::model;

/// State of a step.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::MessageStepState")]
pub(crate) enum MessageStepState {
    /// It is being done.
    Running,
    /// It waits for a person.
    Waiting,
    /// It has been done.
    Done,
    /// It ended without its result.
    Failed,
}

/// Step of the work behind a message, such as a call of a tool. Clients show the steps in the order given.
pub(crate) struct MessageStep<'a>(pub(crate) &'a model::MessageStep);

/// Step of the work behind a message, such as a call of a tool. Clients show the steps in the order given.
#[Object]
impl MessageStep<'_> {
    /// Key of the step, different from those of the message's other steps.
    async fn key(&self) -> &str {
        &self.0.key
    }

    /// Title.
    async fn title(&self) -> &str {
        &self.0.title
    }

    /// State: RUNNING, WAITING (for a person), DONE or FAILED.
    async fn state(&self) -> MessageStepState {
        self.0.state.into()
    }

    /// Detail, such as the result of the call. Null if the writer gave none.
    async fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }
}

/// Step of the work behind a message.
#[derive(InputObject)]
pub(crate) struct MessageStepInput {
    /// Key of the step: 1 to 64 bytes, different from those of the message's other steps.
    key: String,
    /// Title: 1 to 128 bytes of one line.
    title: String,
    /// State of the step.
    state: MessageStepState,
    /// Detail: at most 512 bytes.
    detail: Option<String>,
}

impl From<MessageStepInput> for model::MessageStep {
    fn from(input: MessageStepInput) -> Self {
        Self {
            key: input.key,
            title: input.title,
            state: input.state.into(),
            detail: input.detail,
        }
    }
}
