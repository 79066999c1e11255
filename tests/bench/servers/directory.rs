//! The directory and the mailboxes of a cluster in memory, each call counted as the statements that `store::cql` sends for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};

use wideroom::clock::{Clock, SystemClock};
use wideroom::model::{ChangeId, ConversationId, OrderKey, TimeUuid, UserId};
use wideroom::store::cluster::{
    Beat, ClusterStore, CompletionHandler, KeyedSend, MailboxLane, MailboxRow, NodeTime,
    Registration, ServerId, ServerState, Session, SessionKind, WriteTime,
};
use wideroom::store::{Audience, StoreFuture};

use super::counting::Meter;

/// Users whose sessions one statement reads.
const USERS: usize = 16;
/// A lane of a mailbox has a partition for each minute.
const MINUTE_MICROS: i64 = 60_000_000;

pub struct Directory {
    meter: Arc<Meter>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// Whether each server has ended.
    servers: HashMap<ServerId, bool>,
    beats: BTreeMap<ServerId, i64>,
    sessions: HashMap<UserId, BTreeSet<(SessionKind, ServerId)>>,
    listeners: HashMap<ConversationId, BTreeSet<ServerId>>,
    mailboxes: HashMap<(ServerId, MailboxLane), BTreeMap<TimeUuid, Vec<u8>>>,
    /// Participants of small conversations; `None` for large ones.
    conversations: HashMap<ConversationId, Option<Arc<[UserId]>>>,
}

impl Directory {
    pub fn new(meter: &Arc<Meter>) -> Arc<Self> {
        Arc::new(Self {
            meter: Arc::clone(meter),
            tables: Mutex::default(),
        })
    }

    fn ask<T>(
        &self,
        (statements, rows): (usize, usize),
        effect: impl FnOnce(&mut Tables) -> T,
    ) -> T {
        self.meter.add(statements, rows);
        effect(&mut self.tables.lock().unwrap())
    }

    fn ask_resting<T>(
        &self,
        (statements, rows): (usize, usize),
        effect: impl FnOnce(&mut Tables) -> T,
    ) -> T {
        self.meter.add_resting(statements, rows);
        effect(&mut self.tables.lock().unwrap())
    }

    pub fn put_conversation(&self, id: ConversationId, users: Vec<UserId>, is_large: bool) {
        let users = (!is_large).then(|| users.into());
        self.ask((0, 0), |tables| tables.conversations.insert(id, users));
    }

    pub fn is_large(&self, id: ConversationId) -> bool {
        self.ask((0, 0), |tables| {
            matches!(tables.conversations.get(&id), Some(None))
        })
    }
}

