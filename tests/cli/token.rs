//! `wideroom token`, and the key it signs with.

use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::ServiceRights;

use super::{Program, mode};

#[test]
fn a_token_is_printed_alone_and_signs_in() {
    let program = Program::new();
    let ended = program.run(&["token", "--user", "Ärzte ohne Grenzen", "--ttl", "15m"]);
    let token = ended.succeeded().strip_suffix('\n').unwrap();
    assert!(
        !token.contains(char::is_whitespace) && ended.stderr.is_empty(),
        "{token} {}",
        ended.stderr
    );
    let identity = Auth::open(&program.data()).unwrap().verify(token).unwrap();
    assert_eq!(identity.user.as_str(), "Ärzte ohne Grenzen");
    let seconds_left =
        (identity.expires_at.unwrap().micros() - SystemClock.now().micros()) / 1_000_000;
    assert!(
        (15 * 60 - 60..=15 * 60).contains(&seconds_left),
        "{seconds_left}"
    );
}

#[test]
fn the_key_is_made_where_there_is_none_and_the_store_is_not() {
    let program = Program::new();
    program.run(&["token", "--user", "alice"]).succeeded();
    let files: Vec<_> = std::fs::read_dir(program.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(files, ["token.key"]);
    assert_eq!(
        (
            mode(&program.data().join("token.key")),
            mode(&program.data())
        ),
        (0o600, 0o700)
    );
}

#[test]
fn the_data_flag_goes_over_the_environment() {
    let program = Program::new();
    let token = program.run(&["token", "--user", "alice", "--data", "elsewhere"]);
    let auth = Auth::open(&program.dir.path().join("elsewhere")).unwrap();
    assert!(auth.verify(token.succeeded().trim()).is_ok());
    assert!(!program.data().exists());
}

#[test]
fn a_user_has_a_name() {
    let program = Program::new();
    let ended = program.run(&["token", "--user", "al\nice"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended
            .stderr
            .contains("a username must not hold control characters"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_broken_key_is_one_clear_line_that_does_not_show_it() {
    let program = Program::new();
    std::fs::create_dir(program.data()).unwrap();
    let path = program.data().join("token.key");
    std::fs::write(&path, "hunter2").unwrap();
    let line = format!(
        "{} must hold a signing key: at least 32 bytes as base64url text",
        path.display()
    );
    program.run(&["token", "--user", "alice"]).failed(1, &line);
}

#[test]
fn a_service_gets_a_token_with_the_scope() {
    let program = Program::new();
    let ended = program.run(&["token", "--service", "backend", "--ttl", "1h"]);
    let identity = Auth::open(&program.data())
        .unwrap()
        .verify(ended.succeeded().trim())
        .unwrap();
    assert_eq!(identity.rights, ServiceRights::ALL);
    assert_eq!(identity.user.as_str(), "backend");
    let ended = program.run(&["token", "--user", "alice"]);
    let auth = Auth::open(&program.data()).unwrap();
    assert!(
        auth.verify(ended.succeeded().trim())
            .unwrap()
            .rights
            .is_empty()
    );
    for scopes in [
        &["--scope", "outbox,wideroom:read"][..],
        &["--scope", "read", "--scope", "outbox"],
    ] {
        let ended = program.run(&[&["token", "--service", "push"], scopes].concat());
        let rights = auth.verify(ended.succeeded().trim()).unwrap().rights;
        assert_eq!(rights.scopes(), "wideroom:outbox wideroom:read");
    }
    for wrong in [
        &["token"][..],
        &["token", "--user", "a", "--service", "b"],
        &["token", "--service", ""],
        &["token", "--service", "push", "--scope", "everything"],
        &["token", "--user", "a", "--scope", "read"],
    ] {
        assert_eq!(program.run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn the_token_of_an_agent_has_its_scope() {
    let program = Program::new();
    let ended = program.run(&["token", "--user", "agent:helper"]);
    let auth = Auth::open(&program.data()).unwrap();
    let identity = auth.verify(ended.succeeded().trim()).unwrap();
    assert_eq!(identity.user.as_str(), "agent:helper");
    assert!(identity.rights.is_empty());
    let service = program.run(&["token", "--service", "agent:helper"]);
    assert_eq!(service.code, Some(2));
    assert!(service.stderr.contains("--user"), "{}", service.stderr);
}

/// Nothing lists the conversations of an agent, and it is no person.
#[test]
fn an_agent_is_neither_erased_nor_exported() {
    let program = Program::new();
    for command in [
        &["erase", "--user", "agent:helper"][..],
        &["export", "-", "--user", "agent:helper"],
    ] {
        let ended = program.run(command);
        assert_eq!(ended.code, Some(2), "{command:?}");
        assert!(ended.stderr.contains("no person"), "{}", ended.stderr);
    }
}

#[test]
fn a_secret_signs_instead_of_the_key_of_the_data_folder() {
    let program = Program::new();
    let path = program.dir.path().join("secret");
    std::fs::write(&path, "a secret of thirty-two bytes, and a few more").unwrap();
    let secret = path.to_str().unwrap();
    let auth = Auth::open_secret(&path).unwrap();
    for name in ["--user", "--service"] {
        let ended = program.run(&["token", name, "alice", "--token-secret-file", secret]);
        let identity = auth.verify(ended.succeeded().trim()).unwrap();
        assert_eq!(!identity.rights.is_empty(), name == "--service");
    }
    assert!(!program.data().exists(), "no key was made");
    std::fs::write(&path, "short").unwrap();
    let ended = program.run(&["token", "--user", "alice", "--token-secret-file", secret]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("a secret has at least 32 bytes"),
        "{}",
        ended.stderr
    );
}

/// The server verifies with the provider's keys alone: a token of the data folder's key would be none.
#[test]
fn a_token_of_another_issuer_is_not_printed() {
    let program = Program::new();
    let file = |name: &str, text: &str| {
        let path = program.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let keys = file("jwks.json", "{\"keys\": []}");
    let provider = ["token", "--user", "alice", "--token-keys-file", &keys];
    let line = format!(
        "the server accepts tokens of the identity provider whose keys {keys} holds (--token-keys-file, --jwks-url), and no token of this command: get a token from the provider, or name a secret beside the keys (--token-secret-file)"
    );
    program.run(&provider).failed(1, &line);
    assert!(!program.data().exists(), "no key was made");
    let secret = file("secret", "a secret of thirty-two bytes, and a few more");
    let both = [&provider[..], &["--token-secret-file", &secret]].concat();
    program.run(&both).succeeded();
}
