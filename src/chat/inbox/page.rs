//! Pages of the inbox, filtered or not.
//!
//! A user's inbox rows name their conversations, and the participation in each of them decides
//! about access. On a cluster, a server that died during a write may leave one without the other.
//! So a row is shown, and counted, only together with its conversation.

use super::InboxService;
use crate::chat::access::VisibleConversation;
use crate::chat::error::Result;
use crate::chat::listing::{BoundedScan, FilteredPage};
use crate::model::{
    ConversationId, ConversationKind, Direction, InboxKey, InboxRow, PageRequest, Unread, UserId,
};

/// Entries per read, when a filter needs more than one page of them.
pub(super) const SCAN_CHUNK: usize = 100;

/// Filter of inbox entries. The default selects all entries that are not archived.
#[derive(Debug, Clone, Copy, Default)]
pub struct InboxFilter {
    pub kind: Option<ConversationKind>,
    pub unread_only: bool,
    /// Only entries with unread mentions.
    pub mentioned_only: bool,
    /// True selects archived entries only, false the others only.
    pub archived: bool,
    pub pinned: Option<bool>,
}

impl InboxFilter {
    /// Whether the row itself passes. The kind and the exact unread count need further reads.
    fn accepts(&self, row: &InboxRow) -> bool {
        let has_flags = row.is_archived() == self.archived
            && self
                .pinned
                .is_none_or(|pinned| row.flags.is_pinned == pinned);
        has_flags && (!(self.unread_only || self.mentioned_only) || row.may_be_unread())
    }
}

/// A page of an inbox.
pub type InboxPage = FilteredPage<InboxKey, (InboxRow, VisibleConversation)>;

impl InboxPage {
    /// The conversations of the rows.
    pub fn conversations(&self) -> Vec<(ConversationId, Option<VisibleConversation>)> {
        self.items
            .iter()
            .map(|(row, conversation)| (row.conversation, Some(conversation.clone())))
            .collect()
    }
}

/// Result of a scan of an inbox.
struct InboxScan {
    found: BoundedScan<InboxKey, (InboxRow, VisibleConversation)>,
    /// Whether any entry lies behind the start of the scan.
    has_behind: bool,
}

impl InboxService {
    /// A page of the viewer's entries, the last active first.
    pub async fn page(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        request: &PageRequest<InboxKey>,
    ) -> Result<InboxPage> {
        let InboxScan { found, has_behind } = self
            .scan(viewer, filter, request, request.overread())
            .await?;
        let has_behind = has_behind && self.has_match_behind(viewer, filter, request).await?;
        Ok(found.into_page(request, has_behind, |(row, _)| row.key()))
    }

    /// Reads in the direction of the request until `wanted` entries match, up to the bound of
    /// entries read.
    async fn scan(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        request: &PageRequest<InboxKey>,
        wanted: usize,
    ) -> Result<InboxScan> {
        let mut scan = InboxScan {
            found: BoundedScan::new(),
            has_behind: false,
        };
        let found = &mut scan.found;
        let mut left = self.scan_max;
        let mut next = PageRequest {
            count: wanted,
            ..request.clone()
        };
        loop {
            next.count = next.count.min(left);
            let page = self.store.inbox(viewer, &next).await?;
            let (mut rows, has_more, has_behind) = match request.direction {
                Direction::Forward => (page.items, page.has_next, page.has_previous),
                Direction::Backward => (page.items, page.has_previous, page.has_next),
            };
            if request.direction == Direction::Backward {
                rows.reverse();
            }
            if found.scanned_to.is_none() {
                scan.has_behind = has_behind;
            }
            left -= rows.len();
            self.keep_archived(viewer, rows.iter_mut()).await?;
            let matching = self.matching(viewer, filter, &rows).await?;
            for (row, conversation) in rows.iter().zip(matching) {
                found.scanned_to = Some(row.key());
                if let Some(conversation) = conversation {
                    found
                        .items
                        .push((row.above(conversation.floor), conversation));
                    if found.items.len() == wanted {
                        return Ok(scan);
                    }
                }
            }
            if !has_more {
                found.is_end = true;
                return Ok(scan);
            }
            if left == 0 {
                return Ok(scan);
            }
            match request.direction {
                Direction::Forward => next.after = found.scanned_to.or(next.after),
                Direction::Backward => next.before = found.scanned_to.or(next.before),
            }
            next.count = SCAN_CHUNK;
        }
    }

    /// Whether a matching entry lies behind the start of the page. Also true if the search ends at
    /// its bound.
    async fn has_match_behind(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        request: &PageRequest<InboxKey>,
    ) -> Result<bool> {
        let Some(key) = request.begins_at() else {
            return Ok(false);
        };
        let at_key: Vec<_> = self
            .shown_entries(viewer, &[key.conversation])
            .await?
            .into_iter()
            .flatten()
            .filter(|row| row.key() == *key)
            .collect();
        if self
            .matching(viewer, filter, &at_key)
            .await?
            .iter()
            .any(Option::is_some)
        {
            return Ok(true);
        }
        let back = match request.direction {
            Direction::Forward => PageRequest::last(1).before(*key),
            Direction::Backward => PageRequest::first(1).after(*key),
        };
        let found = self.scan(viewer, filter, &back, 1).await?.found;
        Ok(!found.items.is_empty() || !found.is_end)
    }

    /// For each row its conversation, if the row passes the filter and the viewer may see the
    /// conversation.
    pub(super) async fn matching(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        rows: &[InboxRow],
    ) -> Result<Vec<Option<VisibleConversation>>> {
        let blocks = self.access.blocks().of(viewer).await?;
        let is_shown = |row: &InboxRow| filter.accepts(row) && !blocks.hides(row.conversation);
        let accepted: Vec<_> = (0..rows.len())
            .filter(|index| is_shown(&rows[*index]))
            .collect();
        let ids: Vec<_> = accepted
            .iter()
            .map(|index| rows[*index].conversation)
            .collect();
        let mut matching = vec![None; rows.len()];
        for (index, conversation) in accepted
            .into_iter()
            .zip(self.access.visible(viewer, &ids).await?)
        {
            matching[index] = conversation
                .filter(|conversation| filter.kind.is_none_or(|kind| conversation.kind == kind));
        }
        if filter.unread_only || filter.mentioned_only {
            let shown: Vec<_> = rows
                .iter()
                .zip(&matching)
                .filter_map(|(row, visible)| Some(row.above(visible.as_ref()?.floor)))
                .collect();
            // A mention is unread, so that the mentions alone decide.
            let unread = if filter.mentioned_only {
                self.mentions_up_to(viewer, &shown, 0).await?
            } else {
                self.unread_up_to(viewer, &shown, 0).await?
            };
            for (conversation, unread) in matching
                .iter_mut()
                .filter(|conversation| conversation.is_some())
                .zip(unread)
            {
                if !is_unread(&unread) {
                    *conversation = None;
                }
            }
        }
        Ok(matching)
    }
}

/// A capped count of zero is unread too: messages beyond the rows that the store has read may be
/// unread.
pub(super) fn is_unread(unread: &Unread) -> bool {
    unread.count > 0 || unread.is_capped
}
