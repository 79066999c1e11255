//! `wideroom import`: what it keeps, what it names, and that it may be given again.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::Program;

const SAMPLE: &str = include_str!("../../src/cli/demo.jsonl");
const CONVERSATION: &str = "550e8400-e29b-41d4-a716-446655440001";

fn summary(
    users: &str,
    conversations: &str,
    participants: &str,
    messages: &str,
    broken: u64,
) -> String {
    summary_with(
        "0 / 0",
        &format!(
            "users {users}, conversations {conversations}, participants {participants}, messages {messages}"
        ),
        broken,
    )
}

fn summary_with(reactions: &str, others: &str, broken: u64) -> String {
    let kinds = format!("{others}, reactions {reactions}, pins 0 / 0, reports 0 / 0");
    format!("added / unchanged: {kinds}; broken lines: {broken}\n")
}

/// Messages of one conversation, each with an id of its own.
fn messages(count: u64) -> String {
    let mut lines = String::new();
    for number in 0..count {
        let id = format!("{number:08x}-0000-11ef-8001-000000000001");
        let fields = format!(
            r#""conversationId":"{CONVERSATION}","id":"{id}","sender":"alice","body":"number {number}""#
        );
        writeln!(lines, "{{\"type\":\"message\",{fields}}}").unwrap();
    }
    lines
}

fn conversation() -> String {
    format!(
        "{{\"type\":\"conversation\",\"id\":\"{CONVERSATION}\",\"participants\":[{{\"username\":\"alice\"}}]}}\n"
    )
}

#[test]
fn importing_twice_changes_nothing() {
    let program = Program::new();
    let path = program.write("sample.jsonl", SAMPLE);
    assert_eq!(
        program.run(&["import", &path]).succeeded(),
        summary("4 / 0", "2 / 0", "6 / 0", "15 / 0", 0)
    );
    assert_eq!(
        program.run(&["import", &path]).succeeded(),
        summary("0 / 4", "0 / 2", "0 / 6", "0 / 15", 0)
    );
    assert_eq!(
        program.run_with_input(&["import", "-"], SAMPLE).succeeded(),
        summary("0 / 4", "0 / 2", "0 / 6", "0 / 15", 0)
    );
}

#[test]
fn a_broken_line_is_named_and_the_rest_goes_on() {
    let program = Program::new();
    let id = "00000000-0000-11ef-8001-000000000001";
    let reaction = format!(
        r#"{{"type":"reaction","conversationId":"{CONVERSATION}","messageId":"{id}","emoji":"a b","username":"bob"}}"#
    );
    let text = format!(
        "{}not json\n\n{reaction}\n{}{{\"type\":\"end\",\"lines\":99}}\n",
        conversation(),
        messages(1)
    );
    let ended = program.run_with_input(&["import", "-"], &text);
    assert_eq!(
        (ended.code, ended.stdout),
        (Some(1), summary("0 / 0", "1 / 0", "1 / 0", "1 / 0", 3))
    );
    let said: Vec<_> = ended.stderr.lines().collect();
    let expected = [
        "line 2: expected ident at column 2",
        "line 4: `emoji` must be one emoji of Unicode, as 👍",
        "line 6: the file is not whole: it has 5 lines before this one, and should have 99",
        "wideroom: broken lines skipped: 3; the rest is imported",
    ];
    assert_eq!(said, expected);
}

#[test]
fn lines_may_come_in_any_order() {
    let program = Program::new();
    let text = format!("{}{}", messages(20), conversation());
    assert_eq!(
        program.run_with_input(&["import", "-"], &text).succeeded(),
        summary("0 / 0", "1 / 0", "1 / 0", "20 / 0", 0)
    );
}

#[test]
fn an_export_that_was_cut_off_is_not_taken_for_a_whole_one() {
    let program = Program::new();
    let header = r#"{"type":"header","format":1}"#;
    let ended = program.run_with_input(
        &["import", "-"],
        &format!("{header}\n{}{}", conversation(), messages(2)),
    );
    assert_eq!(
        (ended.code, ended.stdout),
        (Some(1), summary("0 / 0", "1 / 0", "1 / 0", "2 / 0", 1))
    );
    let sentence =
        "line 5: the file is not whole: it begins as an export, and its end is missing\n";
    assert!(ended.stderr.starts_with(sentence), "{}", ended.stderr);
    let whole = format!(
        "{header}\n{}{}{{\"type\":\"end\",\"lines\":4}}\n",
        conversation(),
        messages(2)
    );
    program.run_with_input(&["import", "-"], &whole).succeeded();
}

