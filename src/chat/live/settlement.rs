//! Settlement of a live message: what a silent writer left becomes a message, or is discarded.
//!
//! The rules, each of which a mutant of the model breaks:
//!
//! - The server ends the list of writers first, and reads the text [`CLOSED_FOR`] later: by then every append that any server acknowledges
//!   is in it.
//! - The message is an ordinary send with the key. Of two servers, or of a server and the writer, one wins by the claim of the key.

use std::time::Duration;

use super::held::LiveState;
use super::{FRESH_FOR, LiveService};
use crate::chat::error::{Error, Result};
use crate::chat::write::command::draft::{Draft, DraftInput};
use crate::model::{LiveKey, LiveMessage, Timestamp};
use crate::store::live::{LiveListing, WriterClaim, minute_of};

/// Time from the end of the list of writers to the read of the text.
pub(super) const CLOSED_FOR: Duration = Duration::from_secs(4);
const _: () = assert!(CLOSED_FOR.as_secs() >= 2 * FRESH_FOR.as_secs());
/// Claims of one settlement, where writers claim at the same time.
const CLAIMS_MAX: usize = 4;

/// Outcome of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveOutcome {
    Sent,
    Discarded,
    /// It had ended already.
    Ended,
}

impl LiveService {
    /// Ends the list of writers of a live message that is due. False if there is nothing to send: it has ended, or its writer is at
    /// work.
    pub(super) async fn close(&self, due: &LiveListing) -> Result<bool> {
        for _ in 0..CLAIMS_MAX {
            let found = self.store.live_messages(&[due.live]).await?.pop().flatten();
            let Some(message) = found.filter(|message| message.discarded_at.is_none()) else {
                return Ok(false);
            };
            let now = self.in_flight.now();
            if !message.writers.is_closed() && !is_silent(&message, now) {
                self.list_claim(&message).await?;
                return Ok(false);
            }
            if self.is_sent(&message).await? {
                return Ok(false);
            }
            // Another server may have ended the list, and died.
            let Ok(to) = message.writers.closed(now) else {
                return Ok(true);
            };
            let seen = message.writers;
            let claim = WriterClaim::Next { seen, to };
            if self.store.claim_live_writer(due.live, &claim).await? {
                self.mark_stale(due.live);
                return Ok(true);
            }
        }
        Err(Error::Busy)
    }

    /// Sends what the writer left, [`CLOSED_FOR`] after the list of writers was ended.
    pub(super) async fn settle(&self, live: LiveKey) -> Result<LiveOutcome> {
        let Some(state) = self.load(live).await? else {
            return Ok(LiveOutcome::Ended);
        };
        let message = &state.message;
        if message.discarded_at.is_some() || self.is_sent(message).await? {
            return Ok(LiveOutcome::Ended);
        }
        match self.send_interrupted(&state).await {
            Ok(()) => Ok(LiveOutcome::Sent),
            // The writer has sent another text with the key.
            Err(Error::Conflict) => Ok(LiveOutcome::Ended),
            Err(error) if is_refusal(&error) => {
                tracing::debug!(conversation.id = %live.conversation, %error, "the server discards a live message that may not be sent");
                self.end_without_message(live).await?;
                self.on_notice(live);
                Ok(LiveOutcome::Discarded)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists a live message for a later pass.
    pub(super) async fn put_off(&self, due: &LiveListing) -> Result<()> {
        let minute = minute_of(self.in_flight.now());
        let listing = LiveListing {
            minute,
            ..due.clone()
        };
        Ok(self.store.list_live(&listing, minute + 1).await?)
    }

    /// Lists a live message whose last write is the claim of a writer. The claim is not listed itself.
    async fn list_claim(&self, message: &LiveMessage) -> Result<()> {
        if message.writers.claimed_at() != Some(message.touched_at) {
            return Ok(());
        }
        self.list_in(minute_of(message.touched_at), message).await
    }

    /// Whether the message of a key is stored. A key alone may be that of a send whose server died: it is sent again.
    async fn is_sent(&self, message: &LiveMessage) -> Result<bool> {
        let conversation = message.key.conversation;
        let sender = [(message.start.sender.clone(), message.start.key.clone())];
        let earlier = self.store.earlier_sends(conversation, &sender).await?;
        let Some(earlier) = earlier.into_iter().flatten().next() else {
            return Ok(false);
        };
        let key = (conversation, earlier.message);
        let stored = self.store.messages(&[key]).await?;
        Ok(stored.into_iter().flatten().next().is_some())
    }

    /// Sends the text in the name of its writer, by the rules of every send.
    async fn send_interrupted(&self, state: &LiveState) -> Result<()> {
        let LiveMessage {
            key, start, steps, ..
        } = &state.message;
        let mut reply_to = start.reply_to;
        loop {
            let input = DraftInput {
                body: state.body.as_str().to_owned(),
                reply_to,
                idempotency_key: Some(start.key.as_str().to_owned()),
                ..DraftInput::default()
            };
            let draft = Draft::interrupted(input, steps, &self.bounds)?;
            let sender = start.sender.clone();
            match self.writes.send(sender, key.conversation, draft).await {
                // The message that it replies to may be gone. A sender who has left is not found either way.
                Err(Error::NotFound(_)) if reply_to.take().is_some() => {}
                sent => return sent.map(drop),
            }
        }
    }
}

/// Whether the writer of a live message has fallen silent, or has had all its time.
fn is_silent(message: &LiveMessage, now: Timestamp) -> bool {
    let silent_from = message.touched_at.plus_micros(super::shown::SILENCE_MICROS);
    let ends_at = message.start.at.plus_micros(LiveMessage::LIFE_MICROS);
    silent_from.min(ends_at) <= now
}

/// Whether a send is refused for good. Any other error may pass.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::NotFound(_)
        | Error::Forbidden(_)
        | Error::Rejected { .. }
        | Error::BadInput { .. }
        | Error::TooMany(_) => true,
        Error::NotChecked
        | Error::Conflict
        | Error::LiveConflict(_)
        | Error::CursorExpired
        | Error::OutboxOff
        | Error::UpgradeNotFinished
        | Error::Busy
        | Error::TooFast { .. }
        | Error::Full(_)
        | Error::OutcomeUnknown
        | Error::Store(_) => false,
    }
}
