//! Slow mode: a MEMBER of a group waits between two sends.
//!
//! The queue of the conversation checks a send against the sender's last one, which the inbox row holds
//! already. So only sends to a conversation with a slow mode read anything, and across servers one send too
//! many is possible. A retry of a stored send is no second one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{SendJob, refuse_all};
use crate::chat::error::{Error, Result};
use crate::chat::write::conversation_writer::ConversationWriter;
use crate::model::{ConversationId, IdempotencyKey, Timestamp, UserId};
use crate::store::Store;

/// Sends of one batch that were accepted, by their senders.
#[derive(Default)]
struct AcceptedSends {
    newest: HashMap<UserId, Timestamp>,
    keys: HashSet<(UserId, IdempotencyKey)>,
}

impl ConversationWriter {
    /// Refuses the sends that come too early, in their order.
    pub(super) async fn refuse_too_early(&self, sends: Vec<SendJob>) -> Vec<SendJob> {
        if sends.iter().all(|send| send.draft.slow_mode_seconds == 0) {
            return sends;
        }
        let mut accepted = AcceptedSends::default();
        let mut kept = Vec::with_capacity(sends.len());
        for send in sends {
            match self.check_slow_mode(&send, &mut accepted).await {
                Ok(()) => kept.push(send),
                Err(error) => refuse_all([send], &error),
            }
        }
        kept
    }

    async fn check_slow_mode(&self, send: &SendJob, accepted: &mut AcceptedSends) -> Result<()> {
        if send.draft.slow_mode_seconds == 0 {
            return Ok(());
        }
        let sender = &send.sender;
        let key = send.draft.key.clone().map(|key| (sender.clone(), key));
        if let Some(key) = &key {
            let store = &self.context().store;
            let earlier = store.earlier_sends(self.conversation(), std::slice::from_ref(key));
            if accepted.keys.contains(key) || earlier.await?.into_iter().flatten().next().is_some()
            {
                return Ok(());
            }
        }
        let now = self.context().in_flight.now();
        let last = match accepted.newest.get(sender) {
            Some(last) => Some(*last),
            None => {
                let store = &*self.context().store;
                last_send(store, sender, self.conversation()).await?
            }
        };
        require_pause(send.draft.slow_mode_seconds, last, now)?;
        accepted.newest.insert(sender.clone(), now);
        accepted.keys.extend(key);
        Ok(())
    }
}

/// Time of the sender's last send in a conversation.
pub(crate) async fn last_send(
    store: &dyn Store,
    sender: &UserId,
    conversation: ConversationId,
) -> Result<Option<Timestamp>> {
    let row = store.inbox_rows(sender, &[conversation]).await?.pop();
    let sent = row.flatten().and_then(|row| row.sent_up_to);
    Ok(sent.map(|message| message.moment()))
}

/// Refuses a send that follows the last one too early.
pub(crate) fn require_pause(seconds: u32, last: Option<Timestamp>, now: Timestamp) -> Result<()> {
    let pause = i64::from(seconds) * 1_000_000;
    let early = last.map_or(0, |last| last.plus_micros(pause).micros() - now.micros());
    if early > 0 {
        let retry_after = Duration::from_micros(early.unsigned_abs());
        return Err(Error::TooFast { retry_after });
    }
    Ok(())
}
