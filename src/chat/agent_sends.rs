//! Last sends of agents, for slow mode. An agent has no inbox row that holds its last send, so each server remembers
//! those that went through it.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::chat::in_flight_ids::InFlightIds;
use crate::model::{ConversationId, Message, Timestamp, UserId};

/// Last sends that are held. A further one replaces the oldest, whose agent may then send once too early.
const HELD_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

pub(crate) struct AgentSends(Mutex<LruCache<(UserId, ConversationId), Timestamp>>);

impl Default for AgentSends {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(HELD_MAX)))
    }
}

impl AgentSends {
    /// Notes a message that was persisted, if an agent sent it.
    pub(crate) fn note(&self, message: &Message) {
        if message.sender.is_agent() {
            let key = (message.sender.clone(), message.conversation);
            self.0.lock().put(key, message.id.moment());
        }
    }

    /// Time since the last send of an agent in a conversation, as far as this server knows.
    pub(crate) fn since_last(
        &self,
        agent: &UserId,
        conversation: ConversationId,
        in_flight: &InFlightIds,
    ) -> Option<Duration> {
        let key = (agent.clone(), conversation);
        let last = self.0.lock().get(&key).copied();
        last.map(|moment| in_flight.age(moment))
    }
}
