//! The stream of users' coming and going. It tells states: first that of each user, then another one where there is one.
//!
//! What the viewer may not know is not told, and nothing says so. It is looked at anew whenever something would be told.
//!
//! The stream subscribes to the topics of those alone with whom the viewer has a relationship. One that begins later shows in the viewer's own
//! inbox, or by an act in a conversation that both share already: the stream looks for it once a second at most, at a bounded number of
//! conversations, and two looks a second are made for all streams of a user.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use crate::bus::{Received, TopicSubscription};
use crate::chat::access::membership_guard::LOOK_EVERY;
use crate::chat::access::relationship::{Acquaintance, Relationship};
use crate::chat::{Chat, Error, Result};
use crate::model::{ConversationId, Event, InboxChange, Presence, Topic, UserId};
use crate::rate::Rate;

/// Users that one stream follows.
const USERS_MAX: usize = 100;
/// Conversations that changed, and users with candidates, that one look looks at.
const LOOKED_AT_MAX: usize = 8;
/// Looks for new relationships, of all streams of a user.
pub(crate) const LOOKS: Rate = Rate::per_second(2, 4);
/// `retryAfterMs` of a viewer who follows too many names.
const NAMES_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceUpdate {
    pub user: UserId,
    pub presence: Presence,
}

/// How many names each user follows with all streams together.
pub(crate) struct FollowedNames {
    users: Arc<Mutex<HashMap<UserId, usize>>>,
    max: usize,
}

/// These names count until this is dropped.
struct Names {
    users: Arc<Mutex<HashMap<UserId, usize>>>,
    viewer: UserId,
    count: usize,
}

pub struct PresenceUpdates {
    chat: Chat,
    viewer: UserId,
    /// The viewer's inbox: where new relationships show.
    inbox: TopicSubscription,
    /// One for each user with whom there is a relationship.
    heard: Vec<TopicSubscription>,
    followed: HashMap<UserId, Followed>,
    pending: VecDeque<UserId>,
    news: News,
    next_look: Instant,
    _names: Names,
}

#[derive(Default)]
struct Followed {
    /// As it was when it was looked at last.
    known: Acquaintance,
    /// Last state that was sent.
    was_online: Option<bool>,
}

/// Conversations in which a relationship may have begun.
#[derive(Default)]
struct News {
    /// Conversations that changed in the viewer's inbox.
    conversations: BTreeSet<ConversationId>,
    /// More than those: all is looked at.
    is_everywhere: bool,
    /// The last user whose candidates were looked at.
    looked_at: Option<UserId>,
}

impl FollowedNames {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            users: Arc::default(),
            max,
        }
    }

    fn take(&self, viewer: &UserId, count: usize) -> Result<Names> {
        let mut users = names(&self.users);
        let followed = users.entry(viewer.clone()).or_default();
        if *followed + count > self.max {
            if *followed == 0 {
                users.remove(viewer);
            }
            return Err(Error::TooFast {
                retry_after: NAMES_WAIT,
            });
        }
        *followed += count;
        Ok(Names {
            users: Arc::clone(&self.users),
            viewer: viewer.clone(),
            count,
        })
    }
}

fn names(users: &Mutex<HashMap<UserId, usize>>) -> MutexGuard<'_, HashMap<UserId, usize>> {
    users.lock()
}

impl Drop for Names {
    fn drop(&mut self) {
        let mut users = names(&self.users);
        if let Some(followed) = users.get_mut(&self.viewer) {
            *followed -= self.count;
            if *followed == 0 {
                users.remove(&self.viewer);
            }
        }
    }
}

