//! Inboxes on the cluster: where an entry stands is said by its own row, found by hints, and merged with the heads of large conversations.
//!
//! A small inbox is read whole. Else a page walks the hints of its piece of the list and reads the rows of the entries that it meets, so many as it shows. An entry stands at
//! the later of its row and its hint: each is written by every send, and one may come a moment before the other. A hint of an earlier hour
//! than its entry's is passed over, as that entry has another one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, RangeBounds};

use futures_util::future::{try_join, try_join_all};
use uuid::Uuid;

use super::activity_index::{Hint, Stale, Walk};
use super::row::{PIECE, PIECES_AT_ONCE, few_rows, own_rows, with_head};
use super::writes::slot_of;
use crate::model::{Conversation, ConversationId, Cut, Direction, InboxKey, InboxRow, Page, PageRequest, UserId, hidden_larges};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, list};
use crate::store::cql::message::head_cache::Head;

/// No more are listed.
const LARGE_READ_MAX: i32 = Conversation::LARGE_LISTED_MAX as i32;

statements! {
    /// The statements of this file.
    Statements {
        larges: Read "SELECT conversation_id FROM large_conversations_by_user WHERE user_id = ? LIMIT ?";
        larges_among: Read "SELECT conversation_id FROM large_conversations_by_user WHERE user_id = ? AND conversation_id IN ?";
    }
}

/// The user's large conversations, also some that they have left.
pub(crate) async fn listed_larges(inner: &Inner, user: &UserId) -> Result<Vec<ConversationId>> {
    let rows: Vec<(Uuid,)> = inner.cluster.read(&inner.statements.inbox.larges, cells![user, LARGE_READ_MAX]).await?;
    Ok(rows.into_iter().map(|(id,)| ConversationId(id)).collect())
}

pub(crate) async fn large_conversations(inner: &Inner, user: &UserId) -> Result<Vec<ConversationId>> {
    let larges = listed_larges(inner, user).await?;
    let rows = own_rows(inner, user, &larges).await?;
    Ok(larges.into_iter().filter(|conversation| rows.contains_key(conversation)).collect())
}

pub(crate) async fn inbox_rows(inner: &Inner, user: &UserId, conversations: &[ConversationId]) -> Result<Vec<Option<InboxRow>>> {
    let mut named = conversations.to_vec();
    named.sort_unstable();
    named.dedup();
    let (mut rows, larges) = try_join(own_rows(inner, user, &named), larges_among(inner, user, &named)).await?;
    let heads = inner.heads(&larges).await?;
    for (conversation, head) in larges.iter().zip(&heads) {
        if let Some(row) = rows.get_mut(conversation) {
            *row = with_head(*row, head);
        }
    }
    Ok(conversations.iter().map(|conversation| rows.get(conversation).copied()).collect())
}

async fn larges_among(inner: &Inner, user: &UserId, conversations: &[ConversationId]) -> Result<Vec<ConversationId>> {
    let mut found = Vec::new();
    let pieces: Vec<_> = conversations.chunks(PIECE).collect();
    for pieces in pieces.chunks(PIECES_AT_ONCE) {
        let reads = pieces.iter().map(|piece| {
            let values = cells![user, list(piece.iter().copied())];
            inner.cluster.read::<(Uuid,)>(&inner.statements.inbox.larges_among, values)
        });
        found.extend(try_join_all(reads).await?.into_iter().flatten().map(|(id,)| ConversationId(id)));
    }
    Ok(found)
}

pub(crate) async fn inbox(inner: &Inner, user: &UserId, request: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
    let (mut larges, few) = try_join(listed_larges(inner, user), few_rows(inner, user)).await?;
    let hidden = if larges.len() > Conversation::LARGE_MERGED_MAX { hidden(inner, user, &larges).await? } else { HashSet::new() };
    larges.retain(|conversation| !hidden.contains(conversation));
    let heads: HashMap<_, _> = larges.iter().copied().zip(inner.heads(&larges).await?).collect();
    match few {
        Some(rows) => Ok(page_of_few(rows, &heads, &hidden, request)),
        None => page_by_hints(inner, user, heads, hidden, request).await,
    }
}

/// Selects the large conversations that the inbox does not show: 50 reads of one partition for 1,000 of them.
async fn hidden(inner: &Inner, user: &UserId, larges: &[ConversationId]) -> Result<HashSet<ConversationId>> {
    Ok(hidden_larges(own_rows(inner, user, larges).await?.into_values()))
}

