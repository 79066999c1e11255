//! Keys of an identity provider that publishes them over https: the server of OpenSSL, and the real program.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::files::{Folder, Pair, jwks, openssl};
use crate::support::admin::{Admin, ON};
use crate::support::client::Caller;
use crate::support::port;
use crate::support::program::{Program, Running};
use crate::support::server::Server;

const CERTIFICATE: &[&str] = &[
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-subj",
    "/CN=localhost",
    "-addext",
    "subjectAltName=DNS:localhost",
    "-addext",
    "basicConstraints=critical,CA:FALSE",
    "-keyout",
    "-",
    "-out",
];

/// A provider that serves the files of a folder.
fn provider(folder: &Folder, port: u16) -> Running {
    let mut command = Command::new("openssl");
    command
        .args(["s_server", "-WWW", "-quiet", "-accept", &port.to_string()])
        .args(["-cert", "provider.pem", "-key", "provider.key"])
        .current_dir(folder.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Running::spawn(&mut command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_fetches_the_keys_of_its_identity_provider() {
    let folder = Folder::new();
    let certificate = folder.path("provider.pem");
    let key = openssl(CERTIFICATE, Some(&certificate));
    folder.write("provider.key", key);
    let (own, other) = (Pair::ec(), Pair::ed());
    let secret = json!({ "kty": "oct", "k": "YSBzZWNyZXQgdGhhdCBpcyBubyBrZXkgb2YgYSBwcm92aWRlcg", "kid": "secret" });
    folder.write("jwks.json", jwks(&[own.jwk("own"), secret]));
    let port = port::free();
    let program = Program::new();
    let url = format!("https://localhost:{port}/jwks.json");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--jwks-url", &url];
    let mut command = program.command(&[&arguments[..], &ON].concat());
    let server = Server::spawn(command.env("SSL_CERT_FILE", &certificate));
    let admin = Admin::of(&server);
    let body = admin.wait_for("/readyz", 503);
    assert!(
        body.contains(&format!("localhost:{port}/jwks.json")),
        "{body}"
    );
    let viewer = async |token: &str| {
        let mut caller = Caller::connect(server.address(), token).await.unwrap();
        let reply = caller.ask("{ viewer { username } }", &json!({})).await;
        reply.unwrap().body["data"]["viewer"]["username"].clone()
    };
    assert_eq!(viewer(&own.token(Some("own"))).await, Value::Null);
    let _provider = provider(&folder, port);
    admin.wait_for("/readyz", 200);
    assert_eq!(viewer(&own.token(Some("own"))).await, "alice");
    assert_eq!(viewer(&other.token(Some("other"))).await, Value::Null);
}
