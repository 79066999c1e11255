//! `wideroom migrate`: makes the tables on a cluster.

use super::stop::{self, Stop};
use super::{Error, GOES_ON, MigrateFlags, print};
use crate::clock::SystemClock;
use crate::config::{Config, StoreChoice};
use crate::store::cql::{self, Migrated};
use crate::telemetry;

pub(super) fn run(flags: &MigrateFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    telemetry::init("warn", config.log_format)?;
    let replication = flags.replication;
    stop::run(move |stop| migrate(config, replication, stop))
}

async fn migrate(config: Config, replication: Option<usize>, stop: Stop) -> Result<(), Error> {
    let StoreChoice::Cql(address) = &config.store else {
        return Err(Error::NothingToMigrate);
    };
    // The cluster agrees on one table after the other, which takes seconds.
    eprintln!("making the tables in {address}; a cluster takes some seconds to agree on them");
    let migrated = tokio::select! {
        migrated = cql::migrate(address, replication, &SystemClock) => migrated?,
        () = stop.cancelled() => return Err(Error::Interrupted(GOES_ON)),
    };
    let Migrated {
        data_centre,
        replication,
        applied,
        version,
    } = migrated;
    let done = if applied.is_empty() {
        "was there already"
    } else {
        "is made"
    };
    print(&format!(
        "{address}: version {version} {done}, {replication} replicas in {data_centre}"
    ))
}