impl Chat {
    /// First whether each of these users is here, then their coming and going.
    pub async fn presence_updates(
        &self,
        viewer: &UserId,
        usernames: &[String],
    ) -> Result<PresenceUpdates> {
        const PATH: &[&str] = &["usernames"];
        if usernames.len() > USERS_MAX {
            return Err(Error::bad_input(
                PATH,
                format!("at most {USERS_MAX} usernames in one call"),
            ));
        }
        let mut users: Vec<UserId> = Vec::with_capacity(usernames.len());
        for name in usernames {
            let user = UserId::parse(name).map_err(|error| Error::bad_input(PATH, error))?;
            if !users.contains(&user) {
                users.push(user);
            }
        }
        let names = self.0.followed.take(viewer, users.len())?;
        // Subscribe first: a relationship that begins after the check below is delivered here.
        let inbox = self.0.bus.subscribe(Topic::Inbox(viewer.clone()));
        // It reads much for somebody with many groups: a few of these at a time.
        let turn = self.0.replay_limiter.turn(viewer).await?;
        let found = self.acquaintances(viewer, &users).await?;
        drop(turn);
        let mut updates = PresenceUpdates {
            chat: self.clone(),
            viewer: viewer.clone(),
            inbox,
            heard: Vec::new(),
            followed: HashMap::new(),
            pending: VecDeque::new(),
            news: News::default(),
            next_look: Instant::now() + LOOK_EVERY,
            _names: names,
        };
        for (user, known) in users.into_iter().zip(found) {
            let relationship = known.relationship;
            updates.followed.insert(
                user.clone(),
                Followed {
                    known: Acquaintance {
                        relationship: None,
                        ..known
                    },
                    was_online: None,
                },
            );
            if let Some(relationship) = relationship {
                updates.begin(&user, relationship);
            }
        }
        Ok(updates)
    }
}

