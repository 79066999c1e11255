//! The help teaches: every command says what it is for, shows examples, and names its defaults and variables.

use super::Program;

#[test]
fn the_program_says_what_it_is_and_how_to_begin() {
    let program = Program::new();
    let help = program.run(&["--help"]);
    let help = help.succeeded();
    for piece in [
        "wideroom --demo",
        "Commands:",
        "serve",
        "token",
        "import",
        "127.0.0.1:8080",
        "WIDEROOM_LISTEN",
    ] {
        assert!(help.contains(piece), "{piece}: {help}");
    }
}

#[test]
fn every_command_teaches_itself() {
    let program = Program::new();
    let help = program.run(&["--help"]);
    let listed = help
        .succeeded()
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    let commands: Vec<_> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let help = program.run(&[command, "--help"]);
        let help = help.succeeded();
        for piece in [
            "Usage: wideroom",
            "Examples:",
            &format!("wideroom {command}"),
        ] {
            assert!(help.contains(piece), "{command}: {piece}: {help}");
        }
    }
}

#[test]
fn the_environment_is_named_but_never_shown() {
    let program = Program::new();
    let help = program
        .command(&["--help"])
        .env("WIDEROOM_STORE", "cql://user:hunter2@host/chat")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(
        help.contains("WIDEROOM_STORE") && !help.contains("hunter2"),
        "{help}"
    );
}

#[test]
fn wrong_usage_ends_with_two() {
    let program = Program::new();
    for arguments in [
        &["sevre"][..],
        &["--no-such-flag"],
        &["import"],
        &["token"],
        &["token", "--user", ""],
        &["--demo", "token"],
    ] {
        let ended = program.run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(
            ended.stderr.contains("--help"),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn the_schema_is_printed_as_it_is_committed() {
    let program = Program::new();
    assert_eq!(
        program.run(&["schema"]).succeeded(),
        include_str!("../../schema.graphql")
    );
}
