//! Live messages as viewers see them: whole, step by step, and the cursor of a stream of them.

use super::{LiveMessage, LiveMessageId, LiveMessageState, WriterNumber};
use crate::model::{MessageId, Timestamp};

/// Live message with its text, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveView {
    pub message: LiveMessage,
    pub body: String,
    /// The message that ended it.
    pub sent: Option<MessageId>,
}

impl LiveView {
    pub fn state(&self) -> LiveMessageState {
        if self.sent.is_some() {
            LiveMessageState::Sent
        } else if self.message.discarded_at.is_some() {
            LiveMessageState::Discarded
        } else {
            LiveMessageState::Writing
        }
    }

    /// Whether it became a message, or never will.
    pub fn is_over(&self) -> bool {
        self.state() != LiveMessageState::Writing
    }

    /// Number of bytes of the text.
    pub fn end(&self) -> u32 {
        u32::try_from(self.body.len()).expect("a row ends within the longest body")
    }

    /// Whether both show the same besides the text.
    pub fn has_state_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.message, &other.message);
        self.sent == other.sent
            && one.status == two.status
            && one.steps == two.steps
            && one.stop == two.stop
            && one.discarded_at.is_some() == two.discarded_at.is_some()
    }

    /// Takes over the parts of another view that are newer. The order in which views arrive does not matter.
    pub fn merge(&mut self, other: &Self) {
        let (own, new) = (&mut self.message, &other.message);
        match new.writers.shown().cmp(&own.writers.shown()) {
            std::cmp::Ordering::Greater => self.body.clone_from(&other.body),
            // All texts of one writer agree.
            std::cmp::Ordering::Equal if other.body.len() > self.body.len() => {
                self.body.clone_from(&other.body);
            }
            std::cmp::Ordering::Equal | std::cmp::Ordering::Less => {}
        }
        if new.writers.entries().len() > own.writers.entries().len() {
            own.writers.clone_from(&new.writers);
        }
        // Each write sets its registers and the time of the last write together.
        if new.touched_at >= own.touched_at {
            own.touched_at = new.touched_at;
            own.status.clone_from(&new.status);
            own.steps.clone_from(&new.steps);
        }
        let asked_at = |stop: &Option<super::LiveStop>| stop.as_ref().map(|stop| stop.at);
        if asked_at(&new.stop) > asked_at(&own.stop) {
            own.stop.clone_from(&new.stop);
        }
        own.discarded_at = own.discarded_at.max(new.discarded_at);
        self.sent = self.sent.or(other.sent);
    }
}

/// Live message after a change, as all its viewers on one server receive it.
#[derive(Debug, Clone)]
pub struct LiveStep {
    pub view: LiveView,
    /// A later step of the server has a greater number.
    pub number: u64,
    /// Time of the cursors after this step.
    pub at: Timestamp,
}

/// Part of a live message that a viewer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LivePosition {
    pub id: LiveMessageId,
    pub writer: WriterNumber,
    /// Bytes of the writer's text.
    pub position: u32,
}

impl LivePosition {
    pub const BYTES: usize = 16 + 1 + 4;
}

/// Cursor of a stream of live messages: the parts that its viewer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCursor {
    pub at: Timestamp,
    /// At most [`LiveCursor::COUNT_MAX`].
    pub lives: Vec<LivePosition>,
}

impl LiveCursor {
    pub const COUNT_MAX: usize = 8;
    /// Time after which a cursor is refused: the texts are gone by then.
    pub const LIFETIME_MICROS: i64 = 24 * 3_600 * 1_000_000;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{
        ConversationId, IdempotencyKey, LiveKey, LiveStart, LiveStatus, LiveStop, LiveWriters,
        MessageSteps, UserId, WriterName,
    };

    const TEXT: &str = "The answer";

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn view(writers: u8, length: usize, touched: i64, stop: Option<i64>) -> LiveView {
        let names = 0..writers;
        let writers = names.fold(LiveWriters::default(), |list, number| {
            let name = WriterName::parse(&number.to_string()).unwrap();
            list.with_writer(name, at(0)).unwrap()
        });
        let stop = stop.map(|micros| LiveStop {
            by: UserId::parse("ann").unwrap(),
            at: at(micros),
        });
        let message = LiveMessage {
            key: LiveKey {
                conversation: ConversationId(uuid::Uuid::nil()),
                id: LiveMessageId(uuid::Uuid::nil()),
            },
            start: LiveStart {
                sender: UserId::parse("helper").unwrap(),
                key: IdempotencyKey::parse("k").unwrap(),
                reply_to: None,
                at: at(0),
            },
            writers,
            touched_at: at(touched),
            status: LiveStatus::parse(&format!("at {touched}")).ok(),
            steps: MessageSteps::default(),
            stop,
            discarded_at: None,
        };
        LiveView {
            message,
            body: TEXT[..length].to_owned(),
            sent: None,
        }
    }

    proptest! {
        /// Views of one live message, in whatever order they come, make up the same one.
        #[test]
        fn views_merge_in_any_order(
            views in proptest::collection::vec((1..4_u8, 0..10_usize, 0..9_i64, proptest::option::of(0..9_i64)), 1..6),
        ) {
            let views: Vec<_> = views
                .into_iter()
                .map(|(writers, length, touched, stop)| view(writers, length, touched, stop))
                .collect();
            let merged = |views: &mut dyn Iterator<Item = &LiveView>| {
                let first = views.next().unwrap().clone();
                views.fold(first, |mut merged, view| {
                    merged.merge(view);
                    merged
                })
            };
            let forward = merged(&mut views.iter());
            prop_assert_eq!(&forward, &merged(&mut views.iter().rev()));
            let last = views.iter().map(|view| view.message.writers.shown()).max().unwrap();
            let of_last = views.iter().filter(|view| view.message.writers.shown() == last);
            prop_assert_eq!(forward.body.len(), of_last.map(|view| view.body.len()).max().unwrap());
        }
    }
}
