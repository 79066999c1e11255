//! The key of a backup: the original's, so that clients go on, or with `--new-key` one of its own.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::client::{self, Reply};
use crate::support::program::Program;
use crate::support::server::Server;

const WHO: &str =
    "{ viewer { username } inbox(first: 1) { edges { node { lastMessage { body } } } } }";

async fn ask(address: SocketAddr, token: &str) -> Reply {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", authorization.as_str()),
    ];
    client::http(
        address,
        "POST",
        "/graphql",
        &headers,
        json!({ "query": WHO }).to_string().as_bytes(),
    )
    .await
}

fn token(program: &Program, data: &Path) -> String {
    program
        .run(&["token", "--user", "alice", "--data", data.to_str().unwrap()])
        .succeeded()
        .trim()
        .to_owned()
}

fn serve(program: &Program, data: &Path) -> Server {
    Server::spawn(
        program
            .command(&["serve", "--listen", "127.0.0.1:0", "--log", "warn"])
            .env("WIDEROOM_DATA", data),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_copy_with_a_new_key_and_of_the_original_open_only_their_own() {
    let program = Program::new();
    let (original, admin) = Server::start_with_admin(&program, &["--demo"]);
    let address = admin.address.to_string();
    let copy_to = |name: &str, flags: &[&str]| -> PathBuf {
        let dir = program.dir.path().join(name);
        program
            .run(
                &[
                    &["backup", dir.to_str().unwrap(), "--admin-listen", &address],
                    flags,
                ]
                .concat(),
            )
            .succeeded();
        assert_eq!(
            std::fs::metadata(dir.join("token.key"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        dir
    };
    // The copy of the key is private, whatever became of the original.
    std::fs::set_permissions(
        program.data().join("token.key"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let (fresh, same) = (copy_to("fresh", &["--new-key"]), copy_to("same", &[]));
    let key = |dir: &Path| std::fs::read(dir.join("token.key")).unwrap();
    assert_ne!(key(&fresh), key(&program.data()));
    assert_eq!(key(&same), key(&program.data()));
    let (of_original, of_copy) = (token(&program, &program.data()), token(&program, &fresh));
    let (copy, twin) = (serve(&program, &fresh), serve(&program, &same));

    let unknown = "The token is not signed by a key of this server.";
    let refused = ask(copy.address(), &of_original).await;
    assert_eq!((refused.status, refused.message()), (401, unknown));
    let refused = ask(original.address(), &of_copy).await;
    assert_eq!((refused.status, refused.message()), (401, unknown));
    let answer = ask(original.address(), &of_original).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        ask(copy.address(), &of_copy).await.body["data"],
        answer.body["data"],
        "everything else is the same"
    );
    assert_eq!(
        ask(twin.address(), &of_original).await.body["data"],
        answer.body["data"]
    );
    for server in [original, copy, twin] {
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
    }
}
