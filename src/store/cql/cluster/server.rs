//! Servers and their beats.
//!
//! The end of a server is a cell that is only ever set: a renewal of the row does not touch it.
//! Beats lie in one partition, which every server reads every few seconds.

use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::ClusterTables;
use crate::store::Result;
use crate::store::cluster::{Beat, NodeTime, ServerId, ServerState, WriteTime};
use crate::store::cql::driver::migrate;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, values};

const TABLE: &str = "servers";
/// The one partition of beats.
const BEATS: i8 = 0;
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

impl ClusterTables {
    pub(crate) async fn write_server(
        &self,
        server: ServerId,
        WriteTime(at): WriteTime,
    ) -> Result<()> {
        self.executor
            .write(&INSERT_SERVER, values![server.0, migrate::newest(), at])
            .await
    }

    pub(crate) async fn write_end(&self, server: ServerId, WriteTime(at): WriteTime) -> Result<()> {
        self.executor
            .write(&END_SERVER, values![server.0, true, at])
            .await
    }

    /// The state of a server, and the clock of the coordinator that answered.
    pub(crate) async fn read_server(
        &self,
        server: ServerId,
    ) -> Result<(ServerState, Option<NodeTime>)> {
        type Columns = (Option<i32>, Option<bool>, CqlTimeuuid);
        let (row, node) = self
            .executor
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

    pub(crate) async fn write_beat(&self, beat: Beat, WriteTime(at): WriteTime) -> Result<()> {
        self.executor
            .write(&INSERT_BEAT, values![BEATS, beat.server.0, beat.number, at])
            .await
    }

    pub(crate) async fn remove_beat(
        &self,
        server: ServerId,
        WriteTime(at): WriteTime,
    ) -> Result<()> {
        self.executor
            .write(&DELETE_BEAT, values![at, BEATS, server.0])
            .await
    }

    pub(crate) async fn read_beats(&self) -> Result<Vec<Beat>> {
        let rows: Vec<(Uuid, i64)> = self
            .executor
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
}
