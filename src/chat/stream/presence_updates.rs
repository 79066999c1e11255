//! The stream of presence changes of followed users. It delivers states: first the current one of
//! each user, then each different one.
//!
//! Users without a relationship with the viewer are followed silently. The stream subscribes to the
//! topics of the others only. A relationship that begins later shows in the viewer's inbox, or by
//! an act in a shared conversation: the stream checks for it once a second at most, in a bounded
//! number of conversations. All streams of a user share a rate of two checks a second.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{pending, select_all};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::StreamService;
use super::followed_names::FollowedNamesPermit;
use crate::bus::{Received, TopicSubscription};
use crate::chat::access::relationship::{Acquaintance, Relationship};
use crate::chat::error::{Error, Result};
use crate::cluster::Lease;
use crate::model::{ConversationId, Event, InboxChange, Presence, Topic, UserId};
use crate::store::cluster::{Registration, SessionKind};

/// Users that one stream follows.
const USERS_MAX: usize = 100;
/// Changed conversations, and users with candidates, in one check.
const CHECKED_MAX: usize = 8;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Registrations as a follower that are written at the same time.
const REGISTERED_AT_ONCE: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceUpdate {
    pub user: UserId,
    pub presence: Presence,
}

pub struct PresenceUpdates {
    streams: Arc<StreamService>,
    viewer: UserId,
    /// The viewer's inbox, in which new relationships show.
    inbox: TopicSubscription,
    /// One for each user with a relationship.
    subscriptions: Vec<TopicSubscription>,
    followed: HashMap<UserId, FollowedUser>,
    /// Users whose presence must be read.
    pending: VecDeque<UserId>,
    unchecked: UncheckedConversations,
    next_check: Instant,
    _names: FollowedNamesPermit,
}

#[derive(Default)]
struct FollowedUser {
    /// As of the last check.
    acquaintance: Acquaintance,
    /// The last delivered state.
    was_online: Option<bool>,
    /// Registration as a follower, on a cluster. It precedes every read of the presence.
    lease: Option<Lease>,
}

impl FollowedUser {
    fn is_stranger(&self) -> bool {
        self.acquaintance.relationship.is_none()
    }
}

/// Conversations in which a relationship may have begun.
#[derive(Default)]
struct UncheckedConversations {
    /// Conversations that changed in the viewer's inbox.
    changed: BTreeSet<ConversationId>,
    /// Whether too many changed: the next check covers all conversations.
    is_overflowing: bool,
    /// The last user whose candidates were checked.
    last_checked: Option<UserId>,
}

impl UncheckedConversations {
    fn add(&mut self, conversation: ConversationId) {
        self.changed.insert(conversation);
        if self.changed.len() > CHECKED_MAX {
            self.changed.clear();
            self.is_overflowing = true;
        }
    }
}

impl StreamService {
    /// First the presence of each of these users, then its changes.
    pub async fn presence(
        self: &Arc<Self>,
        viewer: &UserId,
        usernames: &[String],
    ) -> Result<PresenceUpdates> {
        let users = parse_followed(usernames)?;
        let names = self.followed_names.acquire(viewer, users.len())?;
        // Subscribe first: a relationship that begins after the check below is delivered here.
        let inbox = self.bus.subscribe(Topic::Inbox(viewer.clone()));
        // An agent has no presence: it is followed silently.
        let (agents, users): (Vec<_>, Vec<_>) = users.into_iter().partition(UserId::is_agent);
        let found = self.acquaintances(viewer, &users).await?;
        let of_agent = |agent| (agent, FollowedUser::default());
        let mut updates = PresenceUpdates {
            streams: Arc::clone(self),
            viewer: viewer.clone(),
            inbox,
            subscriptions: Vec::new(),
            followed: agents.into_iter().map(of_agent).collect(),
            pending: VecDeque::new(),
            unchecked: UncheckedConversations::default(),
            next_check: Instant::now() + CHECK_INTERVAL,
            _names: names,
        };
        for (user, acquaintance) in users.into_iter().zip(found) {
            let relationship = acquaintance.relationship;
            updates.followed.insert(
                user.clone(),
                FollowedUser {
                    acquaintance: Acquaintance {
                        relationship: None,
                        ..acquaintance
                    },
                    ..FollowedUser::default()
                },
            );
            if let Some(relationship) = relationship {
                updates.begin(&user, relationship);
            }
        }
        Ok(updates)
    }

    /// A viewer with many groups causes many reads, so the limiter admits a few checks at a time.
    async fn acquaintances(&self, viewer: &UserId, users: &[UserId]) -> Result<Vec<Acquaintance>> {
        let _permit = self.replay_limiter.acquire(viewer).await?;
        self.relationships.acquaintances(viewer, users).await
    }
}

