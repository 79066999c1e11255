//! Sample data of `--demo`: the given one, whose ids lie in the past, and beside it conversations of today: a group, and
//! those of each user with the agent that the demo page runs.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cli::error::Error;
use crate::clock::Clock;
use crate::model::{MessageId, Timestamp};
use crate::store::{NOTE_IMPORTED_AT, StoreAdmin};
use crate::transfer::import::{Import, ImportReport};
use crate::transfer::line::Line;

const SAMPLE: &str = include_str!("../demo.jsonl");

/// Agent of the demo page: `pages/demo/echo.js` writes its answers.
pub(super) const ECHO: &str = "agent:echo";
const ECHO_MINUTES: i64 = 59;
const ECHO_GREETING: &str = "Hello! Write me something, and watch me answer.";

const KITCHEN: &str = "550e8400-e29b-41d4-a716-446655440003";
const MINUTE_MICROS: i64 = 60_000_000;
/// Minutes ago, sender and body of each message of the kitchen.
const KITCHEN_MESSAGES: [(i64, &str, &str); 7] = [
    (58, "carol", "Good morning! It is my turn to cook today."),
    (
        52,
        "carol",
        "Soup today: tomato with basil, or lentils with lemon. https://example.org/menu",
    ),
    (47, "bob", "Lentils. @alice, shall I keep you a bowl?"),
    (45, "alice", "Yes please! Twelve?"),
    (44, "bob", "Twelve it is."),
    (41, "dave", "I bring the bread 🍞"),
    (38, "carol", "Then all is set."),
];

/// Usernames of the sample.
pub(super) fn users() -> Vec<String> {
    let user = |line: &str| {
        if let Ok(Line::User(user)) = Line::parse(line.as_bytes()) {
            Some(user.username)
        } else {
            None
        }
    };
    SAMPLE.lines().filter_map(user).collect()
}

/// Conversations of the last hour, whose messages everybody has read, so that the counts of the sample stay.
struct Today {
    now: Timestamp,
}

impl Today {
    fn at(&self, minutes: i64) -> Timestamp {
        self.now.plus_micros(-minutes * MINUTE_MICROS)
    }

    fn id(&self, minutes: i64) -> String {
        MessageId::new(self.at(minutes), [0; 8]).to_string()
    }

    fn kitchen(&self) -> Vec<Value> {
        let read_up_to = KITCHEN_MESSAGES
            .last()
            .map(|&(minutes, _, _)| self.id(minutes));
        let participant = |(username, role): (&str, &str)| json!({"username": username, "role": role, "readUpTo": read_up_to});
        let people = [
            ("alice", "MEMBER"),
            ("bob", "ADMIN"),
            ("carol", "OWNER"),
            ("dave", "MEMBER"),
        ];
        let conversation = json!({
            "type": "conversation", "id": KITCHEN, "kind": "GROUP", "name": "Kitchen",
            "createdAt": self.at(60).to_string(), "createdBy": "carol",
            "participants": people.map(participant),
        });
        let message = |&(minutes, sender, body): &(i64, &str, &str)| {
            let mentions: &[&str] = if body.contains("@alice") {
                &["alice"]
            } else {
                &[]
            };
            json!({
                "type": "message", "conversationId": KITCHEN, "id": self.id(minutes), "sender": sender, "body": body, "mentions": mentions,
            })
        };
        let conversation = std::iter::once(conversation);
        conversation
            .chain(KITCHEN_MESSAGES.iter().map(message))
            .collect()
    }

    fn echo(&self) -> Vec<Value> {
        let mut lines = vec![json!({"type": "user", "username": ECHO, "displayName": "Echo"})];
        let read_up_to = self.id(ECHO_MINUTES);
        for (number, user) in users().iter().enumerate() {
            let id = format!("550e8400-e29b-41d4-a716-4466554400{:02}", 10 + number);
            lines.push(json!({
                "type": "conversation", "id": id, "kind": "DIRECT", "createdAt": self.at(60).to_string(),
                "participants": [{"username": user, "readUpTo": read_up_to}, {"username": ECHO}],
            }));
            lines.push(json!({
                "type": "message", "conversationId": id, "id": read_up_to, "sender": ECHO, "body": ECHO_GREETING,
            }));
        }
        lines
    }

    fn lines(&self) -> String {
        let lines = [self.kitchen(), self.echo()].concat();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Loads the sample into an empty store. A store with data stays as it is, so that a demo can be restarted. `has_begun`: an
/// earlier call has begun to load, and failed.
pub(super) async fn load(
    store: &Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    data: &Path,
    has_begun: &mut bool,
) -> Result<(), Error> {
    let has_data = !*has_begun && !is_empty(store).await?;
    if has_data {
        tracing::info!("the store is not empty; the server does not load the sample");
        return Ok(());
    }
    *has_begun = true;
    let today = Today { now: clock.now() };
    let lines = format!("{}\n{}", SAMPLE.trim_end(), today.lines());
    let import = Import {
        store: store.clone(),
        clock,
        dir: data.to_owned(),
        is_lossy: false,
        stop: CancellationToken::new(),
    };
    let on_report = &mut |report: ImportReport<'_>| {
        if let ImportReport::Broken(fault) = report {
            tracing::warn!(
                line = fault.line,
                reason = fault.reason,
                "the import skipped a line of the sample"
            );
        }
    };
    let counts = import
        .pipe(std::io::Cursor::new(lines), on_report)
        .await?
        .counts;
    tracing::info!(
        conversations = counts.conversations.added,
        messages = counts.messages.added,
        "the server loaded the sample"
    );
    Ok(())
}

async fn is_empty(store: &Arc<dyn StoreAdmin>) -> Result<bool, Error> {
    Ok(store.newest_id().await?.is_none() && store.note(NOTE_IMPORTED_AT).await?.is_none())
}
