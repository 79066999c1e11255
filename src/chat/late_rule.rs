//! Late rule: when the events of a write are logged again. It is the same for sends, revisions,
//! reactions, changes of groups, marks, settings, repeated commands, and changes that this server
//! has completed for another one.
//!
//! Streams of other servers give cursors up to a few seconds behind the present, and read back ten
//! seconds from there. An event is late when more than four seconds passed from its id to its last
//! acknowledged notice. It also counts as late, however fast it was delivered, when another server
//! may have persisted it. Streams may have passed the id of a late event. So it is logged again
//! under a fresh id and published here, then the sessions are read anew and the notices written,
//! until that is in time.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::chat::in_flight_ids::{IdLease, InFlightIds};
use crate::cluster::Cluster;
use crate::model::{ConversationId, TimeUuid};
use crate::store;

/// Events of one write that the other servers have yet to be notified of.
pub(crate) trait LateEvents: Send {
    /// Notifies the other servers that have a stream to tell, however long that takes.
    fn notify<'a>(&'a mut self, cluster: &'a Cluster) -> BoxFuture<'a, ()>;

    /// Logs the events again under fresh ids, and publishes them here: a stream that began after
    /// the first publication has read only its window.
    fn log_again<'a>(&'a mut self, cluster: &'a Cluster) -> BoxFuture<'a, store::Result<EventAge>>;
}

/// Age of events: their oldest id, and when it was allocated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventAge {
    oldest: TimeUuid,
    allocated_at: Instant,
}

impl EventAge {
    pub(crate) fn of(lease: &IdLease) -> Self {
        Self {
            oldest: lease.ids()[0],
            allocated_at: lease.allocated_at(),
        }
    }
}

/// Notifies the other servers of events that are persisted and published here. `age` is `None`
/// where another server may have persisted them. On a store of one server it does nothing. No error
/// says that the events were not persisted.
pub(crate) async fn notify_in_time(
    in_flight: &InFlightIds,
    mut age: Option<EventAge>,
    events: &mut impl LateEvents,
) -> store::Result<()> {
    let Some(cluster) = in_flight.cluster() else {
        return Ok(());
    };
    loop {
        let EventAge {
            oldest,
            allocated_at,
        } = match age.take() {
            Some(age) => age,
            None => {
                // With an unknown time, streams might have passed the fresh ids too.
                cluster.wait_for_clock().await;
                let logged = events.log_again(cluster).await;
                logged.map_err(store::Error::after_write)?
            }
        };
        events.notify(cluster).await;
        if !in_flight.is_late(oldest, allocated_at) {
            return Ok(());
        }
    }
}

/// Logs an event of the outbox again under later ids until it is in time: readers may have passed a late id.
pub(crate) async fn log_in_time<F>(
    in_flight: &InFlightIds,
    conversation: ConversationId,
    mut logged: IdLease,
    log: impl Fn(TimeUuid) -> F,
) -> store::Result<()>
where
    F: Future<Output = store::Result<()>>,
{
    while in_flight.is_late(logged.newest(), logged.allocated_at()) {
        if let Some(cluster) = in_flight.cluster() {
            cluster.wait_for_clock().await;
        }
        logged = in_flight.allocate_late(conversation, 1);
        log(logged.newest()).await?;
    }
    Ok(())
}
