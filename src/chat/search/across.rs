//! Search across the viewer's conversations: one heap of the positions up to which each of them was
//! looked at.
//!
//! The greatest message is judged next, so a match is shown when it is the greatest. A page ends at
//! the last message that it judged: everything newer was judged, and the next page is further on.
//! Each page reads at least one message of each conversation that is active above its cursor.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use futures_util::future::try_join_all;

use super::walk::{HistoryWalk, SearchBudget};
use super::{MatchPage, MessageMatch, Search, SearchKey, SearchService};
use crate::chat::access::blocks::BlockList;
use crate::chat::error::Result;
use crate::model::{Floor, InboxRow, Message, PageRequest, UserId};
use crate::store::Store;

/// Conversations that a search looks into, the most recently active ones.
const CONVERSATIONS_MAX: usize = 1_000;
/// Inbox entries of one read.
const ENTRIES: usize = 100;
/// Conversations that are opened at once, after the first ones gave no page.
const OPENED_AT_ONCE_MAX: usize = 16;

/// Position of the next message of a walk.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WalkPosition {
    key: SearchKey,
    walk: usize,
}

/// Walks of the viewer's conversations.
struct Walks<'a> {
    store: &'a Arc<dyn Store>,
    search: &'a Search,
    opened: Vec<HistoryWalk>,
    heap: BinaryHeap<WalkPosition>,
    /// Conversations that were not opened, the greatest position first, with the viewer's floors.
    unopened: VecDeque<(SearchKey, Floor)>,
    open_next: usize,
}

impl SearchService {
    /// A page of matches in the viewer's conversations.
    pub async fn across(
        &self,
        viewer: &UserId,
        search: &Search,
        count: usize,
        after: Option<SearchKey>,
    ) -> Result<MatchPage<SearchKey>> {
        let _permit = self.permit(viewer).await?;
        if count == 0 {
            return Ok(MatchPage::empty());
        }
        let blocks = self.access.blocks().of(viewer).await?;
        let (unopened, is_capped) = self.candidates(viewer, search, &blocks, after).await?;
        let mut walks = Walks::new(&self.store, search, unopened);
        let mut budget = SearchBudget::default();
        let mut page = MatchPage {
            is_capped,
            ..MatchPage::empty()
        };
        while page.matches.len() < count && !budget.is_spent() {
            let Some((key, message)) = walks.next().await? else {
                return Ok(page);
            };
            page.end = Some(key);
            budget.spend(&message).await;
            if let Some(snippet) = search.judge(&message, &blocks) {
                page.matches.push(MessageMatch { message, snippet });
            }
        }
        page.has_next = walks.may_have_more();
        Ok(page)
    }

    /// The conversations to look into, each with the position to begin at, the greatest first; and
    /// whether there are more.
    async fn candidates(
        &self,
        viewer: &UserId,
        search: &Search,
        blocks: &BlockList,
        after: Option<SearchKey>,
    ) -> Result<(VecDeque<(SearchKey, Floor)>, bool)> {
        let (mut found, mut looked_at) = (Vec::new(), 0);
        let mut request = PageRequest::first(ENTRIES);
        let is_capped = loop {
            let page = self.store.inbox(viewer, &request).await?;
            let ids: Vec<_> = page.items.iter().map(|row| row.conversation).collect();
            let conversations = self.access.visible(viewer, &ids).await?;
            let visible = page.items.iter().zip(conversations);
            let visible = visible.filter_map(|(row, conversation)| Some((row, conversation?)));
            for (row, conversation) in visible {
                if search.accepts_kind(conversation.kind) && !blocks.hides(conversation.id) {
                    let begin = begin_at(&row.above(conversation.floor), search, after);
                    found.extend(begin.map(|key| (key, conversation.floor)));
                }
            }
            looked_at += page.items.len();
            match page.items.last() {
                Some(last) if page.has_next && looked_at < CONVERSATIONS_MAX => {
                    request = PageRequest::first(ENTRIES).after(last.key());
                }
                _ => break page.has_next,
            }
        };
        found.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        Ok((found.into(), is_capped))
    }
}

/// The greatest position of a conversation that belongs to the page. `None` if it has none.
fn begin_at(row: &InboxRow, search: &Search, after: Option<SearchKey>) -> Option<SearchKey> {
    let conversation = row.conversation;
    let mut position = row.visible_last_message()?.order_key();
    if let Some(after) = after {
        let below = if conversation < after.conversation {
            after.position
        } else {
            after.position.before()
        };
        position = position.min(below);
    }
    let (oldest, newest) = search.range();
    position = position.min(newest);
    (position >= oldest && position > row.floor.key).then_some(SearchKey {
        position,
        conversation,
    })
}

impl<'a> Walks<'a> {
    fn new(
        store: &'a Arc<dyn Store>,
        search: &'a Search,
        unopened: VecDeque<(SearchKey, Floor)>,
    ) -> Self {
        Self {
            store,
            search,
            opened: Vec::new(),
            heap: BinaryHeap::new(),
            unopened,
            open_next: 1,
        }
    }

    /// The greatest message of all walks. Conversations that may have a greater one are opened first.
    async fn next(&mut self) -> Result<Option<(SearchKey, Arc<Message>)>> {
        while let Some((next, _)) = self.unopened.front()
            && self.heap.peek().is_none_or(|top| *next > top.key)
        {
            self.open().await?;
        }
        let Some(WalkPosition { key, walk: number }) = self.heap.pop() else {
            return Ok(None);
        };
        let walk = &mut self.opened[number];
        let message = walk.next(self.store).await?;
        walk.fill(self.store).await?;
        self.push(number);
        Ok(message.map(|message| (key, message)))
    }

    /// Opens the next conversations. Their first reads run at once.
    async fn open(&mut self) -> Result<()> {
        let count = self.open_next.min(self.unopened.len());
        self.open_next = (2 * self.open_next).min(OPENED_AT_ONCE_MAX);
        let (search, store) = (self.search, self.store);
        let opened = self.unopened.drain(..count).map(async |(key, floor)| {
            let (id, newest) = (key.conversation, key.position);
            let mut walk = HistoryWalk::of_many(id, floor, search, newest);
            walk.fill(store).await.map(|()| walk)
        });
        for walk in try_join_all(opened).await? {
            self.opened.push(walk);
            self.push(self.opened.len() - 1);
        }
        Ok(())
    }

    fn push(&mut self, number: usize) {
        let walk = &self.opened[number];
        if let Some(position) = walk.position() {
            let key = SearchKey {
                position,
                conversation: walk.conversation(),
            };
            self.heap.push(WalkPosition { key, walk: number });
        }
    }

    fn may_have_more(&self) -> bool {
        !self.heap.is_empty() || !self.unopened.is_empty()
    }
}
