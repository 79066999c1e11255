//! Pages of inboxes: rows found by the activity index, and merged with the heads of large conversations.
//!
//! A short inbox is read whole. For a long one, a page scans the hints of its part of the list and reads the rows of the entries that it
//! meets, as many as it shows. The position of an entry is the later of its row and its hint: a send writes both, and one may arrive first.
//! The page skips a hint of an earlier hour, as the entry has another one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, RangeBounds};

use futures_util::future::try_join;

use super::Inboxes;
use super::activity_index::{ActivityHint, ActivityScan, StaleHints};
use super::row::with_head;
use super::writes::slot_of;
use crate::model::{
    Conversation, ConversationId, Cut, Direction, InboxKey, InboxRow, Page, PageRequest, UserId,
    hidden_larges,
};
use crate::store::Result;
use crate::store::cql::message::head_cache::HeadSummary;

impl Inboxes {
    pub(crate) async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        let mut named = conversations.to_vec();
        named.sort_unstable();
        named.dedup();
        let (mut rows, large) =
            try_join(self.own_rows(user, &named), self.large_among(user, &named)).await?;
        let heads = self.messages.recent_heads(&large).await?;
        for (conversation, head) in large.iter().zip(&heads) {
            if let Some(row) = rows.get_mut(conversation) {
                *row = with_head(*row, head);
            }
        }
        Ok(conversations
            .iter()
            .map(|conversation| rows.get(conversation).copied())
            .collect())
    }

    pub(crate) async fn page(
        &self,
        user: &UserId,
        request: &PageRequest<InboxKey>,
    ) -> Result<Page<InboxRow>> {
        if user.is_agent() {
            return Ok(Page::empty());
        }
        let (mut large, short) = try_join(self.listed_large(user), self.short_inbox(user)).await?;
        let hidden = if large.len() > Conversation::LARGE_MERGED_MAX {
            self.hidden(user, &large).await?
        } else {
            HashSet::new()
        };
        large.retain(|conversation| !hidden.contains(conversation));
        let heads: HashMap<_, _> = large
            .iter()
            .copied()
            .zip(self.messages.recent_heads(&large).await?)
            .collect();
        match short {
            Some(rows) => Ok(page_of_short(rows, &heads, &hidden, request)),
            None => self.page_by_hints(user, heads, hidden, request).await,
        }
    }

    /// The large conversations that the inbox does not show: 50 reads of one partition for 1,000 of them.
    async fn hidden(
        &self,
        user: &UserId,
        large: &[ConversationId],
    ) -> Result<HashSet<ConversationId>> {
        Ok(hidden_larges(
            self.own_rows(user, large).await?.into_values(),
        ))
    }
}

fn cut_of(request: &PageRequest<InboxKey>) -> Cut<InboxKey> {
    let bound = |key: Option<InboxKey>| key.map_or(Bound::Unbounded, Bound::Excluded);
    Cut {
        start: bound(request.after),
        end: bound(request.before),
    }
}

/// The part of the list on the other side of the cursor of a page in this direction, the cursor included.
fn behind(key: InboxKey, direction: Direction) -> Cut<InboxKey> {
    match direction {
        Direction::Forward => Cut {
            start: Bound::Unbounded,
            end: Bound::Included(key),
        },
        Direction::Backward => Cut {
            start: Bound::Included(key),
            end: Bound::Unbounded,
        },
    }
}

fn page_of_short(
    rows: Vec<InboxRow>,
    heads: &HashMap<ConversationId, HeadSummary>,
    hidden: &HashSet<ConversationId>,
    request: &PageRequest<InboxKey>,
) -> Page<InboxRow> {
    let cut = cut_of(request);
    let shown = rows
        .into_iter()
        .filter(|row| !hidden.contains(&row.conversation));
    let merged = shown.map(|row| {
        heads
            .get(&row.conversation)
            .map_or(row, |head| with_head(row, head))
    });
    let all: BTreeMap<InboxKey, InboxRow> = merged.map(|row| (row.key(), row)).collect();
    let has_behind = request.begins_at().is_some_and(|key| {
        let behind = behind(*key, request.direction);
        all.keys().any(|key| is_in(&behind, key))
    });
    let within = all
        .into_iter()
        .filter(|(key, _)| is_in(&cut, key))
        .collect();
    Page::from_overread(
        request,
        in_direction(within, request.direction, request.overread()),
        has_behind,
    )
}

