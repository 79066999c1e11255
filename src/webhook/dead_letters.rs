//! Dead letters and positions, for operators.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

use super::Webhooks;
use super::delivery::{Deliverer, TryOutcome};
use super::shard::{item_of, position_of};
use crate::chat;
use crate::store::{DeadLetter, ReaderPosition};

/// Dead letters that are listed, or redelivered by one call.
const LETTERS_MAX: usize = 1_000;
/// Time after which a redelivery begins no further try.
const REDELIVER_FOR: Duration = Duration::from_secs(30);

impl Webhooks {
    /// Positions and dead letters of all webhooks, a line each.
    pub async fn list(&self) -> Result<String, chat::Error> {
        if self.hooks.is_empty() {
            return Ok("this server has no webhook\n".to_owned());
        }
        let mut text = String::new();
        for hook in &self.hooks {
            text.push_str(&hook.summary().await?);
            for letter in hook.dead_letters().await? {
                let _ = writeln!(
                    text,
                    "  {} {} in {} since {}: {} after {} tries",
                    letter.event.id,
                    item_of(&letter).type_name(),
                    letter.conversation,
                    letter.died_at,
                    letter.reason,
                    letter.tries
                );
            }
        }
        Ok(text)
    }

    /// Sends the dead letters of a webhook again, or one of them, and deletes those that are delivered. `None` if there is no such
    /// webhook.
    pub async fn redeliver(
        &self,
        name: &str,
        event: Option<&str>,
    ) -> Option<Result<String, chat::Error>> {
        let hook = self.hook(name)?;
        Some(hook.redeliver(event).await)
    }
}

impl Deliverer {
    async fn dead_letters(&self) -> Result<Vec<DeadLetter>, chat::Error> {
        let store = self.chat.store();
        Ok(store.dead_letters(self.name.as_str(), LETTERS_MAX).await?)
    }

    async fn summary(&self) -> Result<String, chat::Error> {
        let positions = self.chat.outbox.reader_positions(&self.name).await?;
        let oldest = positions.iter().flatten().map(ReaderPosition::oldest).min();
        let lag = oldest.map_or(Duration::ZERO, |oldest| self.chat.outbox.lag(oldest));
        let held = positions.iter().flatten().filter(|one| one.lease.is_some());
        let apart: usize = positions.iter().flatten().map(|one| one.held.len()).sum();
        let count = self.dead_letters().await?.len();
        let state = if self.is_gone.is_cancelled() {
            ", off since the receiver answered 410"
        } else {
            ""
        };
        Ok(format!(
            "{} to {}: {} of {} shards delivered, oldest position {} s ago, {apart} conversations behind, {count} dead letters{state}\n",
            self.name,
            self.client.target(),
            held.count(),
            positions.len(),
            lag.as_secs()
        ))
    }

    async fn redeliver(&self, event: Option<&str>) -> Result<String, chat::Error> {
        let (began, store) = (Instant::now(), self.chat.store());
        let letters = self.dead_letters().await?;
        let is_asked =
            |letter: &&DeadLetter| event.is_none_or(|event| letter.event.id.to_string() == event);
        let asked: Vec<_> = letters.iter().filter(is_asked).collect();
        let (mut delivered, mut last_reason) = (0, None);
        for letter in &asked {
            if began.elapsed() > REDELIVER_FOR {
                break;
            }
            let position = position_of(letter);
            let outcome = self
                .try_event(letter.conversation, &item_of(letter), position)
                .await;
            match outcome.outcome {
                TryOutcome::Delivered | TryOutcome::Nothing => {
                    store.delete_dead_letter(self.name.as_str(), letter).await?;
                    delivered += 1;
                }
                TryOutcome::Refused(reason) => last_reason = Some(reason),
                TryOutcome::Failed(_, reason) => {
                    last_reason = Some(reason);
                    break;
                }
                TryOutcome::Gone => {
                    last_reason = Some("the receiver answers 410".to_owned());
                    break;
                }
            }
        }
        let left = asked.len() - delivered;
        let reason = last_reason.map_or_else(String::new, |reason| format!(": {reason}"));
        Ok(format!("{delivered} delivered, {left} left{reason}\n"))
    }
}
