//! `wideroom import`, killed again and again: in the end all is as if nothing had happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Dice;
use super::read::{self, Entry, History};
use super::stage::serve;
use crate::support::client::Caller;
use crate::support::program::{Program, Running};

const MESSAGES: u64 = 20_000;
const USERS: u64 = 40;
const CONVERSATIONS: u64 = 30;
const LARGE: u64 = 0;
/// Kills at most; where the machine is so quick that it ends before, fewer.
const KILLS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: killed and started again and again"]
async fn an_import_that_is_killed_goes_on_and_comes_out_the_same() {
    let (straight, killed) = (Program::new(), Program::new());
    let text = file();
    let (path, same) = (
        straight.write("chats.jsonl", &text),
        killed.write("chats.jsonl", &text),
    );
    let began = Instant::now();
    let summary = straight.run(&["import", &path]).succeeded().to_owned();
    let resumed = kill_many_times(&killed, &same, began.elapsed());
    let last = killed.run(&["import", &same]);
    assert!(
        resumed + usize::from(goes_on(&last.stderr)) > 0,
        "no import went on: {}",
        last.stderr
    );
    // Rows persisted after the last checkpoint are imported again and reported as unchanged.
    assert_eq!(rows(last.succeeded()), rows(&summary));
    assert_eq!(
        killed.run(&["import", &same]).succeeded(),
        straight.run(&["import", &path]).succeeded()
    );
    let (left, right) = tokio::join!(everything(&straight), everything(&killed));
    let messages: usize = left.0.values().map(|history| history.messages.len()).sum();
    assert_eq!(messages as u64, MESSAGES);
    for (conversation, history) in &left.0 {
        assert_eq!(Some(history), right.0.get(conversation), "{conversation}");
        assert_eq!(history.message_count as usize, history.messages.len());
    }
    assert_eq!(left.1, right.1, "the inboxes");
    println!("{resumed} imports went on after a kill");
}

/// How many of those that were killed had gone on from an earlier one.
fn kill_many_times(program: &Program, path: &str, takes: Duration) -> usize {
    let mut dice = Dice::new();
    let mut resumed = 0;
    for kill in 0..KILLS {
        let mut command = program.command(&["import", path]);
        let mut import = Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        // The first one gets under way for certain; after that any moment will do, the very first ones included.
        let percent = if kill == 0 { 35 } else { dice.roll(20) };
        std::thread::sleep(takes.mul_f64(percent as f64 / 100.0));
        let is_over = import.child.try_wait().unwrap().is_some();
        let mut stderr = import.child.stderr.take().unwrap();
        import.kill();
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        resumed += usize::from(goes_on(&said));
        if is_over {
            break;
        }
    }
    resumed
}

fn goes_on(stderr: &str) -> bool {
    stderr.contains("after line")
}

/// Rows of each kind, whether they were new or not.
fn rows(summary: &str) -> Vec<u64> {
    let kinds = summary
        .split_once(": ")
        .unwrap()
        .1
        .split_once(';')
        .unwrap()
        .0
        .split(", ");
    kinds
        .map(|kind| {
            kind.split(' ')
                .filter_map(|word| word.parse::<u64>().ok())
                .sum()
        })
        .collect()
}

fn user(number: u64) -> String {
    format!("user-{number:02}")
}

fn conversation(number: u64) -> Uuid {
    Uuid::from_u128(0x550e_8400_e29b_41d4_a716_0000_0000_0000 + u128::from(number))
}

/// One is large, ten are direct, the others are groups of five.
fn participants(number: u64) -> Vec<u64> {
    match number {
        LARGE => (0..USERS).collect(),
        1..=10 => vec![number, number + 1],
        _ => (0..5).map(|seat| (number + 3 * seat) % USERS).collect(),
    }
}

/// A timeuuid of 2025, a millisecond after the one before.
fn message(number: u64) -> String {
    let ticks = 0x01B2_1DD2_1381_4000 + 17_356_896_000_000_000 + number * 10_000;
    format!(
        "{:08x}-{:04x}-1{:03x}-8001-000000000001",
        ticks & 0xffff_ffff,
        ticks >> 32 & 0xffff,
        ticks >> 48
    )
}

/// Messages of every kind, some of them before their conversation.
fn file() -> String {
    let mut dice = Dice::new();
    let mut lines = vec![json!({ "type": "header", "format": 1 })];
    lines.extend((0..USERS).map(|number| json!({ "type": "user", "username": user(number), "displayName": format!("User {number}") })));
    let mut last = BTreeMap::new();
    let mut messages = Vec::new();
    for number in 0..MESSAGES {
        let at = if number < CONVERSATIONS {
            number
        } else {
            dice.roll(CONVERSATIONS)
        };
        let sender = user(*dice.pick(&participants(at)));
        let mut line = json!({ "type": "message", "conversationId": conversation(at), "id": message(number), "sender": sender,
            "body": format!("number {number}") });
        match dice.roll(40) {
            0 => line["metadata"] = json!({ "number": number }),
            1 => line["clientKey"] = json!(format!("key-{number}")),
            2 => line["replyTo"] = json!(last.get(&at)),
            3 => line["deletedAt"] = json!("2026-01-01T00:00:00Z"),
            _ => {}
        }
        last.insert(at, message(number));
        messages.push(line);
    }
    let later = messages.split_off(500);
    lines.extend(messages);
    for number in 0..CONVERSATIONS {
        let seats: Vec<_> = participants(number)
            .into_iter()
            .map(|seat| json!({ "username": user(seat), "readUpTo": message(dice.roll(MESSAGES)) }))
            .collect();
        let kind = if participants(number).len() == 2 {
            "DIRECT"
        } else {
            "GROUP"
        };
        lines.push(json!({ "type": "conversation", "id": conversation(number), "kind": kind, "name": format!("Number {number}"),
            "createdAt": "2025-01-01T00:00:00Z", "participants": seats }));
    }
    lines.extend(later);
    lines.push(json!({ "type": "end", "lines": lines.len() }));
    let mut text = String::new();
    for line in &lines {
        writeln!(text, "{}", in_order(line)).unwrap();
    }
    text
}

/// With `type` first, as the format has it.
fn in_order(line: &Value) -> String {
    let rest: serde_json::Map<_, _> = line
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| *key != "type")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let rest = Value::from(rest).to_string();
    let separator = if rest == "{}" { "" } else { "," };
    format!("{{\"type\":{}{separator}{}", line["type"], &rest[1..])
}

/// Every history and every inbox, through the API.
async fn everything(program: &Program) -> (BTreeMap<String, History>, Vec<Vec<Entry>>) {
    let server = serve(program);
    let caller = async |number| {
        Caller::connect(server.address(), &program.token(&user(number)))
            .await
            .unwrap()
    };
    let inboxes: Vec<_> = join_all(
        (0..USERS).map(async |number| read::inbox(&mut caller(number).await).await.entries),
    )
    .await;
    let readers: BTreeMap<_, _> = (0..)
        .zip(&inboxes)
        .flat_map(|(number, inbox)| {
            inbox
                .iter()
                .map(move |entry| (entry.conversation.clone(), number))
        })
        .collect();
    assert_eq!(readers.len() as u64, CONVERSATIONS);
    let histories = readers.into_iter().map(async |(id, number)| {
        let history = read::history(&mut caller(number).await, &id).await;
        (id, history)
    });
    let histories = join_all(histories).await.into_iter().collect();
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    (histories, inboxes)
}
