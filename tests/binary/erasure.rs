//! Erasure by the real program: it goes on after `kill -9`, and no text of the user is left on the disk.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use wideroom::model::{MessageId, Timestamp};

use super::stage::serve;
use crate::support::cassandra::shared;
use crate::support::client::Caller;
use crate::support::program::Program;
use crate::support::server::Server;

const GROUP: &str = "550e8400-e29b-41d4-a716-446655440001";
/// It is in every text of alice, and in no other.
const NEEDLE: &str = "q7Xk2vW9";
const ERASE: &str =
    "mutation { eraseUser(input: {username: \"alice\"}) { job { id state doneCount } } }";

/// A group in which alice and bob say something in turn.
fn chats(count: i64) -> String {
    let start = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    let group = format!(
        r#"{{"type":"conversation","id":"{GROUP}","kind":"GROUP","name":"Us","createdAt":"{start}","createdBy":"alice","participants":[{{"username":"alice","role":"OWNER"}},{{"username":"bob"}}]}}"#
    );
    let alice = format!(r#"{{"type":"user","username":"alice","displayName":"{NEEDLE} Alice"}}"#);
    let message = |number: i64| {
        let id = MessageId::new(start.plus_micros(number * 1_000_000), [1; 8]);
        let (sender, body) = if number % 2 == 0 {
            ("alice", format!("{NEEDLE} {number:06} {id}"))
        } else {
            ("bob", format!("an answer {number}"))
        };
        format!(
            r#"{{"type":"message","conversationId":"{GROUP}","id":"{id}","sender":"{sender}","body":"{body}"}}"#
        )
    };
    let lines = [alice, group].into_iter().chain((0..count).map(message));
    lines.map(|line| format!("{line}\n")).collect()
}

fn imported(program: &Program, count: i64) {
    let path = program.write("chats.jsonl", &chats(count));
    program.run(&["import", &path]).succeeded();
    fs::remove_file(path).unwrap();
}

/// Whether bytes hold a text. Journals are large, so few places are compared.
fn holds(bytes: &[u8], text: &str) -> bool {
    let (first, mut rest) = (text.as_bytes()[0], bytes);
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        rest = &rest[at..];
        if rest.starts_with(text.as_bytes()) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// The files of a folder that hold the text.
pub(crate) fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else {
            let bytes = fs::read(&path).unwrap();
            if holds(&bytes, text) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

async fn service(program: &Program, server: &Server) -> Caller {
    let token = program.run(&["token", "--service", "backend"]);
    Caller::connect(server.address(), token.succeeded().trim())
        .await
        .unwrap()
}

async fn job(caller: &mut Caller, id: &str) -> Value {
    let document = "query($i: ID!) { node(id: $i) { ... on Job { state doneCount error } } }";
    let data = caller.data(document, &json!({"i": id})).await.unwrap();
    data["node"].clone()
}

/// Waits until the job has read more than this, or has ended.
async fn until(caller: &mut Caller, id: &str, count: i64) -> Value {
    loop {
        let job = job(caller, id).await;
        assert_eq!(job["error"], Value::Null);
        if job["state"] != "RUNNING" || job["doneCount"].as_i64().unwrap() > count {
            return job;
        }
        tokio::task::yield_now().await;
    }
}

fn ends(server: Server) {
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: killed and started again and again"]
async fn an_erasure_goes_on_after_kill_9_and_leaves_no_text() {
    const MESSAGES: i64 = 900;
    let program = Program::new();
    imported(&program, MESSAGES);
    assert!(
        !files_with(&program.data(), NEEDLE).is_empty(),
        "the texts are found where they are"
    );
    let server = serve(&program);
    let mut caller = service(&program, &server).await;
    let erased = caller.data(ERASE, &json!({})).await.unwrap();
    let id = erased["eraseUser"]["job"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut seen = until(&mut caller, &id, 0).await;
    server.kill();
    let mut kills = 1;
    let done = loop {
        let server = serve(&program);
        let mut caller = service(&program, &server).await;
        let before = seen["doneCount"].as_i64().unwrap();
        let now = job(&mut caller, &id).await;
        assert!(
            now["doneCount"].as_i64().unwrap() >= before,
            "nothing is forgotten"
        );
        seen = until(&mut caller, &id, before + 200).await;
        if seen["state"] != "RUNNING" {
            ends(server);
            break seen;
        }
        server.kill();
        kills += 1;
    };
    assert!(kills > 1, "it was killed in the middle");
    assert_eq!(done["state"], "DONE");
    assert_eq!(done["doneCount"], MESSAGES);
    assert!(
        program.run(&["verify"]).succeeded().starts_with("sound: "),
        "what is left agrees"
    );
    let ended = program.run(&["erase", "--user", "alice"]);
    assert_eq!(
        ended.succeeded(),
        format!("erased: messages and reports read {MESSAGES}\n"),
        "the job is the same"
    );
    assert_eq!(files_with(&program.data(), NEEDLE), Vec::<String>::new());
    let exported = program.run(&["export", "-"]);
    let lines = exported.succeeded();
    assert!(!lines.contains(NEEDLE));
    assert_eq!(lines.matches("an answer").count() as i64, MESSAGES / 2);
    assert_eq!(
        lines.matches("wideroom:erased").count() as i64,
        MESSAGES / 2 + 1
    );
    // An import of what is left is sound, too.
    let other = Program::new();
    let path = other.write("left.jsonl", lines);
    other.run(&["import", &path]).succeeded();
    assert!(other.run(&["verify"]).succeeded().starts_with("sound: "));
}

#[test]
fn a_store_that_nobody_serves_is_erased_by_the_command() {
    let program = Program::new();
    imported(&program, 20);
    let own = program.run(&["export", "-", "--user", "alice"]);
    let lines = own.succeeded();
    assert_eq!(lines.matches(&format!("{NEEDLE} 0")).count(), 10);
    assert!(
        lines.contains(r#""displayName":"q7Xk2vW9 Alice""#),
        "{lines}"
    );
    assert!(lines.contains(r#""type":"participant""#) && !lines.contains("an answer"));
    assert!(
        lines.ends_with("{\"type\":\"end\",\"lines\":14}\n"),
        "{lines}"
    );
    let server = Server::start(&program, &[]);
    let refused = program.run(&["erase", "--user", "alice"]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains("is in use by another wideroom"));
    ends(server);
    for name in ["", "wideroom:erased"] {
        assert_eq!(program.run(&["erase", "--user", name]).code, Some(2));
        assert_eq!(program.run(&["token", "--user", name]).code, Some(2));
    }
    program.run(&["erase", "--user", "alice"]).succeeded();
    assert_eq!(files_with(&program.data(), NEEDLE), Vec::<String>::new());
    assert!(program.run(&["verify"]).succeeded().starts_with("sound: "));
    let own = program.run(&["export", "-", "--user", "alice"]);
    assert!(
        own.succeeded()
            .ends_with("{\"type\":\"end\",\"lines\":2}\n")
    );
}

#[test]
fn nobody_is_imported_under_the_name_of_erased_users() {
    let program = Program::new();
    let user = r#"{"type":"user","username":"wideroom:erased","displayName":"x"}"#;
    let participant = format!(
        r#"{{"type":"participant","conversationId":"{GROUP}","username":"wideroom:erased"}}"#
    );
    let path = program.write("bad.jsonl", &format!("{user}\n{participant}\n"));
    let ended = program.run(&["import", &path]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("broken lines skipped: 2"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: every table of a cluster is read"]
async fn no_row_of_a_cluster_holds_a_text_of_an_erased_user() {
    let Some(node) = shared().await else { return };
    let program = Program::on_cluster(node).await;
    imported(&program, 40);
    let server = serve(&program);
    let mut caller = service(&program, &server).await;
    let erased = caller.data(ERASE, &json!({})).await.unwrap();
    let id = erased["eraseUser"]["job"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let refused = program.run(&["erase", "--user", "alice"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("servers run on this cluster"),
        "{}",
        refused.stderr
    );
    let done = until(&mut caller, &id, i64::MAX).await;
    assert_eq!(done["state"], "DONE");
    ends(server);
    let session = node.session().await;
    let keyspace = program.store().rsplit('/').next().unwrap();
    let keyspace = keyspace.split('?').next().unwrap();
    let tables = session
        .query_unpaged(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?",
            (keyspace,),
        )
        .await
        .unwrap()
        .into_rows_result()
        .unwrap();
    let tables: Vec<String> = tables
        .rows::<(String,)>()
        .unwrap()
        .map(|row| row.unwrap().0)
        .collect();
    assert!(tables.len() > 20, "{tables:?}");
    let mut rows_read = 0;
    for table in tables {
        let rows = session
            .query_unpaged(format!("SELECT * FROM \"{keyspace}\".{table}"), ())
            .await
            .unwrap()
            .into_rows_result()
            .unwrap();
        for row in rows.rows::<scylla::value::Row>().unwrap() {
            rows_read += 1;
            for value in row.unwrap().columns.into_iter().flatten() {
                let bytes = match (value.as_blob(), value.as_text()) {
                    (Some(bytes), _) => bytes.clone(),
                    (None, Some(text)) => text.clone().into_bytes(),
                    (None, None) => format!("{value:?}").into_bytes(),
                };
                assert!(!holds(&bytes, NEEDLE), "{table}: {value:?}");
            }
        }
    }
    assert!(rows_read > 40, "{rows_read}");
    let verified = program.run(&["verify"]);
    assert!(verified.succeeded().starts_with("sound: "));
}
