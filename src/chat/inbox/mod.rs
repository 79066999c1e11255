//! Inbox of a user: its entries with their unread counts, markers and flags.

mod entry_notice;
pub(crate) mod entry_settings;
mod mark_coalescer;
mod marker;
pub(crate) mod page;
mod receipt;
pub(crate) mod summary;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::entry_notice::EntryState;
use self::mark_coalescer::MarkCoalescer;
use self::marker::{ReadMark, ReadMarkKey};
use self::receipt::DeliveredMark;
use self::summary::SharedSummary;
use crate::chat::access::Access;
use crate::chat::access::relationship::Relationships;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::Result;
use crate::chat::history::HistoryService;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::publisher::Publisher;
use crate::chat::write_tasks::WriteTasks;
use crate::cluster::DeduplicationWindow;
use crate::model::{
    Conversation, ConversationId, InboxRow, Message, MessageId, OrderKey, Timestamp, Unread, UserId,
};
use crate::store::{EntryPreview, PreviewQuery, Store, UnreadQuery};
use crate::weak_map::WeakMap;

/// A repetition of a change that was delivered longer ago than this delivers it once more.
const RETRIES_FOR: Duration = Duration::from_secs(15 * 60);

/// The fields of a preview that a client selected.
#[derive(Debug, Clone, Copy)]
pub struct PreviewFields {
    pub unread: bool,
    pub last_message: bool,
}

pub struct InboxService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    history: Arc<HistoryService>,
    relationships: Arc<Relationships>,
    in_flight: InFlightIds,
    publisher: Arc<Publisher>,
    tasks: Arc<WriteTasks>,
    /// Marks in large conversations, on a shared store.
    read_marks: MarkCoalescer<ReadMarkKey, ReadMark>,
    delivered_marks: MarkCoalescer<(UserId, ConversationId), DeliveredMark>,
    /// States of entries that this server has delivered to the viewers' devices. `None` on a store
    /// of one server.
    delivered: Option<Mutex<DeduplicationWindow<EntryState>>>,
    /// Summaries that the payloads of a user share, while a stream of theirs shows them.
    summaries: WeakMap<UserId, SharedSummary>,
    /// Cap of an unread count.
    unread_cap: u32,
    /// Entries read for one filtered page or one summary.
    scan_max: usize,
}

