//! `wideroom reindex`: what it prints, and that a sound store stays so.

use super::Program;

const SAMPLE: &str = include_str!("../../src/cli/demo.jsonl");

#[test]
fn every_message_is_indexed_again_and_the_store_is_sound() {
    let program = Program::new();
    let path = program.write("sample.jsonl", SAMPLE);
    program.run(&["import", &path]).succeeded();
    for _ in 0..2 {
        let ended = program.run(&["reindex"]);
        assert_eq!(
            ended.succeeded(),
            "indexed: 15 messages of 2 conversations\n"
        );
    }
    let verified = program.run(&["verify"]);
    assert!(
        verified.succeeded().starts_with("sound: "),
        "{}",
        verified.succeeded()
    );
}
