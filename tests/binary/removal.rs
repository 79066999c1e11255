//! A server that removes expired messages is killed again and again: what has not expired is all there, and what was removed stays away.

use std::fmt::Write as _;
use std::time::Duration;

use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::MessageId;

use super::Dice;
use crate::support::program::Program;
use crate::support::server::Server;

const GROUP: &str = "550e8400-e29b-41d4-a716-446655440001";
const EXPIRED: i64 = 6_000;
const FRESH: i64 = 50;
const SECOND: i64 = 1_000_000;
const ROUNDS_MAX: usize = 60;

/// Messages of three days ago with reactions, and a few of now.
fn file() -> String {
    let now = SystemClock.now();
    let mut lines = format!(
        r#"{{"type":"conversation","id":"{GROUP}","kind":"GROUP","createdAt":"2026-01-01T00:00:00Z","participants":[{{"username":"ann"}},{{"username":"ben"}}]}}"#
    );
    let mut say = |seconds: i64, number: i64| {
        let id = MessageId::new(now.plus_micros(-seconds * SECOND), [1; 8]);
        write!(lines, "\n{{\"type\":\"message\",\"conversationId\":\"{GROUP}\",\"id\":\"{id}\",\"sender\":\"ann\",\"body\":\"number {number}\"}}").unwrap();
        if number % 10 == 0 {
            write!(lines, "\n{{\"type\":\"reaction\",\"conversationId\":\"{GROUP}\",\"messageId\":\"{id}\",\"emoji\":\"👍\",\"username\":\"ben\"}}").unwrap();
        }
    };
    for number in 0..EXPIRED {
        say(3 * 86_400 - number, number);
    }
    for number in 0..FRESH {
        say(600 - number, EXPIRED + number);
    }
    lines
}

/// The numbers of the messages that an export has, and its reactions.
fn left(program: &Program) -> (Vec<i64>, usize) {
    let exported = program.run(&["export", "-"]);
    let lines = exported.succeeded();
    let number = |line: &str| {
        let rest = line.split_once("\"body\":\"number ")?.1;
        rest.split_once('"')?.0.parse().ok()
    };
    let numbers = lines.lines().filter_map(number).collect();
    let is_reaction = |line: &&str| line.contains("\"type\":\"reaction\"");
    (numbers, lines.lines().filter(is_reaction).count())
}

#[test]
fn a_removal_that_is_killed_loses_and_resurrects_nothing() {
    let program = Program::new();
    let path = program.write("old.jsonl", &file());
    program.run(&["import", &path]).succeeded();
    let mut dice = Dice::new();
    let (mut last, mut kills) = (EXPIRED + FRESH, 0);
    while last > FRESH {
        let arguments = ["--retention", "1d", "--log", "warn", "--rates", "off"];
        let server = Server::start(&program, &arguments);
        std::thread::sleep(Duration::from_millis(100 + dice.roll(700)));
        server.kill();
        kills += 1;
        assert!(
            kills < ROUNDS_MAX,
            "{last} messages are left after {kills} kills"
        );
        let (numbers, reactions) = left(&program);
        let count = numbers.len() as i64;
        assert!(count <= last, "{count} after {last}");
        // The oldest have gone first, and no other one.
        let expected: Vec<_> = (EXPIRED + FRESH - count..EXPIRED + FRESH).collect();
        assert_eq!(numbers, expected);
        let reacted = expected.iter().filter(|number| **number % 10 == 0).count();
        assert_eq!(reactions, reacted);
        last = count;
    }
    assert_eq!(last, FRESH);
    println!("{kills} servers were killed");
    program.run(&["verify"]).succeeded();
}
