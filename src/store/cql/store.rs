//! The contract of a store, each method handed to the folder that implements it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::driver::executor::concurrently;
use super::driver::upgrade;
use super::{Cql, message};
use crate::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, ConversationProfileChange, Created, DeadLetter, EarlierSend,
    EntryPreview, FlagsChange, FormVersion, LateChange, LoggedRestriction, MarkerMove,
    MembershipChange, MembershipSnapshot, MembershipVersion, NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT,
    NOTE_RESTORED_AT, NewConversation, NewMessage, OutboxPage, OutboxRead, Participation,
    PreviewQuery, ProfileChange, ReaderPosition, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, Store, StoreFuture, UnreadQuery, rules, store_operations,
};

impl Store for Cql {
    store_operations! {
        bans: bans as page, bans_of as of_users, ban_count as count;
        blocks: blocks as of_user, set_block as set;
        inboxes: inbox as page, inbox_changes, previews, mentions, conversation_count, large_conversations,
            notified_of_all;
        messages: app_key_claim, claim_app_key, conversation_profiles, pins, reactions, ended_reaction_count,
            changes, history, messages as by_ids, messages_at, last_messages, message_counts,
            message_counts_after, unread;
        outbox: outbox as pages, reader_positions, swap_reader_position, put_dead_letter, dead_letters,
            delete_dead_letter;
        participants: participations, direct_conversation, participants, participants_with_prefix,
            participants_by_name, participant_counts, receivers;
        profiles: profiles, change_profile, mark_seen;
        reports: reports as list, reports_by_id as by_ids, report_count as count, resolve_report as resolve,
            replace_report as replace, delete_reports as delete;
        restrictions: restrict, restrictions_of as of_users, restrictions as all, restriction_log as log;
        sends: create_conversation, membership_snapshot, membership_version, change_membership,
            rename_conversation, set_slow_mode, change_conversation_profile, append_messages,
            revise_message, react, pin_message, log_late, earlier_sends, newest_events, move_read_marker,
            mark_delivered, set_flags;
    }

    fn set_outbox_keep(&self, keep: Duration) {
        self.outbox.set_keep(keep);
    }

    fn overlap_micros(&self) -> i64 {
        message::OVERLAP_MICROS
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        Some(Arc::clone(&self.cluster) as Arc<dyn ClusterStore>)
    }

    /// `None`: other servers allocate ids too, so each conversation's queue reads its own newest one.
    fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
        Box::pin(async move { Ok(None) })
    }

    fn form_version(&self) -> StoreFuture<'_, FormVersion> {
        Box::pin(upgrade::form_version(&self.executor))
    }

    /// Read once: servers run on no cluster into which data is being imported. Later calls ask any
    /// node whether the cluster answers, so that readiness depends on no single range of the data.
    fn imported_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let cached = *self.imported_at.lock();
            if let Some(cached) = cached {
                self.executor.ping().await?;
                return Ok(cached);
            }
            let note = self.admin.note(NOTE_IMPORTED_AT).await?;
            let imported_at = rules::note::time(note.as_deref());
            *self.imported_at.lock() = Some(imported_at);
            Ok(imported_at)
        })
    }

    fn restored_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.admin.note(NOTE_RESTORED_AT).await?;
            Ok(rules::note::time(note.as_deref()))
        })
    }

    fn direct_ids(&self) -> StoreFuture<'_, DirectIds> {
        Box::pin(async move {
            let proposed = DirectIds::random().secret_text();
            rules::note::direct_ids(&self.admin.note_once(NOTE_DIRECT_SECRET, &proposed).await?)
        })
    }

    fn outbox_since(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let asked_at = Instant::now();
            let since = self.admin.outbox_since().await;
            self.outbox.follow(asked_at, &since);
            since
        })
    }

    fn conversations<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Arc<Conversation>>>> {
        Box::pin(async move {
            let each = |id: &ConversationId| self.sends.membership_version(*id);
            let found = concurrently(conversations.iter().map(each)).await?;
            Ok(found
                .into_iter()
                .map(|found| found.map(|found| found.conversation))
                .collect())
        })
    }

    fn inbox_rows<'a>(
        &'a self,
        user: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<InboxRow>>> {
        Box::pin(async move {
            match user.is_agent() {
                true => self.rows_of_agent(user, conversations).await,
                false => self.inboxes.inbox_rows(user, conversations).await,
            }
        })
    }

    fn add_report<'a>(&'a self, report: &'a Report, logged_as: TimeUuid) -> StoreFuture<'a, ()> {
        Box::pin(self.reports.add(report, logged_as, &self.outbox))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.executor.close();
            Ok(())
        })
    }

    fn health(&self) -> Result<(), String> {
        // The cluster's clock, and delivery, have their own health (`cluster`).
        self.executor.health()
    }
}
