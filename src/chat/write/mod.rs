//! Writes: commands of users, and the queue of each conversation that runs them.
//!
//! A send: [`WriteService::send`] checks access and rate, `conversation_queue` orders it,
//! `send_batch` persists and publishes it.

mod backlog;
pub(crate) mod command;
mod completed_change;
mod conversation_creation;
mod conversation_queue;
mod conversation_writer;
pub(crate) mod erasure;
mod group;
mod group_change;
mod group_history;
pub(crate) mod group_moderation;
mod group_policy;
mod introduction;
mod outgoing;
pub(crate) mod profile;
mod send_batch;
mod unknown_outcome;
mod write_context;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use self::backlog::BacklogSize;
use self::command::draft::Draft;
use self::command::group::parse_username;
use self::command::pin::PinDraft;
use self::command::reaction::ReactionDraft;
use self::command::revision::{EditInput, RevisionDraft};
use self::command::{
    AcceptedCaller, WriterCheck, require_everyone, require_send_role, slow_mode_of,
};
use self::completed_change::CompletedChanges;
use self::conversation_queue::ConversationQueues;
use self::introduction::Introductions;
use self::send_batch::slow_mode::{require_pause, since_last_send};
use self::unknown_outcome::UnsettledWrites;
use self::write_context::WriteContext;
use crate::chat::access::authority::Authority;
use crate::chat::access::relationship::Relationships;
use crate::chat::access::restrictions::Restrictions;
use crate::chat::agent_sends::AgentSends;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::participants::ParticipantService;
use crate::chat::rate_limit::RateLimit;
use crate::chat::safety::send_hook::{CheckedMessage, SendHook};
use crate::chat::write_tasks::WriteTasks;
use crate::cluster::DeduplicationWindow;
use crate::metrics::Metrics;
use crate::model::{
    ConversationId, DirectIds, Floor, Message, MessageId, Revision, ServiceRight, UserId, Viewer,
};
use crate::rate::Rate;
use crate::store::{FormVersion, Participation};

/// A retry of a send that was delivered longer ago than this delivers it once more.
const RETRIES_FOR: Duration = Duration::from_secs(15 * 60);

pub struct WriteService {
    context: Arc<WriteContext>,
    participants: Arc<ParticipantService>,
    relationships: Arc<Relationships>,
    restrictions: Arc<Restrictions>,
    queues: ConversationQueues,
    tasks: Arc<WriteTasks>,
    sends: RateLimit,
    /// KiB of messages that a user sends and edits.
    written: RateLimit,
    /// Decides about sends and edits, if the operator has one.
    hook: OnceLock<SendHook>,
    direct_ids: OnceCell<DirectIds>,
    body_bytes_max: usize,
    /// The store holds it weakly.
    _completed_changes: Option<Arc<CompletedChanges>>,
}

