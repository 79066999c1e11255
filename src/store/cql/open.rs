//! Opening of the store: every statement is prepared, and the parts of the store share them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::admin::{self, Admin};
use super::cluster;
use super::cluster_store::ClusterDirectory;
use super::driver::executor::Executor;
use super::driver::nodes::{clocks, watch};
use super::driver::statement::Statement;
use super::driver::upgrade;
use super::inbox::{self, Inboxes};
use super::message::{self, Messages};
use super::outbox::{self, Outbox};
use super::participant::ban::BanTable;
use super::participant::block::BlockTable;
use super::participant::job::JobTable;
use super::participant::profile::Profiles;
use super::participant::report::ReportTable;
use super::participant::restriction::RestrictionTable;
use super::participant::{self, Participants};
use super::send::{self, Sends};
use super::{Address, ClusterOpenError, Connection, Cql, live, search};
use crate::clock::{Clock, FollowingClock};

/// The statements of all files.
pub(super) const STATEMENTS: &[&[&Statement]] = &[
    clocks::STATEMENTS,
    upgrade::STATEMENTS,
    watch::STATEMENTS,
    outbox::STATEMENTS,
    outbox::readers::STATEMENTS,
    outbox::reads::STATEMENTS,
    cluster::mailbox::STATEMENTS,
    cluster::server::STATEMENTS,
    cluster::session::STATEMENTS,
    message::bucket::index::STATEMENTS,
    message::bucket::removal::STATEMENTS,
    message::bucket::view::STATEMENTS,
    message::change_log::STATEMENTS,
    message::conversation::STATEMENTS,
    message::count::STATEMENTS,
    message::due::STATEMENTS,
    message::history::STATEMENTS,
    message::pin::STATEMENTS,
    message::pin_list::STATEMENTS,
    message::profile::STATEMENTS,
    message::reaction::STATEMENTS,
    message::row::STATEMENTS,
    message::silent_runs::STATEMENTS,
    participant::ban::STATEMENTS,
    participant::block::STATEMENTS,
    participant::job::STATEMENTS,
    participant::page::STATEMENTS,
    participant::pager::STATEMENTS,
    participant::pair::STATEMENTS,
    participant::participation::STATEMENTS,
    participant::profile::STATEMENTS,
    participant::report::STATEMENTS,
    participant::restriction::STATEMENTS,
    participant::roster::STATEMENTS,
    participant::version::STATEMENTS,
    participant::writes::STATEMENTS,
    inbox::activity_index::STATEMENTS,
    inbox::changes::STATEMENTS,
    inbox::flags::STATEMENTS,
    inbox::large::STATEMENTS,
    inbox::mention::STATEMENTS,
    inbox::notify_all::STATEMENTS,
    inbox::row::STATEMENTS,
    inbox::writes::STATEMENTS,
    send::erasure::STATEMENTS,
    send::idempotency::STATEMENTS,
    send::membership::STATEMENTS,
    send::mention::STATEMENTS,
    send::pending_change::completion::STATEMENTS,
    admin::export::STATEMENTS,
    admin::import::STATEMENTS,
    admin::import_message::STATEMENTS,
    admin::import_write::STATEMENTS,
    admin::notes::STATEMENTS,
    admin::verify::STATEMENTS,
    admin::verify_participant::STATEMENTS,
    admin::verify_history::STATEMENTS,
    admin::verify_mention::STATEMENTS,
    live::STATEMENTS,
    search::STATEMENTS,
];

impl Cql {
    /// Connects to a cluster whose keyspace was migrated.
    pub async fn open(address: Address, clock: Arc<dyn Clock>) -> Result<Self, ClusterOpenError> {
        Ok(Self::on(Arc::new(Self::connect(address).await?), clock).await)
    }

    /// The connection for one or several stores.
    pub async fn connect(address: Address) -> Result<Connection, ClusterOpenError> {
        Connection::open(address, STATEMENTS).await
    }

    pub async fn on(connection: Arc<Connection>, clock: Arc<dyn Clock>) -> Self {
        let executor = Arc::new(Executor::new(Arc::clone(&connection)));
        let clock = Arc::new(FollowingClock::new(clock));
        let (e, c) = (
            || Arc::clone(&executor),
            || Arc::clone(&clock) as Arc<dyn Clock>,
        );
        let messages = Arc::new(Messages::new(e(), c()));
        let participants = Arc::new(Participants::new(e(), Arc::clone(&messages)));
        let inboxes = Arc::new(Inboxes::new(e(), c(), Arc::clone(&messages)));
        let (m, p, i) = (
            || Arc::clone(&messages),
            || Arc::clone(&participants),
            || Arc::clone(&inboxes),
        );
        let outbox = Arc::new(Outbox::new(e(), c()));
        let sends = Arc::new(Sends::new(e(), c(), m(), p(), i(), Arc::clone(&outbox)));
        let cluster = Arc::new(ClusterDirectory {
            executor: e(),
            sends: Arc::clone(&sends),
            clock: Arc::clone(&clock),
        });
        let admin = Admin::new(e(), c(), m(), p(), i(), Arc::clone(&sends));
        let profiles = Profiles::new(e(), c());
        let restrictions = RestrictionTable::new(e(), c());
        let blocks = BlockTable::new(e(), c());
        let bans = BanTable::new(e(), c());
        let reports = ReportTable::new(e(), c());
        let jobs = JobTable::new(e());
        let asked_at = Instant::now();
        outbox.follow(asked_at, &admin.outbox_since().await);
        Self {
            connection,
            executor,
            messages,
            participants,
            profiles,
            restrictions,
            blocks,
            bans,
            reports,
            jobs,
            inboxes,
            sends,
            outbox,
            admin,
            cluster,
            imported_at: Mutex::default(),
        }
    }
}
