//! The stream of users who are typing in one conversation.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::StreamService;
use super::registration::StreamRegistration;
use super::update_key::UpdateKey;
use crate::bus::{Received, TopicSubscription};
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::error::Result;
use crate::model::{ConversationId, Event, Topic, UserId, Viewer};

/// Typing users that one stream follows. Signals of further users are dropped.
const TYPING_USERS_MAX: usize = 100;
/// Timeout of a stream without typing users.
const IDLE_WAIT: Duration = Duration::from_secs(3_600);

/// A user has started or stopped typing.
#[derive(Debug, Clone)]
pub struct TypingUpdate {
    pub user: UserId,
    pub is_typing: bool,
    /// `None` for an expired signal, which each stream ends by its own timer.
    pub key: Option<UpdateKey>,
}

pub struct TypingUpdates {
    guard: MembershipGuard,
    _registration: StreamRegistration,
    subscription: TopicSubscription,
    /// Users who were delivered as typing, with the end of their last signals.
    typing: HashMap<UserId, Instant>,
    lifetime: Duration,
}

impl StreamService {
    /// Users who start or stop typing in a conversation, from now on.
    pub async fn typing(
        &self,
        caller: impl Into<Viewer>,
        id: ConversationId,
    ) -> Result<TypingUpdates> {
        let caller = &caller.into();
        let subscription = self.bus.subscribe(Topic::Typing(id));
        let (registration, guard) = self.begin_in(caller, id).await?;
        Ok(TypingUpdates {
            guard,
            _registration: registration,
            subscription,
            typing: HashMap::new(),
            lifetime: self.typing_lifetime,
        })
    }
}

impl TypingUpdates {
    /// The next update. `None` once the viewer no longer takes part.
    pub async fn next(&mut self) -> Result<Option<TypingUpdate>> {
        while let Some(update) = self.receive_or_expire().await? {
            if !self.guard.may_still_see().await? {
                break;
            }
            if self.is_shown(&update).await? {
                return Ok(Some(update));
            }
            // No end is delivered for it either.
            self.typing.remove(&update.user);
        }
        Ok(None)
    }

    /// Whether the viewer sees an update: not the typing of a user whom they block, or who blocks them. The end
    /// of one that was shown before the block is.
    async fn is_shown(&self, update: &TypingUpdate) -> Result<bool> {
        let (guard, user) = (&self.guard, &update.user);
        let is_blocked = update.is_typing
            && (guard.has_blocked(user).await? || guard.is_blocked_by(user).await?);
        Ok(!is_blocked)
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.guard
    }

    async fn receive_or_expire(&mut self) -> Result<Option<TypingUpdate>> {
        loop {
            let first_end = self
                .typing
                .values()
                .min()
                .copied()
                .unwrap_or_else(|| Instant::now() + IDLE_WAIT);
            match timeout_at(first_end, self.subscription.next()).await {
                Ok(None) => return Ok(None),
                Ok(Some(received)) => {
                    if let Some(update) = self.accept(&received) {
                        return Ok(Some(update));
                    }
                    if let Received::Notice(notice) = &received
                        && self.guard.is_own_block(&notice.event)
                        && self.guard.is_hidden().await?
                    {
                        return Ok(None);
                    }
                }
                Err(_) => {
                    let now = Instant::now();
                    let expired = self
                        .typing
                        .iter()
                        .find(|(_, end)| **end <= now)
                        .map(|(user, _)| user.clone());
                    if let Some(user) = expired {
                        self.typing.remove(&user);
                        return Ok(Some(TypingUpdate {
                            user,
                            is_typing: false,
                            key: None,
                        }));
                    }
                }
            }
        }
    }

    /// The update of a signal, unless it changes nothing. A missed signal is repeated, or expires.
    fn accept(&mut self, received: &Received) -> Option<TypingUpdate> {
        let Received::Notice(notice) = received else {
            return None;
        };
        let Event::Typing(_, user, is_typing) = &notice.event else {
            return None;
        };
        let is_new = if *is_typing {
            let has_capacity =
                self.typing.len() < TYPING_USERS_MAX || self.typing.contains_key(user);
            has_capacity
                && self
                    .typing
                    .insert(user.clone(), Instant::now() + self.lifetime)
                    .is_none()
        } else {
            self.typing.remove(user).is_some()
        };
        is_new.then(|| TypingUpdate {
            user: user.clone(),
            is_typing: *is_typing,
            key: Some(UpdateKey::of_notice(Arc::clone(notice))),
        })
    }
}