fn cut_of(request: &PageRequest<InboxKey>) -> Cut<InboxKey> {
    let bound = |key: Option<InboxKey>| key.map_or(Bound::Unbounded, Bound::Excluded);
    Cut { start: bound(request.after), end: bound(request.before) }
}

/// What lies at or behind the key where a page in this direction begins.
fn behind(key: InboxKey, direction: Direction) -> Cut<InboxKey> {
    match direction {
        Direction::Forward => Cut { start: Bound::Unbounded, end: Bound::Included(key) },
        Direction::Backward => Cut { start: Bound::Included(key), end: Bound::Unbounded },
    }
}

fn page_of_few(
    rows: Vec<InboxRow>,
    heads: &HashMap<ConversationId, Head>,
    hidden: &HashSet<ConversationId>,
    request: &PageRequest<InboxKey>,
) -> Page<InboxRow> {
    let cut = cut_of(request);
    let shown = rows.into_iter().filter(|row| !hidden.contains(&row.conversation));
    let placed = shown.map(|row| heads.get(&row.conversation).map_or(row, |head| with_head(row, head)));
    let all: BTreeMap<InboxKey, InboxRow> = placed.map(|row| (row.key(), row)).collect();
    let has_behind = request.begins_at().is_some_and(|key| {
        let behind = behind(*key, request.direction);
        all.keys().any(|key| is_in(&behind, key))
    });
    let within = all.into_iter().filter(|(key, _)| is_in(&cut, key)).collect();
    Page::from_overread(request, in_direction(within, request.direction, request.overread()), has_behind)
}

async fn page_by_hints(
    inner: &Inner,
    user: &UserId,
    heads: HashMap<ConversationId, Head>,
    hidden: HashSet<ConversationId>,
    request: &PageRequest<InboxKey>,
) -> Result<Page<InboxRow>> {
    // Where a page begins is most often the place of an entry, which then says that there is something behind it.
    let wanted = request.begins_at().map(|key| key.conversation);
    // One that grew large has hints of before.
    let rows = hidden.into_iter().map(|conversation| (conversation, None)).collect();
    let mut reader = Reader { inner, user, heads, rows, wanted, stale: Stale::default() };
    let items = reader.entries(&cut_of(request), request.direction, request.overread()).await?;
    let has_behind = match request.begins_at() {
        Some(key) => reader.has_behind(*key, request.direction).await?,
        None => false,
    };
    inner.forget_stale(user, reader.stale).await;
    Ok(Page::from_overread(request, items, has_behind))
}

/// One page's reading: what it knows already is not read again.
struct Reader<'a> {
    inner: &'a Inner,
    user: &'a UserId,
    /// Of the user's large conversations.
    heads: HashMap<ConversationId, Head>,
    /// Those that were read; `None` where the user is not in it.
    rows: HashMap<ConversationId, Option<InboxRow>>,
    /// To be read with the first ones.
    wanted: Option<ConversationId>,
    stale: Stale,
}

/// Between which places of the list an entry may stand: by a hint, or by the head of its large conversation.
#[derive(Clone, Copy)]
struct Candidate {
    first: InboxKey,
    last: InboxKey,
    hint: Option<Hint>,
}

impl Candidate {
    fn by_hint(hint: &Hint) -> Self {
        Self { first: hint.first(), last: hint.key, hint: Some(*hint) }
    }

    fn may_be_in(&self, cut: &Cut<InboxKey>) -> bool {
        (cut.start.as_ref(), Bound::Unbounded).contains(&self.last) && (Bound::Unbounded, cut.end.as_ref()).contains(&self.first)
    }

    /// The place that one who walks the list comes to first.
    fn near(&self, direction: Direction) -> InDirection {
        InDirection::of(if direction == Direction::Forward { self.first } else { self.last }, direction)
    }

    fn far(&self, direction: Direction) -> InDirection {
        InDirection::of(if direction == Direction::Forward { self.last } else { self.first }, direction)
    }
}

/// A place as it is met by one who walks the list.
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

/// Candidates in the order in which they are to be read.
struct Queue {
    direction: Direction,
    /// The next one is the last.
    rest: Vec<Candidate>,
}

