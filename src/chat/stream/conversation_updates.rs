//! The stream of all that happens in one conversation: new messages, changes and markers, merged in order and resumed without a gap.
//!
//! Messages and changes, of the membership too, have one order and a position in it. Markers have none: they are not logged, and whoever resumes gets every
//! participant's present one first.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::bus::{Received, TopicSubscription};
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::stream::delivered_ids::DeliveredIds;
use crate::chat::stream::inbox_updates::POSITION_EVERY;
use crate::chat::stream::message_updates::before_by;
use crate::chat::stream::replay::{Events, Reader};
use crate::chat::stream::update_key::UpdateKey;
use crate::chat::{Chat, Result};
use crate::model::{
    Change, ChangeKind, ConversationId, Event, Message, Notice, OrderKey, TimeUuid, Topic, UserId,
};

/// Where the stream is, and what happened there. Without an event it is only the position.
#[derive(Debug, Clone)]
pub struct ConversationUpdate {
    pub position: OrderKey,
    pub event: Option<ConversationEvent>,
    /// Where another stream may have the same one.
    pub key: Option<UpdateKey>,
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
    pub(crate) fn of(change: &Change) -> Option<Self> {
        let user = || change.user.clone();
        match change.kind {
            ChangeKind::MessageEdited
            | ChangeKind::MessageDeleted
            | ChangeKind::ReactionsChanged
            | ChangeKind::MessageLate => None,
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
    watch: MembershipGuard,
    /// The viewer was told that they are out.
    has_ended: bool,
    heard: TopicSubscription,
    /// All up to here was given: what is told.
    position: OrderKey,
    /// From where on the store is read. On a shared store that is a while before the position.
    place: OrderKey,
    given: DeliveredIds,
    pending: VecDeque<ConversationUpdate>,
    /// Whether the store may hold more after the position than was read.
    is_behind: bool,
    /// Markers were missed: they are not logged, so the present ones are told again.
    has_missed_markers: bool,
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
        let watch = MembershipGuard::begin(self, viewer, conversation).await?;
        let position = match after {
            Some(after) => after,
            None => {
                Reader {
                    chat: self,
                    viewer,
                    conversation,
                    heard: &heard,
                }
                .position()
                .await?
            }
        };
        // Without `after` all is new that is heard: the position was read later.
        let given = DeliveredIds::from(after.unwrap_or(OrderKey::MIN), self.is_shared());
        let mut updates = ConversationUpdates {
            chat: self.clone(),
            conversation,
            watch,
            has_ended: false,
            heard,
            position,
            place: before_by(position, self.0.store.overlap_micros()),
            given,
            pending: VecDeque::from([ConversationUpdate {
                position,
                event: None,
                key: None,
            }]),
            is_behind: after.is_some(),
            has_missed_markers: false,
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
                Some(Ok(ConversationUpdate {
                    position: update.position,
                    event: Some(event),
                    key: None,
                }))
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
                // In a box: every stream that is live would keep room for it.
                match Box::pin(self.read_on()).await {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            match tokio::time::timeout_at(self.quiet_since + POSITION_EVERY, self.heard.next())
                .await
            {
                Ok(heard) => self.take(heard?),
                Err(_) => self.repeat_position(),
            }
        }
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.watch
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            chat: &self.chat,
            viewer: self.watch.viewer(),
            conversation: self.conversation,
            heard: &self.heard,
        }
    }

    /// Every participant's present marker. A large conversation tells none.
    async fn take_markers(&mut self) -> Result<()> {
        if self.watch.conversation().is_large {
            return Ok(());
        }
        let markers = self.reader().markers().await?;
        for (place, user) in markers.users.iter().enumerate() {
            let event = Some(ConversationEvent::MarkerMoved(user.clone()));
            self.pending.push_back(ConversationUpdate {
                position: self.position,
                event,
                key: Some(markers.source.at(place)),
            });
        }
        Ok(())
    }

    /// Reads the next piece of what was missed: messages and changes, up to where both are known.
    async fn read_on(&mut self) -> Result<()> {
        let piece = self.reader().events(self.place).await?;
        let Events {
            source,
            events,
            halves,
            end,
        } = piece.as_ref();
        let from = self.place;
        self.place = self.place.max(end.unwrap_or(OrderKey::MIN));
        self.is_behind = end.is_some();
        for (place, (id, event)) in events.iter().enumerate() {
            if id.order_key() > from {
                self.give(*id, event.clone(), source.at(place));
            }
        }
        // DeliveredIds as they are now, and once more when they are heard.
        halves.iter().for_each(|id| self.given.forget(*id));
        if !self.is_behind && std::mem::take(&mut self.has_missed_markers) {
            self.take_markers().await?;
        }
        Ok(())
    }

    fn take(&mut self, heard: Received) {
        let Received::Notice(notice) = heard else {
            // What was missed is read from the store, from the last position that was given.
            self.place = before_by(self.position, self.chat.0.store.overlap_micros());
            (self.is_behind, self.has_missed_markers) = (true, true);
            return;
        };
        let Notice { id, event, .. } = &notice.notice;
        let same = UpdateKey::heard(Arc::clone(&notice));
        match event {
            Event::MessageAdded(message) => self.give(
                *id,
                ConversationEvent::MessageAdded(Arc::clone(message)),
                same,
            ),
            Event::MessageChanged(kind, message) => self.give(
                *id,
                ConversationEvent::MessageChanged(*kind, Arc::clone(message)),
                same,
            ),
            Event::Changed(_, change) => {
                if let Some(event) = ConversationEvent::of(change) {
                    self.give(*id, event, same);
                }
            }
            Event::MarkerMoved(_, user) => {
                let event = Some(ConversationEvent::MarkerMoved(user.clone()));
                self.pending.push_back(ConversationUpdate {
                    position: self.position,
                    event,
                    key: Some(same),
                });
            }
            Event::Inbox(_) | Event::Typing(..) | Event::Presence(_) => {}
        }
    }

    fn give(&mut self, id: TimeUuid, event: ConversationEvent, key: UpdateKey) {
        self.position = self.position.max(id.order_key());
        self.place = self.place.max(id.order_key());
        // A late message comes under its own id and under that of the change that tells of it: it is one event.
        let identity = if let ConversationEvent::MessageAdded(message) = &event {
            message.id
        } else {
            id
        };
        if self.given.insert(identity) {
            self.pending.push_back(ConversationUpdate {
                position: self.position,
                event: Some(event),
                key: Some(key),
            });
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
                self.pending.push_back(ConversationUpdate {
                    position: self.position,
                    event: None,
                    key: None,
                });
            }
        }
    }
}

/// Whether a message shows what a change made of it. The log and the message may become visible one after the other.
pub(crate) fn is_seen_in(change: &Change, message: Option<&Message>) -> bool {
    let Some(message) = message else { return false };
    match change.kind {
        ChangeKind::MessageDeleted => message.deleted_at.is_some(),
        ChangeKind::MessageEdited => {
            let edited_at = message
                .content
                .as_ref()
                .and_then(|content| content.edited_at);
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
