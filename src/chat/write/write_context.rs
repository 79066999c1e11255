//! Services that the writers of all conversations share.

use std::sync::Arc;

use parking_lot::Mutex;

use super::introduction::Introductions;
use super::unknown_outcome::UnsettledWrites;
use crate::chat::access::Access;
use crate::chat::access::restrictions::Restrictions;
use crate::chat::agent_sends::AgentSends;
use crate::chat::history::HistoryService;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::index::SearchIndex;
use crate::chat::publisher::Publisher;
use crate::chat::write_tasks::WriteTasks;
use crate::cluster::DeduplicationWindow;
use crate::model::{ChangeKind, MessageId};
use crate::store::Store;

pub(crate) struct WriteContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) access: Arc<Access>,
    pub(crate) restrictions: Arc<Restrictions>,
    pub(crate) history: Arc<HistoryService>,
    pub(crate) in_flight: InFlightIds,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) index: Arc<SearchIndex>,
    pub(crate) introductions: Introductions,
    pub(crate) tasks: Arc<WriteTasks>,
    pub(crate) unsettled: UnsettledWrites,
    pub(crate) agent_sends: AgentSends,
    /// Changes that this server has delivered to the others: a repetition of their commands has
    /// nothing left to do. `None` on a store of one server.
    pub(crate) delivered: Option<Mutex<DeduplicationWindow<(MessageId, ChangeKind)>>>,
}
