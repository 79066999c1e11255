//! Events of the registry for its owner: of each row the latest one, so the queue is bounded by the
//! number of rows.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::cluster::Registration;

/// Changes that the owner of the registry reacts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryEvent {
    /// The first lease of a row was acknowledged.
    Registered(Registration),
    /// The row was removed, a while after its last lease.
    Removed(Registration),
    /// All lapsed rows are registered again: streams must read the store from their cursors.
    Healed,
}

#[derive(Default)]
pub(in crate::cluster) struct RegistryEvents {
    waiting: Mutex<WaitingEvents>,
    has_more: Notify,
}

#[derive(Default)]
struct WaitingEvents {
    has_healed: bool,
    /// Whether each row was registered or removed.
    rows: BTreeMap<Registration, bool>,
}

impl RegistryEvents {
    pub(in crate::cluster) fn push(&self, event: RegistryEvent) {
        let mut waiting = self.waiting.lock();
        match event {
            RegistryEvent::Registered(row) => {
                waiting.rows.insert(row, true);
            }
            RegistryEvent::Removed(row) => {
                waiting.rows.insert(row, false);
            }
            RegistryEvent::Healed => waiting.has_healed = true,
        }
        drop(waiting);
        self.has_more.notify_one();
    }

    fn take(&self) -> Option<RegistryEvent> {
        let mut waiting = self.waiting.lock();
        if std::mem::take(&mut waiting.has_healed) {
            return Some(RegistryEvent::Healed);
        }
        waiting.rows.pop_first().map(|(row, is_registered)| {
            if is_registered {
                RegistryEvent::Registered(row)
            } else {
                RegistryEvent::Removed(row)
            }
        })
    }

    /// Waits for the next event.
    pub(in crate::cluster) async fn next(&self) -> RegistryEvent {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            self.has_more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConversationId, UserId};
    use crate::store::cluster::SessionKind;

    #[tokio::test]
    async fn of_each_row_the_latest_event_is_delivered() {
        let events = RegistryEvents::default();
        let user = UserId::parse("anna").unwrap();
        let session = Registration::Session(user, SessionKind::Present);
        let listener = Registration::Listener(ConversationId::random());
        events.push(RegistryEvent::Registered(session.clone()));
        events.push(RegistryEvent::Registered(listener.clone()));
        events.push(RegistryEvent::Removed(session.clone()));
        events.push(RegistryEvent::Healed);
        assert_eq!(events.next().await, RegistryEvent::Healed);
        assert_eq!(events.next().await, RegistryEvent::Removed(session));
        assert_eq!(events.next().await, RegistryEvent::Registered(listener));
        assert_eq!(events.take(), None);
    }
}
