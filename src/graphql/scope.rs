//! What a resolver works with: the chat, the viewer, and the reads of this request.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use async_graphql::Context;
use parking_lot::Mutex;

use super::Terms;
use super::budget::AnswerBudget;
use super::error::{Error, Result};
use super::loader::Loaders;
use super::updates::Desk;
use crate::chat::{self, Chat};
use crate::model::{Message, UserId};
use crate::rate::Pace;

/// On behalf of whom a request is executed.
pub(super) struct Session {
    chat: Chat,
    viewer: Option<UserId>,
    scope: OnceLock<Scope>,
    /// Bytes of the answer, or of the event that is executed now.
    pub(super) budget: Arc<AnswerBudget>,
    /// Where a stream that many may share is opened, or shown.
    pub(super) desk: Option<Desk>,
    /// At which the events of a subscription are executed.
    pub(super) pace: Pace,
}

impl Session {
    pub(super) fn new(chat: Chat, viewer: Option<UserId>, terms: Terms) -> Self {
        let Terms { budget, pace } = terms;
        Self {
            chat,
            viewer,
            scope: OnceLock::new(),
            budget,
            desk: None,
            pace,
        }
    }

    /// The driver of the desk pays for its executions.
    pub(super) fn at(
        chat: Chat,
        viewer: Option<UserId>,
        budget: Arc<AnswerBudget>,
        desk: Desk,
    ) -> Self {
        Self {
            desk: Some(desk),
            ..Self::new(
                chat,
                viewer,
                Terms {
                    budget,
                    pace: Pace::free(),
                },
            )
        }
    }

    /// Charges text that the library holds until the answer is whole.
    pub(super) fn charge(ctx: &Context<'_>, bytes: usize) -> Result<()> {
        ctx.data_unchecked::<Self>()
            .budget
            .spend(bytes)
            .map_err(|_| Error::answer_too_large())
    }

    fn viewer(&self) -> Result<&UserId> {
        self.viewer.as_ref().ok_or_else(Error::unauthenticated)
    }
}

/// The chat, an authenticated viewer, and reads that are shared by all that has this scope.
///
/// One for a query, one for each mutation field (it must see what the one before it wrote), one for each event of a subscription.
#[derive(Clone)]
pub(super) struct Scope(Arc<Inner>);

pub(super) struct Inner {
    pub(super) chat: Chat,
    pub(super) viewer: UserId,
    pub(super) loaders: Loaders,
    withheld: Option<Withheld>,
}

/// The senders whose own `clientKey` an execution for the plain viewer left out: these are not shown its bytes.
type Withheld = Mutex<BTreeSet<UserId>>;

impl Scope {
    pub(super) fn new(chat: &Chat, viewer: &UserId) -> Self {
        Self::with(chat, viewer, None)
    }

    /// The scope of an execution whose bytes many viewers share: nothing in it is shown to the viewer alone.
    pub(super) fn plain(chat: &Chat, viewer: &UserId) -> Self {
        Self::with(chat, viewer, Some(Withheld::default()))
    }

    fn with(chat: &Chat, viewer: &UserId, withheld: Option<Withheld>) -> Self {
        Self(Arc::new(Inner {
            chat: chat.clone(),
            viewer: viewer.clone(),
            loaders: Loaders::new(chat, viewer),
            withheld,
        }))
    }

    /// The key of a message's send, where the viewer may see it.
    pub(super) fn client_key<'a>(&self, message: &'a Message) -> Option<&'a str> {
        let Some(withheld) = &self.withheld else {
            return chat::client_key(&self.viewer, message);
        };
        if message.client_key.is_some() {
            withheld.lock().insert(message.sender.clone());
        }
        None
    }

    /// The senders whose `clientKey` was left out until now.
    pub(super) fn withheld(&self) -> Box<[UserId]> {
        let take = |withheld: &Withheld| std::mem::take(&mut *withheld.lock());
        self.withheld
            .as_ref()
            .map(take)
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    /// The scope that all fields of a query share.
    pub(super) fn shared(ctx: &Context<'_>) -> Result<Self> {
        let session = ctx.data_unchecked::<Session>();
        let viewer = session.viewer()?;
        Ok(session
            .scope
            .get_or_init(|| Self::new(&session.chat, viewer))
            .clone())
    }

    /// A scope that has read nothing yet.
    pub(super) fn fresh(ctx: &Context<'_>) -> Result<Self> {
        let session = ctx.data_unchecked::<Session>();
        Ok(Self::new(&session.chat, session.viewer()?))
    }

    /// The same viewer, with nothing read yet.
    pub(super) fn renewed(&self) -> Self {
        Self::new(&self.chat, &self.viewer)
    }
}

impl Deref for Scope {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}
