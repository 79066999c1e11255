//! Reading a conversation: pages, time ranges, and the surroundings of one message.

use std::ops::Bound;
use std::sync::Arc;

use crate::chat::{Chat, Result};
use crate::model::{
    ConversationId, Cut, Message, MessageId, OrderKey, Page, PageRequest, Timestamp,
};

/// Which messages of a conversation are wanted, the newest first.
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

impl Chat {
    /// A page of messages. The viewer's access was checked.
    pub async fn history(
        &self,
        conversation: ConversationId,
        request: &HistoryRequest,
    ) -> Result<Page<Arc<Message>>> {
        match request {
            HistoryRequest::Page { page, from, until } => {
                let cut = Cut {
                    start: from.map_or(Bound::Unbounded, |moment| {
                        Bound::Included(OrderKey::first_at(moment))
                    }),
                    end: until.map_or(Bound::Unbounded, |moment| {
                        Bound::Excluded(OrderKey::first_at(moment))
                    }),
                };
                let page = self.0.store.history(conversation, &cut, page).await?;
                self.seen(page.items.first().map(|message| message.id));
                Ok(page)
            }
            HistoryRequest::Around { message, count } => {
                self.history_around(conversation, *message, *count).await
            }
        }
    }

    /// Puts ⌊(count − 1) / 2⌋ messages on the newer side, and where one side ends early, more on the other.
    async fn history_around(
        &self,
        conversation: ConversationId,
        message: MessageId,
        count: usize,
    ) -> Result<Page<Arc<Message>>> {
        self.message_of(conversation, message).await?;
        let store = &self.0.store;
        let place = message.order_key();
        let cut = Cut::default();
        let newer = PageRequest::last(count).before(place);
        // The message itself is on the older side: whatever is smaller than the next greater place.
        let older = Cut {
            start: Bound::Unbounded,
            end: Bound::Included(place),
        };
        let older_page = PageRequest::first(count);
        let (newer, older) = tokio::join!(
            store.history(conversation, &cut, &newer),
            store.history(conversation, &older, &older_page)
        );
        Ok(centre(newer?, older?, count))
    }

    /// How many messages each conversation has, deleted ones included. The viewer's access was checked.
    pub async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        Ok(self.0.store.message_counts(conversations).await?)
    }

    /// The position of a conversation's event stream: of its last stored event, or of the last moment of which nothing is under way, so
    /// that the position of a quiet conversation does not grow old.
    pub async fn events_position(&self, conversation: ConversationId) -> Result<OrderKey> {
        let settled = self.0.in_flight.settled();
        let newest = self
            .0
            .store
            .newest_events(&[conversation])
            .await?
            .pop()
            .flatten();
        Ok(newest.map_or(settled, |newest| settled.max(newest.order_key())))
    }
}

/// Takes `count` of two pages that meet, both the newest first: the message in the middle is the first of `older`.
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

    /// `around` in a list of `length` numbers, against its plain definition.
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
    fn the_message_stands_in_the_middle() {
        assert_eq!(around(100, 50, 5).items, [48, 49, 50, 51, 52]);
        assert_eq!(around(100, 50, 4).items, [49, 50, 51, 52]);
        assert_eq!(around(100, 50, 1).items, [50]);
        assert_eq!(around(100, 50, 0).items, [0_usize; 0]);
    }

    #[test]
    fn where_one_side_ends_the_other_fills_up() {
        assert_eq!(around(100, 0, 5).items, [0, 1, 2, 3, 4]);
        assert_eq!(around(100, 99, 5).items, [95, 96, 97, 98, 99]);
        assert_eq!(around(3, 1, 5).items, [0, 1, 2]);
    }

    #[test]
    fn the_flags_say_what_lies_beyond() {
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
