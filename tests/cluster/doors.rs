//! Doors of a cluster: TLS, passwords and data centres, and the refusals of `migrate` and `import`.

use serde_json::json;
use uuid::Uuid;

use crate::binary::stage::serve;
use crate::support::cassandra::ring::{RingOptions, make_key};
use crate::support::cassandra::{Ring, shared};
use crate::support::client::Caller;
use crate::support::program::Program;
use crate::support::server::Server;

fn keyspace() -> String {
    format!("wideroom_{}", Uuid::new_v4().simple())
}

/// Sends one message, and returns its body as it is read back.
async fn send_and_read(program: &Program, server: &Server) -> String {
    let mut caller = Caller::connect(server.address(), &program.token("alice"))
        .await
        .unwrap();
    let document =
        "mutation { startDirectConversation(input: {username: \"bob\"}) { conversation { id } } }";
    let made = caller.data_at_last(document, &json!({})).await.unwrap();
    let conversation = &made["startDirectConversation"]["conversation"]["id"];
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hello\", idempotencyKey: \"hello\"}) {
        messageEdge { node { id } } } }";
    caller
        .data_at_last(send, &json!({ "c": conversation }))
        .await
        .unwrap();
    let read =
        "query($c: ID!) { conversation(id: $c) { messages(last: 1) { edges { node { body } } } } }";
    let data = caller
        .data_at_last(read, &json!({ "c": conversation }))
        .await
        .unwrap();
    data["conversation"]["messages"]["edges"][0]["node"]["body"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a node of its own"]
async fn a_cluster_with_tls_and_a_password_is_reached_by_those_who_have_both() {
    let options = RingOptions {
        has_tls: true,
        ..RingOptions::default()
    };
    let Some(ring) = Ring::start_with(1, options).await else {
        return;
    };
    let keyspace = keyspace();
    let tls = |certificate: &str| format!("{}?tls={certificate}", ring.url(&keyspace));
    let certificate = ring.certificate();
    let program = Program::on(tls(certificate.to_str().unwrap()));
    program.run(&["migrate"]).succeeded();
    let server = serve(&program);
    assert_eq!(send_and_read(&program, &server).await, "hello");

    // All connections of the program are encrypted, and signed in.
    let clients = ring
        .session()
        .await
        .query_unpaged(
            "SELECT username, ssl_enabled, driver_name FROM system_views.clients",
            (),
        )
        .await
        .unwrap()
        .into_rows_result()
        .unwrap();
    let clients: Vec<(Option<String>, Option<bool>, Option<String>)> =
        clients.rows().unwrap().map(Result::unwrap).collect();
    let encrypted = clients.iter().filter(|(name, is_encrypted, _)| {
        name.as_deref() == Some("wideroom") && *is_encrypted == Some(true)
    });
    assert!(encrypted.count() >= 2, "{clients:?}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));

    // A certificate of somebody else, and a password that is wrong.
    let other = tempfile::tempdir().unwrap();
    make_key(other.path(), "127.0.0.1");
    let other = other.path().join("node.pem");
    let ended = Program::on(tls(other.to_str().unwrap())).run(&["serve"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("refuses this server"),
        "{}",
        ended.stderr
    );
    let wrong =
        tls(certificate.to_str().unwrap()).replace("wideroom:wideroom@", "wideroom:s3cret@");
    let ended = Program::on(wrong).run(&["serve"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let line = ended.stderr.trim();
    assert!(
        line.contains("refuses this server") && !line.contains("s3cret"),
        "{line}"
    );
}

/// A keyspace whose tables are another program's, and one of a later version that excludes this
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_of_another_program_or_of_a_later_version_is_refused() {
    let Some(shared) = shared().await else {
        return;
    };
    let keyspace = keyspace();
    let program = Program::on(shared.url(&keyspace));
    program.run(&["migrate"]).succeeded();
    let session = shared.session().await;
    let run = async |statement: &str| {
        let statement = statement.replace("{}", &keyspace);
        session.query_unpaged(statement, ()).await.unwrap()
    };
    let is_refused = |arguments: &[&str], reason: &str| {
        let ended = program.run(arguments);
        assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(reason),
            "{arguments:?}: {}",
            ended.stderr
        );
    };
    let select = "SELECT checksum FROM {}.schema_migrations WHERE version = 2";
    let rows = run(select).await.into_rows_result().unwrap();
    let (checksum,) = rows.single_row::<(String,)>().unwrap();
    run("UPDATE {}.schema_migrations SET checksum = 'other' WHERE version = 2").await;
    for arguments in [&["migrate"][..], &["migrate", "--finish"], &["serve"]] {
        is_refused(
            arguments,
            "the tables of version 2 are not those of this wideroom",
        );
    }
    run(&format!(
        "UPDATE {{}}.schema_migrations SET checksum = '{checksum}' WHERE version = 2"
    ))
    .await;
    program.run(&["migrate", "--finish"]).succeeded();

    let newest = "SELECT max(version) FROM {}.schema_migrations";
    let rows = run(newest).await.into_rows_result().unwrap();
    let (newest,) = rows.single_row::<(i32,)>().unwrap();
    let next = newest + 1;
    run(&format!(
        "INSERT INTO {{}}.schema_migrations (version, checksum, oldest_server) VALUES ({next}, 'next', {newest})"
    ))
    .await;
    program.run(&["migrate"]).succeeded();
    run(&format!(
        "UPDATE {{}}.schema_migrations SET oldest_server = {next} WHERE version = {next}"
    ))
    .await;
    let reason = format!(
        "a server must know version {next}, and this one knows {newest}: upgrade this server"
    );
    for arguments in [&["migrate"][..], &["migrate", "--finish"], &["serve"]] {
        is_refused(arguments, &reason);
    }
    run("DROP KEYSPACE {}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a ring of three nodes in two data centres"]
async fn nightly_one_of_several_data_centres_must_be_named_and_is_recorded() {
    let options = RingOptions {
        data_centres: &["north", "north", "south"],
        ..RingOptions::default()
    };
    let Some(ring) = Ring::start_with(3, options).await else {
        return;
    };
    let keyspace = keyspace();
    let refused = |options: &str, arguments: &[&str]| {
        let program = Program::on(format!("{}{options}", ring.url(&keyspace)));
        let ended = program.run(arguments);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        ended.stderr.lines().last().unwrap_or_default().to_owned()
    };
    let unnamed = refused("", &["migrate"]);
    assert!(
        unnamed.contains("north, south") && unnamed.contains("?dc="),
        "{unnamed}"
    );
    let unknown = refused("?dc=west", &["migrate"]);
    assert!(
        unknown.contains("west") && unknown.contains("north, south"),
        "{unknown}"
    );
    let many = refused("?dc=north", &["migrate", "--replication", "3"]);
    assert!(
        many.contains("3 replicas") && many.contains("north has 2"),
        "{many}"
    );

    let program = Program::on(format!("{}?dc=north", ring.url(&keyspace)));
    let made = program.run(&["migrate"]);
    assert!(made.succeeded().contains("2 replicas in north"));
    let server = serve(&program);
    assert_eq!(send_and_read(&program, &server).await, "hello");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));

    let unnamed = refused("", &["serve"]);
    assert!(
        unnamed.contains("north, south") && unnamed.contains("?dc="),
        "{unnamed}"
    );
    let other = refused("?dc=south", &["serve"]);
    assert!(
        other.contains("south") && other.contains("north") && other.contains("--data-centre"),
        "{other}"
    );
    let other = refused("?dc=south", &["migrate"]);
    assert!(other.contains("--data-centre"), "{other}");
    let empty = refused("?dc=north", &["migrate", "--data-centre", "south"]);
    assert!(
        empty.contains("no replicas") && empty.contains("south"),
        "{empty}"
    );

    // After a failover: the keyspace has replicas there, and that is recorded.
    let grown = format!(
        "ALTER KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'north': 2, 'south': 1}}"
    );
    ring.session().await.query_unpaged(grown, ()).await.unwrap();
    let south = Program::on(format!("{}?dc=south", ring.url(&keyspace)));
    south
        .run(&["migrate", "--data-centre", "south"])
        .succeeded();
    let server = serve(&south);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let old = refused("?dc=north", &["serve"]);
    assert!(old.contains("south"), "{old}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_may_run_at_once_and_be_interrupted() {
    let Some(shared) = shared().await else { return };
    let program = Program::on(shared.url(&keyspace()));
    // Killed while it creates the tables.
    let mut first = program
        .command(&["migrate"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let session = shared.session().await;
    let keyspace = program
        .store()
        .split('/')
        .next_back()
        .unwrap()
        .split('?')
        .next()
        .unwrap();
    loop {
        let read = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let rows = session.query_unpaged(read, (keyspace,)).await.unwrap();
        if rows.into_rows_result().unwrap().rows_num() >= 2 || first.try_wait().unwrap().is_some() {
            break;
        }
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let refused = program.run(&["serve"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("wideroom migrate"),
        "{}",
        refused.stderr
    );

    // Two at once complete it, and a third has nothing to do.
    let (one, other) = std::thread::scope(|scope| {
        let run = || scope.spawn(|| program.run(&["migrate"]));
        let (one, other) = (run(), run());
        (one.join().unwrap(), other.join().unwrap())
    });
    one.succeeded();
    other.succeeded();
    let third = program.run(&["migrate"]);
    assert!(
        third.succeeded().contains("existed already"),
        "{}",
        third.stdout
    );
    let server = serve(&program);
    assert_eq!(send_and_read(&program, &server).await, "hello");

    // Servers that run would learn of imported data late.
    let refused = program.run_with_input(&["import", "-"], "{\"type\":\"header\",\"format\":1}\n");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("stop all of them"),
        "{}",
        refused.stderr
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let header = "{\"type\":\"header\",\"format\":1}\n{\"type\":\"end\",\"lines\":1}\n";
    program.run_with_input(&["import", "-"], header).succeeded();
}
