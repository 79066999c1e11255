//! Version 0.1: it refuses a keyspace of this version, and this version does not upgrade a keyspace
//! that it still writes to.
//!
//! Its part is recorded: the statements by which it decides at its start, and its answers. They are
//! those of its program, which was run against both keyspaces.

use scylla::client::session::Session;
use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::store::cql::{Address, migrate};

use crate::support::cassandra::shared;

/// Checksum of the one migration that version 0.1 knows.
const EARLY_CHECKSUM: &str = "2da5914078ad2240";

/// Checks a keyspace as version 0.1 does when it starts. The error is its own.
async fn early_check(session: &Session, keyspace: &str, address: &Address) -> Result<(), String> {
    let select = format!("SELECT checksum FROM \"{keyspace}\".schema_migrations WHERE version = 1");
    let rows = session.query_unpaged(select, ()).await;
    let rows = rows.unwrap().into_rows_result().unwrap();
    match rows.maybe_first_row::<(Option<String>,)>().unwrap() {
        None => {
            return Err(format!(
                "{address} lacks tables of this version: run `wideroom migrate --store {address}` first"
            ));
        }
        Some((checksum,)) if checksum.as_deref() == Some(EARLY_CHECKSUM) => {}
        Some(_) => {
            return Err("the tables of version 1 are not those of this wideroom: name another keyspace if this one belongs to another program".to_owned());
        }
    }
    let newer = format!("SELECT version FROM \"{keyspace}\".schema_migrations WHERE version = ?");
    let rows = session.query_unpaged(newer, (2,)).await;
    if rows.unwrap().into_rows_result().unwrap().rows_num() > 0 {
        return Err(format!(
            "{address} was migrated by a newer wideroom than this one, which knows version 1: upgrade this server"
        ));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: an upgrade of two servers"]
async fn version_0_1_refuses_an_upgraded_keyspace_and_is_stopped_before_the_upgrade() {
    let Some(shared) = shared().await else {
        return;
    };
    let keyspace = format!("wideroom_{}", uuid::Uuid::new_v4().simple());
    let address: Address = shared.url(&keyspace).parse().unwrap();
    let migrated = migrate(&address, Some(1), &SystemClock).await.unwrap();
    let session = shared.session().await;
    let run = async |statement: String| session.query_unpaged(statement, ()).await.unwrap();
    let check = async || early_check(&session, &keyspace, &address).await;
    let refused = check().await.unwrap_err();
    assert!(refused.ends_with("upgrade this server"), "{refused}");

    // The keyspace as version 0.1 leaves it: its one migration, and a write of this moment.
    for version in 2..=migrated.version {
        let delete = format!("DELETE FROM {keyspace}.schema_migrations WHERE version = {version}");
        run(delete).await;
    }
    assert_eq!(check().await, Ok(()));
    let (now, id) = (
        SystemClock.now(),
        IdGenerator::random().next(SystemClock.now()),
    );
    let slot = now.micros() / 10_000_000;
    run(format!(
        "INSERT INTO {keyspace}.wakes (shard, slot, wake_id, user_id) VALUES (7, {slot}, {}, 'anna')",
        id.uuid()
    ))
    .await;
    let refused = migrate(&address, Some(1), &SystemClock).await.unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.starts_with("a server of version 0.1 wrote to") && refused.contains("stop all"),
        "{refused}"
    );
    assert_eq!(check().await, Ok(()), "nothing was upgraded");

    // A minute later, or once its row is gone.
    run(format!(
        "DELETE FROM {keyspace}.wakes WHERE shard = 7 AND slot = {slot}"
    ))
    .await;
    let upgraded = migrate(&address, Some(1), &SystemClock).await.unwrap();
    assert_eq!(upgraded.applied.len() + 1, migrated.applied.len());
    assert!(check().await.is_err());
    run(format!("DROP KEYSPACE {keyspace}")).await;
}
