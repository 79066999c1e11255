//! The Cassandra that tests run on: it is a real one, it refuses what hurts a real cluster, and a ring of it outlives the loss of a node.

use scylla::client::session::Session;
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use uuid::Uuid;

use crate::support::cassandra::{Ring, shared};

async fn run(session: &Session, cql: &str) {
    session
        .query_unpaged(cql, ())
        .await
        .unwrap_or_else(|error| panic!("{cql}: {error}"));
}

#[tokio::test]
async fn the_shared_node_says_its_release() {
    let Some(shared) = shared().await else { return };
    let session = shared.session().await;
    let rows = session
        .query_unpaged("SELECT release_version FROM system.local", ())
        .await
        .unwrap()
        .into_rows_result()
        .unwrap();
    let (release,) = rows.single_row::<(String,)>().unwrap();
    let major: u32 = release.split('.').next().unwrap().parse().unwrap();
    assert!(major >= 3, "{release}");
    assert!(shared.url("rooms").contains("/rooms?"));
}

#[tokio::test]
async fn the_shared_node_refuses_what_hurts_a_cluster() {
    let Some(shared) = shared().await else { return };
    // Nothing is known about a cluster that was running before.
    if !shared.is_ours() {
        return;
    }
    let session = shared.session().await;
    run(&session, "CREATE KEYSPACE strict WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}").await;
    session.use_keyspace("strict", false).await.unwrap();
    run(
        &session,
        "CREATE TABLE pairs (a int, b int, c text, PRIMARY KEY (a, b))",
    )
    .await;
    let many_keys = format!(
        "SELECT b FROM pairs WHERE a IN ({})",
        (0..21)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    );
    let long_page = Statement::new("SELECT b FROM pairs WHERE a = 1").with_page_size(5_000);
    let insert = |a: u8| {
        format!(
            "INSERT INTO pairs (a, b, c) VALUES ({a}, 1, '{}'); ",
            "x".repeat(30_000)
        )
    };
    let big_batch = format!("BEGIN BATCH {}{}APPLY BATCH", insert(1), insert(2));
    let refused: [(Statement, &str); 5] = [
        (
            Statement::new("SELECT b FROM pairs WHERE c = 'x' ALLOW FILTERING").with_page_size(100),
            "ALLOW FILTERING",
        ),
        ("CREATE INDEX ON pairs (c)".into(), "secondary_indexes"),
        (
            Statement::new(many_keys).with_page_size(100),
            "partition_keys_in_select",
        ),
        (long_page, "page_size"),
        (big_batch.into(), "Batch too large"),
    ];
    for (statement, reason) in refused {
        let cql = statement.contents.chars().take(60).collect::<String>();
        // Unpaged ones send no size of a page.
        let error = session
            .query_single_page(statement, (), PagingState::start())
            .await;
        let error = error.expect_err(&cql).to_string();
        assert!(error.contains(reason), "{cql}: {error}");
    }
}

/// Writes one value, and answers with it as it was read back, a majority of the three having taken part in both.
async fn write_and_read(session: &Session, value: &str) -> String {
    let key = Uuid::new_v4();
    let statement = |cql: &str| {
        let mut statement = Statement::new(cql);
        statement.set_consistency(Consistency::LocalQuorum);
        statement.set_is_idempotent(true);
        statement
    };
    session
        .query_unpaged(
            statement("INSERT INTO kept (id, value) VALUES (?, ?)"),
            (key, value),
        )
        .await
        .unwrap();
    let read = session
        .query_unpaged(statement("SELECT value FROM kept WHERE id = ?"), (key,))
        .await
        .unwrap();
    read.into_rows_result()
        .unwrap()
        .single_row::<(String,)>()
        .unwrap()
        .0
}

#[tokio::test]
#[ignore = "gate: a ring of three nodes"]
async fn a_ring_of_three_goes_on_without_one() {
    let Some(mut ring) = Ring::start(3).await else {
        return;
    };
    let session = ring.session().await;
    run(&session, "CREATE KEYSPACE rooms WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}").await;
    session.use_keyspace("rooms", false).await.unwrap();
    run(
        &session,
        "CREATE TABLE kept (id uuid PRIMARY KEY, value text)",
    )
    .await;
    assert_eq!(write_and_read(&session, "with three").await, "with three");
    ring.kill(2);
    for n in 0..20 {
        assert_eq!(
            write_and_read(&session, &format!("without one {n}")).await,
            format!("without one {n}")
        );
    }
    ring.restart(2).await;
    // Refused unless all three are there.
    let mut all = Statement::new("SELECT id FROM kept WHERE id = ?");
    all.set_consistency(Consistency::All);
    session.query_unpaged(all, (Uuid::new_v4(),)).await.unwrap();
}
