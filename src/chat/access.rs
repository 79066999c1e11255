//! Who may see what: the only place that answers it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::roster::Seen;
use super::{Chat, Error, Result};
use crate::model::{Conversation, ConversationId, ConversationKind, InboxRow, MembershipState, PageRequest, UserId};
use crate::store::Seat;

impl Chat {
    /// The conversations that the viewer takes part in now; `None` for all others.
    pub async fn conversations(&self, viewer: &UserId, ids: &[ConversationId]) -> Result<Vec<Option<Arc<Conversation>>>> {
        let seats = self.0.store.seats(viewer, ids).await?;
        Ok(seats.into_iter().map(|seat| seat.filter(may_see).map(|seat| seat.conversation)).collect())
    }

    pub async fn conversation(&self, viewer: &UserId, id: ConversationId) -> Result<Option<Arc<Conversation>>> {
        Ok(self.conversations(viewer, &[id]).await?.pop().flatten())
    }

    pub(super) async fn seat_of(&self, viewer: &UserId, id: ConversationId) -> Result<Seat> {
        let seat = self.0.store.seats(viewer, &[id]).await?.pop().flatten();
        seat.filter(may_see).ok_or(Error::NotFound("the conversation"))
    }

    /// The viewer's place in a conversation that they are about to write to. What other servers wrote there before lies before it.
    pub(super) async fn seat_to_write(&self, viewer: &UserId, id: ConversationId) -> Result<Seat> {
        let seat = self.seat_of(viewer, id).await?;
        if let Some(newest) = seat.newest {
            self.0.ids.observe(newest);
        }
        Ok(seat)
    }

    pub(super) async fn conversation_of(&self, viewer: &UserId, id: ConversationId) -> Result<Arc<Conversation>> {
        self.conversation(viewer, id).await?.ok_or(Error::NotFound("the conversation"))
    }
}

/// How long a stream may rest on a membership that it read. Here a departure is known at once; it may happen on another server.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether the viewer of a stream is still in its conversation: asked before anything is given.
pub struct Watch {
    chat: Chat,
    viewer: UserId,
    conversation: Arc<Conversation>,
    departures: u64,
    looked_at: Instant,
}

impl Watch {
    /// The stream listens already: so nobody leaves unheard.
    pub(super) async fn begin(chat: &Chat, viewer: &UserId, id: ConversationId) -> Result<Self> {
        let looked = Self::look(chat, viewer, id).await?;
        looked.ok_or(Error::NotFound("the conversation"))
    }

    /// `None` to a stranger.
    async fn look(chat: &Chat, viewer: &UserId, id: ConversationId) -> Result<Option<Self>> {
        let of =
            |conversation, departures, looked_at| Self { chat: chat.clone(), viewer: viewer.clone(), conversation, departures, looked_at };
        if let Some(seen) = Seen::with(chat, viewer, id).await? {
            return Ok(Some(of(seen.conversation, seen.departures, seen.looked_at)));
        }
        let (departures, looked_at) = (chat.departures(), Instant::now());
        Ok(chat.conversation(viewer, id).await?.map(|conversation| of(conversation, departures, looked_at)))
    }

    pub fn viewer(&self) -> &UserId {
        &self.viewer
    }

    /// As it was when it was looked at last.
    pub(super) fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Where one server writes, it knows of every departure.
    pub(super) async fn may_still_see(&mut self) -> Result<bool> {
        let is_young = !self.chat.is_shared() || self.looked_at.elapsed() < LOOK_EVERY;
        if is_young && self.chat.departures() == self.departures {
            return Ok(true);
        }
        // It is rare, and every stream that waits would keep room for it.
        let Some(looked) = Box::pin(Self::look(&self.chat, &self.viewer, self.conversation.id)).await? else { return Ok(false) };
        *self = looked;
        Ok(true)
    }

    /// Whether the viewer is in it now, by their own place in it: then all that was read for them until now was theirs to see.
    pub async fn is_in(&self) -> bool {
        matches!(self.chat.conversation(&self.viewer, self.conversation.id).await, Ok(Some(_)))
    }
}

