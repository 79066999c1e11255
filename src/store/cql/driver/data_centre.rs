//! Data centre of a deployment: the one whose quorums decide, recorded in the keyspace.
//!
//! A quorum of one data centre knows nothing of the writes of another that have not arrived there.
//! So all servers use the same one. `wideroom migrate` records it as the comment of a table: every
//! node has the whole schema, so that no range of the data has to answer.

use std::collections::BTreeSet;

use scylla::client::session::Session;

use super::address::Address;
use super::open_error::ClusterOpenError;
use super::unprepared;

/// The table whose comment is the record.
const TABLE: &str = "schema_migrations";
const RECORD: &str = "wideroom data centre ";

/// The data centre that an address means, and its number of nodes.
pub(super) fn of_address(
    session: &Session,
    address: &Address,
) -> Result<(String, usize), ClusterOpenError> {
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info().iter();
    let of_nodes: Vec<&str> = nodes
        .filter_map(|node| node.datacenter.as_deref())
        .collect();
    let name = choose(&of_nodes, address.data_centre.as_deref())?;
    let count = of_nodes.iter().filter(|of_node| **of_node == name).count();
    Ok((name, count))
}

/// The named data centre, or the only one.
fn choose(of_nodes: &[&str], named: Option<&str>) -> Result<String, ClusterOpenError> {
    let all: BTreeSet<&str> = of_nodes.iter().copied().collect();
    let names = all.iter().copied().collect::<Vec<_>>().join(", ");
    let is_plain = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match (named, all.first()) {
        (Some(named), _) if all.contains(named) && is_plain(named) => Ok(named.to_owned()),
        (Some(named), _) => Err(ClusterOpenError::UnknownDataCentre {
            named: named.to_owned(),
            names,
        }),
        (None, Some(only)) if all.len() == 1 && is_plain(only) => Ok((*only).to_owned()),
        (None, _) => Err(ClusterOpenError::DataCentre { names }),
    }
}

/// Refuses an address whose data centre is not the recorded one. A keyspace of an earlier version
/// has no record.
pub(super) async fn check(session: &Session, address: &Address) -> Result<(), ClusterOpenError> {
    let (named, _) = of_address(session, address)?;
    match recorded(session, &address.keyspace).await? {
        Some(recorded) if recorded != named => {
            Err(ClusterOpenError::OtherDataCentre { named, recorded })
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) async fn recorded(
    session: &Session,
    keyspace: &str,
) -> Result<Option<String>, ClusterOpenError> {
    let read =
        "SELECT comment FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    let rows = unprepared::read::<(Option<String>,)>(session, read, (keyspace, TABLE)).await?;
    let comment = rows.into_iter().next().and_then(|(comment,)| comment);
    Ok(comment.and_then(|text| text.strip_prefix(RECORD).map(str::to_owned)))
}

/// Records a data centre. The name is plain (see [`choose`]), so it needs no quotes of its own.
pub(super) async fn record(
    session: &Session,
    keyspace: &str,
    name: &str,
) -> Result<(), ClusterOpenError> {
    let statement = format!("ALTER TABLE \"{keyspace}\".{TABLE} WITH comment = '{RECORD}{name}'");
    unprepared::execute(session, &statement, ()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(of_nodes: &[&str], named: Option<&str>) -> Result<String, String> {
        choose(of_nodes, named).map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_data_centre_need_not_be_named() {
        assert_eq!(chosen(&["north", "north"], None).unwrap(), "north");
        assert_eq!(chosen(&["north", "south"], Some("south")).unwrap(), "south");
    }

    #[test]
    fn one_of_several_must_be_named_and_exist() {
        let unnamed = chosen(&["south", "north", "south"], None).unwrap_err();
        assert!(
            unnamed.contains("north, south") && unnamed.contains("?dc="),
            "{unnamed}"
        );
        let unknown = chosen(&["north"], Some("nroth")).unwrap_err();
        assert!(
            unknown.contains("nroth") && unknown.contains("north"),
            "{unknown}"
        );
    }

    #[test]
    fn a_name_that_would_end_a_statement_is_refused() {
        assert!(chosen(&["a'; DROP"], None).is_err());
        assert!(chosen(&["a'; DROP"], Some("a'; DROP")).is_err());
    }
}
