//! The inbox: pages of entries, filtered or not, and how much of each is unread.
//!
//! A user's own rows say what their list holds; whether they are in a conversation is said by their participation there. On a cluster one may stay
//! when the other is gone, or was never made: where a server died between. So a row is shown, and counted, only beside its conversation.

use std::sync::Arc;

use crate::chat::{Chat, Result};
use crate::model::{
    Conversation, ConversationId, ConversationKind, Direction, InboxKey, InboxRow, PageRequest,
    Unread, UserId,
};
use crate::store::UnreadQuery;

/// Unread conversations that a summary counts exactly.
const SUMMARY_COUNT_MAX: usize = 100;
/// Entries read at a time where a filter wants more than one page of them.
const SCAN_CHUNK: usize = 100;

/// Which entries are wanted. The default is what a list shows: all that is not archived.
#[derive(Debug, Clone, Copy, Default)]
pub struct InboxFilter {
    pub kind: Option<ConversationKind>,
    pub unread_only: bool,
    /// True: only archived ones. False: only others.
    pub archived: bool,
    pub pinned: Option<bool>,
}

impl InboxFilter {
    /// As far as the row itself tells.
    fn takes(&self, row: &InboxRow) -> bool {
        let is_wanted = row.is_archived() == self.archived
            && self
                .pinned
                .is_none_or(|pinned| row.flags.is_pinned == pinned);
        is_wanted && (!self.unread_only || row.may_be_unread())
    }
}

/// A page of an inbox. A filtered one may come short, with a position to go on from.
#[derive(Debug, Clone)]
pub struct InboxPage {
    pub rows: Vec<(InboxRow, Arc<Conversation>)>,
    pub has_previous: bool,
    pub has_next: bool,
    pub start: Option<InboxKey>,
    pub end: Option<InboxKey>,
}

