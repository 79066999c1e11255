//! Streams on a store that was restored from an earlier state: what a client saw after the copy is gone, and it is told so.

use serde_json::{Value, json};
use uuid::Uuid;

use super::disk::{conversation, send};
use crate::support::cassandra::shared;
use crate::support::client::{Caller, Socket};
use crate::support::program::Program;
use crate::support::server::Server;

const QUIET: [&str; 4] = ["--log", "warn", "--rates", "off"];

/// Cursors that a client has at one time.
struct Cursors {
    conversation: String,
    events: String,
    updates: String,
    message: String,
}

impl Cursors {
    async fn read(caller: &mut Caller, conversation: &Value) -> Self {
        let document = "query($c: ID!) { inbox { updatesCursor } conversation(id: $c) { eventsCursor messages(last: 1) { pageInfo { endCursor } } } }";
        let data = caller
            .data(document, &json!({ "c": conversation }))
            .await
            .unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            conversation: text(conversation),
            events: text(&data["conversation"]["eventsCursor"]),
            updates: text(&data["inbox"]["updatesCursor"]),
            message: text(&data["conversation"]["messages"]["pageInfo"]["endCursor"]),
        }
    }

    /// Which of the streams the server refuses to resume, by the cursor that it gets.
    async fn expired(&self, server: &Server, token: &str) -> Vec<&'static str> {
        let Self {
            conversation,
            events,
            updates,
            message,
        } = self;
        let mut expired = Vec::new();
        for (name, field) in [
            (
                "conversationEvents",
                format!(
                    r#"conversationEvents(conversationId: "{conversation}", after: "{events}") {{ cursor }}"#
                ),
            ),
            (
                "inboxUpdated",
                format!(r#"inboxUpdated(after: "{updates}") {{ cursor }}"#),
            ),
            // It replays messages, and those are all in the list.
            (
                "messageAdded",
                format!(
                    r#"messageAdded(conversationId: "{conversation}", after: "{message}") {{ messageEdge {{ cursor }} }}"#
                ),
            ),
        ] {
            let mut socket = Socket::connect(server.address(), token).await;
            socket
                .subscribe("1", &format!("subscription {{ {field} }}"))
                .await;
            if name == "messageAdded" {
                let mut ann = Caller::connect(server.address(), token).await.unwrap();
                // Under a key of its own, or it would be the answer to a retry.
                let body = Uuid::new_v4().to_string();
                let sent = send(&mut ann, &json!(conversation), &body).await;
                assert!(sent.body.get("errors").is_none(), "{}", sent.body);
            }
            let heard = socket.hear().await;
            assert_eq!(heard["type"], "next", "{heard}");
            let errors = &heard["payload"]["errors"];
            if !errors.is_null() {
                assert_eq!(errors[0]["extensions"]["code"], "CURSOR_EXPIRED", "{heard}");
                expired.push(name);
            }
        }
        expired
    }
}

const EXPIRED: [&str; 2] = ["conversationEvents", "inboxUpdated"];

fn stop(server: Server) {
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursors_from_before_a_backup_is_served_are_expired_and_later_ones_are_not() {
    let program = Program::new();
    let token = program.token("ann");
    let (server, admin) = Server::start_with_admin(&program, &["--rates", "off"]);
    let mut ann = Caller::connect(server.address(), &token).await.unwrap();
    let conversation = conversation(&mut ann).await;
    send(&mut ann, &conversation, "in the copy").await;
    let dir = program.dir.path().join("copy");
    let address = admin.address.to_string();
    let folder = dir.to_str().unwrap();
    program
        .run(&["backup", folder, "--admin-listen", &address])
        .succeeded();
    send(&mut ann, &conversation, "after the copy").await;
    let before = Cursors::read(&mut ann, &conversation).await;
    assert!(before.expired(&server, &token).await.is_empty());
    server.kill();
    // Nothing but a server that is started on the copy takes note of that.
    program.run(&["verify", "--data", folder]).succeeded();
    let start = || {
        let arguments = [
            &["serve", "--listen", "127.0.0.1:0", "--data", folder][..],
            &QUIET,
        ]
        .concat();
        Server::spawn(&mut program.command(&arguments))
    };
    let server = start();
    let line = server.logs("starts on a backup");
    assert!(line.contains("CURSOR_EXPIRED"), "{line}");
    assert_eq!(before.expired(&server, &token).await, EXPIRED);
    let mut ann = Caller::connect(server.address(), &token).await.unwrap();
    let after = Cursors::read(&mut ann, &conversation).await;
    assert!(after.expired(&server, &token).await.is_empty());
    stop(server);
    let server = start();
    assert!(
        after.expired(&server, &token).await.is_empty(),
        "it is no backup any more"
    );
    assert_eq!(before.expired(&server, &token).await, EXPIRED);
    stop(server);
}

/// Runs `wideroom restored` between two servers. `refusal` is what it says while one runs.
async fn put_back(program: Program, code: i32, refusal: &str) {
    let token = program.token("ann");
    let server = Server::start(&program, &QUIET);
    let mut ann = Caller::connect(server.address(), &token).await.unwrap();
    let conversation = conversation(&mut ann).await;
    send(&mut ann, &conversation, "in the copy").await;
    let before = Cursors::read(&mut ann, &conversation).await;
    stop(server);
    let server = Server::start(&program, &QUIET);
    assert!(before.expired(&server, &token).await.is_empty());
    let refused = program.run(&["restored"]);
    assert_eq!(refused.code, Some(code), "{}", refused.stderr);
    assert!(refused.stderr.contains(refusal), "{}", refused.stderr);
    stop(server);
    let said = program.run(&["restored"]);
    assert!(
        said.succeeded()
            .starts_with("cursors of streams from before 20"),
        "{}",
        said.stdout
    );
    let server = Server::start(&program, &QUIET);
    assert_eq!(before.expired(&server, &token).await, EXPIRED);
    let mut ann = Caller::connect(server.address(), &token).await.unwrap();
    let after = Cursors::read(&mut ann, &conversation).await;
    assert!(after.expired(&server, &token).await.is_empty());
    stop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_says_that_files_were_put_back() {
    put_back(Program::new(), 4, "is in use by another wideroom").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_says_that_a_snapshot_of_the_cluster_was_put_back() {
    let Some(shared) = shared().await else { return };
    let program = Program::on_cluster(shared).await;
    let refusal = "servers run on this cluster (1 of them): stop all of them first";
    put_back(program, 1, refusal).await;
}