fn parse_followed(usernames: &[String]) -> Result<Vec<UserId>> {
    const PATH: &[&str] = &["usernames"];
    if usernames.len() > USERS_MAX {
        let message = format!("at most {USERS_MAX} usernames in one call");
        return Err(Error::bad_input(PATH, message));
    }
    let mut users: Vec<UserId> = Vec::with_capacity(usernames.len());
    for name in usernames {
        let user = UserId::parse(name).map_err(|error| Error::bad_input(PATH, error))?;
        if !users.contains(&user) {
            users.push(user);
        }
    }
    Ok(users)
}

impl PresenceUpdates {
    /// The next update. `None` only for an empty list of users.
    pub async fn next(&mut self) -> Result<Option<PresenceUpdate>> {
        if self.followed.is_empty() {
            return Ok(None);
        }
        loop {
            self.register_followed().await?;
            while let Some(user) = self.pending.pop_front() {
                if let Some(presence) = self.read_presence(&user).await? {
                    return Ok(Some(PresenceUpdate { user, presence }));
                }
            }
            match self.wait().await {
                Some(waited) => waited?,
                None => return Ok(None),
            }
        }
    }

    /// Registers as a follower of the users whose presence is about to be read: the servers that
    /// they come to find the row, or this stream's read finds them.
    async fn register_followed(&mut self) -> Result<()> {
        let Some(cluster) = self.streams.in_flight.cluster() else {
            return Ok(());
        };
        let followed = &self.followed;
        let is_new = |user: &&UserId| followed.get(*user).is_some_and(|one| one.lease.is_none());
        let new: BTreeSet<_> = self.pending.iter().filter(is_new).cloned().collect();
        let register = async |user: UserId| {
            let registration = Registration::Session(user.clone(), SessionKind::Follows);
            Ok::<_, Error>((user, cluster.lease(&registration).await?))
        };
        let registered: Vec<_> = stream::iter(new.into_iter().map(register))
            .buffer_unordered(REGISTERED_AT_ONCE)
            .try_collect()
            .await?;
        for (user, lease) in registered {
            if let Some(followed) = self.followed.get_mut(&user) {
                followed.lease = Some(lease);
            }
        }
        Ok(())
    }

    /// Waits for a change of presence, or for the next check. `None` would mean a closed
    /// subscription.
    async fn wait(&mut self) -> Option<Result<()>> {
        let has_strangers = self.followed.values().any(FollowedUser::is_stranger);
        let needs_check = has_strangers && self.has_unchecked();
        let next_of_users = async {
            match self.subscriptions.is_empty() {
                true => pending().await,
                false => {
                    let (received, index, _) = select_all(
                        self.subscriptions
                            .iter_mut()
                            .map(|subscription| subscription.next().boxed()),
                    )
                    .await;
                    (received, index)
                }
            }
        };
        tokio::select! {
            (received, index) = next_of_users => match received? {
                Received::Notice(notice) => {
                    if let Event::Presence(user) = &notice.event {
                        self.pending.push_back(user.clone());
                    }
                }
                Received::Lagged => {
                    if let Topic::Presence(user) = self.subscriptions[index].topic() {
                        self.pending.push_back(user.clone());
                    }
                }
            },
            received = self.inbox.next(), if has_strangers => match received? {
                Received::Notice(notice) => {
                    if let Event::Inbox(InboxChange { conversation }) = notice.event {
                        self.unchecked.add(conversation);
                    }
                }
                Received::Lagged => self.unchecked.is_overflowing = true,
            },
            () = sleep_until(self.next_check), if needs_check => {
                self.next_check = Instant::now() + CHECK_INTERVAL;
                // Another stream of the user has just checked: this one checks later.
                if self.streams.relationship_checks.take(&self.viewer).is_ok() {
                    return Some(self.check_strangers().await);
                }
            }
        }
        Some(Ok(()))
    }

    fn has_unchecked(&self) -> bool {
        let has_candidates =
            |one: &FollowedUser| one.is_stranger() && !one.acquaintance.candidates.is_empty();
        self.unchecked.is_overflowing
            || !self.unchecked.changed.is_empty()
            || self.followed.values().any(has_candidates)
    }

    /// Checks whether relationships have begun: in all conversations after an overflow, else in the
    /// changed ones and in some candidates.
    async fn check_strangers(&mut self) -> Result<()> {
        let mut strangers: Vec<_> = self
            .followed
            .iter()
            .filter(|(user, one)| one.is_stranger() && !user.is_agent())
            .map(|(user, _)| user.clone())
            .collect();
        strangers.sort_unstable();
        let changed = std::mem::take(&mut self.unchecked.changed);
        if std::mem::take(&mut self.unchecked.is_overflowing) {
            return self.check_everywhere(strangers).await;
        }
        for conversation in changed {
            self.check_conversation(conversation).await?;
        }
        self.check_candidates(strangers).await
    }