impl InboxPage {
    /// Those of its rows, as the viewer sees them.
    pub fn conversations(&self) -> Vec<(ConversationId, Option<Arc<Conversation>>)> {
        self.rows
            .iter()
            .map(|(row, conversation)| (row.conversation, Some(Arc::clone(conversation))))
            .collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxSummary {
    pub unread_conversation_count: usize,
    pub is_capped: bool,
}

/// What a walk through an inbox found.
struct Found {
    rows: Vec<(InboxRow, Arc<Conversation>)>,
    /// The last entry looked at.
    seen_to: Option<InboxKey>,
    /// The list, or the window, ends here.
    is_end: bool,
    /// Whether anything at all lies on the other side of where the walk began.
    has_behind: bool,
}

impl Chat {
    /// A page of the viewer's entries, the last active first.
    pub async fn inbox(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        request: &PageRequest<InboxKey>,
    ) -> Result<InboxPage> {
        let mut found = self
            .walk(viewer, filter, request, request.overread())
            .await?;
        let has_behind = found.has_behind && self.has_match_behind(viewer, filter, request).await?;
        let has_more = found.rows.len() > request.count || !found.is_end;
        // A walk that stopped at its bound goes on from the last entry it looked at; a full page from its last row.
        let is_short = found.rows.len() <= request.count && !found.is_end;
        found.rows.truncate(request.count);
        let first = found.rows.first().map(|(row, _)| row.key());
        let last = if is_short {
            found.seen_to
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

    /// Walks in the request's direction until `wanted` entries match, within the bound of what one may look at.
    async fn walk(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        request: &PageRequest<InboxKey>,
        wanted: usize,
    ) -> Result<Found> {
        let mut found = Found {
            rows: Vec::new(),
            seen_to: None,
            is_end: false,
            has_behind: false,
        };
        let mut left = self.0.bounds.inbox_scan_max;
        let mut next = PageRequest {
            count: wanted,
            ..request.clone()
        };
        loop {
            next.count = next.count.min(left);
            let page = self.0.store.inbox(viewer, &next).await?;
            let (mut rows, has_more, has_behind) = match request.direction {
                Direction::Forward => (page.items, page.has_next, page.has_previous),
                Direction::Backward => (page.items, page.has_previous, page.has_next),
            };
            if request.direction == Direction::Backward {
                rows.reverse();
            }
            if found.seen_to.is_none() {
                found.has_behind = has_behind;
            }
            left -= rows.len();
            let matching = self.matching(viewer, filter, &rows).await?;
            for (row, conversation) in rows.iter().zip(matching) {
                found.seen_to = Some(row.key());
                if let Some(conversation) = conversation {
                    found.rows.push((*row, conversation));
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
                Direction::Forward => next.after = found.seen_to.or(next.after),
                Direction::Backward => next.before = found.seen_to.or(next.before),
            }
            next.count = SCAN_CHUNK;
        }
    }

    /// Whether an entry that matches lies on the other side of where the page begins. Where the bound ends the search, one may.
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
            .entry(viewer, key.conversation)
            .await?
            .into_iter()
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
        let found = self.walk(viewer, filter, &back, 1).await?;
        Ok(!found.rows.is_empty() || !found.is_end)
    }

    /// The conversations of those rows that the filter takes and the viewer may see.
    async fn matching(
        &self,
        viewer: &UserId,
        filter: &InboxFilter,
        rows: &[InboxRow],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        let taken: Vec<_> = (0..rows.len())
            .filter(|place| filter.takes(&rows[*place]))
            .collect();
        let ids: Vec<_> = taken
            .iter()
            .map(|place| rows[*place].conversation)
            .collect();
        let mut matching = vec![None; rows.len()];
        for (place, conversation) in taken
            .into_iter()
            .zip(self.conversations(viewer, &ids).await?)
        {
            matching[place] = conversation
                .filter(|conversation| filter.kind.is_none_or(|kind| conversation.kind == kind));
        }
        if filter.unread_only {
            let shown: Vec<_> = rows
                .iter()
                .zip(&matching)
                .filter(|(_, conversation)| conversation.is_some())
                .map(|(row, _)| *row)
                .collect();
            let unread = self.unread_up_to(viewer, &shown, 0).await?;
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

    /// How many messages of each entry are unread, and which is the first.
    pub async fn unread(&self, viewer: &UserId, rows: &[InboxRow]) -> Result<Vec<Unread>> {
        self.unread_up_to(viewer, rows, self.0.bounds.unread_cap)
            .await
    }

    async fn unread_up_to(
        &self,
        viewer: &UserId,
        rows: &[InboxRow],
        cap: u32,
    ) -> Result<Vec<Unread>> {
        let questions: Vec<_> = rows
            .iter()
            .filter(|row| row.may_be_unread())
            .map(|row| UnreadQuery {
                conversation: row.conversation,
                after: row.read_up_to(),
            })
            .collect();
        if questions.is_empty() {
            return Ok(vec![Unread::default(); rows.len()]);
        }
        let mut answers = self
            .0
            .store
            .unread(viewer, &questions, cap)
            .await?
            .into_iter();
        Ok(rows
            .iter()
            .map(|row| {
                if row.may_be_unread() {
                    answers.next().unwrap_or_default()
                } else {
                    Unread::default()
                }
            })
            .collect())
    }

    /// How many of the viewer's conversations have something unread and are neither muted nor archived, in the newest entries.
    pub async fn inbox_summary(&self, viewer: &UserId) -> Result<InboxSummary> {
        let mut left = self.0.bounds.inbox_scan_max;
        let mut count = 0;
        let mut request = PageRequest::first(SCAN_CHUNK);
        let unread = InboxFilter {
            unread_only: true,
            ..InboxFilter::default()
        };
        loop {
            request.count = SCAN_CHUNK.min(left);
            let page = self.0.store.inbox(viewer, &request).await?;
            left -= page.items.len();
            let last = page.items.last().map(InboxRow::key);
            let heard: Vec<_> = page
                .items
                .into_iter()
                .filter(|row| !row.flags.is_muted)
                .collect();
            count += self
                .matching(viewer, &unread, &heard)
                .await?
                .iter()
                .flatten()
                .count();
            if count > SUMMARY_COUNT_MAX {
                return Ok(InboxSummary {
                    unread_conversation_count: SUMMARY_COUNT_MAX,
                    is_capped: true,
                });
            }
            if !page.has_next || left == 0 {
                return Ok(InboxSummary {
                    unread_conversation_count: count,
                    is_capped: page.has_next,
                });
            }
            request.after = last;
        }
    }

    /// The viewer's entry for a conversation, by their own row: who shows it asks for the conversation beside it. `None` where there is none.
    pub async fn entry(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
    ) -> Result<Option<InboxRow>> {
        Ok(self.entries(viewer, &[conversation]).await?.pop().flatten())
    }

    /// The same of several.
    pub async fn entries(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        Ok(self.0.store.inbox_rows(viewer, conversations).await?)
    }
}

pub(crate) mod entry_settings;
pub(crate) mod marker;
pub(crate) mod receipt;

/// A capped count of none also says so: more than none are unread, or may be, beyond the rows that the store read.
fn is_unread(unread: &Unread) -> bool {
    unread.count > 0 || unread.is_capped
}
