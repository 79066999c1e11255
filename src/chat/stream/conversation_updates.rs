//! The stream of all events of one conversation: new messages, changes and markers, merged in their
//! order.
//!
//! Messages and changes have one order, and a position in it. Markers are not logged and have no
//! position, so a resumed stream first delivers the current marker of every participant.

use std::collections::VecDeque;
use std::sync::Arc;

use super::StreamService;
use super::conversation_event::ConversationEvent;
use super::delivered_ids::DeliveredIds;
use super::quiet_alarm::QuietAlarm;
use super::replay::{ConversationSource, EventReplay};
use super::update_key::UpdateKey;
use crate::bus::Received;
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::error::Result;
use crate::cluster::CursorScope;
use crate::model::{ConversationId, Event, Notice, OrderKey, TimeUuid, Viewer};

/// Position of the stream with the event there. Without an event, only the position has advanced.
#[derive(Debug, Clone)]
pub struct ConversationUpdate {
    pub position: OrderKey,
    pub event: Option<ConversationEvent>,
    /// False while the stream replays.
    pub is_live: bool,
    /// `None` for an update that no other stream has.
    pub key: Option<UpdateKey>,
    /// Position of the logged event. `None` for an update that everyone may see.
    pub(crate) logged_at: Option<OrderKey>,
}

impl ConversationUpdate {
    /// Update without an event.
    fn of_position(position: OrderKey) -> Self {
        Self {
            position,
            event: None,
            is_live: true,
            key: None,
            logged_at: None,
        }
    }

    fn is_visible_to(&self, guard: &MembershipGuard) -> bool {
        let message = self.event.as_ref().and_then(ConversationEvent::message);
        let message = message.map(|message| message.id);
        self.logged_at
            .is_none_or(|position| guard.shows(position, message))
    }
}

pub struct ConversationUpdates {
    source: ConversationSource,
    /// Whether the viewer's removal was delivered.
    has_ended: bool,
    /// Cursor of the stream: all events up to here were delivered.
    position: OrderKey,
    /// Position from which the store is read. On a shared store it is earlier than the cursor.
    read_position: OrderKey,
    delivered: DeliveredIds,
    pending: VecDeque<ConversationUpdate>,
    /// Whether the store may hold more events than were read.
    is_behind: bool,
    /// False until the end of a replay that is to be announced.
    is_live: bool,
    /// Whether markers were missed. They are not logged, so the current ones are delivered again.
    has_missed_markers: bool,
    /// Whether the conversation may have become large since the stream registered.
    may_have_grown: bool,
    quiet: QuietAlarm,
}

impl StreamService {
    /// All events of a conversation. With `after`, first the current markers and all events after
    /// that cursor, then live ones.
    pub async fn conversation(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        after: Option<OrderKey>,
    ) -> Result<ConversationUpdates> {
        let source = ConversationSource::open(self, &caller.into(), conversation).await?;
        let position = match after {
            Some(after) => after,
            None => source.position().await?,
        };
        // Without `after`, every notice is new: the subscription is older than the position.
        let start = after.unwrap_or(OrderKey::MIN);
        let mut updates = ConversationUpdates {
            source,
            has_ended: false,
            position,
            read_position: self.read_position(position),
            delivered: DeliveredIds::starting_at(start, self.is_shared()),
            pending: VecDeque::from([ConversationUpdate::of_position(position)]),
            is_behind: after.is_some(),
            is_live: true,
            has_missed_markers: false,
            may_have_grown: false,
            quiet: QuietAlarm::new(),
        };
        if after.is_some() {
            self.check_cursor_age(position)?;
            updates.replay_markers().await?;
        }
        Ok(updates)
    }
}

impl ConversationUpdates {
    /// Announces the end of the replay by one more position. Until then no update is live.
    #[must_use]
    pub fn announcing_live(mut self) -> Self {
        self.is_live = false;
        self
    }

    /// The next update. A viewer who no longer takes part receives their own removal, and then
    /// `None`.
    pub async fn next(&mut self) -> Result<Option<ConversationUpdate>> {
        if self.has_ended {
            return Ok(None);
        }
        while let Some(update) = self.replay_or_receive().await? {
            let guard = &mut self.source.guard;
            if guard.may_still_see().await? {
                if update.is_visible_to(guard) {
                    return Ok(Some(update));
                }
                continue;
            }
            self.has_ended = true;
            // A viewer who has blocked the other participant still takes part.
            let is_removed = !guard.is_hidden().await?;
            let event = ConversationEvent::ParticipantRemoved(guard.viewer().clone());
            return Ok(is_removed.then_some(ConversationUpdate {
                event: Some(event),
                key: None,
                logged_at: None,
                ..update
            }));
        }
        Ok(None)
    }

