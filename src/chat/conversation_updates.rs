//! The stream of all that happens in one conversation: new messages, changes and markers, merged in order and resumed without a gap.
//!
//! Messages and changes, of the membership too, have one order and a position in it. Markers have none: they are not logged, and whoever resumes gets every
//! participant's present one first.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use tokio::time::Instant;

use super::access::Watch;
use super::given::Given;
use super::inbox_updates::POSITION_EVERY;
use super::message_updates::before_by;
use super::{Chat, Result};
use crate::bus::{Heard, Subscription};
use crate::model::{
    Change, ChangeKind, Conversation, ConversationId, Cut, Event, Message, Notice, OrderKey, PageRequest, TimeUuid, Topic, UserId,
};

/// Messages, and changes, read from the store at a time.
const REPLAY_PAGE: usize = 100;

/// Where the stream is, and what happened there. Without an event it is only the position.
#[derive(Debug, Clone)]
pub struct ConversationUpdate {
    pub position: OrderKey,
    pub event: Option<ConversationEvent>,
}

#[derive(Debug, Clone)]
pub enum ConversationEvent {
    MessageAdded(Arc<Message>),
    /// The message as it is now.
    MessageChanged(ChangeKind, Arc<Message>),
    ParticipantAdded(UserId),
    ParticipantRemoved(UserId),
    RoleChanged(UserId),
    Renamed,
    MarkerMoved(UserId),
}

impl ConversationEvent {
    /// What a change comes to that is of no message.
    fn of(change: &Change) -> Option<Self> {
        let user = || change.user.clone();
        match change.kind {
            ChangeKind::MessageEdited | ChangeKind::MessageDeleted | ChangeKind::ReactionsChanged | ChangeKind::MessageLate => None,
            ChangeKind::ParticipantAdded => Some(Self::ParticipantAdded(user())),
            ChangeKind::ParticipantRemoved => Some(Self::ParticipantRemoved(user())),
            ChangeKind::RoleChanged => Some(Self::RoleChanged(user())),
            ChangeKind::ConversationRenamed => Some(Self::Renamed),
        }
    }
}

pub struct ConversationUpdates {
    chat: Chat,
    conversation: ConversationId,
    watch: Watch,
    /// The viewer was told that they are out.
    has_ended: bool,
    heard: Subscription,
    /// All up to here was given: what is told.
    position: OrderKey,
    /// From where on the store is read. On a shared store that is a while before the position.
    place: OrderKey,
    given: Given,
    pending: VecDeque<ConversationUpdate>,
    /// Whether the store may hold more after the position than was read.
    is_behind: bool,
    /// Markers were missed: they are not logged, so the present ones are told again.
    has_missed_markers: bool,
    /// Where the reading of what was missed ends.
    ceiling: Option<OrderKey>,
    quiet_since: Instant,
}

impl Chat {
    /// All that happens in a conversation. With `after`: first the present markers and every later event, then live.
    pub async fn conversation_updates(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        after: Option<OrderKey>,
    ) -> Result<ConversationUpdates> {
        let heard = self.0.bus.subscribe(Topic::Conversation(conversation));
        let watch = Watch::begin(self, viewer, conversation).await?;
        let position = match after {
            Some(after) => after,
            None => self.events_position(conversation).await?,
        };
        let mut updates = ConversationUpdates {
            chat: self.clone(),
            conversation,
            watch,
            has_ended: false,
            heard,
            position,
            place: before_by(position, self.0.store.overlap_micros()),
            given: Given::default(),
            pending: VecDeque::from([ConversationUpdate { position, event: None }]),
            is_behind: after.is_some(),
            has_missed_markers: false,
            ceiling: None,
            quiet_since: Instant::now(),
        };
        if after.is_some() {
            self.check_cursor_age(position)?;
            updates.take_markers().await?;
        }
        Ok(updates)
    }
}

