//! Presence outbox: users whose presence may have changed, collected by the server that follows
//! them.
//!
//! Many users come and go at once when a server starts or ends, so the names for one server are
//! collected for a moment and go out together. The receiver reads each user's sessions: a notice is
//! a hint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::dispatcher::Dispatcher;
use super::notice::RemoteNotice;
use crate::model::UserId;
use crate::store::cluster::ServerId;

const COLLECTED_FOR: Duration = Duration::from_millis(250);
/// Names in one notice.
const NAMES_MAX: usize = 500;

pub(super) struct PresenceOutbox {
    dispatcher: Arc<Dispatcher>,
    waiting: Mutex<BTreeMap<ServerId, Vec<UserId>>>,
    has_more: Notify,
}

impl PresenceOutbox {
    pub(super) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            dispatcher,
            waiting: Mutex::default(),
            has_more: Notify::new(),
        }
    }

    pub(super) fn add(&self, server: ServerId, user: &UserId) {
        let mut waiting = self.waiting.lock();
        let users = waiting.entry(server).or_default();
        if !users.contains(user) {
            users.push(user.clone());
        }
        drop(waiting);
        self.has_more.notify_one();
    }

    pub(super) async fn run(self: Arc<Self>) {
        loop {
            self.has_more.notified().await;
            sleep(COLLECTED_FOR).await;
            let waiting = std::mem::take(&mut *self.waiting.lock());
            for (server, users) in waiting {
                for some in users.chunks(NAMES_MAX) {
                    let users = some.to_vec();
                    let dispatcher = Arc::clone(&self.dispatcher);
                    tokio::spawn(async move {
                        let notice = RemoteNotice::Presence { users };
                        dispatcher.deliver_directly(server, notice).await;
                    });
                }
            }
        }
    }
}
