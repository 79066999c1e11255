//! `wideroom export` and back again: from an embedded store to a cluster, and from there to another embedded one. Nothing is another one then.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::read::{self, Entry, History};
use super::stage::serve;
use crate::support::cassandra::shared;
use crate::support::client::Caller;
use crate::support::program::{Program, Running};
use crate::support::server::Server;

/// In the large group, everybody.
const CROWD: usize = 36;
const KILLS: u32 = 4;

fn name(n: usize) -> String {
    format!("person-{n:02}")
}

/// Server whose data covers every field of the format.
struct Lived {
    program: Program,
    /// Global ids: a group, the large one, a direct one that an import brought with an id of its own.
    group: String,
    large: String,
    direct: String,
}

async fn caller(program: &Program, server: &Server, user: &str) -> Caller {
    Caller::connect(server.address(), &program.token(user))
        .await
        .unwrap()
}

/// `{input}` stands for the one argument that every mutation has.
async fn change(caller: &mut Caller, field: &str, input: Value, asked: &str) -> Value {
    let kind = format!("{}{}Input", field[..1].to_uppercase(), &field[1..]);
    let document = format!("mutation($i: {kind}!) {{ made: {field}(input: $i) {{ {asked} }} }}");
    caller
        .data(&document, &json!({ "i": input }))
        .await
        .unwrap()["made"]
        .clone()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

const MADE: &str = "conversation { id }";
const SENT: &str = "messageEdge { node { id } }";

async fn send(caller: &mut Caller, conversation: &str, mut input: Value) -> String {
    input["conversationId"] = conversation.into();
    text(&change(caller, "sendMessage", input, SENT).await["messageEdge"]["node"]["id"])
}

/// A direct conversation with an id of its own, in which somebody archived, and a group with one who left long ago.
fn from_elsewhere() -> String {
    let direct = r#""conversationId":"550e8400-e29b-41d4-a716-446655440001""#;
    let id = "a3e39830-e29b-11ef-8001-000000000001";
    [
        r#"{"type":"user","username":"person-01","displayName":"One","avatarUrl":"https://example.org/1.png","lastSeenAt":"2026-01-02T03:04:05Z"}"#,
        r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"DIRECT","createdAt":"2026-01-01T00:00:00Z","lastActivityAt":"2026-01-03T00:00:00Z"}"#,
        &format!(r#"{{"type":"participant",{direct},"username":"person-00","readUpTo":"{id}","archivedAt":"2026-01-03T00:00:00Z"}}"#),
        &format!(r#"{{"type":"participant",{direct},"username":"person-01"}}"#),
        &format!(r#"{{"type":"message",{direct},"id":"{id}","sender":"person-01","body":"from elsewhere","editedAt":"2026-01-02T00:00:00Z"}}"#),
        &format!(r#"{{"type":"reaction",{direct},"messageId":"{id}","emoji":"❤","username":"person-00"}}"#),
        r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440002","name":"Without owner","createdAt":"2026-01-01T00:00:00Z","lastActivityAt":"2026-01-05T00:00:00Z","participants":[{"username":"person-03"},{"username":"person-04","leftAt":"2026-01-02T00:00:00Z","muted":true}]}"#,
    ]
    .join("\n")
}

async fn live(program: Program) -> Lived {
    let path = program.write("elsewhere.jsonl", &from_elsewhere());
    program.run(&["import", &path]).succeeded();
    let server = serve(&program);
    let names = |range: std::ops::Range<usize>| range.map(name).collect::<Vec<_>>();
    let (mut zero, mut one) = (
        caller(&program, &server, &name(0)).await,
        caller(&program, &server, &name(1)).await,
    );
    let mut two = caller(&program, &server, &name(2)).await;
    let input = json!({ "name": "Group", "usernames": names(1..6), "idempotencyKey": "made once" });
    let group = text(
        &change(&mut zero, "createGroupConversation", input, MADE).await["conversation"]["id"],
    );
    let input = json!({ "name": "Large", "usernames": names(0..CROWD) });
    let large =
        text(&change(&mut one, "createGroupConversation", input, MADE).await["conversation"]["id"]);
    let direct = text(
        &change(
            &mut zero,
            "startDirectConversation",
            json!({ "username": name(1) }),
            MADE,
        )
        .await["conversation"]["id"],
    );
    change(
        &mut two,
        "startDirectConversation",
        json!({ "username": name(2) }),
        MADE,
    )
    .await;

    let first = send(&mut zero, &group, json!({ "body": "as it was" })).await;
    change(
        &mut zero,
        "editMessage",
        json!({ "messageId": first, "body": "as it is" }),
        "message { id }",
    )
    .await;
    let attachment = json!({ "url": "https://example.org/a.png", "mimeType": "image/png", "name": "a", "sizeBytes": 5, "width": 1, "height": 2, "durationMs": 3, "thumbnailUrl": "https://example.org/s.png" });
    let whole = json!({ "attachments": [attachment], "metadata": { "n": [0.1, 1e21, null, "ü\u{1}"] }, "replyToId": first, "idempotencyKey": "key", "body": "whole\n", "steps": [{ "key": "1", "title": "Read", "state": "DONE", "detail": "a\nb" }] });
    let second = send(&mut one, &group, whole).await;
    let third = send(
        &mut one,
        &group,
        json!({ "body": "regretted", "idempotencyKey": "gone" }),
    )
    .await;
    change(
        &mut one,
        "addReaction",
        json!({ "messageId": third, "emoji": "🚀" }),
        "message { id }",
    )
    .await;
    change(
        &mut one,
        "deleteMessage",
        json!({ "messageId": third }),
        "message { id }",
    )
    .await;
    for (by, emoji) in [(&mut zero, "👍"), (&mut two, "👍"), (&mut one, "❤")] {
        change(
            by,
            "addReaction",
            json!({ "messageId": second, "emoji": emoji }),
            "message { id }",
        )
        .await;
    }
    change(
        &mut two,
        "removeReaction",
        json!({ "messageId": second, "emoji": "👍" }),
        "message { id }",
    )
    .await;
    change(
        &mut zero,
        "removeParticipant",
        json!({ "conversationId": group, "username": name(3) }),
        MADE,
    )
    .await;
    change(
        &mut zero,
        "setParticipantRole",
        json!({ "conversationId": group, "username": name(2), "role": "ADMIN" }),
        "participant { role }",
    )
    .await;
    change(
        &mut zero,
        "addParticipants",
        json!({ "conversationId": group, "usernames": [name(9)] }),
        MADE,
    )
    .await;
    change(
        &mut zero,
        "renameConversation",
        json!({ "conversationId": group, "name": "Renamed" }),
        MADE,
    )
    .await;
    for n in 0..30 {
        send(
            if n % 2 == 0 { &mut zero } else { &mut two },
            &large,
            json!({ "body": format!("number {n}") }),
        )
        .await;
    }
    send(&mut zero, &direct, json!({ "body": "here" })).await;
    let entry = "inboxEntry { id }";
    change(
        &mut one,
        "markRead",
        json!({ "conversationId": large }),
        entry,
    )
    .await;
    change(
        &mut two,
        "markRead",
        json!({ "conversationId": group }),
        entry,
    )
    .await;
    change(
        &mut two,
        "markUnread",
        json!({ "conversationId": group, "messageId": second }),
        entry,
    )
    .await;
    change(
        &mut one,
        "markDelivered",
        json!({ "conversationId": direct }),
        entry,
    )
    .await;
    let flags = json!({ "conversationId": large, "muted": true, "pinned": true, "archived": true });
    change(&mut two, "updateInboxEntry", flags, entry).await;
    change(
        &mut two,
        "updateProfile",
        json!({ "displayName": "Two" }),
        "user { id }",
    )
    .await;
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    Lived {
        program,
        group,
        large,
        direct,
    }
}

/// Exports it into a file, and answers with its lines, without the header.
fn exported(program: &Program, file: &str) -> BTreeSet<String> {
    let summary = program.run(&["export", file]).succeeded().to_owned();
    let text = std::fs::read_to_string(program.dir.path().join(file)).unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    assert!(
        lines[0].starts_with(r#"{"type":"header","format":3,"exportedAt":""#),
        "{}",
        lines[0]
    );
    assert_eq!(
        lines.last().unwrap(),
        &format!(r#"{{"type":"end","lines":{}}}"#, lines.len() - 1)
    );
    let count = |kind: &str| {
        lines
            .iter()
            .filter(|line| line.starts_with(&format!(r#"{{"type":"{kind}""#)))
            .count()
    };
    let kinds = ["user", "conversation", "participant", "message", "reaction"]
        .map(|kind| format!("{kind}s {}", count(kind)));
    assert_eq!(summary, format!("exported: {}\n", kinds.join(", ")));
    let all: BTreeSet<_> = lines[1..].iter().cloned().collect();
    assert_eq!(all.len(), lines.len() - 1, "no line stands there twice");
    all
}

fn imported(program: &Program, from: &Program, file: &str) {
    let path = from.dir.path().join(file).to_str().unwrap().to_owned();
    let ended = program.run(&["import", &path]);
    assert!(
        ended.succeeded().ends_with("broken lines: 0\n"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
}

#[track_caller]
fn assert_same(one: &BTreeSet<String>, other: &BTreeSet<String>) {
    let missing: Vec<_> = one.difference(other).collect();
    let new: Vec<_> = other.difference(one).collect();
    assert!(
        missing.is_empty() && new.is_empty(),
        "missing: {missing:#?}, and new: {new:#?}"
    );
}

/// Every history, every inbox and every reaction, as people see it.
async fn seen(
    lived: &Lived,
    program: &Program,
    server: &Server,
) -> (Vec<History>, Vec<Vec<Entry>>, Vec<Value>) {
    let mut histories = Vec::new();
    let mut inboxes = Vec::new();
    let mut others = Vec::new();
    for n in [0, 1, 2, 3, 9, 20] {
        let mut user = caller(program, server, &name(n)).await;
        inboxes.push(read::inbox(&mut user).await.entries);
        let document = "{ viewer { displayName avatarUrl } inbox(first: 10) { edges { cursor node { isMuted isPinned isArchived conversation { id name kind
            messages(first: 9) { edges { cursor node { status editedAt attachments { url sizeBytes } reactions { emoji count viewerHasReacted } } } } } } } } }";
        others.push(user.data(document, &json!({})).await.unwrap());
    }
    let mut zero = caller(program, server, &name(0)).await;
    for id in [&lived.group, &lived.large, &lived.direct] {
        histories.push(read::history(&mut zero, id).await);
    }
    (histories, inboxes, others)
}

/// A page of a history and of an inbox that begins behind a cursor of another store.
async fn behind(
    lived: &Lived,
    program: &Program,
    server: &Server,
    cursors: &[String; 2],
) -> [Value; 2] {
    let mut zero = caller(program, server, &name(0)).await;
    let document =
        "query($c: ID!, $a: String) { conversation(id: $c) { messages(first: 5, after: $a) { pageInfo { hasPreviousPage hasNextPage }
        edges { cursor node { id body } } } } }";
    let history = zero
        .data(document, &json!({ "c": lived.large, "a": cursors[0] }))
        .await
        .unwrap();
    let document = "query($a: String) { inbox(first: 2, after: $a) { pageInfo { hasPreviousPage hasNextPage } edges { cursor node { id } } } }";
    [
        history,
        zero.data(document, &json!({ "a": cursors[1] }))
            .await
            .unwrap(),
    ]
}

/// Cursors of the fifth newest message of the large group, and of the newest inbox entry.
async fn cursors(lived: &Lived, program: &Program, server: &Server) -> [String; 2] {
    let mut zero = caller(program, server, &name(0)).await;
    let document = "query($c: ID!) { conversation(id: $c) { messages(first: 5) { pageInfo { endCursor } } } inbox(first: 1) { pageInfo { endCursor } } }";
    let data = zero
        .data(document, &json!({ "c": lived.large }))
        .await
        .unwrap();
    [
        text(&data["conversation"]["messages"]["pageInfo"]["endCursor"]),
        text(&data["inbox"]["pageInfo"]["endCursor"]),
    ]
}

fn stop(server: Server) {
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_laptop_to_a_cluster_and_back_nothing_is_another_one() {
    let Some(node) = shared().await else { return };
    let lived = live(Program::new()).await;
    let here = exported(&lived.program, "here.jsonl");
    for part in [
        "editedAt",
        "deletedAt",
        "replyTo",
        "clientKey",
        "attachments",
        "metadata",
        "\"kind\":\"SYSTEM\"",
        "\"muted\":true",
        "\"pinned\":true",
    ]
    .into_iter()
    .chain([
        "archivedAt",
        "\"state\":\"LEFT\"",
        "OWNER",
        "ADMIN",
        "readUpTo",
        "unreadFrom",
        "deliveredUpTo",
        "inputHash",
        "lastActivityAt",
    ])
    .chain([
        "displayName",
        "avatarUrl",
        "lastSeenAt",
        "\"type\":\"reaction\"",
    ]) {
        assert!(
            here.iter().any(|line| line.contains(part)),
            "the sample has no {part}"
        );
    }
    let cluster = Program::on_cluster(node).await;
    imported(&cluster, &lived.program, "here.jsonl");
    let there = exported(&cluster, "there.jsonl");
    assert_same(&here, &there);
    let back = Program::new();
    imported(&back, &cluster, "there.jsonl");
    assert_same(&there, &exported(&back, "back.jsonl"));

    for program in [&lived.program, &cluster, &back] {
        let ended = program.run(&["verify"]);
        assert!(ended.succeeded().starts_with("sound: "), "{}", ended.stdout);
    }

    // A cursor made on one is good on the others, in every direction.
    let mut all = Vec::new();
    for program in [&lived.program, &cluster, &back] {
        let server = serve(program);
        let cursors = cursors(&lived, program, &server).await;
        all.push((
            seen(&lived, program, &server).await,
            behind(&lived, program, &server, &cursors).await,
            cursors,
        ));
        stop(server);
    }
    for other in &all[1..] {
        assert_eq!(all[0].0, other.0);
        assert_eq!(all[0].1, other.1);
        assert_eq!(all[0].2, other.2);
    }
    let server = serve(&cluster);
    // After the move, a retried send returns the original message, and the pair still has its direct conversation.
    let mut one = caller(&cluster, &server, &name(1)).await;
    let again = json!({ "body": "here", "conversationId": lived.direct });
    let direct = change(
        &mut one,
        "startDirectConversation",
        json!({ "username": name(0) }),
        MADE,
    )
    .await;
    assert_eq!(text(&direct["conversation"]["id"]), lived.direct);
    send(&mut one, &lived.direct, again).await;
    // While it is served, a cluster can be exported, and says what that means.
    let ended = cluster.run(&["export", "served.jsonl"]);
    ended.succeeded();
    assert!(
        ended
            .stderr
            .contains("the file can miss what servers write"),
        "{}",
        ended.stderr
    );
    stop(server);
}

/// Enough that an export takes a while.
fn much() -> String {
    let conversation = |n: u32| format!("550e8400-e29b-41d4-a716-{n:012}");
    let mut text = String::new();
    for n in 0..40 {
        let people: Vec<_> = (0..20)
            .map(|user| json!({ "username": name(user) }))
            .collect();
        let id = conversation(n);
        text += &format!(
            r#"{{"type":"conversation","id":"{id}","participants":{}}}"#,
            Value::from(people)
        );
        text.push('\n');
        for message in 0..700_u32 {
            let id = format!("{message:08x}-{n:04x}-11ef-8001-000000000001");
            let fields = format!(
                r#""conversationId":"{}","id":"{id}","sender":"{}","body":"{message}""#,
                conversation(n),
                name(1)
            );
            text += &format!("{{\"type\":\"message\",{fields}}}\n");
            if message % 100 == 0 {
                let fields = format!(
                    r#""conversationId":"{}","messageId":"{id}","emoji":"👍","username":"{}""#,
                    conversation(n),
                    name(2)
                );
                text += &format!("{{\"type\":\"reaction\",{fields}}}\n");
            }
        }
    }
    text
}

#[test]
#[ignore = "gate: killed and started again and again"]
fn an_export_that_is_killed_goes_on_and_comes_out_the_same() {
    let program = Program::new();
    let path = program.write("much.jsonl", &much());
    program.run(&["import", &path]).succeeded();
    let began = Instant::now();
    program.run(&["export", "straight.jsonl"]).succeeded();
    let took = began.elapsed();
    let file = |name: &str| program.dir.path().join(name);
    let partial = || {
        let folder = std::fs::read_dir(program.dir.path()).unwrap();
        folder
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|end| end == "partial"))
    };
    let mut resumed = 0;
    for kill in 1..=KILLS {
        let mut command = program.command(&["export", "killed.jsonl"]);
        let export = Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        // Somewhere on its way: once there is more than before, or it is over.
        let before = partial().map_or(0, |path| path.metadata().unwrap().len());
        let deadline = Instant::now() + took * 3 + Duration::from_secs(20);
        while !file("killed.jsonl").exists()
            && partial().is_none_or(|path| path.metadata().map_or(0, |there| there.len()) <= before)
        {
            assert!(Instant::now() < deadline, "export {kill} writes nothing");
            std::thread::sleep(Duration::from_millis(2));
        }
        export.kill();
        if file("killed.jsonl").exists() {
            break;
        }
        resumed += 1;
    }
    assert!(resumed > 0, "it was never killed on its way");
    if let Some(path) = partial() {
        // As a crash leaves it: in the middle of a line.
        let length = path.metadata().unwrap().len();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length.saturating_sub(7))
            .unwrap();
        let ended = program.run(&["export", "killed.jsonl"]);
        ended.succeeded();
        assert!(ended.stderr.contains("after line"), "{}", ended.stderr);
    }
    assert!(partial().is_none(), "nothing is left of it");
    let text = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let without_header = |text: String| text.split_once('\n').unwrap().1.to_owned();
    assert!(
        without_header(text("killed.jsonl")) == without_header(text("straight.jsonl")),
        "the two files are not the same"
    );
}