/// A reaction waits for its message, and that for its conversation.
#[test]
fn reactions_may_come_first() {
    let program = Program::new();
    let reaction = |number: u32| {
        let id = format!("{number:08x}-0000-11ef-8001-000000000001");
        format!(
            r#"{{"type":"reaction","conversationId":"{CONVERSATION}","messageId":"{id}","emoji":"👍","username":"bob"}}"#
        ) + "\n"
    };
    let text = [
        reaction(1),
        reaction(7),
        messages(2),
        conversation(),
        reaction(0),
    ]
    .concat();
    let ended = program.run_with_input(&["import", "-"], &text);
    let others = "users 0 / 0, conversations 1 / 0, participants 1 / 0, messages 2 / 0";
    assert_eq!(
        (ended.code, ended.stdout),
        (Some(1), summary_with("2 / 0", others, 1))
    );
    let sentence =
        "line 2: message 00000007-0000-11ef-8001-000000000001 is not in the file or in the store\n";
    assert!(ended.stderr.starts_with(sentence), "{}", ended.stderr);
}

#[test]
fn a_line_whose_conversation_never_comes_is_named_by_its_number() {
    let program = Program::new();
    let ended = program.run_with_input(&["import", "-"], &format!("\n{}", messages(1)));
    assert_eq!(ended.code, Some(1));
    let sentence =
        format!("line 2: conversation {CONVERSATION} is not in the file or in the store\n");
    assert!(ended.stderr.starts_with(&sentence), "{}", ended.stderr);
}

#[test]
fn two_people_have_one_direct_conversation() {
    let program = Program::new();
    let direct = |id: u32| {
        let id = CONVERSATION.replace("0001", &format!("000{id}"));
        let people = r#"[{"username":"alice"},{"username":"bob"}]"#;
        format!(
            "{{\"type\":\"conversation\",\"id\":\"{id}\",\"kind\":\"DIRECT\",\"participants\":{people}}}\n"
        )
    };
    let sentence =
        format!("these users have another direct conversation already: {CONVERSATION}\n");
    let ended = program.run_with_input(&["import", "-"], &[direct(1), direct(2)].concat());
    assert_eq!(
        (ended.code, ended.stdout),
        (Some(1), summary("0 / 0", "1 / 0", "2 / 0", "0 / 0", 1))
    );
    assert!(
        ended.stderr.starts_with(&format!("line 2: {sentence}")),
        "{}",
        ended.stderr
    );
    let later = program.run_with_input(&["import", "-"], &direct(3));
    assert_eq!(
        (later.code, later.stdout),
        (Some(1), summary("0 / 0", "0 / 0", "0 / 0", "0 / 0", 1))
    );
    assert!(
        later.stderr.starts_with(&format!("line 1: {sentence}")),
        "{}",
        later.stderr
    );
}

#[test]
fn an_unreadable_file_is_one_line() {
    let program = Program::new();
    program.run(&["import", "nowhere.jsonl"]).failed(
        1,
        "nowhere.jsonl cannot be read: No such file or directory (os error 2)",
    );
    program
        .run(&["import", "."])
        .failed(1, ". cannot be read: is a directory");
    assert!(!program.data().exists(), "nothing is opened for it");
}

/// Ended in the middle, in order and by force: nothing is lost, and nothing is there twice.
#[test]
fn an_interrupted_import_goes_on_where_it_was() {
    let program = Program::new();
    let count = 60_000;
    let path = program.write(
        "chats.jsonl",
        &format!("not json\n{}{}", conversation(), messages(count)),
    );
    let mut resumed = 0;
    for signal in ["-INT", "-KILL", "-TERM", "-KILL"] {
        let mut child = program
            .command(&["import", &path])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        // The first thing it says, the broken line or that it goes on, is said once it is under way.
        stderr.read_line(&mut first).unwrap();
        resumed += u32::from(first.contains("after line"));
        Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap();
        child.wait().unwrap();
    }
    let ended = program.run(&["import", &path]);
    assert!(
        resumed > 0 || ended.stderr.contains("after line"),
        "{}",
        ended.stderr
    );
    assert_eq!(
        ended.code,
        Some(1),
        "the broken line of the first run still counts: {}",
        ended.stderr
    );
    let again = program.run(&["import", &path]);
    assert_eq!(
        again.stdout,
        summary("0 / 0", "0 / 1", "0 / 1", &format!("0 / {count}"), 1)
    );
}
