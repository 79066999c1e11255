//! `wideroom export`: what it writes where, and what it refuses.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use super::{Program, mode};
use crate::support::server::Server;

const SAMPLE: &str = include_str!("../../src/cli/demo.jsonl");
const SUMMARY: &str =
    "exported: users 4, conversations 2, participants 6, messages 15, reactions 0\n";

fn with_sample() -> Program {
    let program = Program::new();
    let path = program.write("sample.jsonl", SAMPLE);
    program.run(&["import", &path]).succeeded();
    program
}

#[test]
fn an_export_can_be_imported() {
    let program = with_sample();
    assert_eq!(program.run(&["export", "all.jsonl"]).succeeded(), SUMMARY);
    let file = program.dir.path().join("all.jsonl");
    assert_eq!(
        mode(&file),
        0o600,
        "it holds what people write to each other"
    );
    let other = Program::new();
    let summary = other
        .run(&["import", file.to_str().unwrap()])
        .succeeded()
        .to_owned();
    let kinds = "users 4 / 0, conversations 2 / 0, participants 6 / 0, messages 15 / 0, reactions 0 / 0, pins 0 / 0, reports 0 / 0";
    assert_eq!(
        summary,
        format!("added / unchanged: {kinds}; broken lines: 0\n")
    );
    // Again, over the file of before.
    assert_eq!(program.run(&["export", "all.jsonl"]).succeeded(), SUMMARY);
    let folder: Vec<_> = std::fs::read_dir(program.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(folder.len(), 3, "{folder:?}");
}

#[test]
fn a_pipe_gets_the_lines_and_nothing_else() {
    let program = with_sample();
    let ended = program.run(&["export", "-"]);
    let lines = ended.succeeded();
    assert!(
        lines.starts_with(r#"{"type":"header","format":3,"exportedAt":"#),
        "{lines}"
    );
    assert!(
        lines.ends_with("{\"type\":\"end\",\"lines\":28}\n"),
        "{lines}"
    );
    assert_eq!(ended.stderr, SUMMARY);
    let other = Program::new();
    assert!(
        other
            .run_with_input(&["import", "-"], lines)
            .succeeded()
            .contains("messages 15 / 0")
    );
}

#[test]
fn a_reader_that_goes_away_is_one_clear_line() {
    let program = with_sample();
    let mut export = program
        .command(&["export", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(export.stdout.take());
    let mut said = String::new();
    export
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(export.wait().unwrap().code(), Some(1));
    assert_eq!(
        said,
        "wideroom: the file cannot be written: Broken pipe (os error 32)\n"
    );
}

#[test]
fn an_unwritable_file_or_a_missing_store_is_one_line() {
    let program = Program::new();
    let data = program.data();
    program
        .run(&["export", "all.jsonl"])
        .failed(1, &format!("there is no store in {}", data.display()));
    assert!(!data.exists(), "nothing is made for it");
    let program = with_sample();
    program
        .run(&["export", "."])
        .failed(1, ". cannot be written: is a directory");
    let missing = "no such folder/all.jsonl";
    program.run(&["export", missing]).failed(
        1,
        &format!("{missing} cannot be written: No such file or directory (os error 2)"),
    );
}

#[test]
fn a_store_that_is_served_is_refused() {
    let program = with_sample();
    let server = Server::start(&program, &[]);
    let sentence = format!(
        "{} is in use by another wideroom (serve, import, …): stop it first, or name another folder",
        program.data().display()
    );
    program.run(&["export", "all.jsonl"]).failed(4, &sentence);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    program.run(&["export", "all.jsonl"]).succeeded();
}

/// An export or import of another store is not resumed.
#[test]
fn each_store_goes_on_with_its_own() {
    let (program, other) = (with_sample(), Program::new());
    let path = other.write("one.jsonl", SAMPLE.lines().next().unwrap());
    other.run(&["import", &path]).succeeded();
    let target = program.dir.path().join("all.jsonl");
    let target = target.to_str().unwrap();
    let mut export = program
        .command(&["export", "/dev/stdout"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(export.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    export.wait().unwrap();
    assert!(first.contains("header"), "a device is a pipe: {first}");
    program.run(&["export", target]).succeeded();
    assert_eq!(
        other.run(&["export", target]).succeeded(),
        "exported: users 1, conversations 0, participants 0, messages 0, reactions 0\n"
    );
}
