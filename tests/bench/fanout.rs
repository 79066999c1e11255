//! Cost of a delivery, next to a bare WebSocket broadcast of the same bytes, and to the library's own handlers over our API.
//!
//! Both are this program again, in processes of their own. `wideroom bench fanout` puts the same load on each.

use std::path::Path;
use std::process::Command;

use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes, WebSocketUpgrade};
use axum::routing::{any, post};
use hyper::header::CONTENT_TYPE;
use serde_json::Value;

use crate::measure::Spread;
use crate::report::{self, Verdicts};
use crate::server::{self, JSON, Server};

const SUBSCRIBERS: [usize; 2] = [1_000, 2_000];
const RATES: [u32; 3] = [5, 20, 100];
const ROUNDS: usize = 5;
const ROUND: &str = "4s";
/// Text that the real program sends to each subscriber, before and after a body.
const FRAME: [&str; 2] = [
    r#"{"type":"next","id":"6f1c2b7e-0000-4000-8000-000000000001","payload":{"data":{"messageAdded":{"messageEdge":{"cursor":"AU3k7Okkpm5FO4IdDBc_-TVUAfHqzQExMVoERJWwXj0xww","node":{"id":"AW3k7Okkpm5FO4IdDBc_-TVUATExWurNEfGExBUw3r2xQw","uuid":"0131315a-eacd-11f1-84c4-1530debdb143","body":""#,
    r#"","createdAt":"2026-11-28T01:42:43.439241Z","sender":{"username":"bench-01234567-0001","displayName":null},"replyTo":null,"reactions":[]}}}},"extensions":{"cursor":"AU3k7Okkpm5FO4IdDBc_-TVUAfHqzQExMVoERJWwXj0xww"}}}"#,
];
/// Answer to each request of the load.
const ANSWER: &str = r#"{"data":{"createGroupConversation":{"conversation":{"id":"c"}},"conversation":{"eventsCursor":"c"}}}"#;

/// The bare broadcast: the body of each send goes to all sockets. It runs until it is killed.
pub async fn serve_bare() {
    let (sender, _) = tokio::sync::broadcast::channel::<Utf8Bytes>(256);
    let sockets = sender.clone();
    let upgrade = move |upgrade: WebSocketUpgrade| {
        let mut bodies = sockets.subscribe();
        let upgrade = upgrade
            .read_buffer_size(4 * 1024)
            .write_buffer_size(8 * 1024)
            .protocols(["graphql-transport-ws"]);
        async move {
            upgrade.on_upgrade(async move |mut socket| {
                loop {
                    let text = tokio::select! {
                        Ok(text) = bodies.recv() => text,
                        message = socket.recv() => match message {
                            Some(Ok(Message::Text(text))) if text.contains("connection_init") => r#"{"type":"connection_ack"}"#.into(),
                            Some(Ok(Message::Text(text))) if text.contains("ping") => r#"{"type":"pong"}"#.into(),
                            Some(Ok(_)) => continue,
                            Some(Err(_)) | None => return,
                        },
                    };
                    if socket.send(Message::Text(text)).await.is_err() {
                        return;
                    }
                }
            })
        }
    };
    let answer = async move |request: Bytes| {
        let request = std::str::from_utf8(&request).unwrap();
        if let Some((_, rest)) = request.split_once(r#""b":""#) {
            let body = rest.split('"').next().unwrap_or_default();
            // An error means that no socket is open.
            let _ = sender.send([FRAME[0], body, FRAME[1]].concat().into());
        }
        ([(CONTENT_TYPE, JSON)], ANSWER)
    };
    let router = axum::Router::new()
        .route("/graphql", post(answer))
        .route("/graphql/ws", any(upgrade));
    axum::serve(server::listener(), router).await.unwrap();
}

pub fn measure() {
    let mut verdicts = Verdicts::default();
    report::heading(
        "Deliveries to all who subscribe to one conversation: µs of each on the server's processor, beside a bare broadcast and the library's handlers",
    );
    println!(
        "  {:<34} {:>26}  {:>26}  {:>7}  {:>26}  {:>7}",
        "", "ours", "bare", "ratio", "library", "ratio"
    );
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [ours, library] = folders.each_ref().map(|folder| folder.path());
    let servers = [
        (
            Server::wideroom(ours, &["--log", "error", "--socket-ping-every", "1h"]),
            ours,
        ),
        (Server::bare(&[crate::BARE], ours), ours),
        (Server::library(library), library),
    ];
    for subscribers in SUBSCRIBERS {
        for rate in RATES {
            measure_load(&servers, subscribers, rate, &mut verdicts);
        }
    }
    verdicts.print();
}

fn measure_load(
    servers: &[(Server, &Path); 3],
    subscribers: usize,
    rate: u32,
    verdicts: &mut Verdicts,
) {
    let mut costs = [(); 3].map(|()| Spread::default());
    let [mut p50, mut p99] = [(); 2].map(|()| Spread::default());
    for round in 0..=ROUNDS {
        for (index, (server, folder)) in servers.iter().enumerate() {
            let report = load(server, folder, subscribers, rate);
            // The first round warms up.
            if round > 0 {
                costs[index].push(report["cpuMicrosEach"].as_f64().unwrap());
                if index == 0 {
                    p50.push(report["p50Ms"].as_f64().unwrap());
                    p99.push(report["p99Ms"].as_f64().unwrap());
                }
            }
        }
    }
    let [ours, bare, library] = costs;
    let [to_bare, to_library] = [&bare, &library].map(|other| ours.median() / other.median());
    let what = format!("{subscribers} subscribers, {rate} sends/s");
    println!(
        "  {what:<34} {}  {}  {to_bare:>7.2}  {}  {to_library:>7.2}",
        report::spread(&ours),
        report::spread(&bare),
        report::spread(&library)
    );
    println!(
        "  {:<34} ms from the send to the client p50 {:.1}, p99 {:.1}",
        "",
        p50.median(),
        p99.median()
    );
    verdicts.at_most(&format!("delivery to {what}, to a bare one"), to_bare, 1.25);
    let what = format!("delivery to {what}, to the library's handlers");
    verdicts.at_most(&what, to_library, 1.0);
}

/// Report of `wideroom bench fanout` against a server.
fn load(server: &Server, folder: &Path, subscribers: usize, rate: u32) -> Value {
    let ended = Command::new(env!("CARGO_BIN_EXE_wideroom"))
        .args(["bench", "fanout", "--json", "--duration", ROUND])
        .args(["--url", server.target.url(), "--data"])
        .arg(folder)
        .args(["--pid", &server.process_id().to_string()])
        .args(["--subscribers", &subscribers.to_string()])
        .args(["--rate", &rate.to_string()])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{error}");
    serde_json::from_slice(&ended.stdout).unwrap()
}
