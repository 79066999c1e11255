//! Store with a nearly full journal, made by an import.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::json;
use uuid::Uuid;
use wideroom::model::{MessageId, Timestamp};

use super::load::{Action, Ledger, Task, USERS, name, random_text};
use crate::binary::Dice;
use crate::support::program::Program;

/// The engine seals a journal of 64 MB. These stay below that, and the load passes it.
const MESSAGES: i64 = 4_000;
const BODY_BYTES: u64 = 15_000;

/// Imports the messages, and notes them as the acknowledged work of one user.
pub(super) fn large_store() -> (Program, Ledger) {
    let program = Program::new();
    let dice = &mut Dice::seeded(0);
    let conversation = Uuid::from_u128(0x550e_8400_e29b_41d4_a716_4466_5544_0001);
    let people: Vec<_> = (0..USERS)
        .map(|user| json!({ "username": name(user) }))
        .collect();
    let mut lines = format!(
        r#"{{"type":"conversation","id":"{conversation}","participants":{}}}"#,
        json!(people)
    );
    lines.push('\n');
    let mut actions = vec![Action::Create {
        conversation,
        users: (0..USERS).collect(),
    }];
    let start = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    for number in 0..MESSAGES {
        let message = MessageId::new(start.plus_micros(number), [1; 8]);
        let (key, body) = (format!("import-{number}"), random_text(dice, BODY_BYTES));
        writeln!(
            lines,
            r#"{{"type":"message","conversationId":"{conversation}","id":"{message}","sender":"{}","clientKey":"{key}","body":"{body}"}}"#,
            name(0)
        )
        .unwrap();
        actions.push(Action::Send {
            conversation,
            message,
            key,
            body,
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.jsonl");
    std::fs::write(&path, lines).unwrap();
    program.run(&["import", path.to_str().unwrap()]).succeeded();
    let acks = HashMap::from([(0, actions.len())]);
    let tasks = vec![Task { user: 0, actions }];
    let ledger = Ledger {
        tasks,
        acks,
        ..Ledger::default()
    };
    (program, ledger)
}