impl WriteService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let tasks = Arc::clone(&components.tasks);
        let context = Arc::new(WriteContext {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            restrictions: Arc::clone(&components.restrictions),
            history: Arc::clone(&components.history),
            in_flight: components.in_flight.clone(),
            publisher: Arc::clone(&components.publisher),
            index: Arc::clone(&components.index),
            introductions: Introductions::new(components, bounds),
            tasks: Arc::clone(&tasks),
            unsettled: UnsettledWrites::default(),
            agent_sends: AgentSends::default(),
            delivered: components
                .in_flight
                .is_shared()
                .then(|| Mutex::new(DeduplicationWindow::new(RETRIES_FOR))),
        });
        let completed_changes = CompletedChanges::watch(&context);
        let rates = &bounds.rates;
        let rate = Rate::per_second(rates.sends_per_second, rates.sends_burst);
        let written = Rate::per_hour(kibibytes(rates.written_bytes_per_hour));
        Self {
            queues: ConversationQueues::new(Arc::clone(&context), Arc::clone(&tasks), bounds),
            context,
            participants: Arc::clone(&components.participants),
            relationships: Arc::clone(&components.relationships),
            restrictions: Arc::clone(&components.restrictions),
            tasks,
            sends: RateLimit::new("sends", rate, rates.is_on),
            written: RateLimit::new("written_bytes", written, rates.is_on),
            hook: OnceLock::new(),
            direct_ids: OnceCell::new(),
            body_bytes_max: bounds.body_bytes_max,
            _completed_changes: completed_changes,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.sends.register(metrics);
        self.written.register(metrics);
        self.context.introductions.register(metrics);
        let unsettled = self.context.unsettled.clone();
        metrics.read(
            "wideroom_unsettled_writes",
            "Writes of unknown outcome that are being repeated.",
            move || unsettled.count() as f64,
        );
        let read = |name: &str, help: &str, part: fn(BacklogSize) -> usize| {
            let backlog = Arc::clone(self.queues.backlog());
            metrics.read(name, help, move || part(backlog.size()) as f64);
        };
        read(
            "wideroom_backlog_writes",
            "Writes that were accepted and are not settled, of all conversations.",
            |size| size.writes,
        );
        read(
            "wideroom_backlog_bytes",
            "Bytes of the writes that are not settled.",
            |size| size.bytes,
        );
    }

    /// Number of conversations with writes in progress, and of the writes that wait in their
    /// queues.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.queues.waiting()
    }

    /// Sends a message. It is persisted and published when this returns.
    ///
    /// With an idempotency key of the last 24 hours, a retry returns the message of the first
    /// attempt, or `Conflict` if its input differs.
    pub async fn send(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        mut draft: Draft,
    ) -> Result<Arc<Message>> {
        let caller = caller.into();
        let viewer = &caller.user;
        draft.check = self.check_of(&caller, Authority::Membership);
        let access = &self.context.access;
        let participation = self.participation_of(&caller, conversation).await?;
        let allowed = access.require_writer(&caller, &participation).await;
        if let Err(refusal) = allowed.and_then(|()| require_send_role(&participation)) {
            return self
                .refuse_send(&caller, conversation, draft, refusal)
                .await;
        }
        draft.slow_mode_seconds = slow_mode_of(&caller, &participation);
        let floor = access.floor_of(&participation);
        let mentions = &draft.content.mentions;
        if !mentions.is_empty() {
            self.accept_mentions(&participation, mentions.everyone)
                .await?;
        }
        if draft.content.has_parts() {
            access.forms().require(FormVersion::PARTS).await?;
        }
        self.take_send(&caller, &draft)?;
        draft.is_by_service = caller.is_service()
            || caller.is_acted_for() && !self.relationships.has_acted(viewer, conversation).await?;
        if let Some(reply_to) = draft.reply_to {
            self.context
                .history
                .require_message(conversation, reply_to, floor)
                .await?;
        }
        if !caller.may(ServiceRight::Moderate) {
            self.check_send(viewer, conversation, &draft).await?;
        }
        self.queues.send(conversation, viewer, draft).await
    }

    /// Replaces the body of one of the viewer's messages, and those mentions that are given. The same
    /// content again changes nothing.
    pub async fn edit(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: MessageId,
        input: impl Into<EditInput>,
    ) -> Result<Arc<Message>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let input = input.into();
        let check = self.check_of(caller, Authority::Membership);
        let participation = self.accept_writer(caller, conversation).await?;
        require_send_role(&participation)?;
        let everyone = input.mentions_everyone == Some(true);
        let names = input.mentioned_usernames.as_ref();
        if everyone || names.is_some_and(|names| !names.is_empty()) {
            self.accept_mentions(&participation, everyone).await?;
        }
        let draft = RevisionDraft::edit(message, input, self.body_bytes_max, check)?;
        let floor = self.context.access.floor_of(&participation);
        Self::require_above(message, floor)?;
        if !caller.writes_at_service_rates() {
            self.written.take_all(viewer, kibibytes(draft.bytes()))?;
        }
        if !caller.may(ServiceRight::Moderate) {
            self.check_edit(viewer, conversation, &draft, floor).await?;
        }
        self.queues.run(conversation, viewer, draft).await
    }

    /// Deletes a message. A second deletion changes nothing.
    pub async fn delete(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<Arc<Message>> {
        let caller = &caller.into();
        let access = &self.context.access;
        let check = WriterCheck {
            is_deletion: true,
            ..self.check_of(caller, Authority::of(caller))
        };
        let own = access.governing_for_write(caller, conversation).await?;
        let draft = RevisionDraft::deletion(message, check);
        Self::require_above(message, access.floor_of(&own))?;
        self.queues.run(conversation, &caller.user, draft).await
    }

    /// Puts a reaction of the viewer on or off. A repetition changes nothing. Returns the message.
    pub async fn react(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: MessageId,
        emoji: &str,
        is_on: bool,
    ) -> Result<Arc<Message>> {
        let caller = &caller.into();
        let check = self.check_of(caller, Authority::Membership);
        let own = self.accept_writer(caller, conversation).await?;
        let user = caller.user.clone();
        let draft = ReactionDraft::parse(message, emoji, user, is_on, check)?;
        Self::require_above(message, self.context.access.floor_of(&own))?;
        self.queues.run(conversation, &caller.user, draft).await
    }

    /// Removes the reaction of another user, as a message of theirs may be deleted. Returns the message.
    pub async fn remove_reaction_of(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: MessageId,
        emoji: &str,
        username: &str,
    ) -> Result<Arc<Message>> {
        let caller = &caller.into();
        let user = parse_username(username)?;
        if user == caller.user {
            return self
                .react(caller, conversation, message, emoji, false)
                .await;
        }
        let access = &self.context.access;
        let check = self.check_of(caller, Authority::of(caller));
        let own = access.governing_for_write(caller, conversation).await?;
        access.require_writer(caller, &own).await?;
        let draft = ReactionDraft::parse(message, emoji, user, false, check)?;
        Self::require_above(message, access.floor_of(&own))?;
        self.queues.run(conversation, &caller.user, draft).await
    }

    /// Pins a message, or unpins it. A repetition changes nothing. Returns the message.
    pub async fn pin(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: MessageId,
        is_on: bool,
    ) -> Result<Arc<Message>> {
        let caller = &caller.into();
        let access = &self.context.access;
        let check = self.check_of(caller, Authority::of(caller));
        let own = access.governing_for_write(caller, conversation).await?;
        if check.authority == Authority::Membership {
            access.require_writer(caller, &own).await?;
        }
        access.forms().require(FormVersion::PINS).await?;
        let draft = PinDraft {
            message,
            is_on,
            check,
        };
        self.queues.run(conversation, &caller.user, draft).await
    }

    /// Asks every send and edit of users about this hook from now on. A later call has no effect.
    pub fn set_hook(&self, hook: SendHook) {
        let _ = self.hook.set(hook);
    }

    /// Asks the hook about a send, unless its key is that of a stored one, or it comes too early.
    async fn check_send(
        &self,
        sender: &UserId,
        conversation: ConversationId,
        draft: &Draft,
    ) -> Result<()> {
        let Some(hook) = self.hook.get() else {
            return Ok(());
        };
        let context = &self.context;
        if let Some(key) = &draft.key {
            let keys = [(sender.clone(), key.clone())];
            let earlier = context.store.earlier_sends(conversation, &keys).await?;
            if earlier.into_iter().flatten().next().is_some() {
                return Ok(());
            }
        }
        if draft.slow_mode_seconds > 0 {
            let last = since_last_send(context, sender, conversation).await?;
            require_pause(draft.slow_mode_seconds, last)?;
        }
        let message = CheckedMessage {
            conversation,
            sender,
            content: &draft.content,
            edited: None,
        };
        hook.check(message, context.in_flight.now()).await
    }

    /// Asks the hook about an edit that changes the message.
    async fn check_edit(
        &self,
        editor: &UserId,
        conversation: ConversationId,
        draft: &RevisionDraft,
        floor: Floor,
    ) -> Result<()> {
        let Some(hook) = self.hook.get() else {
            return Ok(());
        };
        let (history, now) = (&self.context.history, self.context.in_flight.now());
        let message = history
            .require_message(conversation, draft.message, floor)
            .await?;
        let revision = draft.clone().revision(&message, editor, None, now)?;
        let Some(Revision::Edit { content, .. }) = &revision else {
            return Ok(());
        };
        let edited = CheckedMessage {
            conversation,
            sender: editor,
            content,
            edited: Some(message.id),
        };
        hook.check(edited, now).await
    }

    /// Checks that the participant may mention users, and everyone if the message does.
    async fn accept_mentions(&self, participation: &Participation, everyone: bool) -> Result<()> {
        let forms = self.context.access.forms();
        forms.require(FormVersion::MENTIONS).await?;
        require_everyone(participation, everyone)
    }

    /// The check of a caller whose rights are read next.
    fn check_of(&self, caller: &Viewer, authority: Authority) -> WriterCheck {
        let accepted = AcceptedCaller {
            admitted: self.restrictions.admitted(caller),
            rights: self.context.access.leave_epoch().rights_moment(),
        };
        WriterCheck {
            accepted: Some(accepted),
            authority,
            is_deletion: false,
        }
    }

    /// Checks that the viewer takes part, and returns the participation.
    async fn participation_of(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
    ) -> Result<Participation> {
        let access = &self.context.access;
        let participation = access.participation_for_write(&caller.user, conversation);
        match participation.await {
            Ok(participation) => Ok(participation),
            Err(error) => Err(access.refusal(caller, conversation, error).await),
        }
    }

    /// Checks that the viewer takes part and may write, and returns the participation.
    async fn accept_writer(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
    ) -> Result<Participation> {
        let participation = self.participation_of(caller, conversation).await?;
        let access = &self.context.access;
        access.require_writer(caller, &participation).await?;
        Ok(participation)
    }

    /// The rule of the writer of a live message: that of a sender, judged without a send. A start is refused
    /// where a send would come too early, and takes no turn of the slow mode.
    pub(crate) async fn accept_live_writer(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        is_start: bool,
    ) -> Result<Participation> {
        let access = &self.context.access;
        let own = match access.participation(&caller.user, conversation).await {
            Ok(own) => own,
            Err(error) => return Err(access.refusal(caller, conversation, error).await),
        };
        access.require_writer(caller, &own).await?;
        require_send_role(&own)?;
        let is_unseen = self.hook.get().is_some_and(|hook| !hook.allows_live());
        if is_unseen && !caller.may(ServiceRight::Moderate) {
            return Err(Error::Forbidden(
                "messages are checked before they are sent here, so no text is shown before that",
            ));
        }
        let pause = slow_mode_of(caller, &own);
        if is_start && pause > 0 {
            let last = since_last_send(&self.context, &caller.user, conversation);
            require_pause(pause, last.await?)?;
        }
        Ok(own)
    }

    /// Charges for a send.
    fn take_send(&self, caller: &Viewer, draft: &Draft) -> Result<()> {
        if !caller.writes_at_service_rates() {
            let user = &caller.user;
            self.sends.take(user)?;
            if let Err(error) = self.written.take_all(user, kibibytes(draft.bytes)) {
                self.sends.refund(user, 1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Refuses a send. The queue still answers the retry of a stored one.
    async fn refuse_send(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        mut draft: Draft,
        refusal: Error,
    ) -> Result<Arc<Message>> {
        if draft.key.is_none() || !matches!(refusal, Error::Forbidden(_)) {
            return Err(refusal);
        }
        self.take_send(caller, &draft)?;
        draft.refusal = Some(refusal);
        self.queues.send(conversation, &caller.user, draft).await
    }
}

/// Whole units of 1,024 bytes, at least one.
fn kibibytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1_024).max(1)).unwrap_or(u32::MAX)
}
