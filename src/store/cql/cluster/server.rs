//! Servers and their beats.
//!
//! The end of a server is a cell that is only ever set: a renewal of the row does not touch it.
//! Beats lie in one partition, which every server reads every few seconds.

use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use crate::store::Result;
use crate::store::cluster::{Beat, NodeTime, ServerId, ServerState};
use crate::store::cql::driver::executor::Executor;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, values};

const TABLE: &str = "servers";
/// The one partition of beats.
pub(crate) const BEATS: i8 = 0;
/// More servers than a deployment has. A read of beats names its bound.
const BEATS_MAX: i32 = 10_000;

statements! {
    INSERT_SERVER: Write "INSERT INTO servers (server_id, version) VALUES (?, ?) USING TIMESTAMP ?";
    END_SERVER: Write "INSERT INTO servers (server_id, has_ended) VALUES (?, ?) USING TIMESTAMP ?";
    SELECT_SERVER: Poll "SELECT version, has_ended, now() FROM servers WHERE server_id = ?";
    INSERT_BEAT: Beat "INSERT INTO server_beats (partition, server_id, number) VALUES (?, ?, ?) USING TIMESTAMP ?";
    DELETE_BEAT: Write "DELETE FROM server_beats USING TIMESTAMP ? WHERE partition = ? AND server_id = ?";
    SELECT_BEATS: Poll "SELECT server_id, number FROM server_beats WHERE partition = ? LIMIT ?";
}

/// The state of a server, and the clock of the coordinator that answered.
pub(crate) async fn read_server(
    executor: &Executor,
    server: ServerId,
) -> Result<(ServerState, Option<NodeTime>)> {
    type Columns = (Option<i32>, Option<bool>, CqlTimeuuid);
    let (row, node) = executor
        .read_one_with_node::<Columns>(&SELECT_SERVER, values![server.0])
        .await?;
    let Some((version, has_ended, now)) = row else {
        return Ok((ServerState::Missing, None));
    };
    let state = match (version, has_ended) {
        (_, Some(true)) => ServerState::Ended,
        (Some(_), _) => ServerState::Running,
        (None, _) => ServerState::Missing,
    };
    let now = time_uuid(TABLE, now)?.moment();
    Ok((state, Some(NodeTime { node, now })))
}

pub(crate) async fn read_beats(executor: &Executor) -> Result<Vec<Beat>> {
    let rows: Vec<(Uuid, i64)> = executor
        .read(&SELECT_BEATS, values![BEATS, BEATS_MAX])
        .await?;
    Ok(rows
        .into_iter()
        .map(|(server, number)| Beat {
            server: ServerId(server),
            number,
        })
        .collect())
}