    async fn check_everywhere(&mut self, strangers: Vec<UserId>) -> Result<()> {
        let found = self.streams.acquaintances(&self.viewer, &strangers).await?;
        for (user, acquaintance) in strangers.into_iter().zip(found) {
            match acquaintance.relationship {
                Some(relationship) => self.begin(&user, relationship),
                None => self.followed.entry(user).or_default().acquaintance = acquaintance,
            }
        }
        Ok(())
    }

    /// Checks the candidates of some users, in rotation.
    async fn check_candidates(&mut self, mut strangers: Vec<UserId>) -> Result<()> {
        let after = self.unchecked.last_checked.take();
        let first = strangers.partition_point(|user| Some(user) <= after.as_ref());
        if first < strangers.len() {
            strangers.rotate_left(first);
        }
        let has_candidates = |user: &UserId| {
            self.followed
                .get(user)
                .is_some_and(|one| !one.acquaintance.candidates.is_empty())
        };
        strangers.retain(has_candidates);
        for user in strangers.into_iter().take(CHECKED_MAX) {
            let candidates = self
                .followed
                .get(&user)
                .map(|one| one.acquaintance.candidates.clone());
            for conversation in candidates.unwrap_or_default() {
                self.check_user_in(&user, conversation).await?;
            }
            self.unchecked.last_checked = Some(user);
        }
        Ok(())
    }

    /// Checks a conversation that has changed in the viewer's inbox. Its participants have become
    /// candidates.
    async fn check_conversation(&mut self, id: ConversationId) -> Result<()> {
        let streams = &self.streams;
        let Some(conversation) = streams.access.conversation(&self.viewer, id).await? else {
            return Ok(());
        };
        if conversation.is_large {
            return Ok(());
        }
        for participant in streams.relationships.participants_of(id).await? {
            self.check_user_in(&participant.user, id).await?;
        }
        Ok(())
    }

    async fn check_user_in(&mut self, user: &UserId, conversation: ConversationId) -> Result<()> {
        let followed = self.followed.get(user);
        if user.is_agent() || followed.is_none_or(|one| !one.is_stranger()) {
            return Ok(());
        }
        let shares = self
            .streams
            .relationships
            .shares(&self.viewer, user, conversation)
            .await?;
        let Some(followed) = self.followed.get_mut(user) else {
            return Ok(());
        };
        let candidates = &mut followed.acquaintance.candidates;
        match shares {
            Some(true) => self.begin(user, Relationship::Shared(conversation)),
            Some(false) if candidates.contains(&conversation) => {}
            Some(false) => {
                // The newest few suffice: an act of the user changes the viewer's inbox, except for
                // a read marker.
                candidates.truncate(CHECKED_MAX - 1);
                candidates.insert(0, conversation);
            }
            None => candidates.retain(|one| *one != conversation),
        }
        Ok(())
    }

    /// Subscribes to the user's presence, and delivers the current state first.
    fn begin(&mut self, user: &UserId, relationship: Relationship) {
        let topic = Topic::Presence(user.clone());
        if !self
            .subscriptions
            .iter()
            .any(|subscription| *subscription.topic() == topic)
        {
            self.subscriptions.push(self.streams.bus.subscribe(topic));
        }
        self.followed
            .entry(user.clone())
            .or_default()
            .acquaintance
            .relationship = Some(relationship);
        self.pending.push_back(user.clone());
    }

    /// The state of a user, if it differs from the delivered one and the viewer may still see it.
    async fn read_presence(&mut self, user: &UserId) -> Result<Option<Presence>> {
        let StreamService {
            relationships,
            presence,
            ..
        } = self.streams.as_ref();
        let followed = self.followed.entry(user.clone()).or_default();
        let holds = match followed.acquaintance.relationship {
            Some(relationship) => {
                relationships
                    .still_holds(&self.viewer, user, relationship)
                    .await?
            }
            None => false,
        };
        let users = std::slice::from_ref(user);
        if !holds {
            followed.acquaintance = relationships
                .acquaintances(&self.viewer, users)
                .await?
                .pop()
                .unwrap_or_default();
        }
        if followed.is_stranger() {
            followed.lease = None;
            let topic = Topic::Presence(user.clone());
            self.subscriptions
                .retain(|subscription| *subscription.topic() != topic);
            return Ok(None);
        }
        if self
            .streams
            .access
            .blocks()
            .of(&self.viewer)
            .await?
            .has(user)
        {
            // Delivered again once the viewer unblocks the user.
            followed.was_online = None;
            return Ok(None);
        }
        let presence = presence.presences_for(&self.viewer, users).await?.pop();
        let is_different = |presence: &Presence| {
            followed.was_online.replace(presence.is_online) != Some(presence.is_online)
        };
        Ok(presence.filter(is_different))
    }
}