impl Inboxes {
    async fn page_by_hints(
        &self,
        user: &UserId,
        heads: HashMap<ConversationId, HeadSummary>,
        hidden: HashSet<ConversationId>,
        request: &PageRequest<InboxKey>,
    ) -> Result<Page<InboxRow>> {
        // The cursor is nearly always the key of an entry, which then says that the list continues on its other side.
        let wanted = request.begins_at().map(|key| key.conversation);
        // A conversation that became large still has hints from before: its row counts as read, and as none.
        let rows = hidden
            .iter()
            .map(|conversation| (*conversation, None))
            .collect();
        let mut reader = InboxReader {
            inboxes: self,
            user,
            heads,
            hidden,
            rows,
            wanted,
            stale: StaleHints::default(),
        };
        let items = reader
            .entries(&cut_of(request), request.direction, request.overread())
            .await?;
        let has_behind = match request.begins_at() {
            Some(key) => reader.has_behind(*key, request.direction).await?,
            None => false,
        };
        self.delete_stale(user, reader.stale).await;
        Ok(Page::from_overread(request, items, has_behind))
    }
}

/// Reader of one page. It reads no row twice.
struct InboxReader<'a> {
    inboxes: &'a Inboxes,
    user: &'a UserId,
    /// Heads of the user's large conversations.
    heads: HashMap<ConversationId, HeadSummary>,
    /// Large conversations that the inbox does not show.
    hidden: HashSet<ConversationId>,
    /// Rows that were read; `None` if the user is not in the conversation.
    rows: HashMap<ConversationId, Option<InboxRow>>,
    /// Read together with the first rows.
    wanted: Option<ConversationId>,
    stale: StaleHints,
}

/// The range of positions that an entry can have, by a hint or by the head of its large conversation.
#[derive(Clone, Copy)]
struct Candidate {
    first: InboxKey,
    last: InboxKey,
    hint: Option<ActivityHint>,
}

impl Candidate {
    fn by_hint(hint: &ActivityHint) -> Self {
        Self {
            first: hint.first(),
            last: hint.key,
            hint: Some(*hint),
        }
    }

    fn may_be_in(&self, cut: &Cut<InboxKey>) -> bool {
        (cut.start.as_ref(), Bound::Unbounded).contains(&self.last)
            && (Bound::Unbounded, cut.end.as_ref()).contains(&self.first)
    }

    /// The end of the range that a scan in this direction reaches first.
    fn near(&self, direction: Direction) -> InDirection {
        let end = match direction {
            Direction::Forward => self.first,
            Direction::Backward => self.last,
        };
        InDirection::of(end, direction)
    }

    fn far(&self, direction: Direction) -> InDirection {
        let end = match direction {
            Direction::Forward => self.last,
            Direction::Backward => self.first,
        };
        InDirection::of(end, direction)
    }
}

/// A position, ordered as a scan in one direction reaches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InDirection {
    Forward(InboxKey),
    Backward(std::cmp::Reverse<InboxKey>),
}

impl InDirection {
    fn of(key: InboxKey, direction: Direction) -> Self {
        match direction {
            Direction::Forward => Self::Forward(key),
            Direction::Backward => Self::Backward(std::cmp::Reverse(key)),
        }
    }
}

/// Candidates in the order in which they are read.
struct CandidateQueue {
    direction: Direction,
    /// The next candidate is the last element.
    rest: Vec<Candidate>,
}

impl CandidateQueue {
    fn new(mut candidates: Vec<Candidate>, direction: Direction) -> Self {
        candidates.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.near(direction)));
        Self {
            direction,
            rest: candidates,
        }
    }

    /// The candidates to read so that `wanted` more entries have a final position, if every candidate is an entry.
    fn take(&mut self, wanted: usize) -> Vec<Candidate> {
        let mut far: Vec<_> = self
            .rest
            .iter()
            .map(|candidate| candidate.far(self.direction))
            .collect();
        if far.len() <= wanted {
            return std::mem::take(&mut self.rest);
        }
        let (_, frontier, _) = far.select_nth_unstable(wanted.saturating_sub(1));
        let kept = self
            .rest
            .partition_point(|candidate| candidate.near(self.direction) > *frontier);
        self.rest.split_off(kept)
    }

    /// Whether no remaining candidate can come before a position.
    fn is_past(&self, key: &InboxKey) -> bool {
        self.rest
            .last()
            .is_none_or(|next| InDirection::of(*key, self.direction) < next.near(self.direction))
    }
}

fn is_in(cut: &Cut<InboxKey>, key: &InboxKey) -> bool {
    (cut.start.as_ref(), cut.end.as_ref()).contains(key)
}