impl ClusterStore for Directory {
    fn put_server(&self, server: ServerId, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.ask((1, 1), |tables| {
                tables.servers.entry(server).or_insert(false);
            });
            Ok(())
        })
    }

    fn server(&self, server: ServerId) -> StoreFuture<'_, ServerState> {
        Box::pin(async move {
            let ended = self.ask_resting((1, 1), |tables| tables.servers.get(&server).copied());
            Ok(match ended {
                Some(true) => ServerState::Ended,
                Some(false) => ServerState::Running,
                None => ServerState::Missing,
            })
        })
    }

    /// One node, whose clock is that of this process.
    fn server_and_time(
        &self,
        server: ServerId,
    ) -> StoreFuture<'_, (ServerState, Option<NodeTime>)> {
        Box::pin(async move {
            let time = NodeTime {
                node: uuid::Uuid::nil(),
                now: SystemClock.now(),
            };
            Ok((self.server(server).await?, Some(time)))
        })
    }

    fn end_server(&self, server: ServerId, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.ask((1, 1), |tables| tables.servers.insert(server, true));
            Ok(())
        })
    }

    fn put_beat(&self, beat: Beat, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.ask_resting((1, 1), |tables| {
                tables.beats.insert(beat.server, beat.number)
            });
            Ok(())
        })
    }

    fn delete_beat(&self, server: ServerId, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.ask((1, 1), |tables| tables.beats.remove(&server));
            Ok(())
        })
    }

    fn beats(&self) -> StoreFuture<'_, Vec<Beat>> {
        Box::pin(async move {
            let beat = |(server, number): (&ServerId, &i64)| Beat {
                server: *server,
                number: *number,
            };
            let beats: Vec<_> =
                self.ask_resting((1, 0), |tables| tables.beats.iter().map(beat).collect());
            self.meter.add_resting(0, beats.len());
            Ok(beats)
        })
    }

    fn register<'a>(
        &'a self,
        server: ServerId,
        at: &'a Registration,
        _: WriteTime,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.ask((1, 1), |tables| match at {
                Registration::Session(user, kind) => {
                    let sessions = tables.sessions.entry(user.clone()).or_default();
                    sessions.insert((*kind, server))
                }
                Registration::Listener(id) => {
                    tables.listeners.entry(*id).or_default().insert(server)
                }
            });
            Ok(())
        })
    }

    fn unregister<'a>(
        &'a self,
        server: ServerId,
        at: &'a Registration,
        _: WriteTime,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.ask((1, 1), |tables| match at {
                Registration::Session(user, kind) => tables
                    .sessions
                    .get_mut(user)
                    .is_some_and(|sessions| sessions.remove(&(*kind, server))),
                Registration::Listener(id) => tables
                    .listeners
                    .get_mut(id)
                    .is_some_and(|listeners| listeners.remove(&server)),
            });
            Ok(())
        })
    }

    fn recipients(&self, conversation: ConversationId) -> StoreFuture<'_, Audience> {
        Box::pin(async move {
            let users = self.ask((1, 1), |tables| {
                tables.conversations.get(&conversation).cloned()
            });
            Ok(Audience {
                users: users.unwrap_or_default(),
            })
        })
    }

    fn settle_growth(&self, _: ConversationId, _: ChangeId) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.meter.add(1, 1);
            Ok(())
        })
    }

    /// The embedded store completes nothing for others.
    fn note_delivered<'a>(&'a self, _: &'a KeyedSend) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("no send is retried here") })
    }

    fn set_completion_handler(&self, _: Weak<dyn CompletionHandler>) {}

    /// It has no use for the time.
    fn follow_clock(&self, _: Weak<dyn Clock>) {}

    fn sessions<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Session>> {
        Box::pin(async move {
            let found: Vec<_> = self.ask((users.len().div_ceil(USERS), 0), |tables| {
                let of_user = |user: &UserId| {
                    let sessions = tables.sessions.get(user).into_iter().flatten();
                    let session = |(kind, server): &(SessionKind, ServerId)| Session {
                        user: user.clone(),
                        kind: *kind,
                        server: *server,
                    };
                    sessions.map(session).collect::<Vec<_>>()
                };
                users.iter().flat_map(of_user).collect()
            });
            self.meter.add(0, found.len());
            Ok(found)
        })
    }

    fn listeners(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<ServerId>> {
        Box::pin(async move {
            let found: Vec<_> = self.ask((1, 0), |tables| {
                let listeners = tables.listeners.get(&conversation);
                listeners.into_iter().flatten().copied().collect()
            });
            self.meter.add(0, found.len());
            Ok(found)
        })
    }

    fn put_notice<'a>(
        &'a self,
        server: ServerId,
        lane: MailboxLane,
        row: &'a MailboxRow,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.ask((1, 1), |tables| {
                let rows = tables.mailboxes.entry((server, lane)).or_default();
                rows.insert(row.id, row.payload.clone())
            });
            Ok(())
        })
    }

    fn notices(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> StoreFuture<'_, Vec<MailboxRow>> {
        Box::pin(async move {
            let minute = |key: OrderKey| key.moment().micros() / MINUTE_MICROS;
            let minutes = usize::try_from(minute(up_to) - minute(after)).unwrap_or(0) + 1;
            let found: Vec<_> = self.ask_resting((minutes.min(6), 0), |tables| {
                let rows = tables.mailboxes.entry((server, lane)).or_default();
                let row = |(id, payload): (&TimeUuid, &Vec<u8>)| MailboxRow {
                    id: *id,
                    payload: payload.clone(),
                };
                let is_in = |(id, _): &(&TimeUuid, &Vec<u8>)| {
                    id.order_key() > after && id.order_key() <= up_to
                };
                rows.iter().filter(is_in).map(row).collect()
            });
            self.meter.add_resting(0, found.len());
            Ok(found)
        })
    }

    /// The clocks of its nodes are right.
    fn clock_faults(&self) -> usize {
        0
    }
}
