//! Search across the viewer's conversations: one heap of the positions up to which each of them was
//! looked at.
//!
//! The greatest position is looked at next, so a match is shown when it is the greatest. A page that meets its bound
//! ends at the greatest position that was not looked at: everything newer was, and the next page is further on.
//! Each page looks at least once at each conversation that is active above its cursor.

use std::collections::{BinaryHeap, VecDeque};

use futures_util::future::try_join_all;
use uuid::Uuid;

use super::walk::{ConversationWalk, Front, SearchBudget, SearchSources};
use super::work::{self, SearchPermit};
use super::{MatchPage, MessageMatch, Search, SearchKey, SearchService};
use crate::chat::access::blocks::BlockList;
use crate::chat::error::Result;
use crate::model::{ConversationId, Floor, InboxRow, PageRequest, UserId};

/// Conversations that a search looks into, the most recently active ones.
const CONVERSATIONS_MAX: usize = 1_000;
/// Inbox entries of one read.
const ENTRIES: usize = 100;
/// Conversations that are opened at once, after the first ones gave no page.
const OPENED_AT_ONCE_MAX: usize = 16;

/// Position of a walk.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WalkPosition {
    key: SearchKey,
    walk: usize,
}

/// Walks of the viewer's conversations.
struct Walks<'a> {
    sources: SearchSources<'a>,
    search: &'a Search,
    opened: Vec<ConversationWalk>,
    heap: BinaryHeap<WalkPosition>,
    /// Conversations that were not opened, the greatest position first, with the viewer's floors.
    unopened: VecDeque<(SearchKey, Floor)>,
    open_next: usize,
}

impl SearchKey {
    /// Smallest greater key.
    fn next(self) -> Self {
        let conversation = self.conversation.0.as_u128();
        match conversation.checked_add(1) {
            Some(next) => Self {
                conversation: ConversationId(Uuid::from_u128(next)),
                ..self
            },
            None => Self {
                position: self.position.next(),
                conversation: ConversationId(Uuid::nil()),
            },
        }
    }
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
        let permit = self.permit(viewer).await?;
        if count == 0 {
            return Ok(MatchPage::empty());
        }
        let blocks = self.access.blocks().of(viewer).await?;
        let (unopened, is_capped) = self.candidates(&permit, search, &blocks, after).await?;
        let ids: Vec<_> = unopened.iter().map(|(key, _)| key.conversation).collect();
        self.index.prefetch(&ids).await?;
        let mut walks = Walks::new(self.sources(search, &permit.work), search, unopened);
        let mut budget = SearchBudget::new(self.messages_max, &permit.work);
        let mut page = MatchPage {
            is_capped,
            ..MatchPage::empty()
        };
        loop {
            walks.open_greater().await?;
            let Some(WalkPosition { key, walk: number }) = walks.heap.pop() else {
                return Ok(page);
            };
            // Everything greater was looked at.
            let end = key.next();
            let is_full = page.matches.len() == count || budget.is_spent();
            if is_full && after.is_none_or(|after| end < after) {
                page.end = Some(end);
                page.has_next = true;
                return Ok(page);
            }
            let walk = &mut walks.opened[number];
            match walk.take() {
                Some(message) => {
                    page.end = Some(SearchKey {
                        position: message.id.order_key(),
                        conversation: walk.conversation(),
                    });
                    if let Some(snippet) = search.judge(&message, &blocks, &mut budget) {
                        page.matches.push(MessageMatch { message, snippet });
                    }
                    permit.work.turn().await;
                }
                None => walk.advance(&walks.sources).await?,
            }
            walks.push(number);
        }
    }

    /// The conversations to look into, each with the position to begin at, the greatest first; and
    /// whether there are more.
    async fn candidates(
        &self,
        permit: &SearchPermit<'_>,
        search: &Search,
        blocks: &BlockList,
        after: Option<SearchKey>,
    ) -> Result<(VecDeque<(SearchKey, Floor)>, bool)> {
        let viewer = permit.user;
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
            permit.work.add(page.items.len() * work::ENTRY);
            permit.work.turn().await;
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
        sources: SearchSources<'a>,
        search: &'a Search,
        unopened: VecDeque<(SearchKey, Floor)>,
    ) -> Self {
        Self {
            sources,
            search,
            opened: Vec::new(),
            heap: BinaryHeap::new(),
            unopened,
            open_next: 1,
        }
    }

    /// Opens the conversations that may have a greater position than the walks. Their first looks run at once.
    async fn open_greater(&mut self) -> Result<()> {
        while let Some((next, _)) = self.unopened.front()
            && self.heap.peek().is_none_or(|top| *next > top.key)
        {
            let count = self.open_next.min(self.unopened.len());
            self.open_next = (2 * self.open_next).min(OPENED_AT_ONCE_MAX);
            let (search, sources) = (self.search, &self.sources);
            let opened = self.unopened.drain(..count).map(async |(key, floor)| {
                let (id, newest) = (key.conversation, key.position);
                let mut walk = ConversationWalk::of_many(id, floor, search, newest);
                walk.advance(sources).await.map(|()| walk)
            });
            for walk in try_join_all(opened).await? {
                self.opened.push(walk);
                self.push(self.opened.len() - 1);
            }
        }
        Ok(())
    }

    fn push(&mut self, number: usize) {
        let walk = &self.opened[number];
        if let Some(Front::Message(position) | Front::Unread(position)) = walk.front() {
            let key = SearchKey {
                position,
                conversation: walk.conversation(),
            };
            self.heap.push(WalkPosition { key, walk: number });
        }
    }
}