impl InboxReader<'_> {
    /// The first `limit` entries of a cut, in this direction. Reads until no remaining candidate can come before them.
    async fn entries(
        &mut self,
        cut: &Cut<InboxKey>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<InboxRow>> {
        let mut scan = ActivityScan::new(self.inboxes, self.user, cut, direction, limit);
        let mut large = self.large_candidates(cut);
        let mut found: BTreeMap<InboxKey, InboxRow> = BTreeMap::new();
        let mut met = HashSet::new();
        while let Some(run) = scan.next().await? {
            let is_reached = |key: &InboxKey| {
                run.reached.is_none_or(|reached| match direction {
                    Direction::Forward => slot_of(key.activity) >= reached,
                    Direction::Backward => slot_of(key.activity) <= reached,
                })
            };
            let mut candidates: Vec<Candidate> = run
                .hints
                .iter()
                .map(Candidate::by_hint)
                .filter(|one| one.may_be_in(cut))
                .collect();
            candidates.extend(
                large
                    .extract_if(.., |key| is_reached(key))
                    .map(|key| Candidate {
                        first: key,
                        last: key,
                        hint: None,
                    }),
            );
            let mut queue = CandidateQueue::new(candidates, direction);
            loop {
                let final_count = found
                    .keys()
                    .filter(|key| is_reached(key) && queue.is_past(key))
                    .count();
                if final_count >= limit {
                    return Ok(in_direction(found, direction, limit));
                }
                if queue.rest.is_empty() {
                    break;
                }
                let some = queue.take(limit - final_count);
                self.read(some.iter().map(|candidate| candidate.last.conversation))
                    .await?;
                for candidate in &some {
                    let Some(row) = self.placed(candidate) else {
                        continue;
                    };
                    // The first position counts. A later one of the same entry is that of a stale hint.
                    if met.insert(row.conversation) && is_in(cut, &row.key()) {
                        found.insert(row.key(), row);
                    }
                }
            }
        }
        Ok(in_direction(found, direction, limit))
    }

    fn large_candidates(&self, cut: &Cut<InboxKey>) -> Vec<InboxKey> {
        let position = |(conversation, head): (&ConversationId, &HeadSummary)| InboxKey {
            activity: head.last_activity,
            conversation: *conversation,
        };
        self.heads
            .iter()
            .map(position)
            .filter(|key| is_in(cut, key))
            .collect()
    }

    /// Reads those rows that were not read yet.
    async fn read(&mut self, conversations: impl Iterator<Item = ConversationId>) -> Result<()> {
        let mut unread: Vec<ConversationId> = conversations
            .filter(|conversation| !self.rows.contains_key(conversation))
            .collect();
        if !unread.is_empty() {
            unread.extend(
                self.wanted
                    .take()
                    .filter(|wanted| !self.rows.contains_key(wanted)),
            );
        }
        unread.sort_unstable();
        unread.dedup();
        let mut rows = self.inboxes.own_rows(self.user, &unread).await?;
        for conversation in unread {
            let row = rows
                .remove(&conversation)
                .map(|row| match self.heads.get(&conversation) {
                    Some(head) => with_head(row, head),
                    None => row,
                });
            self.rows.insert(conversation, row);
        }
        Ok(())
    }

    /// The entry of a candidate that was read, with its present position.
    fn placed(&mut self, candidate: &Candidate) -> Option<InboxRow> {
        let conversation = candidate.last.conversation;
        let Some(row) = self.rows.get(&conversation).copied().flatten() else {
            if let Some(hint) = candidate
                .hint
                .filter(|_| !self.hidden.contains(&conversation))
            {
                self.stale.note_left(hint);
            }
            return None;
        };
        let row = InboxRow {
            last_activity: row.last_activity.max(candidate.last.activity),
            ..row
        };
        if let Some(hint) = candidate.hint {
            self.stale.note(
                hint,
                row.last_activity,
                !self.heads.contains_key(&row.conversation),
            );
        }
        Some(row)
    }

    /// Whether the list continues on the other side of the cursor.
    async fn has_behind(&mut self, key: InboxKey, direction: Direction) -> Result<bool> {
        let cut = behind(key, direction);
        let back = match direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        let own = self.rows.get(&key.conversation).copied().flatten();
        if own.is_some_and(|row| is_in(&cut, &row.key())) {
            return Ok(true);
        }
        Ok(!self.entries(&cut, back, 1).await?.is_empty())
    }
}

fn in_direction(
    found: BTreeMap<InboxKey, InboxRow>,
    direction: Direction,
    limit: usize,
) -> Vec<InboxRow> {
    match direction {
        Direction::Forward => found.into_values().take(limit).collect(),
        Direction::Backward => found.into_values().rev().take(limit).collect(),
    }
}
