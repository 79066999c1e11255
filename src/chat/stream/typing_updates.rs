//! Who is typing: signs that are told in this process and kept nowhere.
//!
//! A sign lasts a few seconds. The end of it is each listener's own matter, so that a client that goes away, or a sign that is lost, leaves
//! nobody typing for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::bus::{Received, Signal, TopicSubscription};
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::stream::update_key::UpdateKey;
use crate::chat::{Chat, Result};
use crate::model::{
    Conversation, ConversationId, Event, Notice, OrderKey, TimeUuid, Topic, UserId,
};

/// Users of one conversation whose typing one listener follows. More of them are not told.
const TYPISTS_MAX: usize = 100;
/// How long a stream sleeps that follows nobody.
const QUIET: Duration = Duration::from_secs(3_600);

/// A user begins to type, or stops.
#[derive(Debug, Clone)]
pub struct TypingUpdate {
    pub user: UserId,
    pub is_typing: bool,
    /// Where another stream may have the same one.
    pub key: Option<UpdateKey>,
}

pub struct TypingUpdates {
    watch: MembershipGuard,
    heard: TopicSubscription,
    /// Who was told to be typing, and when their last sign ends.
    typists: HashMap<UserId, Instant>,
    lasts: Duration,
}

impl Chat {
    /// Gives a sign that the viewer is typing, or stops. Answers with the conversation.
    pub async fn set_typing(
        &self,
        viewer: &UserId,
        id: ConversationId,
        is_typing: bool,
    ) -> Result<Arc<Conversation>> {
        let conversation = self.conversation_of(viewer, id).await?;
        self.pace_of(&self.0.typing, &(viewer, id, is_typing))?;
        self.tell_typing(viewer, id, is_typing);
        Ok(conversation)
    }

    /// Who begins to type in a conversation, and who stops, from now on.
    pub async fn typing_updates(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<TypingUpdates> {
        let heard = self.0.bus.subscribe(Topic::Typing(id));
        let watch = MembershipGuard::begin(self, viewer, id).await?;
        Ok(TypingUpdates {
            watch,
            heard,
            typists: HashMap::new(),
            lasts: self.0.bounds.typing_lasts,
        })
    }

    /// Whoever sends a message has typed it.
    pub(crate) fn tell_typing(&self, user: &UserId, id: ConversationId, is_typing: bool) {
        self.0
            .bus
            .signal_peers(|| Signal::Typing(id, user.clone(), is_typing));
        self.tell_typing_here(user, id, is_typing);
    }

    pub(crate) fn tell_typing_here(&self, user: &UserId, id: ConversationId, is_typing: bool) {
        let topic = Topic::Typing(id);
        if self.0.bus.has_subscribers(&topic) {
            // It has no place in any order, so that any id will do.
            let (at, event) = (
                TimeUuid::new(self.0.clock.now(), [0; 8]),
                Event::Typing(id, user.clone(), is_typing),
            );
            self.0
                .bus
                .publish(&topic, Notice::new(at, OrderKey::MIN, event));
        }
    }
}

impl TypingUpdates {
    /// What is next. `None` when the viewer is not in the conversation any more.
    pub async fn next(&mut self) -> Option<Result<TypingUpdate>> {
        let update = self.hear().await?;
        match self.watch.may_still_see().await {
            Ok(true) => Some(Ok(update)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.watch
    }

    async fn hear(&mut self) -> Option<TypingUpdate> {
        loop {
            let first_end = self
                .typists
                .values()
                .min()
                .copied()
                .unwrap_or_else(|| Instant::now() + QUIET);
            match timeout_at(first_end, self.heard.next()).await {
                Ok(heard) => {
                    if let Some(update) = self.take(&heard?) {
                        return Some(update);
                    }
                }
                Err(_) => {
                    let now = Instant::now();
                    let ended = self
                        .typists
                        .iter()
                        .find(|(_, end)| **end <= now)
                        .map(|(user, _)| user.clone());
                    if let Some(user) = ended {
                        self.typists.remove(&user);
                        return Some(TypingUpdate {
                            user,
                            is_typing: false,
                            key: None,
                        });
                    }
                }
            }
        }
    }

    /// What is news of it. A sign that was missed comes again, or ends.
    fn take(&mut self, heard: &Received) -> Option<TypingUpdate> {
        let Received::Notice(notice) = heard else {
            return None;
        };
        let Event::Typing(_, user, is_typing) = &notice.event else {
            return None;
        };
        let is_news = if *is_typing {
            let has_room = self.typists.len() < TYPISTS_MAX || self.typists.contains_key(user);
            has_room
                && self
                    .typists
                    .insert(user.clone(), Instant::now() + self.lasts)
                    .is_none()
        } else {
            self.typists.remove(user).is_some()
        };
        is_news.then(|| TypingUpdate {
            user: user.clone(),
            is_typing: *is_typing,
            key: Some(UpdateKey::heard(Arc::clone(notice))),
        })
    }
}
