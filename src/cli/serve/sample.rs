//! Sample data of `--demo`: the given one, whose ids lie in the past, and beside it a conversation of today.

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

/// Lines of a group whose messages everybody has read, so that the counts of the sample stay.
fn kitchen(now: Timestamp) -> String {
    let at = |minutes: i64| now.plus_micros(-minutes * MINUTE_MICROS);
    let id = |minutes: i64| MessageId::new(at(minutes), [0; 8]).to_string();
    let read_up_to = KITCHEN_MESSAGES.last().map(|&(minutes, _, _)| id(minutes));
    let participant = |(username, role): (&str, &str)| json!({"username": username, "role": role, "readUpTo": read_up_to});
    let people = [
        ("alice", "MEMBER"),
        ("bob", "ADMIN"),
        ("carol", "OWNER"),
        ("dave", "MEMBER"),
    ];
    let conversation = json!({
        "type": "conversation", "id": KITCHEN, "kind": "GROUP", "name": "Kitchen",
        "createdAt": at(60).to_string(), "createdBy": "carol",
        "participants": people.map(participant),
    });
    let message = |&(minutes, sender, body): &(i64, &str, &str)| {
        let mentions: &[&str] = if body.contains("@alice") {
            &["alice"]
        } else {
            &[]
        };
        json!({
            "type": "message", "conversationId": KITCHEN, "id": id(minutes), "sender": sender, "body": body, "mentions": mentions,
        })
    };
    let lines = std::iter::once(conversation).chain(KITCHEN_MESSAGES.iter().map(message));
    lines.map(|line: Value| format!("{line}\n")).collect()
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
    let lines = format!("{}\n{}", SAMPLE.trim_end(), kitchen(clock.now()));
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
