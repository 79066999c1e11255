//! Lines of an import that were good once. What is taken in can be read.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wideroom::clock::{Clock, SystemClock};
use wideroom::transfer::import::Import;

use super::tape::{Tape, play};
use crate::support::world::World;

const SAMPLE: &str = include_str!("../../src/cli/demo.jsonl");
const MORE: &str = include_str!("lines.jsonl");
const LINES_MAX: usize = 12;

const INBOX: &str = "{ inbox(first: 5) { edges { node { unreadCount lastMessage { body } firstUnreadMessage { id } conversation { name
    participants(first: 5) { edges { node { role readUpTo { id } user { displayName avatarUrl } } } }
    messages(first: 15) { edges { node { body metadata attachments { url } createdAt editedAt replyTo { id } sender { username } } } } } } } } }";

fn lines(tape: &mut Tape) -> String {
    let all: Vec<&str> = SAMPLE.lines().chain(MORE.lines()).collect();
    let mut text = String::new();
    for _ in 0..=tape.number(LINES_MAX) {
        let line = tape.one_of(&all);
        let line = if tape.once_in(3) {
            line.to_owned()
        } else {
            tape.damage(line)
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[test]
fn damaged_lines_are_left_out_and_the_rest_can_be_read() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(World::with_sample());
    let (clock, dir): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), tempfile::tempdir().unwrap());
    play(lines, |text| {
        let import = Import {
            store: world.store.clone(),
            clock: clock.clone(),
            dir: dir.path().to_owned(),
            is_lossy: false,
            stop: CancellationToken::new(),
        };
        let count = text.lines().count() as u64;
        let outcome =
            runtime.block_on(import.pipe(std::io::Cursor::new(text.into_bytes()), &mut |_| {}));
        let outcome = outcome.expect("a broken line is no reason to end");
        // An end that is missing is one more.
        assert!(outcome.counts.broken_lines <= count + 1);
        for name in ["alice", "bob"] {
            let answer = runtime.block_on(world.user(name).ask(INBOX, json!({})));
            assert!(
                answer
                    .0
                    .get("errors")
                    .is_none_or(|errors| errors == &json!([])),
                "{}",
                answer.0["errors"]
            );
        }
    });
}
