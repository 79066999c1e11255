//! Context of resolvers: the chat, the viewer, and the batched reads of one request.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use async_graphql::Context;
use parking_lot::Mutex;

use super::error::{Error, Result};
use super::execution::{AnswerBudget, ExecutionLimits};
use super::loader::Loaders;
use crate::chat::{self, Chat};
use crate::model::{Message, OrderKey, UserId, Viewer};
use crate::rate::Pace;

/// Whether introspection shows the fields of services to the caller, whatever its scopes. Schema tools without a request see
/// every field.
pub(super) fn is_service(ctx: &Context<'_>) -> bool {
    let session = ctx.data_opt::<ExecutionContext>();
    session.is_none_or(|session| session.viewer.as_ref().is_some_and(Viewer::is_service))
}

/// Data of one request in the context of its execution.
pub(super) struct ExecutionContext {
    chat: Chat,
    viewer: Option<Viewer>,
    scope: OnceLock<ViewerScope>,
    /// Byte budget of the answer, or of the current event.
    pub(super) budget: Arc<AnswerBudget>,
    /// Rate limit of the executions of a subscription's events.
    pub(super) pace: Pace,
}

impl ExecutionContext {
    pub(super) fn new(chat: Chat, viewer: Option<Viewer>, limits: ExecutionLimits) -> Self {
        let ExecutionLimits { budget, pace } = limits;
        Self {
            chat,
            viewer,
            scope: OnceLock::new(),
            budget,
            pace,
        }
    }

    /// The context of an execution without a pace of its own: its driver pays for each event.
    pub(super) fn unpaced(chat: Chat, viewer: Option<Viewer>, budget: Arc<AnswerBudget>) -> Self {
        let limits = ExecutionLimits {
            budget,
            pace: Pace::free(),
        };
        Self::new(chat, viewer, limits)
    }

    /// Charges text that async-graphql holds until the answer is complete.
    pub(super) fn charge(ctx: &Context<'_>, bytes: usize) -> Result<()> {
        ctx.data_unchecked::<Self>()
            .budget
            .spend(bytes)
            .map_err(|_| Error::answer_too_large())
    }

    fn viewer(&self) -> Result<&Viewer> {
        self.viewer.as_ref().ok_or_else(Error::unauthenticated)
    }
}

/// The chat, an authenticated viewer, and the reads that all resolvers of this scope share.
///
/// A query has one scope. Each mutation field has its own, as it must see the writes of the fields
/// before it. Each event of a subscription has its own, so that no event shows a value that an
/// earlier one has read.
#[derive(Clone)]
pub(super) struct ViewerScope(Arc<ScopeData>);

pub(super) struct ScopeData {
    pub(super) chat: Chat,
    /// The user whose rights the operation has.
    pub(super) viewer: UserId,
    /// The same user, and the service behind the call.
    pub(super) caller: Viewer,
    pub(super) loaders: Loaders,
    /// Low watermark from before the first read: every read of this scope shows all events up to here.
    pub(super) watermark: OrderKey,
    shared: Option<Mutex<ViewerDifferences>>,
}

/// Differences between a shared execution and one for another viewer.
#[derive(Default)]
struct ViewerDifferences {
    /// Senders whose `clientKey` it left out. They do not receive its payload.
    withheld: BTreeSet<UserId>,
    /// Users who show as not blocked. A viewer who blocks one of them does not receive the payload.
    unblocked: BTreeSet<UserId>,
    /// The oldest position that it has looked at. A viewer with a floor of their own at or above it does
    /// not receive the payload.
    oldest: Option<OrderKey>,
}

/// Taken [`ViewerDifferences`].
pub(super) struct TakenDifferences {
    pub(super) withheld: Box<[UserId]>,
    pub(super) unblocked: Box<[UserId]>,
    pub(super) oldest: Option<OrderKey>,
}

impl ViewerScope {
    pub(super) fn new(chat: &Chat, caller: &Viewer) -> Self {
        Self::with(chat, caller.clone(), None)
    }

    /// The scope of an execution whose payload a group of viewers shares. It leaves out every
    /// `clientKey`, and its viewer blocks nobody and has no floor of their own.
    pub(super) fn for_group(chat: &Chat, viewer: &UserId) -> Self {
        let caller = Viewer::from(viewer.clone());
        Self::with(chat, caller, Some(Mutex::default()))
    }

    fn with(chat: &Chat, caller: Viewer, shared: Option<Mutex<ViewerDifferences>>) -> Self {
        Self(Arc::new(ScopeData {
            chat: chat.clone(),
            viewer: caller.user.clone(),
            watermark: chat.history.watermark(),
            loaders: Loaders::new(chat, &caller, shared.is_some()),
            caller,
            shared,
        }))
    }

    /// The idempotency key of a message's send, if the viewer may see it.
    pub(super) fn client_key<'a>(&self, message: &'a Message) -> Option<&'a str> {
        let Some(shared) = &self.shared else {
            return chat::client_key(&self.viewer, message);
        };
        if message.client_key.is_some() {
            shared.lock().withheld.insert(message.sender.clone());
        }
        None
    }

    /// Whether the viewer blocks a user. `None` if a read must tell. In a shared execution nobody is
    /// blocked.
    pub(super) fn has_blocked(&self, user: &UserId) -> Option<bool> {
        let Some(shared) = &self.shared else {
            let held = self.chat.access.blocks().held(&self.viewer)?;
            return Some(held.has(user));
        };
        shared.lock().unblocked.insert(user.clone());
        Some(false)
    }

    /// Notes that a shared execution has looked at a message.
    pub(super) fn note_looked_at(&self, position: OrderKey) {
        if let Some(shared) = &self.shared {
            let mut differences = shared.lock();
            let oldest = differences
                .oldest
                .map_or(position, |oldest| oldest.min(position));
            differences.oldest = Some(oldest);
        }
    }

    /// Takes the senders whose `clientKey` was left out so far, the users who were shown as not
    /// blocked, and the oldest position that was looked at.
    pub(super) fn take_differences(&self) -> TakenDifferences {
        let taken = self
            .shared
            .as_ref()
            .map(|shared| std::mem::take(&mut *shared.lock()));
        let ViewerDifferences {
            withheld,
            unblocked,
            oldest,
        } = taken.unwrap_or_default();
        let list = |users: BTreeSet<UserId>| users.into_iter().collect();
        TakenDifferences {
            withheld: list(withheld),
            unblocked: list(unblocked),
            oldest,
        }
    }

    /// The scope that all fields of this query share.
    pub(super) fn shared(ctx: &Context<'_>) -> Result<Self> {
        let session = ctx.data_unchecked::<ExecutionContext>();
        let viewer = session.viewer()?;
        Ok(session
            .scope
            .get_or_init(|| Self::new(&session.chat, viewer))
            .clone())
    }

    /// A new scope of this request, without reads.
    pub(super) fn fresh(ctx: &Context<'_>) -> Result<Self> {
        let session = ctx.data_unchecked::<ExecutionContext>();
        Ok(Self::new(&session.chat, session.viewer()?))
    }

    /// The scope of the events of `outbox`: its reader sees everything that they lead to, as a webhook does.
    pub(super) fn of_outbox(&self) -> Self {
        Self::new(&self.chat, &Viewer::service(self.viewer.clone()))
    }

    /// A new scope of the same viewer, without reads.
    pub(super) fn renewed(&self) -> Self {
        Self::new(&self.chat, &self.caller)
    }
}

impl Deref for ViewerScope {
    type Target = ScopeData;

    fn deref(&self) -> &ScopeData {
        &self.0
    }
}
