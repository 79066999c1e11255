//! Statements beside the servers: what a dead server, or one of another version, leaves behind.

use scylla::client::session::Session;
use scylla::response::query_result::QueryResult;
use wideroom::clock::SystemClock;
use wideroom::store::cql::{Address, migrate};

use crate::store::stage::keyspace;
use crate::support::cassandra::shared;

/// The oldest server that an unfinished upgrade lets serve.
pub(super) const BEFORE: i32 = 5;

/// Runs a statement in the keyspace that all servers share. `{}` stands for its name.
pub(super) async fn run_shared(statement: &str) -> QueryResult {
    let statement = statement.replace("{}", &keyspace().await.unwrap().keyspace);
    let session = shared().await.unwrap().session().await;
    session.query_unpaged(statement, ()).await.unwrap()
}

/// A keyspace of one test, with a session beside its servers.
pub(super) struct Keyspace {
    name: String,
    pub(super) address: Address,
    session: Session,
    /// The version to which it was migrated.
    pub(super) version: i32,
}

impl Keyspace {
    /// `None` where no Cassandra can be had.
    pub(super) async fn migrated() -> Option<Self> {
        let shared = shared().await?;
        let name = format!("wideroom_{}", uuid::Uuid::new_v4().simple());
        let address: Address = shared.url(&name).parse().unwrap();
        let migrated = migrate(&address, Some(1), &SystemClock).await.unwrap();
        Some(Self {
            name,
            address,
            session: shared.session().await,
            version: migrated.version,
        })
    }

    /// Runs a statement in which `{}` stands for the keyspace.
    pub(super) async fn run(&self, statement: &str) -> QueryResult {
        let statement = statement.replace("{}", &self.name);
        let answer = self.session.query_unpaged(statement.as_str(), ()).await;
        answer.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// Makes it one whose upgrade is not finished.
    pub(super) async fn begin_upgrade(&self) {
        for version in BEFORE..=self.version {
            self.run(&format!(
                "UPDATE {{}}.schema_migrations SET oldest_server = {BEFORE} WHERE version = {version}"
            ))
            .await;
        }
    }

    pub(super) async fn drop(self) {
        self.run("DROP KEYSPACE {}").await;
    }
}
