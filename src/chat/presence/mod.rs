//! Presence of users: online or offline, last seen, and typing.
//!
//! The last-seen time is in the store. Everything else is in memory, and reaches other servers as
//! signals. On servers without signals between them, a user who is online elsewhere has a last-seen
//! time only.

pub(crate) mod table;
mod task;
pub(crate) mod typing;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::table::{PresenceGuard, PresenceTable};
use self::task::PresenceTask;
use crate::chat::access::relationship::Relationships;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::Result;
use crate::model::{Presence, Timestamp, UserId, Viewer};
use crate::store::Store;

pub struct PresenceService {
    store: Arc<dyn Store>,
    relationships: Arc<Relationships>,
    table: Arc<PresenceTable>,
    task: PresenceTask,
}

impl PresenceService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let Components {
            store,
            publisher,
            clock,
            relationships,
            ..
        } = components;
        let stop = CancellationToken::new();
        let (publisher, clock) = (Arc::clone(publisher), Arc::clone(clock));
        let table = Arc::new(PresenceTable::new(publisher, clock, bounds, stop.clone()));
        Self {
            store: Arc::clone(store),
            relationships: Arc::clone(relationships),
            task: PresenceTask::spawn(Arc::clone(store), Arc::clone(&table), stop),
            table,
        }
    }

    /// Call when a viewer opens a socket or stream. The viewer is online until the guard is dropped. A
    /// service that acts in a user's name brings nobody online.
    pub fn arrive(&self, viewer: &Viewer) -> Option<PresenceGuard> {
        (!viewer.is_acted_for()).then(|| self.connect(&viewer.user))
    }

    /// The user is online until the guard is dropped.
    pub fn connect(&self, user: &UserId) -> PresenceGuard {
        self.table.connect(user)
    }

    /// Presence of these users; `None` for users without a relationship with the viewer.
    pub async fn presences(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Option<Presence>>> {
        let relationships = self.relationships.of(viewer, users).await?;
        let visible: Vec<_> = users
            .iter()
            .zip(&relationships)
            .filter(|(_, relationship)| relationship.is_some())
            .map(|(user, _)| user.clone())
            .collect();
        let mut presences = self.presences_of(&visible).await?.into_iter();
        Ok(relationships
            .into_iter()
            .map(|relationship| relationship.and_then(|_| presences.next()))
            .collect())
    }

    /// The caller has checked the viewer's relationships with these users.
    pub(crate) async fn presences_of(&self, users: &[UserId]) -> Result<Vec<Presence>> {
        let profiles = self.store.profiles(users).await?;
        let presence = |(user, persisted): (&UserId, Option<Timestamp>)| {
            let (is_online_here, seen_at) = self
                .table
                .local(user)
                .map_or((false, None), |(is_online, at)| (is_online, Some(at)));
            Presence {
                is_online: is_online_here || self.table.is_online_elsewhere(user),
                last_seen_at: persisted.max(seen_at),
            }
        };
        let persisted = profiles
            .into_iter()
            .map(|profile| profile.and_then(|profile| profile.last_seen_at));
        Ok(users.iter().zip(persisted).map(presence).collect())
    }

    pub(crate) fn table(&self) -> &PresenceTable {
        &self.table
    }

    /// Stops the task, and persists the last-seen times that are left.
    pub(crate) async fn finish(&self) {
        self.task.finish().await;
    }
}
