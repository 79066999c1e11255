//! Held-back cursors: the events that this server was notified of and has not published yet.
//!
//! Invariant: a stream never returns a cursor at or after an event of its conversation, or of its
//! user's inbox, that waits here. A notice that cannot be followed so holds back the streams that
//! it concerns, and no other one.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::notice::{RemoteEnvelope, RemoteNotice};
use crate::model::{ConversationId, OrderKey, TimeUuid, UserId};

/// Stream that asks how far its cursor may go.
#[derive(Debug, Clone, Copy)]
pub enum CursorScope<'a> {
    Conversation(ConversationId),
    /// An inbox. It may follow any large conversation.
    Inbox(&'a UserId),
    /// No stream in particular: nothing that waits may be passed.
    Everything,
}

/// Events that wait, by their ids and the notice that named them.
type Waiting = BTreeSet<(OrderKey, TimeUuid)>;

#[derive(Default)]
pub(super) struct HeldBack {
    all: Waiting,
    conversations: HashMap<ConversationId, Waiting>,
    users: HashMap<UserId, Waiting>,
    /// Events of large conversations, of any of them.
    large: Waiting,
}

impl HeldBack {
    pub(super) fn add(&mut self, envelope: &RemoteEnvelope) {
        let Some(oldest) = envelope.notice.oldest() else {
            return;
        };
        let entry = (oldest, envelope.delivery);
        self.all.insert(entry);
        match &envelope.notice {
            RemoteNotice::Events { conversation, .. }
            | RemoteNotice::Growth { conversation, .. } => {
                let waiting = self.conversations.entry(*conversation).or_default();
                waiting.insert(entry);
            }
            RemoteNotice::Inbox { .. }
            | RemoteNotice::Marker { .. }
            | RemoteNotice::Presence { .. }
            | RemoteNotice::Typing { .. }
            | RemoteNotice::Live(_) => {}
        }
        if is_large(envelope) {
            self.large.insert(entry);
        }
        for user in envelope.notice.users() {
            self.users.entry(user.clone()).or_default().insert(entry);
        }
    }

    pub(super) fn remove(&mut self, envelope: &RemoteEnvelope) {
        let Some(oldest) = envelope.notice.oldest() else {
            return;
        };
        let entry = (oldest, envelope.delivery);
        self.all.remove(&entry);
        self.large.remove(&entry);
        if let Some(conversation) = envelope.notice.conversation() {
            remove(&mut self.conversations, &conversation, &entry);
        }
        for user in envelope.notice.users() {
            remove(&mut self.users, user, &entry);
        }
    }

    /// Greatest position before all that waits, but for the events with the oldest id `except`:
    /// those are being published. `None` if nothing waits.
    pub(super) fn limit(
        &self,
        scope: CursorScope<'_>,
        except: Option<OrderKey>,
    ) -> Option<OrderKey> {
        let first = |waiting: Option<&Waiting>| {
            let mut oldest = waiting?.iter().map(|(oldest, _)| *oldest);
            oldest.find(|oldest| Some(*oldest) != except)
        };
        let oldest = match scope {
            CursorScope::Conversation(conversation) => first(self.conversations.get(&conversation)),
            CursorScope::Inbox(user) => first(Some(&self.large))
                .into_iter()
                .chain(first(self.users.get(user)))
                .min(),
            CursorScope::Everything => first(Some(&self.all)),
        };
        oldest.map(OrderKey::before)
    }
}

fn is_large(envelope: &RemoteEnvelope) -> bool {
    matches!(
        envelope.notice,
        RemoteNotice::Events { is_large: true, .. } | RemoteNotice::Growth { .. }
    )
}

fn remove<K: Eq + Hash>(map: &mut HashMap<K, Waiting>, key: &K, entry: &(OrderKey, TimeUuid)) {
    if let Some(waiting) = map.get_mut(key) {
        waiting.remove(entry);
        if waiting.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::RemoteEvent;
    use super::*;
    use crate::model::Timestamp;
    use crate::store::cluster::ServerId;

    fn id(micros: i64) -> TimeUuid {
        TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn what_waits_holds_back_its_conversation_and_its_users_alone() {
        let (conversation, other) = (ConversationId::random(), ConversationId::random());
        let [anna, ben] = ["anna", "ben"].map(|name| UserId::parse(name).unwrap());
        let envelope = |delivery, event| RemoteEnvelope {
            delivery: id(delivery),
            sender: ServerId::random(),
            notice: RemoteNotice::Events {
                conversation,
                events: vec![RemoteEvent::Message(id(event))],
                users: vec![anna.clone()],
                is_large: false,
            },
        };
        let mut held = HeldBack::default();
        let envelopes = [envelope(1, 50), envelope(2, 40)];
        envelopes.iter().for_each(|envelope| held.add(envelope));
        let limit = |held: &HeldBack, scope: CursorScope<'_>| held.limit(scope, None);
        let before = Some(id(40).order_key().before());
        assert_eq!(
            limit(&held, CursorScope::Conversation(conversation)),
            before
        );
        assert_eq!(limit(&held, CursorScope::Conversation(other)), None);
        assert_eq!(limit(&held, CursorScope::Inbox(&anna)), before);
        assert_eq!(limit(&held, CursorScope::Inbox(&ben)), None);
        assert_eq!(
            held.limit(CursorScope::Everything, Some(id(40).order_key())),
            Some(id(50).order_key().before())
        );
        assert_eq!(limit(&held, CursorScope::Everything), before);
        held.remove(&envelopes[1]);
        assert_eq!(
            limit(&held, CursorScope::Everything),
            Some(id(50).order_key().before())
        );
        held.remove(&envelopes[0]);
        assert!(held.all.is_empty());
        assert!(held.conversations.is_empty() && held.users.is_empty());
    }
}