fn may_see(seat: &Seat) -> bool {
    seat.membership.state == MembershipState::Joined
}

/// By what one user knows another, and so may see whether they are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    Oneself,
    /// Their direct conversation, or a group of both that is not large.
    Shared(ConversationId),
}

/// Entries of the viewer in which a group is looked for, the last active first.
const TIE_ENTRIES_MAX: usize = 200;
const TIE_READS_AT_ONCE: usize = 16;

impl Chat {
    /// By what the viewer knows each of these users. `None` for strangers.
    pub(super) async fn ties(&self, viewer: &UserId, users: &[UserId]) -> Result<Vec<Option<Tie>>> {
        let mut found: HashMap<&UserId, Tie> = HashMap::new();
        for users in users.chunks(TIE_READS_AT_ONCE) {
            let ties = try_join_all(users.iter().map(|user| self.direct_tie(viewer, user))).await?;
            found.extend(users.iter().zip(ties).filter_map(|(user, tie)| Some((user, tie?))));
        }
        let mut strangers: Vec<&UserId> = users.iter().filter(|user| !found.contains_key(user)).collect();
        let mut request = PageRequest::first(PageRequest::<()>::COUNT_MAX);
        let mut looked_at = 0;
        while !strangers.is_empty() && looked_at < TIE_ENTRIES_MAX {
            let page = self.0.store.inbox(viewer, &request).await?;
            looked_at += page.items.len();
            let ids: Vec<_> = page.items.iter().map(|row| row.conversation).collect();
            let shared = self.conversations(viewer, &ids).await?;
            let groups: Vec<_> = shared.into_iter().flatten().filter(|one| is_small_group(one)).map(|one| one.id).collect();
            for groups in groups.chunks(TIE_READS_AT_ONCE) {
                let people = try_join_all(groups.iter().map(|group| self.people_of(*group))).await?;
                for (group, people) in groups.iter().zip(people) {
                    found.extend(strangers.iter().filter(|user| people.contains(user)).map(|user| (*user, Tie::Shared(*group))));
                }
                strangers.retain(|user| !found.contains_key(user));
                if strangers.is_empty() {
                    break;
                }
            }
            match page.items.last().filter(|_| page.has_next) {
                Some(last) => request = request.after(InboxRow::key(last)),
                None => break,
            }
        }
        Ok(users.iter().map(|user| found.get(user).copied()).collect())
    }

    /// Whether it is still so.
    pub(super) async fn holds(&self, viewer: &UserId, user: &UserId, tie: Tie) -> Result<bool> {
        let Tie::Shared(id) = tie else { return Ok(true) };
        let Some(conversation) = self.conversation(viewer, id).await? else { return Ok(false) };
        let is_near = conversation.kind == ConversationKind::Direct || is_small_group(&conversation);
        Ok(is_near && self.is_in(user, id).await?)
    }

    async fn direct_tie(&self, viewer: &UserId, user: &UserId) -> Result<Option<Tie>> {
        if user == viewer {
            return Ok(Some(Tie::Oneself));
        }
        let Some(id) = self.0.store.direct_conversation(viewer, user).await? else { return Ok(None) };
        let holds = self.holds(viewer, user, Tie::Shared(id)).await?;
        Ok(holds.then_some(Tie::Shared(id)))
    }

    async fn is_in(&self, user: &UserId, id: ConversationId) -> Result<bool> {
        let seat = self.0.store.seats(user, &[id]).await?.pop().flatten();
        Ok(seat.is_some_and(|seat| may_see(&seat)))
    }

    async fn people_of(&self, group: ConversationId) -> Result<Vec<UserId>> {
        let page = self.0.store.participants(group, &PageRequest::first(Conversation::FAN_OUT_MAX)).await?;
        Ok(page.items.into_iter().map(|participant| participant.user).collect())
    }
}

fn is_small_group(conversation: &Conversation) -> bool {
    conversation.kind == ConversationKind::Group && !conversation.is_large
}
