//! Message history: pages, time ranges, the surroundings of one message, messages by id, pins and
//! reactions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::cluster::CursorScope;
use crate::model::{
    ConversationId, Cut, Floor, Message, MessageId, OrderKey, Page, PageRequest, Pin, PinKey,
    Reaction, Timestamp, UserId,
};
use crate::store::Store;

/// Request for messages of one conversation, the newest first.
#[derive(Debug, Clone)]
pub enum HistoryRequest {
    Page {
        page: PageRequest<OrderKey>,
        /// Inclusive.
        from: Option<Timestamp>,
        /// Exclusive.
        until: Option<Timestamp>,
    },
    Around {
        message: MessageId,
        count: usize,
    },
}

/// Pinned messages of a conversation, the last pinned first.
pub(crate) struct PinnedMessages {
    pub(crate) messages: Vec<Arc<Message>>,
    /// Number of pins and ended pins that the store still has.
    pub(crate) kept: usize,
}

/// Reads of messages. The caller has checked the viewer's access, or checks it at the same time.
pub struct HistoryService {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
}

impl HistoryService {
    pub(crate) fn new(store: Arc<dyn Store>, in_flight: InFlightIds) -> Self {
        Self { store, in_flight }
    }

    /// A page of the messages above the viewer's floor.
    pub async fn page(
        &self,
        conversation: ConversationId,
        floor: Floor,
        request: &HistoryRequest,
    ) -> Result<Page<Arc<Message>>> {
        match request {
            HistoryRequest::Page { page, from, until } => {
                let cut = Cut {
                    start: from
                        .map(OrderKey::first_at)
                        .filter(|from| *from > floor.key)
                        .map_or(above(floor), Bound::Included),
                    end: until.map_or(Bound::Unbounded, |moment| {
                        Bound::Excluded(OrderKey::first_at(moment))
                    }),
                };
                let page = self.store.history(conversation, &cut, page).await?;
                let newest = page.items.first().map(|message| message.id);
                self.in_flight.observe(conversation, newest);
                Ok(page)
            }
            HistoryRequest::Around { message, count } => {
                self.around(conversation, floor, *message, *count).await
            }
        }
    }

    /// Returns ⌊(count − 1) / 2⌋ messages on the newer side. If one side ends early, the other side
    /// has more.
    async fn around(
        &self,
        conversation: ConversationId,
        floor: Floor,
        message: MessageId,
        count: usize,
    ) -> Result<Page<Arc<Message>>> {
        self.require_message(conversation, message, floor).await?;
        let position = message.order_key();
        let cut = Cut::default();
        let newer = PageRequest::last(count).before(position);
        // The message itself belongs to the older side.
        let older = Cut {
            start: above(floor),
            end: Bound::Included(position),
        };
        let older_page = PageRequest::first(count);
        let (newer, older) = tokio::join!(
            self.store.history(conversation, &cut, &newer),
            self.store.history(conversation, &older, &older_page)
        );
        Ok(centre(newer?, older?, count))
    }

    /// Number of messages of each conversation above this floor, deleted ones included.
    pub async fn counts(&self, floors: &[(ConversationId, OrderKey)]) -> Result<Vec<u64>> {
        let (bounded, whole): (Vec<_>, Vec<_>) =
            (floors.iter().copied()).partition(|(_, floor)| *floor > OrderKey::MIN);
        let whole: Vec<_> = whole.into_iter().map(|(id, _)| id).collect();
        let counts = async {
            if whole.is_empty() {
                return Ok(Vec::new());
            }
            self.store.message_counts(&whole).await
        };
        let counts_after = async {
            if bounded.is_empty() {
                return Ok(Vec::new());
            }
            self.store.message_counts_after(&bounded).await
        };
        let (counts, counts_after) = tokio::try_join!(counts, counts_after)?;
        let (mut counts, mut counts_after) = (counts.into_iter(), counts_after.into_iter());
        let count = |(_, floor): &(ConversationId, OrderKey)| {
            let count = if *floor > OrderKey::MIN {
                counts_after.next()
            } else {
                counts.next()
            };
            count.unwrap_or_default()
        };
        Ok(floors.iter().map(count).collect())
    }

