//! Unread counts.
//!
//! As a rule a few rows decide. Behind many rows that do not count (deleted ones, SYSTEM messages, those of blocked senders) a count takes
//! several reads: this server remembers how far it came for a user, and continues there. What counts for nobody is read once for all users
//! (see `silent_runs`). A list that is remembered follows the same rules: it covers only settled ids, and a late write ends it.

use std::collections::HashMap;

use super::Messages;
use super::bucket::id_range::IdRange;
use super::bucket::view::IndexView;
use super::count::SETTLED_MICROS;
use super::history::MessageSummary;
use super::silent_runs::SilentRuns;
use crate::model::{
    ConversationId, Direction, IgnoredSenders, MessageKind, OrderKey, Timestamp, Unread, UserId,
};
use crate::store::cql::driver::executor::concurrently;
use crate::store::unread_list::{LongUnreadList, UnreadList};
use crate::store::{Result, UnreadQuery, UnreadReader};

/// Rows that are read for an entry before its list is worth remembering.
const ROWS_FIRST: usize = 250;

impl Messages {
    /// Unread counts. The caller knows from the inbox row that there is something after the marker, so the head is not read again.
    pub(crate) async fn unread(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let reader = UnreadReader { user, ignored };
        let conversations = queries.iter().map(|query| query.conversation);
        let views = self.index_views(conversations).await?;
        let each = queries.iter().map(async |query| {
            let mut view = views[&query.conversation].clone();
            self.unread_in(reader, &mut view, query, cap).await
        });
        concurrently(each).await
    }

    /// The indexes of some conversations, read together.
    pub(crate) async fn index_views(
        &self,
        conversations: impl Iterator<Item = ConversationId>,
    ) -> Result<HashMap<ConversationId, IndexView>> {
        let mut ids: Vec<_> = conversations.collect();
        ids.sort_unstable();
        ids.dedup();
        let views = match ids.as_slice() {
            [id] => vec![IndexView::open(self, *id).await?],
            ids => IndexView::open_many(self, ids).await?,
        };
        Ok(views
            .into_iter()
            .map(|view| (view.conversation(), view))
            .collect())
    }

    pub(crate) async fn unread_after(
        &self,
        reader: UnreadReader<'_>,
        view: &mut IndexView,
        after: OrderKey,
        cap: u32,
    ) -> Result<Unread> {
        let query = UnreadQuery {
            conversation: view.conversation(),
            after,
            up_to: None,
        };
        self.unread_in(reader, view, &query, cap).await
    }

    async fn unread_in(
        &self,
        reader: UnreadReader<'_>,
        view: &mut IndexView,
        query: &UnreadQuery,
        cap: u32,
    ) -> Result<Unread> {
        if let Some(known) = self.unread_lists.rest(reader, query) {
            return self.continued_unread(reader, query, cap, Some(known)).await;
        }
        let mut list = UnreadList::new(query.after);
        // As a rule every row counts, so one row more than the cap decides.
        for rows in [cap as usize + 1, ROWS_FIRST] {
            let missing = rows.min(Unread::ROWS_MAX).saturating_sub(list.rows);
            if missing > 0 {
                let runs = &mut SilentRuns::default();
                self.extend(reader, view, query, cap, (&mut list, runs), missing)
                    .await?;
            }
            if let Some(unread) = list.count(query, cap) {
                return Ok(unread);
            }
        }
        self.continued_unread(reader, query, cap, None).await
    }

    /// Counts on from a remembered list, and remembers how far the count came.
    async fn continued_unread(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        cap: u32,
        known: Option<LongUnreadList<Timestamp>>,
    ) -> Result<Unread> {
        let conversation = query.conversation;
        let now = self.clock.now();
        let mut runs = self.silent_runs(conversation).await?;
        let late_at = runs.late_at;
        let is_valid = |known: &LongUnreadList<Timestamp>| late_at <= Some(known.version);
        let mut known = match known.filter(is_valid) {
            Some(mut known) => {
                known.list = self.still_unread(reader, conversation, known.list).await?;
                known
            }
            None => LongUnreadList::new(reader, query.after, now),
        };
        // The cached index may lack a bucket that a late message opened before its register was read.
        let mut view = IndexView::open_anew(self, conversation).await?;
        if known.list.count(query, cap).is_none() {
            let to = (&mut known.list, &mut runs);
            self.extend(reader, &mut view, query, cap, to, Unread::ROWS_MAX)
                .await?;
        }
        let unread = known.list.count_or_capped(query, cap);
        if late_at < Some(known.version) {
            let settled = OrderKey::first_at(now.plus_micros(-SETTLED_MICROS));
            runs.close();
            self.put_silent_runs(conversation, (&runs, now), settled)
                .await;
            if known.list.is_long() {
                known.list = known.list.before(settled);
                self.unread_lists.put(reader, conversation, known);
            }
        }
        Ok(unread)
    }

    /// The same list without the messages that count no longer.
    async fn still_unread(
        &self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
        mut list: UnreadList,
    ) -> Result<UnreadList> {
        let keys: Vec<_> = list.ids.iter().map(|id| (conversation, *id)).collect();
        let messages = self.by_ids(&keys).await?.into_iter().flatten();
        let counting = messages.filter(|message| {
            let is_shown = message.kind == MessageKind::Text && message.deleted_at.is_none();
            is_shown && reader.counts(message.sender.as_str())
        });
        list.ids = counting.map(|message| message.id).collect();
        Ok(list)
    }

    /// Reads the next rows of a list, but for those of silent runs.
    async fn extend(
        &self,
        reader: UnreadReader<'_>,
        view: &mut IndexView,
        query: &UnreadQuery,
        cap: u32,
        (list, runs): (&mut UnreadList, &mut SilentRuns),
        rows: usize,
    ) -> Result<()> {
        let rows_max = list.rows + rows;
        loop {
            if let Some(end) = runs.end_at(list.read_up_to) {
                list.read_up_to = end;
            }
            let next_run = runs.next_after(list.read_up_to);
            let up_to = query.up_to.into_iter().chain(next_run).min();
            let range = IdRange::WHOLE.after(list.read_up_to);
            let range = up_to.map_or(range, |up_to| range.up_to(up_to));
            let missing = rows_max - list.rows;
            // Ascending: the first message that counts is the first unread one.
            let summaries: Vec<MessageSummary> = self
                .merge_in(view, range, Direction::Forward, missing)
                .await?;
            for summary in &summaries {
                let is_silent = !summary.is_text || summary.is_deleted;
                runs.note(list.read_up_to, summary.id.order_key(), is_silent);
                let counts = !is_silent && reader.counts(&summary.sender);
                if !list.add(summary.id, counts, cap) {
                    return Ok(());
                }
            }
            let Some(up_to) = up_to else {
                list.is_whole = summaries.len() < missing;
                return Ok(());
            };
            if summaries.len() == missing {
                return Ok(());
            }
            list.read_up_to = list.read_up_to.max(up_to);
            if query.up_to.is_some_and(|end| end <= list.read_up_to) {
                return Ok(());
            }
        }
    }
}