impl PresenceUpdates {
    /// What is next. `None` only where nobody is followed.
    pub async fn next(&mut self) -> Option<Result<PresenceUpdate>> {
        if self.followed.is_empty() {
            return None;
        }
        loop {
            while let Some(user) = self.pending.pop_front() {
                match self.look_at(&user).await {
                    Ok(Some(presence)) => return Some(Ok(PresenceUpdate { user, presence })),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
            if let Err(error) = self.listen().await? {
                return Some(Err(error));
            }
        }
    }

    /// Waits for something to look at. `None` when there will be nothing more.
    async fn listen(&mut self) -> Option<Result<()>> {
        let has_strangers = self
            .followed
            .values()
            .any(|one| one.known.relationship.is_none());
        let look_at = has_strangers && self.has_news();
        let of_users = async {
            match self.heard.is_empty() {
                true => pending().await,
                false => {
                    let (heard, place, _) = select_all(
                        self.heard
                            .iter_mut()
                            .map(|subscription| subscription.next().boxed()),
                    )
                    .await;
                    (heard, place)
                }
            }
        };
        tokio::select! {
            (heard, place) = of_users => match heard? {
                Received::Notice(notice) => {
                    if let Event::Presence(user) = &notice.event {
                        self.pending.push_back(user.clone());
                    }
                }
                Received::Lagged => {
                    if let Topic::Presence(user) = self.heard[place].topic() {
                        self.pending.push_back(user.clone());
                    }
                }
            },
            heard = self.inbox.next(), if has_strangers => match heard? {
                Received::Notice(notice) => {
                    if let Event::Inbox(InboxChange { conversation }) = notice.event {
                        self.news.note(conversation);
                    }
                }
                Received::Lagged => self.news.is_everywhere = true,
            },
            () = sleep_until(self.next_look), if look_at => {
                self.next_look = Instant::now() + LOOK_EVERY;
                // Another stream of the user has just checked: this one checks later.
                if self.chat.pace(&self.chat.0.looks, &self.viewer).is_ok() {
                    return Some(self.look_for_new_ones().await);
                }
            }
        }
        Some(Ok(()))
    }

    fn has_news(&self) -> bool {
        let is_candidate =
            |one: &Followed| one.known.relationship.is_none() && !one.known.candidates.is_empty();
        self.news.is_everywhere
            || !self.news.conversations.is_empty()
            || self.followed.values().any(is_candidate)
    }

    /// Looks where relationships may have begun: all over where much has changed, else in some conversations.
    async fn look_for_new_ones(&mut self) -> Result<()> {
        let mut strangers: Vec<_> = self
            .followed
            .iter()
            .filter(|(_, one)| one.known.relationship.is_none())
            .map(|(user, _)| user.clone())
            .collect();
        strangers.sort_unstable();
        let news = std::mem::take(&mut self.news.conversations);
        if std::mem::take(&mut self.news.is_everywhere) {
            let turn = self.chat.0.replay_limiter.turn(&self.viewer).await?;
            let found = self.chat.acquaintances(&self.viewer, &strangers).await?;
            drop(turn);
            for (user, known) in strangers.into_iter().zip(found) {
                match known.relationship {
                    Some(relationship) => self.begin(&user, relationship),
                    None => self.followed.entry(user).or_default().known = known,
                }
            }
            return Ok(());
        }
        for conversation in news {
            self.look_into(conversation).await?;
        }
        // Some of them at a time, each in its turn.
        let after = self.news.looked_at.take();
        let first = strangers.partition_point(|user| Some(user) <= after.as_ref());
        if first < strangers.len() {
            strangers.rotate_left(first);
        }
        let has_candidates = |user: &UserId| {
            self.followed
                .get(user)
                .is_some_and(|one| !one.known.candidates.is_empty())
        };
        strangers.retain(has_candidates);
        for user in strangers.into_iter().take(LOOKED_AT_MAX) {
            for conversation in self
                .followed
                .get(&user)
                .map(|one| one.known.candidates.clone())
                .unwrap_or_default()
            {
                self.look_for(&user, conversation).await?;
            }
            self.news.looked_at = Some(user);
        }
        Ok(())
    }

    /// A conversation of the viewer's that has changed: those who are in it have become candidates there.
    async fn look_into(&mut self, conversation: ConversationId) -> Result<()> {
        let Some(there) = self.chat.conversation(&self.viewer, conversation).await? else {
            return Ok(());
        };
        if there.is_large {
            return Ok(());
        }
        for participant in self.chat.participants_of(conversation).await? {
            self.look_for(&participant.user, conversation).await?;
        }
        Ok(())
    }

    async fn look_for(&mut self, user: &UserId, conversation: ConversationId) -> Result<()> {
        if self
            .followed
            .get(user)
            .is_none_or(|one| one.known.relationship.is_some())
        {
            return Ok(());
        }
        let shares = self.chat.shares(&self.viewer, user, conversation).await?;
        let Some(followed) = self.followed.get_mut(user) else {
            return Ok(());
        };
        let candidates = &mut followed.known.candidates;
        match shares {
            Some(true) => self.begin(user, Relationship::Shared(conversation)),
            Some(false) if candidates.contains(&conversation) => {}
            Some(false) => {
                // The newest few are enough: where the user acts, it changes in the viewer's inbox, but for a mark.
                candidates.truncate(LOOKED_AT_MAX - 1);
                candidates.insert(0, conversation);
            }
            None => candidates.retain(|one| *one != conversation),
        }
        Ok(())
    }

    /// From now on the user's coming and going is heard of; the present state is told first.
    fn begin(&mut self, user: &UserId, relationship: Relationship) {
        let topic = Topic::Presence(user.clone());
        if !self
            .heard
            .iter()
            .any(|subscription| *subscription.topic() == topic)
        {
            self.heard.push(self.chat.0.bus.subscribe(topic));
        }
        self.followed
            .entry(user.clone())
            .or_default()
            .known
            .relationship = Some(relationship);
        self.pending.push_back(user.clone());
    }

    /// The state of a user, where it is news and the viewer may know it.
    async fn look_at(&mut self, user: &UserId) -> Result<Option<Presence>> {
        let known = self.followed.entry(user.clone()).or_default();
        let holds = match known.known.relationship {
            Some(relationship) => {
                self.chat
                    .still_holds(&self.viewer, user, relationship)
                    .await?
            }
            None => false,
        };
        if !holds {
            known.known = self
                .chat
                .acquaintances(&self.viewer, std::slice::from_ref(user))
                .await?
                .pop()
                .unwrap_or_default();
        }
        if known.known.relationship.is_none() {
            let topic = Topic::Presence(user.clone());
            self.heard
                .retain(|subscription| *subscription.topic() != topic);
            return Ok(None);
        }
        let presence = self
            .chat
            .presences_of(std::slice::from_ref(user))
            .await?
            .pop();
        let is_news = |presence: &Presence| {
            known.was_online.replace(presence.is_online) != Some(presence.is_online)
        };
        Ok(presence.filter(is_news))
    }
}

impl News {
    fn note(&mut self, conversation: ConversationId) {
        self.conversations.insert(conversation);
        if self.conversations.len() > LOOKED_AT_MAX {
            self.conversations.clear();
            self.is_everywhere = true;
        }
    }
}
