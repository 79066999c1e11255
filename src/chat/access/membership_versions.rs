//! Membership versions: whether viewers still take part in a large conversation, by one read per
//! conversation and second for all of them.
//!
//! A viewer who took part at one version takes part at the same version, and at the next one unless
//! that change moved the viewer. So only the users whom a change has moved read their own
//! memberships again. After several changes everyone does.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use super::leave_epoch::{LeaveEpoch, MEMBERSHIP_LIFETIME, ReadMoment};
use super::may_see;
use crate::chat::error::Result;
use crate::chat::single_flight::{ReadKey, SingleFlight};
use crate::model::{Conversation, ConversationId, OwnFloor, TimeUuid, UserId};
use crate::store::{MembershipVersion, Store};

/// Large conversations with events in the same second.
const RECENT_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

/// Version of a membership at which a viewer was found to take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenVersion(pub(crate) Option<TimeUuid>);

/// A viewer's membership that was checked.
pub(crate) struct CheckedMembership {
    pub(crate) conversation: Arc<Conversation>,
    /// The viewer's own part of their floor.
    pub(crate) own_floor: OwnFloor,
    pub(crate) seen: SeenVersion,
    pub(crate) read: ReadMoment,
}

pub(crate) struct MembershipVersions {
    store: Arc<dyn Store>,
    leave_epoch: Arc<LeaveEpoch>,
    /// Changes of groups that this server has published. A version that was read before one is not
    /// used after it.
    changes: AtomicU64,
    recent: Mutex<LruCache<ConversationId, RecentVersion>>,
    reads: SingleFlight<VersionKey, Option<RecentVersion>>,
}

#[derive(Clone)]
struct RecentVersion {
    key: VersionKey,
    version: Arc<MembershipVersion>,
    read: ReadMoment,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct VersionKey {
    conversation: ConversationId,
    leave_epoch: u64,
    changes: u64,
}

impl ReadKey<Option<RecentVersion>> for VersionKey {
    fn may_share(&self, started: &Self) -> bool {
        self == started
    }
}

impl MembershipVersions {
    pub(crate) fn new(store: Arc<dyn Store>, leave_epoch: Arc<LeaveEpoch>) -> Self {
        Self {
            store,
            leave_epoch,
            changes: AtomicU64::new(0),
            recent: Mutex::new(LruCache::new(RECENT_MAX)),
            reads: SingleFlight::new(MEMBERSHIP_LIFETIME),
        }
    }

    /// Call before a change of a group is published: from now on no stream relies on an older read.
    pub(crate) fn on_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// A recent version, without a read. A membership that is read from now on is at least as new.
    pub(crate) fn recent(&self, id: ConversationId) -> Option<SeenVersion> {
        let recent = self.fresh(&self.key(id))?;
        Some(SeenVersion(recent.version.version))
    }

    /// The membership of a viewer who took part at a version that was `seen`, with this bound of their
    /// own. `None` if the viewer takes part no longer.
    pub(crate) async fn check(
        &self,
        viewer: &UserId,
        id: ConversationId,
        seen: Option<(SeenVersion, OwnFloor)>,
    ) -> Result<Option<CheckedMembership>> {
        let Some(RecentVersion { version, read, .. }) = self.current(id).await? else {
            return Ok(None);
        };
        let kept = seen.filter(|(SeenVersion(seen), _)| version.keeps(viewer, *seen));
        let (conversation, own_floor) = match kept {
            Some((_, own_floor)) => (Arc::clone(&version.conversation), own_floor),
            None => {
                let own = self.store.participations(viewer, &[id]).await?.pop();
                match own.flatten().filter(may_see) {
                    Some(own) => (own.conversation, own.membership.own_floor()),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(CheckedMembership {
            conversation,
            own_floor,
            seen: SeenVersion(version.version),
            read,
        }))
    }

    fn key(&self, conversation: ConversationId) -> VersionKey {
        VersionKey {
            conversation,
            leave_epoch: self.leave_epoch.current(),
            changes: self.changes.load(Ordering::SeqCst),
        }
    }

    fn fresh(&self, key: &VersionKey) -> Option<RecentVersion> {
        let mut recent = self.recent.lock();
        let found = recent.get(&key.conversation)?;
        (found.key == *key && !found.read.has_expired()).then(|| found.clone())
    }

    async fn current(&self, id: ConversationId) -> Result<Option<RecentVersion>> {
        let key = self.key(id);
        if let Some(fresh) = self.fresh(&key) {
            return Ok(Some(fresh));
        }
        let read = self.reads.read(key, |key| self.read(key)).await?;
        if let Some(read) = read.as_ref() {
            self.recent.lock().put(id, read.clone());
        }
        Ok(read.as_ref().clone())
    }

    async fn read(&self, key: VersionKey) -> Result<Option<RecentVersion>> {
        let read = self.leave_epoch.read_moment();
        let version = self.store.membership_version(key.conversation).await?;
        Ok(version.map(|version| RecentVersion {
            key,
            version: Arc::new(version),
            read,
        }))
    }
}