    /// Messages by id, `None` for those that do not exist.
    pub async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let messages = self.store.messages(keys).await?;
        for message in messages.iter().flatten() {
            self.in_flight.observe(message.conversation, [message.id]);
        }
        Ok(messages)
    }

    /// The newest message at or before each position: the message that a marker stands at.
    pub async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        Ok(self.store.messages_at(positions).await?)
    }

    /// The newest message of each conversation.
    pub async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        Ok(self.store.last_messages(conversations).await?)
    }

    /// A message of this conversation above the viewer's floor, or the error that it was not found.
    pub(crate) async fn require_message(
        &self,
        conversation: ConversationId,
        id: MessageId,
        floor: Floor,
    ) -> Result<Arc<Message>> {
        let found = self.messages(&[(conversation, id)]).await?.pop().flatten();
        found
            .filter(|message| floor.shows(message.id))
            .ok_or(Error::NotFound("the message"))
    }

    /// The current reactions of each message.
    pub async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Arc<[Reaction]>>> {
        let all = self.store.reactions(viewer, messages).await?;
        Ok(all
            .into_iter()
            .map(|of_message| of_message.into_iter().filter(is_active).collect())
            .collect())
    }

    /// The pinned messages of a conversation above a floor, the last pinned first: at most
    /// [`Pin::COUNT_MAX`].
    pub(crate) async fn pinned(
        &self,
        conversation: ConversationId,
        floor: Floor,
    ) -> Result<PinnedMessages> {
        let pins = self.store.pins(conversation).await?;
        let kept = pins.len();
        let is_shown = |(message, pin): &(MessageId, Pin)| pin.is_on && floor.shows(*message);
        let mut on: Vec<_> = pins.into_iter().filter(is_shown).collect();
        on.sort_unstable_by_key(|(message, pin)| PinKey::of(*message, pin));
        let mut messages = Vec::new();
        // More than the most are there only if two were pinned at once, or messages were deleted then.
        for some in on.chunks(Pin::COUNT_MAX) {
            let keys: Vec<_> = some.iter().map(|(id, _)| (conversation, *id)).collect();
            let found = self.messages(&keys).await?.into_iter().flatten();
            messages.extend(found.filter(|message| message.current_pin().is_some()));
            if messages.len() >= Pin::COUNT_MAX {
                break;
            }
        }
        messages.truncate(Pin::COUNT_MAX);
        Ok(PinnedMessages { messages, kept })
    }

    /// A page of the pinned messages of a conversation, the last pinned first.
    pub async fn pinned_page(
        &self,
        conversation: ConversationId,
        floor: Floor,
        request: &PageRequest<PinKey>,
    ) -> Result<Page<Arc<Message>>> {
        let PinnedMessages { messages, .. } = self.pinned(conversation, floor).await?;
        let keyed = |message: Arc<Message>| {
            let key = PinKey::of(message.id, message.current_pin()?);
            Some((key, message))
        };
        let by_key: BTreeMap<_, _> = messages.into_iter().filter_map(keyed).collect();
        let keys: Vec<_> = by_key.keys().copied().collect();
        let page = Page::of_sorted(&keys, request);
        Ok(page.map(|key| Arc::clone(&by_key[&key])))
    }

    /// Low watermark of this server. A read that starts after this call shows all events up to it.
    pub fn watermark(&self) -> OrderKey {
        self.in_flight.low_watermark()
    }

    /// The position of a conversation's event stream: its last persisted event, or the low
    /// watermark if that is later. So the position of a quiet conversation does not age.
    pub async fn events_position(&self, conversation: ConversationId) -> Result<OrderKey> {
        let scope = CursorScope::Conversation(conversation);
        let low_watermark = self.in_flight.position(scope);
        let newest = self
            .store
            .newest_events(&[conversation])
            .await?
            .pop()
            .flatten();
        let newest = newest.map(|newest| newest.order_key().min(self.in_flight.cursor_max()));
        Ok(newest.map_or(low_watermark, |newest| low_watermark.max(newest)))
    }
}

/// The older end of a cut: the messages above a floor.
pub(crate) fn above(floor: Floor) -> Bound<OrderKey> {
    if floor.key > OrderKey::MIN {
        Bound::Excluded(floor.key)
    } else {
        Bound::Unbounded
    }
}

/// Whether any participant has the reaction on. A capped count was not read to its end, so a
/// further row may have it on.
pub(crate) fn is_active(reaction: &Reaction) -> bool {
    reaction.count > 0 || reaction.is_capped
}

/// Takes `count` items of two adjacent pages, both the newest first. The message in the middle is
/// the first of `older`.
fn centre<T>(newer: Page<T>, older: Page<T>, count: usize) -> Page<T> {
    let wanted = count.saturating_sub(1) / 2;
    let take_older = older
        .items
        .len()
        .min(count - wanted.min(newer.items.len()).min(count));
    let take_newer = newer.items.len().min(count - take_older);
    let has_previous = newer.has_previous || newer.items.len() > take_newer;
    let has_next = older.has_next || older.items.len() > take_older;
    let skip = newer.items.len() - take_newer;
    let items = newer
        .items
        .into_iter()
        .skip(skip)
        .chain(older.items.into_iter().take(take_older))
        .collect();
    Page {
        items,
        has_previous,
        has_next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page around a position in a list of `length` numbers.
    fn around(length: usize, at: usize, count: usize) -> Page<usize> {
        let newer: Vec<_> = (at.saturating_sub(count)..at).collect();
        let older: Vec<_> = (at..length.min(at + count)).collect();
        let newer = Page {
            has_previous: at > count,
            has_next: true,
            items: newer,
        };
        let older = Page {
            has_previous: false,
            has_next: at + count < length,
            items: older,
        };
        centre(newer, older, count)
    }

    #[test]
    fn the_message_is_in_the_middle() {
        assert_eq!(around(100, 50, 5).items, [48, 49, 50, 51, 52]);
        assert_eq!(around(100, 50, 4).items, [49, 50, 51, 52]);
        assert_eq!(around(100, 50, 1).items, [50]);
        assert_eq!(around(100, 50, 0).items, [0_usize; 0]);
    }

    #[test]
    fn a_side_that_ends_early_is_filled_up_by_the_other() {
        assert_eq!(around(100, 0, 5).items, [0, 1, 2, 3, 4]);
        assert_eq!(around(100, 99, 5).items, [95, 96, 97, 98, 99]);
        assert_eq!(around(3, 1, 5).items, [0, 1, 2]);
    }

    #[test]
    fn the_flags_show_further_messages() {
        for (length, at, count) in [
            (100, 50, 5),
            (100, 1, 5),
            (100, 98, 5),
            (3, 1, 5),
            (5, 2, 5),
            (6, 2, 5),
            (6, 3, 5),
            (9, 4, 0),
        ] {
            let page = around(length, at, count);
            let (first, last) = (page.items.first(), page.items.last());
            assert_eq!(
                page.has_previous,
                first.map_or(at > 0, |first| *first > 0),
                "{length} {at} {count}"
            );
            assert_eq!(
                page.has_next,
                last.is_none_or(|last| last + 1 < length),
                "{length} {at} {count}"
            );
        }
    }
}