impl InboxService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            history: Arc::clone(&components.history),
            relationships: Arc::clone(&components.relationships),
            in_flight: components.in_flight.clone(),
            publisher: Arc::clone(&components.publisher),
            tasks: Arc::clone(&components.tasks),
            read_marks: MarkCoalescer::new(),
            delivered_marks: MarkCoalescer::new(),
            delivered: components
                .in_flight
                .is_shared()
                .then(|| Mutex::new(DeduplicationWindow::new(RETRIES_FOR))),
            summaries: WeakMap::default(),
            unread_cap: bounds.unread_cap,
            scan_max: bounds.inbox_scan_max,
        }
    }

    /// The viewer's entry of a conversation, from the viewer's own row. The caller also checks
    /// access to the conversation.
    pub async fn entry(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
    ) -> Result<Option<InboxRow>> {
        Ok(self.entries(viewer, &[conversation]).await?.pop().flatten())
    }

    /// Those of several conversations that the viewer's inbox shows: not the direct one with a user
    /// whom they block.
    pub async fn shown_entries(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        let mut rows = self.entries(viewer, conversations).await?;
        let blocks = self.access.blocks().of(viewer).await?;
        for row in &mut rows {
            row.take_if(|row| blocks.hides(row.conversation));
        }
        self.keep_archived(viewer, rows.iter_mut().flatten())
            .await?;
        Ok(rows)
    }

    /// Keeps entries archived whose messages since are those of users whom the viewer blocks. It reads only for
    /// viewers who block somebody, and entries that such a message would bring back.
    pub(super) async fn keep_archived(
        &self,
        viewer: &UserId,
        rows: impl Iterator<Item = &mut InboxRow>,
    ) -> Result<()> {
        let blocks = self.access.blocks().of(viewer).await?;
        if blocks.is_empty() {
            return Ok(());
        }
        let is_back = |row: &&mut InboxRow| {
            let archived_at = row.flags.archived_at.filter(|_| !row.is_archived());
            archived_at.is_some_and(|at| row.sent_up_to.is_none_or(|sent| sent.moment() <= at))
        };
        let rows: Vec<_> = rows.filter(is_back).collect();
        let last = rows
            .iter()
            .filter_map(|row| Some((row.conversation, row.last_message?)));
        let last: Vec<_> = last.collect();
        if last.len() < rows.len() || last.is_empty() {
            return Ok(());
        }
        let last = self.store.messages(&last).await?;
        let is_blocked = |message: &Option<Arc<Message>>| {
            message.as_ref().is_some_and(|one| blocks.has(&one.sender))
        };
        let rows = rows.into_iter().zip(&last);
        let rows: Vec<_> = rows
            .filter_map(|(row, last)| is_blocked(last).then_some(row))
            .collect();
        let query = |row: &&mut InboxRow| {
            let since = |at: Timestamp| OrderKey::first_at(at.plus_micros(1)).before();
            UnreadQuery {
                conversation: row.conversation,
                after: row.flags.archived_at.map_or(OrderKey::MAX, since),
                up_to: row.last_message.map(MessageId::order_key),
            }
        };
        let queries: Vec<_> = rows.iter().map(query).collect();
        let others = self.store.unread(viewer, &queries, 0, blocks.ignored());
        for (row, others) in rows.into_iter().zip(others.await?) {
            if others == Unread::default() {
                row.flags.archived_at = row.last_message.map(MessageId::moment);
            }
        }
        Ok(())
    }

    /// Entries of several conversations, hidden ones included.
    async fn entries(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        Ok(self.store.inbox_rows(viewer, conversations).await?)
    }

    /// Unread count and first unread message of each entry.
    pub async fn unread(&self, viewer: &UserId, rows: &[InboxRow]) -> Result<Vec<Unread>> {
        self.unread_up_to(viewer, rows, self.unread_cap).await
    }

    /// Count of unread mentions and first unread mention of each entry.
    pub async fn mentions(&self, viewer: &UserId, rows: &[InboxRow]) -> Result<Vec<Unread>> {
        self.mentions_up_to(viewer, rows, self.unread_cap).await
    }

    /// The same up to the last message of each row, and no later one.
    pub async fn unread_up_to_last(
        &self,
        viewer: &UserId,
        rows: &[InboxRow],
    ) -> Result<Vec<Unread>> {
        let query = |row: &InboxRow| UnreadQuery {
            conversation: row.conversation,
            after: row.read_up_to(),
            up_to: row.last_message.map(|last| last.order_key()),
        };
        let queries: Vec<_> = rows.iter().map(query).collect();
        let blocks = self.access.blocks().of(viewer).await?;
        let unread = self
            .store
            .unread(viewer, &queries, self.unread_cap, blocks.ignored());
        Ok(unread.await?)
    }

    /// Unread counts and newest messages of entries. The rows name the messages.
    pub async fn previews(
        &self,
        viewer: &UserId,
        rows: &[InboxRow],
        wanted: PreviewFields,
    ) -> Result<Vec<EntryPreview>> {
        let query = |row: &InboxRow| PreviewQuery {
            conversation: row.conversation,
            unread_after: (wanted.unread && row.may_be_unread()).then(|| row.read_up_to()),
            last_message: row.visible_last_message().filter(|_| wanted.last_message),
        };
        let queries: Vec<_> = rows.iter().map(query).collect();
        let blocks = self.access.blocks().of(viewer).await?;
        let previews = self
            .store
            .previews(viewer, &queries, self.unread_cap, blocks.ignored())
            .await?;
        let messages = previews.iter().filter_map(|one| one.last_message.as_ref());
        for message in messages {
            self.in_flight.observe(message.conversation, [message.id]);
        }
        Ok(previews)
    }

    async fn mentions_up_to(
        &self,
        viewer: &UserId,
        rows: &[InboxRow],
        cap: u32,
    ) -> Result<Vec<Unread>> {
        let (queries, places) = unread_queries(rows);
        let mut mentions = vec![Unread::default(); rows.len()];
        if !queries.is_empty() {
            let blocks = self.access.blocks().of(viewer).await?;
            let counted = self.store.mentions(viewer, &queries, cap, blocks.ignored());
            for (place, counted) in places.into_iter().zip(counted.await?) {
                mentions[place] = counted;
            }
        }
        Ok(mentions)
    }

    /// Whether marks of this conversation are coalesced: each would cost writes to a shared store, and no
    /// other user learns of them.
    fn coalesces_marks(&self, conversation: &Conversation) -> bool {
        conversation.is_large && self.in_flight.is_shared()
    }

    async fn unread_up_to(
        &self,
        viewer: &UserId,
        rows: &[InboxRow],
        cap: u32,
    ) -> Result<Vec<Unread>> {
        let (queries, places) = unread_queries(rows);
        let mut unread = vec![Unread::default(); rows.len()];
        if !queries.is_empty() {
            let blocks = self.access.blocks().of(viewer).await?;
            let counted = self.store.unread(viewer, &queries, cap, blocks.ignored());
            for (place, counted) in places.into_iter().zip(counted.await?) {
                unread[place] = counted;
            }
        }
        Ok(unread)
    }
}

/// Queries of the rows with messages after their markers, and the indices of these rows.
fn unread_queries(rows: &[InboxRow]) -> (Vec<UnreadQuery>, Vec<usize>) {
    let unread = rows.iter().enumerate();
    let unread = unread.filter(|(_, row)| row.may_be_unread());
    unread
        .map(|(index, row)| {
            let query = UnreadQuery {
                conversation: row.conversation,
                after: row.read_up_to(),
                up_to: None,
            };
            (query, index)
        })
        .unzip()
}
