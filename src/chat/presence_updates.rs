//! The stream of users' coming and going. It tells states: first that of each user, then another one where there is one.
//!
//! What the viewer may not know is not told, and nothing says so. It is looked at anew whenever something would be told.

use std::collections::{HashMap, VecDeque};

use futures_util::FutureExt;
use futures_util::future::select_all;

use super::access::Tie;
use super::{Chat, Error, Result};
use crate::bus::{Received, Subscription};
use crate::model::{Event, Presence, Topic, UserId};

/// Users that one stream follows.
const USERS_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceUpdate {
    pub user: UserId,
    pub presence: Presence,
}

pub struct PresenceUpdates {
    chat: Chat,
    viewer: UserId,
    /// One for each user.
    heard: Vec<Subscription>,
    followed: HashMap<UserId, Followed>,
    pending: VecDeque<UserId>,
}

#[derive(Default)]
struct Followed {
    /// By what the viewer knew the user when it was looked at last.
    tie: Option<Tie>,
    /// What was told last.
    was_online: Option<bool>,
}

impl Chat {
    /// First whether each of these users is here, then their coming and going.
    pub async fn presence_updates(&self, viewer: &UserId, usernames: &[String]) -> Result<PresenceUpdates> {
        const PATH: &[&str] = &["usernames"];
        if usernames.len() > USERS_MAX {
            return Err(Error::bad_input(PATH, format!("at most {USERS_MAX} usernames in one call")));
        }
        let mut users: Vec<UserId> = Vec::with_capacity(usernames.len());
        for name in usernames {
            let user = UserId::parse(name).map_err(|error| Error::bad_input(PATH, error))?;
            if !users.contains(&user) {
                users.push(user);
            }
        }
        let heard = users.iter().map(|user| self.0.bus.subscribe(Topic::Presence(user.clone()))).collect();
        // It reads much for somebody with many groups: a few of these at a time.
        let turn = self.0.turns.turn(viewer).await?;
        let ties = self.ties(viewer, &users).await?;
        drop(turn);
        let pending = users.iter().zip(&ties).filter(|(_, tie)| tie.is_some()).map(|(user, _)| user.clone()).collect();
        let followed = users.into_iter().zip(ties).map(|(user, tie)| (user, Followed { tie, was_online: None })).collect();
        Ok(PresenceUpdates { chat: self.clone(), viewer: viewer.clone(), heard, followed, pending })
    }
}

impl PresenceUpdates {
    /// What is next. `None` only where nobody is followed.
    pub async fn next(&mut self) -> Option<Result<PresenceUpdate>> {
        loop {
            while let Some(user) = self.pending.pop_front() {
                match self.look_at(&user).await {
                    Ok(Some(presence)) => return Some(Ok(PresenceUpdate { user, presence })),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
            if self.heard.is_empty() {
                return None;
            }
            let listen = select_all(self.heard.iter_mut().map(|subscription| subscription.next().boxed()));
            let (heard, place, _) = listen.await;
            match heard? {
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
            }
        }
    }

    /// The state of a user, where it is news and the viewer may know it.
    async fn look_at(&mut self, user: &UserId) -> Result<Option<Presence>> {
        let known = self.followed.entry(user.clone()).or_default();
        let tie = match known.tie {
            Some(tie) if self.chat.holds(&self.viewer, user, tie).await? => Some(tie),
            _ => self.chat.ties(&self.viewer, std::slice::from_ref(user)).await?.pop().flatten(),
        };
        known.tie = tie;
        if tie.is_none() {
            return Ok(None);
        }
        let presence = self.chat.presences_of(std::slice::from_ref(user)).await?.pop();
        let is_news = |presence: &Presence| known.was_online.replace(presence.is_online) != Some(presence.is_online);
        Ok(presence.filter(is_news))
    }
}
