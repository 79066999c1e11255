//! Lists for services: users, and conversations, over the scans of an export.
//!
//! A page reads a bounded number of rows. With a filter it may come short although more follow; its end is then the last
//! row that it has read.

use std::sync::Arc;

use super::access::restrictions::require;
use super::error::Result;
use crate::model::{
    Conversation, ConversationId, ConversationKind, Direction, InboxKey, InboxRow, PageRequest,
    ServiceRight, UserId, Viewer,
};
use crate::store::Store;

/// Conversations that one page reads.
const SCANNED_MAX: usize = 1_000;
/// Inbox entries that one page reads, each with its conversation.
const ENTRIES_MAX: usize = 500;
/// Rows of one read.
const PIECE: usize = 100;

pub struct ListingService {
    store: Arc<dyn Store>,
}

/// Page of a list that is read forward only.
pub struct ScanPage<K, T> {
    pub items: Vec<(K, T)>,
    pub has_next: bool,
    /// The key after which the next page begins. `None` if nothing was read.
    pub end: Option<K>,
}

/// Page of a filtered list. It may have fewer items than requested, with a key to continue from.
#[derive(Debug, Clone)]
pub struct FilteredPage<K, T> {
    pub items: Vec<T>,
    pub has_previous: bool,
    pub has_next: bool,
    pub start: Option<K>,
    pub end: Option<K>,
}

/// Items that a bounded scan has found, in the direction of a request.
pub(super) struct BoundedScan<K, T> {
    pub(super) items: Vec<T>,
    /// Key of the last item that was read.
    pub(super) scanned_to: Option<K>,
    /// Whether the scan has reached the end of the list or of its range.
    pub(super) is_end: bool,
}

impl<K, T> BoundedScan<K, T> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            scanned_to: None,
            is_end: false,
        }
    }

    /// The page of a scan that looked for one item more than requested.
    pub(super) fn into_page(
        mut self,
        request: &PageRequest<K>,
        has_behind: bool,
        key_of: impl Fn(&T) -> K,
    ) -> FilteredPage<K, T> {
        let is_full = self.items.len() > request.count;
        let has_more = is_full || !self.is_end;
        self.items.truncate(request.count);
        let first = self.items.first().map(&key_of);
        // A scan that stopped at its bound continues from the last item read; a full page from its last one.
        let last = if !is_full && !self.is_end {
            self.scanned_to
        } else {
            self.items.last().map(&key_of)
        };
        match request.direction {
            Direction::Forward => FilteredPage {
                items: self.items,
                has_previous: has_behind,
                has_next: has_more,
                start: first,
                end: last,
            },
            Direction::Backward => {
                self.items.reverse();
                FilteredPage {
                    items: self.items,
                    has_previous: has_more,
                    has_next: has_behind,
                    start: last,
                    end: first,
                }
            }
        }
    }
}

/// Next rows of a list with their keys, and whether the list ends with them.
type ScanPiece<K, T> = (Vec<(K, T)>, bool);

impl ListingService {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Arc::clone(store),
        }
    }

    /// Users with a profile, in the store's own order, for services.
    pub async fn users(
        &self,
        caller: &Viewer,
        request: PageRequest<UserId>,
    ) -> Result<ScanPage<UserId, ()>> {
        require(caller, ServiceRight::Read)?;
        let store = &self.store;
        let read = |after: Option<UserId>, limit| async move {
            let found = store.all_users(after.as_ref(), limit).await?;
            let is_end = found.len() < limit;
            Ok((
                found.into_iter().map(|(user, _)| (user, ())).collect(),
                is_end,
            ))
        };
        scan(request, SCANNED_MAX, read, |()| true).await
    }

    /// Conversations, in the store's own order, for services.
    pub async fn conversations(
        &self,
        caller: &Viewer,
        kind: Option<ConversationKind>,
        request: PageRequest<ConversationId>,
    ) -> Result<ScanPage<ConversationId, Arc<Conversation>>> {
        require(caller, ServiceRight::Read)?;
        let store = &self.store;
        let read = |after, limit| async move {
            let found = store.all_conversations(after, limit).await?;
            let is_end = found.len() < limit;
            let each = |(one, _): (Conversation, _)| (one.id, Arc::new(one));
            Ok((found.into_iter().map(each).collect(), is_end))
        };
        scan(request, SCANNED_MAX, read, |one| is_of(kind, one)).await
    }

    /// Conversations of a user's inbox, the most recently active first, for services.
    pub async fn conversations_of(
        &self,
        caller: &Viewer,
        user: &UserId,
        kind: Option<ConversationKind>,
        request: PageRequest<InboxKey>,
    ) -> Result<ScanPage<InboxKey, Arc<Conversation>>> {
        require(caller, ServiceRight::Read)?;
        let store = &self.store;
        let read = |after, limit| async move {
            let request = PageRequest {
                after,
                ..PageRequest::first(limit)
            };
            let page = store.inbox(user, &request).await?;
            let ids: Vec<_> = page.items.iter().map(|row| row.conversation).collect();
            let found = store.conversations(&ids).await?;
            let rows = page.items.iter().map(InboxRow::key).zip(found);
            let rows = rows.filter_map(|(key, found)| Some((key, found?)));
            Ok((rows.collect(), !page.has_next))
        };
        scan(request, ENTRIES_MAX, read, |one| is_of(kind, one)).await
    }
}

fn is_of(kind: Option<ConversationKind>, conversation: &Conversation) -> bool {
    kind.is_none_or(|kind| conversation.kind == kind)
}

/// Reads pieces until a page is full, the list ends, or the page has read its rows.
async fn scan<K: Clone, T, F: Future<Output = Result<ScanPiece<K, T>>>>(
    request: PageRequest<K>,
    rows_max: usize,
    read: impl Fn(Option<K>, usize) -> F,
    is_listed: impl Fn(&T) -> bool,
) -> Result<ScanPage<K, T>> {
    let mut page = ScanPage {
        items: Vec::new(),
        has_next: true,
        end: request.after,
    };
    let mut rows_left = rows_max;
    while rows_left > 0 {
        let wanted = request.count + 1 - page.items.len();
        let (piece, is_end) = read(page.end.clone(), PIECE.max(wanted).min(rows_left)).await?;
        rows_left = rows_left.saturating_sub(piece.len().max(1));
        for (key, item) in piece {
            if is_listed(&item) {
                if page.items.len() == request.count {
                    return Ok(page);
                }
                page.items.push((key.clone(), item));
            }
            page.end = Some(key);
        }
        if is_end {
            page.has_next = false;
            break;
        }
    }
    Ok(page)
}