    async fn replay_or_receive(&mut self) -> Result<Option<ConversationUpdate>> {
        loop {
            if let Some(mut update) = self.pending.pop_front() {
                self.quiet.record_delivery();
                update.is_live = self.is_live;
                return Ok(Some(update));
            }
            if self.is_behind {
                // Boxed: every live stream would reserve the size of the future.
                Box::pin(self.read_next_page()).await?;
                continue;
            }
            if !std::mem::replace(&mut self.is_live, true) {
                return Ok(Some(ConversationUpdate::of_position(self.position)));
            }
            let received = tokio::select! {
                biased;
                received = self.source.subscription.next() => received,
                () = self.quiet.wait() => {
                    self.repeat_position();
                    continue;
                }
            };
            let Some(received) = received else {
                return Ok(None);
            };
            match &received {
                Received::Notice(notice) if self.source.guard.is_own_block(&notice.event) => {
                    if self.source.guard.is_hidden().await? {
                        return Ok(None);
                    }
                }
                Received::Notice(_) | Received::Lagged => self.accept(received),
            }
        }
    }

    /// Whether the next update is at hand.
    pub fn has_more(&self) -> bool {
        !self.pending.is_empty()
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.source.guard
    }

    /// Delivers the current marker of every participant. Large conversations have none.
    async fn replay_markers(&mut self) -> Result<()> {
        if self.source.guard.conversation().is_large {
            return Ok(());
        }
        let markers = self.source.markers().await?;
        for (index, user) in markers.users.iter().enumerate() {
            let event = ConversationEvent::MarkerMoved(user.clone());
            self.push(event, markers.identity.key(index), None);
        }
        Ok(())
    }

    /// Reads the next page of missed events. After the last page the stream is live.
    async fn read_next_page(&mut self) -> Result<()> {
        if std::mem::take(&mut self.may_have_grown) {
            self.source.recheck_size().await?;
        }
        self.read_position = self.read_position.max(self.source.guard.visible_from());
        let floor = self.source.guard.floor().key;
        let page = self.source.events(self.read_position, floor).await?;
        let EventReplay {
            identity,
            events,
            partial,
            end,
        } = page.as_ref();
        let from = self.read_position;
        self.read_position = self.read_position.max(end.unwrap_or(OrderKey::MIN));
        self.is_behind = end.is_some();
        let limit = self.source.streams.in_flight.cursor_max();
        for (index, (id, event)) in events.iter().enumerate() {
            if id.order_key() > from {
                let position = id.order_key().min(limit);
                self.accept_event(*id, position, event.clone(), identity.key(index));
            }
        }
        // A partial change is delivered in its current state, and once more with its notice.
        partial.iter().for_each(|id| self.delivered.remove(*id));
        if !self.is_behind && std::mem::take(&mut self.has_missed_markers) {
            self.replay_markers().await?;
        }
        Ok(())
    }

    fn accept(&mut self, received: Received) {
        let Received::Notice(notice) = received else {
            // Missed events are read from the store, from the cursor on.
            self.read_position = self.source.streams.read_position(self.position);
            (self.is_behind, self.has_missed_markers) = (true, true);
            self.may_have_grown = self.source.streams.is_shared();
            return;
        };
        let Notice { id, event, .. } = &notice.notice;
        let key = UpdateKey::of_notice(Arc::clone(&notice));
        let position = notice.position();
        match event {
            Event::MessageAdded(message) => {
                let event = ConversationEvent::MessageAdded(Arc::clone(message));
                self.accept_event(*id, position, event, key);
            }
            Event::MessageChanged(kind, message) => {
                let event = ConversationEvent::MessageChanged(*kind, Arc::clone(message));
                self.accept_event(*id, position, event, key);
            }
            Event::Changed(_, change) => {
                if let Some(event) = ConversationEvent::of_change(change) {
                    self.accept_event(*id, position, event, key);
                }
            }
            Event::MarkerMoved(_, user) => {
                self.push(ConversationEvent::MarkerMoved(user.clone()), key, None);
            }
            Event::Inbox(_)
            | Event::BlockChanged(_)
            | Event::Typing(..)
            | Event::LiveStepped(_)
            | Event::Presence(_) => {}
        }
    }

    /// Advances the position, and queues the event unless it is a duplicate.
    fn accept_event(
        &mut self,
        id: TimeUuid,
        position: OrderKey,
        event: ConversationEvent,
        key: UpdateKey,
    ) {
        self.position = self.position.max(position);
        self.read_position = self.read_position.max(id.order_key());
        // A late message has two ids: its own, and that of its log entry. It is one event.
        let event_id = if let ConversationEvent::MessageAdded(message) = &event {
            message.id
        } else {
            id
        };
        if self.delivered.insert(event_id) {
            self.push(event, key, Some(id.order_key()));
        }
    }

    fn push(&mut self, event: ConversationEvent, key: UpdateKey, logged_at: Option<OrderKey>) {
        self.pending.push_back(ConversationUpdate {
            event: Some(event),
            key: Some(key),
            logged_at,
            ..ConversationUpdate::of_position(self.position)
        });
    }

    fn repeat_position(&mut self) {
        // Read before the subscription: every event up to here waits there, or was delivered.
        let scope = CursorScope::Conversation(self.source.conversation);
        let low_watermark = self.source.streams.in_flight.position(scope);
        match self.source.subscription.try_next() {
            Some(received) => self.accept(received),
            None => {
                self.position = self.position.max(low_watermark);
                self.read_position = self.read_position.max(self.position);
                let repeated = ConversationUpdate::of_position(self.position);
                self.pending.push_back(repeated);
            }
        }
    }
}
