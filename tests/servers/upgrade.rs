//! The gate of a rolling upgrade: the forms that a keyspace may hold, before and after `wideroom migrate --finish`.

use std::sync::Arc;

use wideroom::clock::{Clock, SystemClock};
use wideroom::store::cql::{Address, Cql, finish, migrate};
use wideroom::store::{FormVersion, Store as _};

use crate::support::cassandra::shared;

/// The oldest server that an unfinished upgrade lets serve.
const BEFORE: i32 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_forms_wait_for_the_end_of_an_upgrade() {
    let Some(shared) = shared().await else {
        return;
    };
    let keyspace = format!("wideroom_{}", uuid::Uuid::new_v4().simple());
    let address: Address = shared.url(&keyspace).parse().unwrap();
    let migrated = migrate(&address, Some(1), &SystemClock).await.unwrap();
    let newest = FormVersion(migrated.version);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Cql::open(address.clone(), clock).await.unwrap();
    assert_eq!(
        store.form_version().await.unwrap(),
        newest,
        "a keyspace that is made new"
    );

    let session = shared.session().await;
    for version in BEFORE..=migrated.version {
        let update = format!(
            "UPDATE {keyspace}.schema_migrations SET oldest_server = {BEFORE} WHERE version = {version}"
        );
        session.query_unpaged(update, ()).await.unwrap();
    }
    assert_eq!(store.form_version().await.unwrap(), FormVersion(BEFORE));
    // A second migration finds everything there, and ends no upgrade.
    migrate(&address, Some(1), &SystemClock).await.unwrap();
    assert_eq!(store.form_version().await.unwrap(), FormVersion(BEFORE));

    assert_eq!(finish(&address).await.unwrap(), migrated.version);
    assert_eq!(store.form_version().await.unwrap(), newest);
    store.close().await.unwrap();
    let drop = format!("DROP KEYSPACE {keyspace}");
    session.query_unpaged(drop, ()).await.unwrap();
}
