//! Servers over one keyspace, and the people who use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use wideroom::bus::Bus;
use wideroom::chat::{
    Bounds, Chat, ConversationUpdates, Draft, DraftInput, InboxUpdates, MessageUpdates,
};
use wideroom::clock::{Clock, SystemClock};
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::model::{ConversationId, Message, OrderKey, OutboxShard, Timestamp, UserId};
use wideroom::store::cql::{Address, Cql};
use wideroom::store::{ReaderLease, ReaderPosition, Store as _, StoreAdmin};

use super::slow::Slow;
use crate::store::stage::keyspace;
use crate::support::cassandra::pool;
use crate::support::world::{Actor, group_of, without_rates};

/// The system's clock, set wrong by so many microseconds.
pub(super) struct SkewedClock(AtomicI64);

impl SkewedClock {
    fn by(micros: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(micros)))
    }

    /// Steps to another skew.
    pub(super) fn set(&self, micros: i64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_micros(self.0.load(Ordering::SeqCst))
    }
}

pub(super) struct Server {
    pub(super) chat: Chat,
    pub(super) api: Arc<Api>,
    pub(super) cql: Arc<Cql>,
    pub(super) slow: Arc<Slow>,
    pub(super) clock: Arc<SkewedClock>,
}

impl Server {
    /// One whose clock is so far off. `None` where no Cassandra can be had.
    pub(super) async fn open(skew_micros: i64) -> Option<Self> {
        Self::on(Bus::default(), skew_micros).await
    }

    /// One in the keyspace of most tests.
    pub(super) async fn on(bus: Bus, skew_micros: i64) -> Option<Self> {
        let clock = SkewedClock::by(skew_micros);
        let cql = pool::open(keyspace().await?, clock.clone()).await;
        Some(Self::of(cql, bus, clock, Bounds::default()).await)
    }

    /// One that starts as a server does.
    pub(super) async fn at(address: Address, bus: Bus, skew_micros: i64) -> Self {
        Self::within(Bounds::default(), address, bus, skew_micros).await
    }

    /// One with bounds of its own, except that its users have no rates.
    pub(super) async fn within(
        bounds: Bounds,
        address: Address,
        bus: Bus,
        skew_micros: i64,
    ) -> Self {
        let clock = SkewedClock::by(skew_micros);
        let cql = Cql::open(address, clock.clone()).await.unwrap();
        Self::of(cql, bus, clock, bounds).await
    }

    async fn of(cql: Cql, bus: Bus, clock: Arc<SkewedClock>, bounds: Bounds) -> Self {
        let cql = Arc::new(cql);
        let (slow, store) = Slow::before(Arc::clone(&cql) as Arc<dyn StoreAdmin>);
        let chat = Chat::open(store, bus, clock.clone(), without_rates(bounds)).await;
        let chat = chat.unwrap();
        let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
        Self {
            chat,
            api,
            cql,
            slow,
            clock,
        }
    }

    /// All statements since the server was opened, periodic ones among them.
    pub(super) fn statements(&self) -> u64 {
        self.cql.statements_sent() + self.cql.periodic_statements_sent()
    }

    /// Ends the leases of all shards under the name of a reader, as if their holders had been away for long.
    pub(super) async fn end_leases(&self, reader: &str) {
        let positions = self.cql.reader_positions(reader).await.unwrap();
        for (shard, seen) in OutboxShard::all().zip(positions) {
            let Some(seen) = seen else { continue };
            let ended = ReaderPosition {
                lease: seen.lease.map(|lease| ReaderLease {
                    until: Timestamp::ZERO,
                    ..lease
                }),
                ..seen.clone()
            };
            let swapped = self
                .cql
                .swap_reader_position(reader, shard, Some(&seen), &ended);
            assert!(swapped.await.unwrap());
        }
    }

    pub(super) fn actor(&self, user: &UserId) -> Actor {
        Actor::of(&self.api, user)
    }

    pub(super) async fn send(
        &self,
        user: &UserId,
        conversation: ConversationId,
        body: &str,
    ) -> Arc<Message> {
        self.try_send(user, conversation, body, None).await.unwrap()
    }

    pub(super) async fn try_send(
        &self,
        user: &UserId,
        conversation: ConversationId,
        body: &str,
        key: Option<&str>,
    ) -> wideroom::chat::Result<Arc<Message>> {
        let input = DraftInput {
            body: body.to_owned(),
            idempotency_key: key.map(str::to_owned),
            ..DraftInput::default()
        };
        self.chat
            .writes
            .send(
                user,
                conversation,
                Draft::parse(input, self.chat.bounds()).unwrap(),
            )
            .await
    }

    /// The messages that are sent from now on, or after a position.
    pub(super) async fn messages(
        &self,
        user: &UserId,
        conversation: ConversationId,
        after: Option<OrderKey>,
    ) -> MessageUpdates {
        let streams = &self.chat.streams;
        streams.messages(user, conversation, after).await.unwrap()
    }

    /// The events of a conversation from now on, or after a position.
    pub(super) async fn events(
        &self,
        user: &UserId,
        conversation: ConversationId,
        after: Option<OrderKey>,
    ) -> ConversationUpdates {
        let streams = &self.chat.streams;
        let events = streams.conversation(user, conversation, after).await;
        events.unwrap()
    }

    pub(super) async fn inbox(&self, user: &UserId) -> InboxUpdates {
        self.chat.streams.inbox(user, None).await.unwrap()
    }

    pub(super) async fn add(&self, by: &UserId, conversation: ConversationId, user: &UserId) {
        let names = [user.as_str().to_owned()];
        let added = self
            .chat
            .writes
            .add_participants(by, conversation, &names, None);
        added.await.unwrap();
    }

    pub(super) async fn remove(&self, by: &UserId, conversation: ConversationId, user: &UserId) {
        let writes = &self.chat.writes;
        let removed = writes.remove_participant(by, conversation, user.as_str());
        removed.await.unwrap();
    }

    pub(super) async fn mark_read(&self, user: &UserId, conversation: ConversationId) {
        let marked = self.chat.inbox.mark_read(user, conversation, None).await;
        marked.unwrap();
    }

    pub(super) async fn group(&self, owner: &UserId, others: &[&UserId]) -> ConversationId {
        let names: Vec<_> = others.iter().map(|user| user.as_str().to_owned()).collect();
        self.chat
            .writes
            .create_group(owner, group_of("a group", &names, None))
            .await
            .unwrap()
            .id
    }
}

/// Two of them, with clocks as the system's.
pub(super) async fn two() -> Option<(Server, Server)> {
    Some((Server::open(0).await?, Server::open(0).await?))
}

/// Two of them, and a group of two users.
pub(super) async fn two_with_group() -> Option<(Server, Server, [UserId; 2], ConversationId)> {
    let (one, other) = two().await?;
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    Some((one, other, [anna, ben], conversation))
}

/// So many users, whose names sort as their numbers do.
pub(super) fn crowd(count: usize, salt: &UserId) -> Vec<UserId> {
    (0..count)
        .map(|number| UserId::parse(&format!("{number:02}-{salt}")).unwrap())
        .collect()
}

/// Users of no other test.
pub(super) fn people<const N: usize>(names: [&str; N]) -> [UserId; N] {
    let salt = uuid::Uuid::new_v4().simple().to_string();
    names.map(|name| UserId::parse(&format!("{name}-{salt}")).unwrap())
}
