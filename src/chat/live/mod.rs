//! Live messages: a participant writes a message in view of the others, and sends it in the end.
//!
//! The rules of a write, each of which a mutant of the model breaks:
//!
//! - A writer claims the next number of a list by a compare-and-set, and a later writer supersedes it on every server.
//! - A row begins at the end of the text that this server has read or written, so every reader sees an unbroken beginning.
//! - An append is acknowledged only within [`FRESH_FOR`] of the last read of the list. A server that closes the list waits longer, and then
//!   reads all that was acknowledged.
//! - After a write of unknown outcome the server forgets what it knows.
//!
//! A writer who falls silent leaves its text to the settler, which sends it.

mod held;
mod input;
mod settlement;
mod settler;
mod shown;
mod viewing;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use self::held::HeldLives;
pub use self::input::LiveWriteInput;
pub use self::settler::LiveSettler;
use self::settler::SettlerMeter;
use self::viewing::LiveViewing;
pub use self::writing::LiveWritten;
use crate::chat::access::Access;
use crate::chat::access::restrictions::Restrictions;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::history::HistoryService;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::live_feed::LiveFeeds;
use crate::chat::live_feed::sent_lives::SentLives;
use crate::chat::publisher::Publisher;
use crate::chat::rate_limit::RateLimit;
use crate::chat::write::WriteService;
use crate::metrics::Metrics;
pub use crate::model::LiveView;
use crate::model::{
    ConversationId, ConversationKind, DirectIds, IdempotencyKey, LiveKey, LiveMessage,
    LiveMessageId, LiveStop, Role, UserId, Viewer,
};
use crate::rate::Rate;
use crate::store::{Participation, Store};

/// Age of the last read of the list of writers up to which an append is acknowledged.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// Live messages of a conversation at once, and those of one user in it.
const AT_ONCE_MAX: usize = 8;
const AT_ONCE_OF_USER_MAX: usize = 4;
/// Live messages that begin in one conversation.
const STARTS: Rate = Rate {
    count: 60,
    per: Duration::from_secs(60),
    burst: 60,
};

pub struct LiveService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    restrictions: Arc<Restrictions>,
    history: Arc<HistoryService>,
    in_flight: InFlightIds,
    publisher: Arc<Publisher>,
    writes: Arc<WriteService>,
    sent: Arc<SentLives>,
    held: HeldLives,
    feeds: Arc<LiveFeeds>,
    viewing: LiveViewing,
    starts: RateLimit,
    settler: SettlerMeter,
    body_bytes_max: usize,
    bounds: Bounds,
}

impl LiveService {
    pub(crate) fn new(
        components: &Components,
        writes: &Arc<WriteService>,
        bounds: &Bounds,
    ) -> Self {
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            restrictions: Arc::clone(&components.restrictions),
            history: Arc::clone(&components.history),
            in_flight: components.in_flight.clone(),
            publisher: Arc::clone(&components.publisher),
            writes: Arc::clone(writes),
            sent: Arc::clone(&components.sent_lives),
            held: HeldLives::new(Arc::clone(&components.sent_lives)),
            feeds: Arc::clone(&components.live_feeds),
            viewing: LiveViewing::new(),
            starts: RateLimit::new("live_starts", STARTS, bounds.rates.is_on),
            settler: SettlerMeter::new(),
            body_bytes_max: bounds.body_bytes_max,
            bounds: bounds.clone(),
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.starts.register(metrics);
        self.settler.register(metrics);
    }

    /// The key of the live message that a sender ends with this idempotency key.
    pub async fn key_of(
        &self,
        conversation: ConversationId,
        sender: &UserId,
        key: &IdempotencyKey,
    ) -> Result<LiveKey> {
        let id = LiveMessageId::new(self.ids().await?, conversation, sender, key);
        Ok(LiveKey { conversation, id })
    }

    async fn ids(&self) -> Result<&DirectIds> {
        Ok(match self.sent.ids() {
            Some(ids) => ids,
            None => self.sent.set_ids(self.store.direct_ids().await?),
        })
    }

    /// Asks the writer to stop: a request that the writer receives with its next answer, on whatever server. A repetition changes
    /// nothing.
    pub async fn stop(&self, caller: impl Into<Viewer>, live: LiveKey) -> Result<LiveView> {
        let caller = &caller.into();
        let own = self.access.governing_of(caller, live.conversation).await?;
        self.access
            .require_unhidden(&caller.user, &own.conversation)
            .await?;
        let message = self.require_live(&caller.user, live).await?;
        self.require_stopper(caller, &own, &message).await?;
        if message.stop.is_none() {
            let stop = LiveStop {
                by: caller.user.clone(),
                at: self.in_flight.now(),
            };
            self.store.stop_live(live, &stop).await?;
            self.mark_stale(live);
            self.publisher.signal_live(live);
        }
        let view = self.require_view(live).await?;
        self.show(&view);
        Ok(view)
    }

    /// Ends a live message without a message.
    pub async fn discard(&self, caller: impl Into<Viewer>, live: LiveKey) -> Result<LiveView> {
        let caller = &caller.into();
        let own = self.access.governing_of(caller, live.conversation).await?;
        let message = self.require_live(&caller.user, live).await?;
        if message.start.sender != caller.user && own.membership.role == Role::Member {
            return Err(Error::Forbidden(
                "only its writer, an owner or an admin discards a live message",
            ));
        }
        let view = self.require_view(live).await?;
        if view.sent.is_some() {
            return Err(Error::LiveConflict("the live message was sent"));
        }
        if view.message.discarded_at.is_none() {
            self.end_without_message(live).await?;
        }
        let view = self.require_view(live).await?;
        self.show(&view);
        Ok(view)
    }

    async fn end_without_message(&self, live: LiveKey) -> Result<()> {
        let now = self.in_flight.now();
        self.store.discard_live(live, now).await?;
        self.mark_stale(live);
        self.publisher.notify_live(live);
        Ok(())
    }

    /// Has the next write on this server read the stored row.
    fn mark_stale(&self, live: LiveKey) {
        if let Some(held) = self.held.get(live) {
            held.set_stale();
        }
    }

    /// A live message that the viewer sees, without its text.
    async fn require_live(&self, viewer: &UserId, live: LiveKey) -> Result<LiveMessage> {
        let found = self.store.live_messages(&[live]).await?.pop().flatten();
        let found = found.ok_or(Error::NotFound("the live message"))?;
        let blocks = self.access.blocks().of(viewer).await?;
        if blocks.has(&found.start.sender) {
            return Err(Error::NotFound("the live message"));
        }
        Ok(found)
    }

    /// The rule of those who ask a writer to stop.
    async fn require_stopper(
        &self,
        caller: &Viewer,
        own: &Participation,
        message: &LiveMessage,
    ) -> Result<()> {
        let is_direct = own.conversation.kind == ConversationKind::Direct;
        let is_sender = message.start.sender == caller.user;
        if is_direct || is_sender || own.membership.role != Role::Member {
            return Ok(());
        }
        if let Some(asked) = message.start.reply_to {
            let key = (own.conversation.id, asked);
            let asked = self.store.messages(&[key]).await?.pop().flatten();
            if asked.is_some_and(|asked| asked.sender == caller.user) {
                return Ok(());
            }
        }
        Err(Error::Forbidden(
            "in a group, only who asked, an owner or an admin stops a live message",
        ))
    }
}
