//! Presence of users: online or offline, last seen, and typing.
//!
//! The last-seen time is in the store. The users of this server are in memory. On a cluster, each
//! server registers its users in the directory, and a user is online while any server that has not
//! ended has registered them. Servers that follow a user are notified when the user comes or goes.

pub(crate) mod table;
mod task;
pub(crate) mod typing;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::try_join;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::table::{PresenceConnection, PresenceTable};
use self::task::PresenceTask;
use crate::chat::access::blocks::BlockLists;
use crate::chat::access::relationship::Relationships;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::publisher::Publisher;
use crate::clock::Clock;
use crate::cluster::{Cluster, Lease};
use crate::model::{Presence, Timestamp, Topic, UserId, Viewer};
use crate::store::cluster::{Registration, SKEW_MAX, ServerId, SessionKind};
use crate::store::{self, Store};

/// Pause before a user is registered again after a failure.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Streams ask again for the users that they follow so long after a server has ended: until then
/// most of its users have reconnected.
const RECHECK_AFTER: Duration = Duration::from_secs(5);
const RECHECK_SPREAD_MILLIS: u64 = 10_000;

/// Keeps a user online until it is dropped. A user may have several.
pub struct PresenceGuard {
    _connection: PresenceConnection,
    /// Registration in the directory of the cluster, once it is acknowledged.
    _registered: Option<Arc<OnceLock<Lease>>>,
}

pub struct PresenceService {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    relationships: Arc<Relationships>,
    blocks: Arc<BlockLists>,
    publisher: Arc<Publisher>,
    cluster: Option<Cluster>,
    table: Arc<PresenceTable>,
    task: PresenceTask,
}

