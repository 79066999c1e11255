//! Rolling upgrade: the oldest server that may serve a keyspace, as `wideroom migrate --finish` records it.

use super::executor::Executor;
use super::schema::OLDEST_SERVER_SINCE;
use super::statement::statements;
use super::value::{list, values};
use crate::store::cql::driver::migrate::newest;
use crate::store::{FormVersion, Result};

/// Migrations around the newest known one that are read: an earlier version may have ended its upgrade, and a
/// later one too. Together they are at most the partitions of one read.
const EARLIER_MAX: i32 = 7;
const LATER_MAX: i32 = 8;

statements! {
    SELECT_OLDEST_SERVERS: Read "SELECT oldest_server FROM schema_migrations WHERE version IN ?";
}

/// The newest version whose forms every server that may serve can read.
pub(crate) async fn form_version(executor: &Executor) -> Result<FormVersion> {
    let first = OLDEST_SERVER_SINCE.max(newest() - EARLIER_MAX);
    let versions = list(first..=newest() + LATER_MAX);
    let rows = executor
        .read::<(Option<i32>,)>(&SELECT_OLDEST_SERVERS, values![versions])
        .await?;
    let oldest = rows.into_iter().filter_map(|(oldest,)| oldest).max();
    Ok(FormVersion(oldest.unwrap_or(OLDEST_SERVER_SINCE)))
}
