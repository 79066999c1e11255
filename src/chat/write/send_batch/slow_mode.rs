//! Slow mode: a MEMBER of a group waits between two sends.
//!
//! The queue of the conversation checks a send against the sender's last one, which the inbox row holds
//! already. So only sends to a conversation with a slow mode read anything, and across servers one send too
//! many is possible. A retry of a stored send is no second one. The last send of an agent, which has no row, is known to
//! the server alone through which it went.
//!
//! The pause counts from the arrival of the last send (`InFlightIds::age`), whatever the clock has shown since.

use std::collections::HashSet;
use std::time::Duration;

use super::{SendJob, refuse_all};
use crate::chat::error::{Error, Result};
use crate::chat::write::conversation_writer::ConversationWriter;
use crate::chat::write::write_context::WriteContext;
use crate::model::{ConversationId, IdempotencyKey, UserId};

/// Sends of one batch that were accepted.
#[derive(Default)]
struct AcceptedSends {
    senders: HashSet<UserId>,
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
                Err(error @ Error::TooFast { .. }) => self.refuse(send, &error).await,
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
        if key.as_ref().is_some_and(|key| accepted.keys.contains(key)) {
            return Ok(());
        }
        let since_last = if accepted.senders.contains(sender) {
            Some(Duration::ZERO)
        } else {
            since_last_send(self.context(), sender, self.conversation()).await?
        };
        require_pause(send.draft.slow_mode_seconds, since_last)?;
        if self.earlier_send(send).await?.is_none() {
            accepted.senders.insert(sender.clone());
        }
        accepted.keys.extend(key);
        Ok(())
    }
}

/// Time since the sender's last send in a conversation.
pub(crate) async fn since_last_send(
    context: &WriteContext,
    sender: &UserId,
    conversation: ConversationId,
) -> Result<Option<Duration>> {
    let WriteContext {
        store, in_flight, ..
    } = context;
    if sender.is_agent() {
        let sends = &context.agent_sends;
        return Ok(sends.since_last(sender, conversation, in_flight));
    }
    let row = store.inbox_rows(sender, &[conversation]).await?.pop();
    let sent = row.flatten().and_then(|row| row.sent_up_to);
    Ok(sent.map(|message| in_flight.age(message.moment())))
}

/// Refuses a send that follows the last one too early.
pub(crate) fn require_pause(seconds: u32, since_last: Option<Duration>) -> Result<()> {
    let pause = Duration::from_secs(seconds.into());
    let retry_after = since_last.map_or(Duration::ZERO, |since| pause.saturating_sub(since));
    if !retry_after.is_zero() {
        return Err(Error::TooFast { retry_after });
    }
    Ok(())
}
