//! Pages of the inbox, filtered or not.
//!
//! A user's inbox rows name their conversations, and the participation in each of them decides
//! about access. On a cluster, a server that died during a write may leave one without the other.
//! So a row is shown, and counted, only together with its conversation.

use super::InboxService;
use crate::chat::access::VisibleConversation;
use crate::chat::error::Result;
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

/// A page of an inbox. A filtered page may have fewer rows than requested, with a cursor to
/// continue from.
#[derive(Debug, Clone)]
pub struct InboxPage {
    pub rows: Vec<(InboxRow, VisibleConversation)>,
    pub has_previous: bool,
    pub has_next: bool,
    pub start: Option<InboxKey>,
    pub end: Option<InboxKey>,
}

impl InboxPage {
    /// The conversations of the rows.
    pub fn conversations(&self) -> Vec<(ConversationId, Option<VisibleConversation>)> {
        self.rows
            .iter()
            .map(|(row, conversation)| (row.conversation, Some(conversation.clone())))
            .collect()
    }
}

/// Result of a scan of an inbox.
struct InboxScan {
    rows: Vec<(InboxRow, VisibleConversation)>,
    /// Last entry read.
    scanned_to: Option<InboxKey>,
    /// Whether the scan has reached the end of the list or of its range.
    is_end: bool,
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
        let mut found = self
            .scan(viewer, filter, request, request.overread())
            .await?;
        let has_behind = found.has_behind && self.has_match_behind(viewer, filter, request).await?;
        let has_more = found.rows.len() > request.count || !found.is_end;
        // A scan that stopped at its bound continues from the last entry read; a full page from its
        // last row.
        let is_short = found.rows.len() <= request.count && !found.is_end;
        found.rows.truncate(request.count);
        let first = found.rows.first().map(|(row, _)| row.key());
        let last = if is_short {
            found.scanned_to
        } else {
            found.rows.last().map(|(row, _)| row.key())
        };
        Ok(match request.direction {
            Direction::Forward => InboxPage {
                rows: found.rows,
                has_previous: has_behind,
                has_next: has_more,
                start: first,
                end: last,
            },
            Direction::Backward => {
                found.rows.reverse();
                InboxPage {
                    rows: found.rows,
                    has_previous: has_more,
                    has_next: has_behind,
                    start: last,
                    end: first,
                }
            }
        })
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
        let mut found = InboxScan {
            rows: Vec::new(),
            scanned_to: None,
            is_end: false,
            has_behind: false,
        };
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
                found.has_behind = has_behind;
            }
            left -= rows.len();
            self.keep_archived(viewer, rows.iter_mut()).await?;
            let matching = self.matching(viewer, filter, &rows).await?;
            for (row, conversation) in rows.iter().zip(matching) {
                found.scanned_to = Some(row.key());
                if let Some(conversation) = conversation {
                    found
                        .rows
                        .push((row.above(conversation.floor), conversation));
                    if found.rows.len() == wanted {
                        return Ok(found);
                    }
                }
            }
            if !has_more {
                found.is_end = true;
                return Ok(found);
            }
            if left == 0 {
                return Ok(found);
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
        let found = self.scan(viewer, filter, &back, 1).await?;
        Ok(!found.rows.is_empty() || !found.is_end)
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
