//! Modes of files: the program makes none that another user of the machine could open, and says so where an operator's own are open.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Program, mode};
use crate::auth::files::{Folder, Pair, jwks};
use crate::support::admin::ON;
use crate::support::program::Ended;
use crate::support::server::Server;

/// The command under the usual umask of a shell, whatever that of the tests is.
fn command(program: &Program, arguments: &[&str]) -> Command {
    let inner = program.command(arguments);
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 022; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args());
    command
        .env_clear()
        .current_dir(program.dir.path())
        .stdin(Stdio::null());
    let given = inner
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    command.envs(given);
    command
}

fn run(program: &Program, arguments: &[&str]) -> Ended {
    command(program, arguments).output().unwrap().into()
}

fn open_folder(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Every file and folder below, with its mode.
fn below(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.clone(), mode(&path)));
        if path.is_dir() {
            found.extend(below(&path));
        }
    }
    found
}

#[track_caller]
fn assert_private(folder: &Path) {
    let found = below(folder);
    assert!(found.len() > 5, "the store was not found: {found:?}");
    let open: Vec<_> = found.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(
        open.is_empty(),
        "{} of {} are open to other users: {open:?}",
        open.len(),
        found.len()
    );
}

#[test]
fn a_server_in_an_open_folder_makes_private_files_and_warns_of_the_folder() {
    let program = Program::new();
    open_folder(&program.data());
    let arguments = [&["serve", "--listen", "127.0.0.1:0", "--demo"][..], &ON].concat();
    let server = Server::spawn(&mut command(&program, &arguments));
    let line = server.logs("metrics, health and backups");
    let address = line.split_once("address=").unwrap().1.trim();
    assert_private(&program.data());

    let copy = program.dir.path().join("copy");
    open_folder(&copy);
    run(
        &program,
        &["backup", copy.to_str().unwrap(), "--admin-listen", address],
    )
    .succeeded();
    assert_private(&copy);

    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_private(&program.data());
    let warning = "other users of this machine can open the data folder: run `chmod 700` on it";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(
        log.lines()
            .any(|line| line.contains(warning) && line.contains("mode=0755")),
        "{log}"
    );

    let export = program.dir.path().join("chats.jsonl");
    fs::write(&export, "an older export").unwrap();
    fs::set_permissions(&export, Permissions::from_mode(0o644)).unwrap();
    run(&program, &["export", export.to_str().unwrap()]).succeeded();
    assert_eq!(mode(&export), 0o600);
}

#[test]
fn an_import_into_an_open_folder_makes_private_files() {
    let program = Program::new();
    open_folder(&program.data());
    let file = program.write("chats.jsonl", "{\"type\":\"user\",\"username\":\"ann\"}\n");
    run(&program, &["import", &file]).succeeded();
    assert_private(&program.data());
}

/// The server's log where it has started with these modes of its files.
fn log(program: &Program, arguments: &[&str]) -> String {
    let server = Server::start(program, arguments);
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[test]
fn a_key_that_others_can_read_is_named() {
    let (program, folder) = (Program::new(), Folder::new());
    program.run(&["token", "--user", "alice"]).succeeded();
    let key = program.data().join("token.key");
    let secret = folder.write("secret", [b's'; 40]);
    let public = folder.write("keys.json", jwks(&[Pair::ed().jwk("one")]));
    let private = folder.write(
        "secrets.json",
        r#"{"keys":[{"kty":"oct","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC1zZWNyZXQ"}]}"#,
    );
    let set = |mode| {
        for path in [&key, &secret, &public, &private] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    };
    let said = "other users of this machine can";
    let by = |flag: &str, path: &Path| log(&program, &[flag, path.to_str().unwrap()]);
    set(0o640);
    assert!(log(&program, &[]).lines().any(|line| line.contains(said)
        && line.contains("token.key")
        && line.contains("chmod 600")));
    let found = by("--token-secret-file", &secret);
    assert!(
        found
            .lines()
            .any(|line| line.contains(said) && line.contains(secret.to_str().unwrap())),
        "{found}"
    );
    let found = by("--token-keys-file", &private);
    assert!(
        found
            .lines()
            .any(|line| line.contains(said) && line.contains(private.to_str().unwrap())),
        "{found}"
    );
    set(0o644);
    let found = by("--token-keys-file", &public);
    let is_named = found
        .lines()
        .any(|line| line.contains(said) && line.contains(public.to_str().unwrap()));
    assert!(!is_named, "everybody may read a public key: {found}");
    set(0o664);
    assert!(
        by("--token-keys-file", &public).contains("can replace the keys of tokens"),
        "nobody else may replace it"
    );
    set(0o600);
    for found in [
        log(&program, &[]),
        by("--token-secret-file", &secret),
        by("--token-keys-file", &public),
    ] {
        assert!(!found.contains(said), "{found}");
    }
}
