//! Handoff of a stream between its resolver and the subscription group that drives it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::update::{StreamUpdate, UpdateStream};
use crate::chat;
use crate::graphql::scope::ViewerScope;

/// Role of a resolver in a subscription that may be shared. Without a handoff the resolver drives
/// its own stream.
pub(in crate::graphql) enum StreamHandoff {
    /// The resolver opens the stream and hands it over.
    Opening(Arc<Mutex<Option<UpdateStream>>>),
    /// The resolver makes a payload of each update that it receives.
    Receiving(Mutex<Option<UpdateFeed>>),
}

/// Updates, each with the scope to resolve it in.
pub(in crate::graphql) type UpdateFeed = mpsc::Receiver<(ViewerScope, chat::Result<StreamUpdate>)>;

impl StreamHandoff {
    pub(in crate::graphql) fn hand_over(slot: &Mutex<Option<UpdateStream>>, updates: UpdateStream) {
        *slot.lock() = Some(updates);
    }

    pub(super) fn take(slot: &Mutex<Option<UpdateStream>>) -> Option<UpdateStream> {
        slot.lock().take()
    }
}