impl PresenceService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let Components {
            store,
            publisher,
            clock,
            presence_relationships,
            ..
        } = components;
        let stop = CancellationToken::new();
        let (publisher_of_table, clock_of_table) = (Arc::clone(publisher), Arc::clone(clock));
        let table = PresenceTable::new(publisher_of_table, clock_of_table, bounds, stop.clone());
        let table = Arc::new(table);
        Self {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            relationships: Arc::clone(presence_relationships),
            blocks: Arc::clone(components.access.blocks()),
            publisher: Arc::clone(publisher),
            cluster: components.in_flight.cluster().cloned(),
            task: PresenceTask::spawn(Arc::clone(store), Arc::clone(&table), stop),
            table,
        }
    }

    /// Call when a viewer opens a socket or stream. The viewer is online until the guard is dropped. A
    /// service that acts in a user's name brings nobody online, and an agent has no presence.
    pub fn arrive(&self, viewer: &Viewer) -> Option<PresenceGuard> {
        let has_presence = !viewer.is_acted_for() && !viewer.user.is_agent();
        has_presence.then(|| self.connect(&viewer.user))
    }

    /// The user is online until the guard is dropped.
    pub fn connect(&self, user: &UserId) -> PresenceGuard {
        PresenceGuard {
            _connection: self.table.connect(user),
            _registered: self.cluster.clone().map(|it| register(it, user)),
        }
    }

    /// Presence of these users; `None` for users without a relationship with the viewer, and for agents.
    pub async fn presences(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Option<Presence>>> {
        if users.iter().all(UserId::is_agent) {
            return Ok(vec![None; users.len()]);
        }
        let mut relationships = self.relationships.of(viewer, users).await?;
        let own = self.blocks.of(viewer).await?;
        for (user, relationship) in users.iter().zip(&mut relationships) {
            relationship.take_if(|_| own.has(user) || user.is_agent());
        }
        let visible: Vec<_> = users
            .iter()
            .zip(&relationships)
            .filter(|(_, relationship)| relationship.is_some())
            .map(|(user, _)| user.clone())
            .collect();
        let mut presences = self.presences_for(viewer, &visible).await?.into_iter();
        Ok(relationships
            .into_iter()
            .map(|relationship| relationship.and_then(|_| presences.next()))
            .collect())
    }

    /// Presence of these users as the viewer sees it: a user who has blocked the viewer is offline
    /// since then. The caller has checked the viewer's relationships with these users.
    pub(crate) async fn presences_for(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Presence>> {
        let lists = async { Ok::<_, Error>(self.blocks.of_all(users).await?) };
        let (presences, lists) = try_join(self.presences_of(users), lists).await?;
        let masked = presences.into_iter().zip(lists).map(|(presence, list)| {
            let Some(since) = list.since(viewer) else {
                return presence;
            };
            Presence {
                is_online: false,
                last_seen_at: presence.last_seen_at.map(|at| at.min(since)),
            }
        });
        Ok(masked.collect())
    }

    async fn presences_of(&self, users: &[UserId]) -> Result<Vec<Presence>> {
        let (profiles, elsewhere) =
            try_join(self.store.profiles(users), self.online_elsewhere(users)).await?;
        // Nobody was seen later than now: a clock that was ahead has noted such a moment.
        let latest = self.clock.now().plus_micros(SKEW_MAX.as_micros() as i64);
        let presence = |(user, persisted): (&UserId, Option<Timestamp>)| {
            let (is_online_here, seen_at) = self
                .table
                .local(user)
                .map_or((false, None), |(is_online, at)| (is_online, Some(at)));
            Presence {
                is_online: is_online_here || elsewhere.contains(user),
                last_seen_at: [persisted, seen_at]
                    .into_iter()
                    .flatten()
                    .filter(|at| *at <= latest)
                    .max(),
            }
        };
        let persisted = profiles
            .into_iter()
            .map(|profile| profile.and_then(|profile| profile.last_seen_at));
        Ok(users.iter().zip(persisted).map(presence).collect())
    }

    /// Whether each of these users is connected to any server.
    pub(crate) async fn online(&self, users: &[UserId]) -> Result<Vec<bool>> {
        let elsewhere = self.online_elsewhere(users).await?;
        let is_here = |user| {
            self.table
                .local(user)
                .is_some_and(|(is_online, _)| is_online)
        };
        let is_online = |user| is_here(user) || elsewhere.contains(user);
        Ok(users.iter().map(is_online).collect())
    }

    /// The users among these who are present on another server that has not ended.
    async fn online_elsewhere(&self, users: &[UserId]) -> store::Result<HashSet<UserId>> {
        let Some(cluster) = &self.cluster else {
            return Ok(HashSet::new());
        };
        let own = cluster.server();
        let present: HashMap<_, _> = cluster.present(users).await?;
        let is_elsewhere = |servers: &HashSet<ServerId>| servers.iter().any(|one| *one != own);
        Ok(present
            .into_iter()
            .filter(|(_, servers)| is_elsewhere(servers))
            .map(|(user, _)| user)
            .collect())
    }

    /// Notifies the servers that follow this user that the user has come to this one or left it.
    pub(crate) fn announce(&self, user: &UserId, came: bool) {
        let Some(cluster) = self.cluster.clone() else {
            return;
        };
        let user = user.clone();
        tokio::spawn(async move {
            if let Err(error) = cluster.announce(&user, came).await {
                tracing::debug!(%error, "the server could not announce the presence of a user");
            }
        });
    }

    /// Makes the presence streams ask again, because a server has ended.
    pub(crate) fn recheck_after_end(&self) {
        let publisher = Arc::clone(&self.publisher);
        tokio::spawn(async move {
            let spread = uuid::Uuid::new_v4().as_u64_pair().0 % RECHECK_SPREAD_MILLIS;
            sleep(RECHECK_AFTER + Duration::from_millis(spread)).await;
            for topic in publisher.readable_topics() {
                if let Topic::Presence(_) = topic {
                    publisher.invalidate(&topic);
                }
            }
        });
    }

    /// Stops the task, and persists the last-seen times that are left.
    pub(crate) async fn finish(&self) {
        self.task.finish().await;
    }
}

/// Registers a user in the directory while the guard exists, with retries.
fn register(cluster: Cluster, user: &UserId) -> Arc<OnceLock<Lease>> {
    let registered = Arc::new(OnceLock::new());
    let guard = Arc::downgrade(&registered);
    let registration = Registration::Session(user.clone(), SessionKind::Present);
    tokio::spawn(async move {
        let mut pause = RETRY_FIRST;
        while guard.strong_count() > 0 {
            match cluster.lease(&registration).await {
                Ok(lease) => {
                    if let Some(registered) = guard.upgrade() {
                        let _ = registered.set(lease);
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "the server could not register a user; it retries");
                }
            }
            sleep(pause).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
    });
    registered
}
