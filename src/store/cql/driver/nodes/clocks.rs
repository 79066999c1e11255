//! Clocks of the nodes: which of them disagree with most others.
//!
//! A coordinator decides by its own clock when a row expires that it writes, and which rows it finds
//! expired when it reads. One that is an hour behind writes notices that nobody finds; one that is
//! an hour ahead finds none. So a node with a wrong clock coordinates nothing while others answer,
//! and neither does one that is new or was away, before its clock was compared. As a replica it does
//! no harm: the time comes with the request.
//!
//! A clock that is set wrong while the node runs is found within [`COMPARE_EVERY`] and one round
//! trip. The notices that it has written until then are lost: the servers are told of the fault
//! (`NodeTable::clock_faults`), and their streams read the store.

use std::time::Duration;

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::table::NodeTable;
use crate::store::cluster::CLOCK_FAULT_FOUND_WITHIN;
use crate::store::cql::driver::statement::statements;

/// Interval of the comparisons.
pub(crate) const COMPARE_EVERY: Duration = Duration::from_secs(2);
/// Nodes that a server asks in this time, on average, however many the cluster has.
const NODES_AT_ONCE: usize = 12;
/// Difference from the median beyond which a clock is wrong: a twelfth of the shortest lifetime of
/// a row.
const WRONG_MICROS: u64 = 5_000_000;
/// A slower answer says nothing.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
const _: () = assert!(
    COMPARE_EVERY.as_millis() + ROUND_TRIP_MAX.as_millis() <= CLOCK_FAULT_FOUND_WITHIN.as_millis()
);
/// Nodes of which one can be told to be wrong.
const NODES_MIN: usize = 3;

// `now()` never goes back: after a step of the clock into the past it stands still, for as long.
statements! {
    SELECT_CLOCK: Read "SELECT currentTimestamp() FROM system.local WHERE key = 'local'";
}

/// Lead of a node's clock over the monotonic one.
#[derive(Debug, Clone, Copy)]
struct ClockLead {
    node: Uuid,
    micros: i64,
}

/// Whether the clocks are compared in a round. In a large cluster most rounds are left out.
pub(crate) fn is_compared_in(round: usize, nodes: usize) -> bool {
    round.is_multiple_of(nodes.div_ceil(NODES_AT_ONCE).max(1))
}

/// Asks all nodes for their time at once, and notes in the table whose is wrong.
pub(crate) async fn compare(session: &Session, now: &PreparedStatement, nodes: &NodeTable) {
    let began = Instant::now();
    let leads = join_all(nodes.all().into_iter().map(|node| async move {
        let mut now = now.clone();
        let target = NodeIdentifier::HostId(node);
        let only = SingleTargetLoadBalancingPolicy::new(target, None);
        now.set_load_balancing_policy(Some(only));
        let asked = session.execute_unpaged(&now, ());
        let answer = tokio::time::timeout(ROUND_TRIP_MAX, asked)
            .await
            .ok()?
            .ok()?;
        let (time,) = answer
            .into_rows_result()
            .ok()?
            .first_row::<(CqlTimestamp,)>()
            .ok()?;
        let elapsed = i64::try_from(began.elapsed().as_micros()).ok()?;
        Some(ClockLead {
            node,
            micros: time.0.saturating_mul(1_000) - elapsed,
        })
    }));
    let leads: Vec<_> = leads.await.into_iter().flatten().collect();
    let answered: Vec<_> = leads.iter().map(|lead| lead.node).collect();
    nodes.note_clocks(&answered, wrong(&leads).as_deref());
}

/// Nodes whose clocks are far from the median. `None` if too few nodes answered, or these are not a
/// minority: then nothing new is known.
fn wrong(leads: &[ClockLead]) -> Option<Vec<Uuid>> {
    let mut sorted: Vec<_> = leads.iter().map(|lead| lead.micros).collect();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2)?;
    let is_far = |lead: &&ClockLead| lead.micros.abs_diff(*median) > WRONG_MICROS;
    let wrong: Vec<_> = leads.iter().filter(is_far).map(|lead| lead.node).collect();
    let is_clear = leads.len() >= NODES_MIN && 2 * wrong.len() < leads.len();
    is_clear.then_some(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_cluster_is_compared_less_often() {
        let compared = |nodes| {
            (1..=10)
                .filter(|round| is_compared_in(*round, nodes))
                .count()
        };
        assert_eq!([0, 3, 12, 13, 60].map(compared), [10, 10, 10, 5, 2]);
    }

    #[test]
    fn a_clock_is_wrong_that_is_far_from_most_others() {
        let found = |seconds: &[i64]| {
            let lead = |(node, lead): (u128, &i64)| ClockLead {
                node: Uuid::from_u128(node),
                micros: lead * 1_000_000,
            };
            let leads = (1..).zip(seconds).map(lead);
            let wrong = wrong(&leads.collect::<Vec<_>>())?;
            Some(wrong.iter().map(Uuid::as_u128).collect::<Vec<_>>())
        };
        assert_eq!(found(&[0, 1, -3_600]), Some(vec![3]));
        assert_eq!(found(&[60, 1, 0]), Some(vec![1]));
        assert_eq!(found(&[0, 3_600, 1, 2, -9]), Some(vec![2, 5]));
        assert_eq!(found(&[0, 2, -2]), Some(vec![]));
        // Not a minority, or too few to say.
        for unclear in [&[0, 60][..], &[0], &[], &[0, 60, 3_600], &[0, 60, 3_600, 0]] {
            assert_eq!(found(unclear), None, "{unclear:?}");
        }
    }
}
