//! Version 0.1: it refuses a keyspace of this version, and this version does not upgrade a keyspace
//! that it still writes to.
//!
//! Its part is recorded: the statements by which it decides at its start, and its answers. They are
//! those of its program, which was run against both keyspaces.

use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::store::cql::migrate;

use super::keyspace::Keyspace;

/// Checksum of the one migration that version 0.1 knows.
const EARLY_CHECKSUM: &str = "2da5914078ad2240";

/// Checks a keyspace as version 0.1 does when it starts. The error is its own.
async fn early_check(keyspace: &Keyspace) -> Result<(), String> {
    let address = &keyspace.address;
    let select = "SELECT checksum FROM \"{}\".schema_migrations WHERE version = 1";
    let rows = keyspace.run(select).await.into_rows_result().unwrap();
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
    let newer = "SELECT version FROM \"{}\".schema_migrations WHERE version = 2";
    let rows = keyspace.run(newer).await.into_rows_result().unwrap();
    if rows.rows_num() > 0 {
        return Err(format!(
            "{address} was migrated by a newer wideroom than this one, which knows version 1: upgrade this server"
        ));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: an upgrade of two servers"]
async fn version_0_1_refuses_an_upgraded_keyspace_and_is_stopped_before_the_upgrade() {
    let Some(keyspace) = Keyspace::migrated().await else {
        return;
    };
    let address = &keyspace.address;
    let check = async || early_check(&keyspace).await;
    let refused = check().await.unwrap_err();
    assert!(refused.ends_with("upgrade this server"), "{refused}");

    // The keyspace as version 0.1 leaves it: its one migration, and a write of this moment.
    for version in 2..=keyspace.version {
        let delete = format!("DELETE FROM {{}}.schema_migrations WHERE version = {version}");
        keyspace.run(&delete).await;
    }
    assert_eq!(check().await, Ok(()));
    let (now, id) = (
        SystemClock.now(),
        IdGenerator::random().next(SystemClock.now()),
    );
    let slot = now.micros() / 10_000_000;
    keyspace
        .run(&format!(
            "INSERT INTO {{}}.wakes (shard, slot, wake_id, user_id) VALUES (7, {slot}, {}, 'anna')",
            id.uuid()
        ))
        .await;
    let refused = migrate(address, Some(1), &SystemClock).await.unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.starts_with("a server of version 0.1 wrote to") && refused.contains("stop all"),
        "{refused}"
    );
    assert_eq!(check().await, Ok(()), "nothing was upgraded");

    // A minute later, or once its row is gone.
    keyspace
        .run(&format!(
            "DELETE FROM {{}}.wakes WHERE shard = 7 AND slot = {slot}"
        ))
        .await;
    let upgraded = migrate(address, Some(1), &SystemClock).await.unwrap();
    assert_eq!(
        upgraded.applied.len() + 1,
        usize::try_from(keyspace.version).unwrap()
    );
    assert!(check().await.is_err());
    keyspace.drop().await;
}
