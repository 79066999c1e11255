//! `wideroom verify`: what it says of a sound store, and what it refuses. Damaged ones are looked at where they can be damaged.

use super::Program;
use crate::support::server::Server;

const SAMPLE: &str = include_str!("../../src/cli/demo.jsonl");

#[test]
fn a_sound_store_is_said_to_be_one() {
    let program = Program::new();
    let path = program.write("sample.jsonl", SAMPLE);
    program.run(&["import", &path]).succeeded();
    // Two conversations, six participants, fifteen messages, and a row for each participant's inbox and for the pair.
    assert_eq!(
        program.run(&["verify"]).succeeded(),
        "sound: 30 rows checked\n"
    );
    assert_eq!(
        program.run(&["verify", "--repair"]).succeeded(),
        "sound: 30 rows checked\n"
    );
}

#[test]
fn a_store_that_is_served_or_not_there_is_refused() {
    let program = Program::new();
    let data = program.data();
    program
        .run(&["verify"])
        .failed(1, &format!("there is no store in {}", data.display()));
    let server = Server::start(&program, &[]);
    let sentence = format!(
        "{} is in use by another wideroom (serve, import, …): stop it first, or name another folder",
        data.display()
    );
    program.run(&["verify"]).failed(4, &sentence);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
