//! The live part of the embedded store: answers from memory where it can, else on a blocking thread.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::engine::committer::{CommitOutcome, Op, Write};
use super::engine::{key, record};
use super::write::{append, membership, pin, reaction, revision, setting};
use super::{
    Busy, Embedded, ban, block, conversation, inbox, mention, message, outbox, outbox_reader,
    participant, report, restriction,
};
use crate::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, ConversationProfileChange, Created, DeadLetter, EarlierSend,
    Error, FlagsChange, LateChange, LoggedRestriction, MarkerMove, MembershipChange,
    MembershipSnapshot, NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT, NOTE_OUTBOX_SINCE, NOTE_RESTORED_AT,
    NewConversation, NewMessage, OutboxPage, OutboxRead, Participation, ProfileChange,
    ReaderPosition, Renaming, ReportQuery, Restricted, RestrictionChange, Result, Revised, Store,
    StoreAdmin as _, StoreFuture, UnreadQuery, rules, store_operations,
};

impl Store for Embedded {
    store_operations! { reads {
        direct_conversation: conversation::direct,
        app_key_claim: conversation::app_key_claim,
        participants_with_prefix: participant::with_prefix,
        bans: ban::page,
        bans_of: ban::of_users,
        ban_count: ban::count,
        participants_by_name: participant::participants_by_name,
        membership_snapshot: membership::membership_snapshot,
        conversation_profiles: setting::profiles,
        pins: pin::pins,
        reactions: reaction::reactions,
        ended_reaction_count: reaction::ended_count,
        changes: revision::changes,
        earlier_sends: append::earlier_sends,
        outbox: outbox::pages,
        reader_positions: outbox_reader::positions,
        dead_letters: outbox_reader::dead_letters,
        messages_at: message::messages_at,
        message_counts_after: message::counts_after,
        inbox_changes: inbox::changes,
        conversation_count: inbox::conversation_count,
        large_conversations: inbox::large_conversations,
        receivers: participant::receivers,
        notified_of_all: inbox::notified_of_all,
        restrictions_of: restriction::of_users,
        restrictions: restriction::all,
        blocks: block::of_user,
        reports: report::listed,
        reports_by_id: report::by_id,
        report_count: report::count,
        mentions: mention::unread,
    } }

    store_operations! { cached {
        participations: conversation::participations_in_memory, conversation::participations;
        conversations: conversation::in_memory, conversation::read;
        messages: message::messages_in_memory, message::messages;
        inbox: inbox::inbox_in_memory, inbox::inbox;
        inbox_rows: inbox::rows_in_memory, inbox::rows;
        unread: message::unread_in_memory, message::unread;
    } }

    store_operations! { heads {
        participant_counts: |head| head.map_or(0, |head| head.participant_count),
        message_counts: |head| head.map_or(0, |head| head.message_count),
        last_messages: |head| head?.last_message,
        newest_events: |head| head.and_then(|head| head.last_message.max(head.newest_change)),
    } }

    store_operations! { plans {
        change_membership: membership::plan,
        rename_conversation: setting::rename,
        set_slow_mode: setting::slow_mode,
        change_conversation_profile: setting::profile,
        revise_message: revision::plan,
        react: reaction::plan,
        pin_message: pin::plan,
    } }

    fn set_outbox_keep(&self, keep: Duration) {
        self.context().outbox.set_keep(keep);
    }

    fn overlap_micros(&self) -> i64 {
        0
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        None
    }

    fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
        Box::pin(async move { Ok(self.inner.committer.newest_id()) })
    }

    fn imported_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.note(NOTE_IMPORTED_AT).await?;
            Ok(rules::note::time(note.as_deref()))
        })
    }

    fn restored_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.note(NOTE_RESTORED_AT).await?;
            Ok(rules::note::time(note.as_deref()))
        })
    }

    fn direct_ids(&self) -> StoreFuture<'_, DirectIds> {
        Box::pin(async move {
            let proposed = DirectIds::random().secret_text();
            rules::note::direct_ids(&self.note_once(NOTE_DIRECT_SECRET, &proposed).await?)
        })
    }

    fn claim_app_key<'a>(
        &'a self,
        key: &'a AppKey,
        claim: AppKeyClaim,
    ) -> StoreFuture<'a, AppKeyClaim> {
        Box::pin(async move {
            match self.write(conversation::claim_app_key(key, claim)).await? {
                CommitOutcome::Done => Ok(claim),
                CommitOutcome::Refused => Ok(self.app_key_claim(key).await?.unwrap_or(claim)),
            }
        })
    }

    fn create_conversation<'a>(&'a self, new: &'a NewConversation) -> StoreFuture<'a, Created> {
        Box::pin(async move {
            match self
                .write(conversation::create(self.context(), new))
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
        })
    }

    fn participants<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        self.participants_with_prefix(conversation, "", page)
    }

    fn append_messages<'a>(
        &'a self,
        conversation: ConversationId,
        messages: &'a [NewMessage],
    ) -> StoreFuture<'a, Appended> {
        Box::pin(self.appended(conversation, messages))
    }

    fn log_late<'a>(&'a self, _: ConversationId, _: &'a [LateChange]) -> StoreFuture<'a, ()> {
        Box::pin(async move { Ok(()) })
    }

    fn outbox_since(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.note(NOTE_OUTBOX_SINCE).await?;
            Ok(rules::outbox::since(note.as_deref()))
        })
    }

    fn swap_reader_position<'a>(
        &'a self,
        reader: &'a str,
        shard: OutboxShard,
        seen: Option<&'a ReaderPosition>,
        to: &'a ReaderPosition,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let write = outbox_reader::swap_position(reader, shard, seen, to);
            Ok(self.write(write).await? == CommitOutcome::Done)
        })
    }

    fn put_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.write_ops(outbox_reader::put_dead_letter(reader, letter), None))
    }

    fn delete_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        let row = key::dead_letter(reader, letter);
        Box::pin(self.write_ops(vec![Op::Delete(row)], None))
    }

    fn history<'a>(
        &'a self,
        conversation: ConversationId,
        cut: &'a Cut<OrderKey>,
        page: &'a PageRequest<OrderKey>,
    ) -> StoreFuture<'a, Page<Arc<Message>>> {
        Box::pin(async move {
            let context = self.context();
            if let Some(cached) = context.rows.newest.page(conversation, cut, page) {
                return Ok(cached);
            }
            let (cut, page) = (cut.clone(), page.clone());
            if message::begins_with_newest(&cut, &page) {
                return self
                    .read(move |context| message::newest_page(context, conversation, &cut, &page))
                    .await;
            }
            let rows = self
                .read(move |context| message::history_rows(context, conversation, &cut, &page))
                .await?;
            message::history_of(conversation, &rows)
        })
    }

    fn move_read_marker<'a>(&'a self, user: &'a UserId, to: &'a MarkerMove) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if user.is_agent() {
                return Ok(());
            }
            // A maximum register needs no condition, so the committer never refuses it.
            let ops = inbox::move_marker(user, to);
            self.write_ops(ops, Some(to.change)).await
        })
    }

    fn mark_delivered<'a>(
        &'a self,
        user: &'a UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if user.is_agent() {
                return Ok(());
            }
            let ops = inbox::mark_delivered(user, conversation, up_to);
            self.write_ops(ops, None).await
        })
    }

    fn set_flags<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a FlagsChange,
    ) -> StoreFuture<'a, Option<Flags>> {
        Box::pin(async move {
            if user.is_agent() {
                return Ok(None);
            }
            let key = key::entry(user, to.conversation, key::EntryCell::Flags);
            let apply = |flags| to.apply(flags);
            self.change_coded(key, record::FLAGS, apply, || inbox::flags_set(user, to))
                .await
        })
    }

    fn profiles<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Option<Profile>>> {
        let users = users.to_vec();
        Box::pin(self.read(move |context| {
            let view = context.view();
            users
                .iter()
                .map(|user| view.decoded(&key::user(user), record::decode_profile))
                .collect()
        }))
    }

    fn change_profile<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a ProfileChange,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.change_coded(
                key::user(user),
                record::PROFILE,
                |profile| to.apply(profile),
                Write::default,
            )
            .await
            .map(drop)
        })
    }

    fn mark_seen<'a>(&'a self, user: &'a UserId, at: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let seen = |profile: Profile| Profile {
                last_seen_at: profile.last_seen_at.max(Some(at)),
                ..profile
            };
            self.change_coded(key::user(user), record::PROFILE, seen, Write::default)
                .await
                .map(drop)
        })
    }

    fn restrict<'a>(
        &'a self,
        restricted: &'a Restricted,
        change: &'a RestrictionChange,
    ) -> StoreFuture<'a, Restriction> {
        Box::pin(self.changed_restriction(restricted, change))
    }

    fn restriction_log(&self, _: Timestamp) -> StoreFuture<'_, Vec<LoggedRestriction>> {
        Box::pin(async move { Ok(Vec::new()) })
    }

    fn set_block<'a>(&'a self, user: &'a UserId, block: &'a Block) -> StoreFuture<'a, ()> {
        Box::pin(self.block_set(user, block))
    }

    fn add_report<'a>(&'a self, report: &'a Report, _logged_as: TimeUuid) -> StoreFuture<'a, ()> {
        let ops = report::added(self.context(), report);
        Box::pin(self.write_ops(ops, Some(report.id)))
    }

    fn resolve_report<'a>(
        &'a self,
        report: ReportId,
        resolution: Option<&'a ReportResolution>,
        at: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if !self.has_report(report).await? {
                return Ok(());
            }
            let ops = report::resolved(report, resolution, at);
            self.write_ops(ops, None).await
        })
    }

    fn replace_report<'a>(&'a self, report: &'a Report) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if !self.has_report(report.id).await? {
                return Ok(());
            }
            self.write_ops(vec![report::row(report)], None).await
        })
    }

    fn delete_reports<'a>(&'a self, reports: &'a [ReportId]) -> StoreFuture<'a, ()> {
        Box::pin(self.write_ops(report::deleted(reports), None))
    }

    fn health(&self) -> Result<(), String> {
        self.inner.takes_writes()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.upkeep.abort();
            self.inner.set_closed();
            let inner = self.inner.clone();
            spawn_blocking(move || inner.committer.close())
                .await
                .map_err(|_| Error::Unavailable(Box::new(Busy::Panic)))?
        })
    }
}
