//! The live part of the embedded store: answers from memory where it can, else on a blocking thread.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::spawn_blocking;

use super::engine::committer::{CommitOutcome, Write};
use super::engine::{key, record};
use super::write::{append, membership, pin, reaction, revision};
use super::{
    Busy, Embedded, ban, block, conversation, inbox, mention, message, outbox, outbox_reader,
    report, restriction,
};
use crate::model::{
    Ban, Block, Change, Conversation, ConversationId, Cut, DirectIds, Emoji, Flags, IdempotencyKey,
    IgnoredSenders, InboxKey, InboxRow, Message, MessageId, OrderKey, OutboxShard, Page,
    PageRequest, Participant, Pin, Profile, Reaction, Report, ReportId, ReportResolution,
    Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, Created, DeadLetter, EarlierSend, Error, FlagsChange,
    LateChange, LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot,
    NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT, NewConversation, NewMessage, OutboxPage, OutboxRead,
    Participation, ProfileChange, ReaderPosition, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, Store, StoreAdmin as _, UnreadQuery, UnreadReader, rules,
};

#[async_trait]
impl Store for Embedded {
    fn set_outbox_keep(&self, keep: Duration) {
        self.inner.context.outbox.set_keep(keep);
    }

    fn overlap_micros(&self) -> i64 {
        0
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        None
    }

    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        Ok(self.inner.committer.newest_id())
    }

    async fn imported_at(&self) -> Result<Option<Timestamp>> {
        let note = self.note(NOTE_IMPORTED_AT).await?;
        Ok(rules::note::imported_at(note.as_deref()))
    }

    async fn direct_ids(&self) -> Result<DirectIds> {
        let proposed = DirectIds::random().secret_text();
        rules::note::direct_ids(&self.note_once(NOTE_DIRECT_SECRET, &proposed).await?)
    }

    async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        if let Some(participations) =
            conversation::participations_in_memory(self.states(), viewer, conversations)
        {
            return Ok(participations);
        }
        let (viewer, conversations) = (viewer.clone(), conversations.to_vec());
        self.read(move |context| conversation::participations(context, &viewer, &conversations))
            .await
    }

    async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        let (one, other) = (one.clone(), other.clone());
        self.read(move |context| conversation::direct(context, &one, &other))
            .await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        match self
            .write(conversation::create(&self.inner.context, new))
            .await?
        {
            CommitOutcome::Done => Ok(Created::New),
            CommitOutcome::Refused => {
                let new = new.clone();
                self.read(move |context| conversation::in_the_way(context, &new))
                    .await
                    .map(Created::Existing)
            }
        }
    }

    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.participants_with_prefix(conversation, "", page).await
    }

    async fn participants_with_prefix(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let (prefix, page) = (prefix.to_owned(), page.clone());
        self.read(move |context| {
            conversation::participants(context, conversation, &prefix, &page, |participant| {
                participant.membership.is_joined()
            })
        })
        .await
    }

    async fn bans(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Ban>> {
        let page = page.clone();
        self.read(move |context| ban::page(context, conversation, &page))
            .await
    }

    async fn bans_of(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Option<Ban>>> {
        let users = users.to_vec();
        self.read(move |context| ban::of_users(context, conversation, &users))
            .await
    }

    async fn ban_count(&self, conversation: ConversationId, limit: usize) -> Result<usize> {
        self.read(move |context| ban::count(context, conversation, limit))
            .await
    }

    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        let keys = keys.to_vec();
        self.read(move |context| conversation::participants_by_name(context, &keys))
            .await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.heads(conversations, |head| {
            head.map_or(0, |head| head.participant_count)
        })
        .await
    }

    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        let users = users.to_vec();
        self.read(move |context| membership::membership_snapshot(context, conversation, &users))
            .await
    }

    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>> {
        self.membership_changed(conversation, change).await
    }

    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience> {
        self.renamed(conversation, to).await
    }

    async fn set_slow_mode(
        &self,
        conversation: ConversationId,
        seconds: u32,
        change: &Change,
    ) -> Result<()> {
        self.slow_mode_set(conversation, seconds, change).await
    }

    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        self.appended(conversation, messages).await
    }

    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>> {
        self.revised(conversation, revision, change).await
    }

    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.reacted(conversation, emoji, is_on, change).await
    }

    async fn pin_message(
        &self,
        conversation: ConversationId,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.pinned(conversation, is_on, change).await
    }

    async fn pins(&self, conversation: ConversationId) -> Result<Vec<(MessageId, Pin)>> {
        self.read(move |context| pin::rows(&context.view(), conversation))
            .await
    }

    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        let (viewer, messages) = (viewer.clone(), messages.to_vec());
        self.read(move |context| reaction::reactions(context, &viewer, &messages))
            .await
    }

    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        self.read(move |context| revision::changes(context, conversation, after, limit))
            .await
    }

    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>> {
        self.heads(conversations, |head| {
            head.and_then(|head| head.last_message.max(head.newest_change))
        })
        .await
    }

    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        let keys = keys.to_vec();
        self.read(move |context| append::earlier_sends(context, conversation, &keys))
            .await
    }

    async fn log_late(&self, _: ConversationId, _: &[LateChange]) -> Result<()> {
        Ok(())
    }

    async fn outbox_since(&self) -> Result<Option<Timestamp>> {
        self.read_outbox_since().await
    }

    async fn outbox(
        &self,
        reads: &[OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> Result<Vec<OutboxPage>> {
        let reads = reads.to_vec();
        self.read(move |context| outbox::pages(context, &reads, up_to, limit))
            .await
    }

    async fn reader_positions(&self, reader: &str) -> Result<Vec<Option<ReaderPosition>>> {
        let reader = reader.to_owned();
        self.read(move |context| outbox_reader::positions(context, &reader))
            .await
    }

    async fn swap_reader_position(
        &self,
        reader: &str,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        to: &ReaderPosition,
    ) -> Result<bool> {
        self.swap_position(reader, shard, seen, to).await
    }

    async fn put_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.dead_letter_put(reader, letter).await
    }

    async fn dead_letters(&self, reader: &str, limit: usize) -> Result<Vec<DeadLetter>> {
        let reader = reader.to_owned();
        self.read(move |context| outbox_reader::dead_letters(context, &reader, limit))
            .await
    }

    async fn delete_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.dead_letter_deleted(reader, letter).await
    }

    async fn conversations(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        if let Some(known) = conversation::in_memory(self.states(), conversations) {
            return Ok(known);
        }
        let conversations = conversations.to_vec();
        self.read(move |context| conversation::read(context, &conversations))
            .await
    }

    async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        page: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>> {
        let (cut, page) = (cut.clone(), page.clone());
        self.read(move |context| message::history(context, conversation, &cut, &page))
            .await
    }

    async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        if let Some(known) = message::messages_in_memory(&self.inner.context, keys) {
            return Ok(known);
        }
        let keys = keys.to_vec();
        self.read(move |context| message::messages(context, &keys))
            .await
    }

    async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let positions = positions.to_vec();
        self.read(move |context| message::messages_at(context, &positions))
            .await
    }

    async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        self.heads(conversations, |head| head?.last_message).await
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.heads(conversations, |head| {
            head.map_or(0, |head| head.message_count)
        })
        .await
    }

    async fn message_counts_after(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<u64>> {
        let positions = positions.to_vec();
        self.read(move |context| message::counts_after(context, &positions))
            .await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        let (user, page) = (user.clone(), page.clone());
        self.read(move |context| inbox::inbox(context, &user, &page))
            .await
    }

    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        if let Some(known) = inbox::rows_in_memory(&self.inner.context, user, conversations) {
            return Ok(known);
        }
        let (user, conversations) = (user.clone(), conversations.to_vec());
        self.read(move |context| inbox::rows(context, &user, &conversations))
            .await
    }

    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        let user = user.clone();
        self.read(move |context| inbox::changes(context, &user, after, limit))
            .await
    }

    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        let user = user.clone();
        self.read(move |context| inbox::conversation_count(&context.view(), &user, limit))
            .await
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let user = user.clone();
        self.read(move |context| inbox::large_conversations(&context.view(), &user))
            .await
    }

    async fn unread(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let reader = UnreadReader { user, ignored };
        let known = queries
            .iter()
            .map(|query| message::unread_in_memory(&self.inner.context, reader, query, cap));
        if let Some(known) = known.collect() {
            return Ok(known);
        }
        let (user, ignored, queries) = (user.clone(), ignored.clone(), queries.to_vec());
        self.read(move |context| {
            let (user, ignored) = (&user, &ignored);
            message::unread(context, UnreadReader { user, ignored }, &queries, cap)
        })
        .await
    }

    async fn mentions(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let (user, ignored, queries) = (user.clone(), ignored.clone(), queries.to_vec());
        self.read(move |context| {
            let (user, ignored) = (&user, &ignored);
            mention::unread(context, UnreadReader { user, ignored }, &queries, cap)
        })
        .await
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        // A maximum register needs no condition, so the committer never refuses it.
        self.write(inbox::move_marker(user, to)).await.map(drop)
    }

    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        self.write(inbox::mark_delivered(user, conversation, up_to))
            .await
            .map(drop)
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let (sender, page) = (sender.clone(), page.clone());
        self.read(move |context| {
            conversation::participants(context, conversation, "", &page, |one| {
                one.receives(message, &sender)
            })
        })
        .await
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        let key = key::entry(user, to.conversation, key::EntryCell::Flags);
        let apply = |flags| to.apply(flags);
        self.change_coded(key, record::FLAGS, apply, || inbox::flags_set(user, to))
            .await
    }

    async fn notified_of_all(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let after = after.cloned();
        self.read(move |context| {
            inbox::notified_of_all(context, conversation, after.as_ref(), limit)
        })
        .await
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        let users = users.to_vec();
        self.read(move |context| {
            let view = context.view();
            users
                .iter()
                .map(|user| view.decoded(&key::user(user), record::decode_profile))
                .collect()
        })
        .await
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        self.change_coded(
            key::user(user),
            record::PROFILE,
            |profile| to.apply(profile),
            Write::default,
        )
        .await
        .map(drop)
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        let seen = |profile: Profile| Profile {
            last_seen_at: profile.last_seen_at.max(Some(at)),
            ..profile
        };
        self.change_coded(key::user(user), record::PROFILE, seen, Write::default)
            .await
            .map(drop)
    }

    async fn restrict(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction> {
        self.changed_restriction(restricted, change).await
    }

    async fn restrictions_of(&self, users: &[UserId]) -> Result<Vec<Restriction>> {
        let users = users.to_vec();
        self.read(move |context| restriction::of_users(context, users))
            .await
    }

    async fn restrictions(&self) -> Result<Vec<(Restricted, Restriction)>> {
        self.read(restriction::all).await
    }

    async fn restriction_log(&self, _: Timestamp) -> Result<Vec<LoggedRestriction>> {
        Ok(Vec::new())
    }

    async fn blocks(&self, user: &UserId) -> Result<Vec<Block>> {
        let user = user.clone();
        self.read(move |context| block::of_user(context, &user))
            .await
    }

    async fn set_block(&self, user: &UserId, block: &Block) -> Result<()> {
        self.block_set(user, block).await
    }

    async fn add_report(&self, report: &Report, _logged_as: TimeUuid) -> Result<()> {
        self.report_add(report).await
    }

    async fn reports(&self, query: &ReportQuery) -> Result<Vec<Report>> {
        let query = *query;
        self.read(move |context| report::listed(context, &query))
            .await
    }

    async fn reports_by_id(&self, ids: &[ReportId]) -> Result<Vec<Option<Report>>> {
        let ids = ids.to_vec();
        self.read(move |context| report::by_id(context, &ids)).await
    }

    async fn report_count(&self, after: OrderKey, limit: usize) -> Result<usize> {
        self.read(move |context| report::count(context, after, limit))
            .await
    }

    async fn resolve_report(
        &self,
        report: ReportId,
        resolution: Option<&ReportResolution>,
        at: Timestamp,
    ) -> Result<()> {
        self.report_resolve(report, resolution, at).await
    }

    async fn replace_report(&self, report: &Report) -> Result<()> {
        self.report_replace(report).await
    }

    async fn delete_reports(&self, reports: &[ReportId]) -> Result<()> {
        self.reports_delete(reports).await
    }

    fn health(&self) -> Result<(), String> {
        self.inner.takes_writes()
    }

    async fn close(&self) -> Result<()> {
        self.upkeep.abort();
        let inner = self.inner.clone();
        spawn_blocking(move || inner.committer.close())
            .await
            .map_err(|_| Error::Unavailable(Box::new(Busy::Panic)))?
    }
}