impl ConversationUpdates {
    /// What is next. To one who is not in the conversation any more that is their removal, and after it `None`.
    pub async fn next(&mut self) -> Option<Result<ConversationUpdate>> {
        if self.has_ended {
            return None;
        }
        let update = match self.read_or_hear().await? {
            Ok(update) => update,
            Err(error) => return Some(Err(error)),
        };
        match self.watch.may_still_see().await {
            Ok(true) => Some(Ok(update)),
            Ok(false) => {
                self.has_ended = true;
                let event = ConversationEvent::ParticipantRemoved(self.watch.viewer().clone());
                Some(Ok(ConversationUpdate { position: update.position, event: Some(event) }))
            }
            Err(error) => Some(Err(error)),
        }
    }

    async fn read_or_hear(&mut self) -> Option<Result<ConversationUpdate>> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                self.quiet_since = Instant::now();
                return Some(Ok(update));
            }
            if self.is_behind {
                match self.read_on().await {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            match tokio::time::timeout_at(self.quiet_since + POSITION_EVERY, self.heard.next()).await {
                Ok(heard) => self.take(heard?),
                Err(_) => self.repeat_position(),
            }
        }
    }

    /// Every participant's present marker. A large conversation tells none.
    async fn take_markers(&mut self) -> Result<()> {
        if self.watch.conversation().is_large {
            return Ok(());
        }
        let participants = self.chat.0.store.participants(self.conversation, &PageRequest::first(Conversation::FAN_OUT_MAX)).await?;
        let moved =
            participants.items.into_iter().filter(|participant| participant.read_up_to.max(participant.delivered_up_to) > OrderKey::MIN);
        for participant in moved {
            let event = Some(ConversationEvent::MarkerMoved(participant.user));
            self.pending.push_back(ConversationUpdate { position: self.position, event });
        }
        Ok(())
    }

    /// Reads the next piece of what was missed: messages and changes, up to where both are known.
    async fn read_on(&mut self) -> Result<()> {
        let _turn = self.chat.0.replays.turn(self.watch.viewer()).await?;
        let store = &self.chat.0.store;
        // What is stored from now on is heard. To read it too, in two reads at two moments, could put a message before an earlier change.
        let ceiling = match self.ceiling {
            Some(ceiling) => ceiling,
            None => store.newest_events(&[self.conversation]).await?.pop().flatten().map_or(OrderKey::MIN, TimeUuid::order_key),
        };
        let cut = Cut { start: Bound::Excluded(self.place), end: Bound::Included(ceiling) };
        let page = store.history(self.conversation, &cut, &PageRequest::last(REPLAY_PAGE)).await?;
        let mut changes = store.changes(self.conversation, self.place, REPLAY_PAGE).await?;
        let changes_end = changes.get(REPLAY_PAGE - 1).map(|change| change.id.order_key());
        let messages_end = page.items.first().filter(|_| page.has_previous).map(|message| message.id.order_key());
        let end = [changes_end, messages_end].into_iter().flatten().min().filter(|end| *end < ceiling);
        let is_known = |id: TimeUuid| id.order_key() <= end.unwrap_or(ceiling);
        changes.retain(|change| is_known(change.id));
        let messages = page.items.into_iter().filter(|message| is_known(message.id));
        let mut events: Vec<_> = messages.map(|message| (message.id, ConversationEvent::MessageAdded(message))).collect();
        let (changed, halves) = self.changed(changes).await?;
        events.extend(changed);
        events.sort_unstable_by_key(|(id, _)| *id);
        self.ceiling = end.map(|_| ceiling);
        self.place = self.place.max(end.unwrap_or(OrderKey::MIN));
        self.is_behind = end.is_some();
        for (id, event) in events {
            self.give(id, event);
        }
        // Given as they are now, and once more when they are heard.
        halves.iter().for_each(|id| self.given.forget(*id));
        if !self.is_behind && std::mem::take(&mut self.has_missed_markers) {
            self.take_markers().await?;
        }
        Ok(())
    }

    /// Changes with their messages as they are now, and those of them that may be seen only in part yet.
    async fn changed(&self, changes: Vec<Change>) -> Result<(Vec<(TimeUuid, ConversationEvent)>, Vec<TimeUuid>)> {
        let keys: Vec<_> = changes.iter().map(|change| (self.conversation, change.message)).collect();
        let messages = self.chat.0.store.messages(&keys).await?;
        let halves = changes.iter().zip(&messages).filter(|(change, message)| !is_seen_in(change, message.as_deref()));
        let halves = halves.filter(|_| self.chat.is_shared()).map(|(change, _)| change.id).collect();
        let event = |(change, message): (Change, Option<Arc<Message>>)| {
            let event = match ConversationEvent::of(&change) {
                Some(event) => event,
                None if change.kind == ChangeKind::MessageLate => ConversationEvent::MessageAdded(message?),
                None => ConversationEvent::MessageChanged(change.kind, message?),
            };
            Some((change.id, event))
        };
        Ok((changes.into_iter().zip(messages).filter_map(event).collect(), halves))
    }

    fn take(&mut self, heard: Heard) {
        let Heard::Notice(notice) = heard else {
            // What was missed is read from the store, from the last position that was given.
            self.place = before_by(self.position, self.chat.0.store.overlap_micros());
            (self.is_behind, self.has_missed_markers) = (true, true);
            return;
        };
        let Notice { id, event, .. } = notice.as_ref();
        match event {
            Event::MessageAdded(message) => self.give(*id, ConversationEvent::MessageAdded(Arc::clone(message))),
            Event::MessageChanged(kind, message) => self.give(*id, ConversationEvent::MessageChanged(*kind, Arc::clone(message))),
            Event::Changed(_, change) => {
                if let Some(event) = ConversationEvent::of(change) {
                    self.give(*id, event);
                }
            }
            Event::MarkerMoved(_, user) => {
                let event = Some(ConversationEvent::MarkerMoved(user.clone()));
                self.pending.push_back(ConversationUpdate { position: self.position, event });
            }
            Event::Inbox(_) | Event::Typing(..) | Event::Presence(_) => {}
        }
    }

    fn give(&mut self, id: TimeUuid, event: ConversationEvent) {
        self.position = self.position.max(id.order_key());
        self.place = self.place.max(id.order_key());
        // A late message comes under its own id and under that of the change that tells of it: it is one event.
        let identity = if let ConversationEvent::MessageAdded(message) = &event { message.id } else { id };
        if self.given.insert(identity) {
            self.pending.push_back(ConversationUpdate { position: self.position, event: Some(event) });
        }
    }

    fn repeat_position(&mut self) {
        // Taken before looking: whatever was told up to here waits in the topic, or was given.
        let settled = self.chat.updates_position();
        match self.heard.try_next() {
            Some(heard) => self.take(heard),
            None => {
                self.position = self.position.max(settled);
                self.place = self.place.max(self.position);
                self.pending.push_back(ConversationUpdate { position: self.position, event: None });
            }
        }
    }
}

/// Whether a message shows what a change made of it. The log and the message may become visible one after the other.
pub(super) fn is_seen_in(change: &Change, message: Option<&Message>) -> bool {
    let Some(message) = message else { return false };
    match change.kind {
        ChangeKind::MessageDeleted => message.deleted_at.is_some(),
        ChangeKind::MessageEdited => {
            let edited_at = message.content.as_ref().and_then(|content| content.edited_at);
            message.deleted_at.is_some() || edited_at >= Some(change.id.moment())
        }
        // Reactions are counted when they are shown.
        ChangeKind::ReactionsChanged
        | ChangeKind::MessageLate
        | ChangeKind::ParticipantAdded
        | ChangeKind::ParticipantRemoved
        | ChangeKind::RoleChanged
        | ChangeKind::ConversationRenamed => true,
    }
}