impl Queue {
    fn new(mut candidates: Vec<Candidate>, direction: Direction) -> Self {
        candidates.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.near(direction)));
        Self { direction, rest: candidates }
    }

    /// Those that must be read so that this many more are known for sure, if all are entries.
    fn take(&mut self, wanted: usize) -> Vec<Candidate> {
        let mut far: Vec<_> = self.rest.iter().map(|candidate| candidate.far(self.direction)).collect();
        if far.len() <= wanted {
            return std::mem::take(&mut self.rest);
        }
        let (_, frontier, _) = far.select_nth_unstable(wanted.saturating_sub(1));
        let kept = self.rest.partition_point(|candidate| candidate.near(self.direction) > *frontier);
        self.rest.split_off(kept)
    }

    /// Whether nothing of the rest can come before this place.
    fn is_past(&self, key: &InboxKey) -> bool {
        self.rest.last().is_none_or(|next| InDirection::of(*key, self.direction) < next.near(self.direction))
    }
}

fn is_in(cut: &Cut<InboxKey>, key: &InboxKey) -> bool {
    (cut.start.as_ref(), cut.end.as_ref()).contains(key)
}

impl Reader<'_> {
    /// The first entries of a cut, in this direction. They end where so many are known that nothing of the rest can stand before them.
    async fn entries(&mut self, cut: &Cut<InboxKey>, direction: Direction, limit: usize) -> Result<Vec<InboxRow>> {
        let mut walk = Walk::new(self.inner, self.user, cut, direction, limit);
        let mut larges = self.large_candidates(cut);
        let mut found: BTreeMap<InboxKey, InboxRow> = BTreeMap::new();
        let mut met = HashSet::new();
        while let Some(run) = walk.next().await? {
            let is_reached = |key: &InboxKey| {
                run.reached.is_none_or(|reached| match direction {
                    Direction::Forward => slot_of(key.activity) >= reached,
                    Direction::Backward => slot_of(key.activity) <= reached,
                })
            };
            let mut candidates: Vec<Candidate> = run.hints.iter().map(Candidate::by_hint).filter(|one| one.may_be_in(cut)).collect();
            candidates.extend(larges.extract_if(.., |key| is_reached(key)).map(|key| Candidate { first: key, last: key, hint: None }));
            let mut queue = Queue::new(candidates, direction);
            loop {
                let settled = found.keys().filter(|key| is_reached(key) && queue.is_past(key)).count();
                if settled >= limit {
                    return Ok(in_direction(found, direction, limit));
                }
                if queue.rest.is_empty() {
                    break;
                }
                let some = queue.take(limit - settled);
                self.read(some.iter().map(|candidate| candidate.last.conversation)).await?;
                for candidate in &some {
                    let Some(row) = self.placed(candidate) else { continue };
                    // The first place counts: a later one of the same entry is the trace of an earlier hour.
                    if met.insert(row.conversation) && is_in(cut, &row.key()) {
                        found.insert(row.key(), row);
                    }
                }
            }
        }
        Ok(in_direction(found, direction, limit))
    }

    fn large_candidates(&self, cut: &Cut<InboxKey>) -> Vec<InboxKey> {
        let place = |(conversation, head): (&ConversationId, &Head)| InboxKey { activity: head.last_activity, conversation: *conversation };
        self.heads.iter().map(place).filter(|key| is_in(cut, key)).collect()
    }

    /// Reads the rows that were not read yet.
    async fn read(&mut self, conversations: impl Iterator<Item = ConversationId>) -> Result<()> {
        let mut unread: Vec<ConversationId> = conversations.filter(|conversation| !self.rows.contains_key(conversation)).collect();
        if !unread.is_empty() {
            unread.extend(self.wanted.take().filter(|wanted| !self.rows.contains_key(wanted)));
        }
        unread.sort_unstable();
        unread.dedup();
        let mut rows = own_rows(self.inner, self.user, &unread).await?;
        for conversation in unread {
            let row = rows.remove(&conversation).map(|row| match self.heads.get(&conversation) {
                Some(head) => with_head(row, head),
                None => row,
            });
            self.rows.insert(conversation, row);
        }
        Ok(())
    }

    /// The entry of a candidate that was read, where it stands now.
    fn placed(&mut self, candidate: &Candidate) -> Option<InboxRow> {
        let row = self.rows.get(&candidate.last.conversation).copied().flatten()?;
        let row = InboxRow { last_activity: row.last_activity.max(candidate.last.activity), ..row };
        if let Some(hint) = candidate.hint {
            self.stale.note(hint, row.last_activity, !self.heads.contains_key(&row.conversation));
        }
        Some(row)
    }

    /// Whether the list goes on at or behind the place where a page begins.
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

fn in_direction(found: BTreeMap<InboxKey, InboxRow>, direction: Direction, limit: usize) -> Vec<InboxRow> {
    match direction {
        Direction::Forward => found.into_values().take(limit).collect(),
        Direction::Backward => found.into_values().rev().take(limit).collect(),
    }
}
