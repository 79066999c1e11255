//! `wideroom migrate`: creates the tables on a cluster, and ends an upgrade.

use crate::cli::error::Error;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{RESUMABLE, print};
use crate::clock::SystemClock;
use crate::config::{Config, StoreChoice};
use crate::store::cql::{self, Migrated};
use crate::telemetry;

#[derive(clap::Args)]
pub(in crate::cli) struct MigrateFlags {
    /// Replicas of each row in a new keyspace [default: 3, or the number of nodes if it is smaller]
    #[arg(long, env = "WIDEROOM_REPLICATION", hide_env_values = true, value_name = "COUNT", value_parser = parse_replication)]
    replication: Option<usize>,
    /// End an upgrade once all servers are new: older ones are refused from then on, and forms that
    /// they could not read may be written
    #[arg(long)]
    finish: bool,
    /// Record this data centre as the one of the deployment, after a failover to it
    #[arg(long, value_name = "NAME")]
    data_centre: Option<String>,
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

fn parse_replication(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=9).contains(count))
        .ok_or_else(|| "must be a number from 1 to 9".to_owned())
}

pub(in crate::cli) fn run(flags: &MigrateFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    telemetry::init("warn", config.log_format)?;
    let (replication, fail_over_to) = (flags.replication, flags.data_centre.clone());
    if flags.finish {
        return signals::run(move |stop| finish(config, stop));
    }
    signals::run(move |stop| migrate(config, replication, fail_over_to, stop))
}

async fn finish(config: Config, stop: Stop) -> Result<(), Error> {
    let StoreChoice::Cql(address) = &config.store else {
        return Err(Error::NothingToMigrate);
    };
    let finished = stop.run_until_cancelled(cql::finish(address)).await;
    let version = finished.ok_or(Error::Interrupted(RESUMABLE))??;
    print(&format!(
        "{address}: the upgrade to version {version} is finished; older servers are refused from now on"
    ))
}

async fn migrate(
    config: Config,
    replication: Option<usize>,
    fail_over_to: Option<String>,
    stop: Stop,
) -> Result<(), Error> {
    let StoreChoice::Cql(mut address) = config.store else {
        return Err(Error::NothingToMigrate);
    };
    let is_failover = fail_over_to.is_some();
    address.data_centre = fail_over_to.or(address.data_centre);
    let address = &address;
    // A cluster agrees on each table in turn, which takes seconds.
    eprintln!(
        "wideroom: creating the tables in {address}; a cluster takes some seconds to agree on them"
    );
    let work = async {
        if is_failover {
            cql::record_data_centre(address).await?;
        }
        cql::migrate(address, replication, &SystemClock).await
    };
    let migrated = stop.run_until_cancelled(work).await;
    let Migrated {
        data_centre,
        replication,
        applied,
        version,
    } = migrated.ok_or(Error::Interrupted(RESUMABLE))??;
    let done = if applied.is_empty() {
        "existed already"
    } else {
        "is ready"
    };
    print(&format!(
        "{address}: version {version} {done}, {replication} replicas in {data_centre}"
    ))
}
