//! Refusals of clients that still write: the client reads why, and the server does not read without end.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wideroom::server::{HeadBounds, ServerBounds};

use super::world::{World, soon};
use crate::support::node::Node;

const BODY: usize = 3_000_000;

fn head(method: &str, lines: &str) -> String {
    format!("{method} /graphql HTTP/1.1\r\nhost: x\r\n{lines}\r\n\r\n")
}

fn sized(content_type: &str) -> String {
    format!("content-type: {content_type}\r\ncontent-length: {BODY}")
}

/// Writes all before it reads, as many clients do, in pieces: so the server has answered long before the last.
async fn write_then_read(world: &World, head: &str, body: &[u8]) -> String {
    let mut stream = world.tcp().await;
    stream.set_nodelay(true).unwrap();
    let write = async {
        stream.write_all(head.as_bytes()).await?;
        for piece in body.chunks(10_000) {
            stream.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, std::io::Error>(())
    };
    soon(write)
        .await
        .unwrap_or_else(|error| panic!("{head}: {error}"));
    read_all(&mut stream).await
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_client_that_writes_all_first_reads_why_it_is_refused() {
    let world = World::start().await;
    let body = vec![b' '; BODY];
    let chunk = [format!("{BODY:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let accept = format!("accept: text/html\r\n{}", sized("application/json"));
    let token = format!("authorization: Bearer x\r\n{}", sized("application/json"));
    for (head, body, status) in [
        (head("POST", &sized("application/json")), &body, "413"),
        (
            head("POST", &sized("multipart/form-data; boundary=x")),
            &body,
            "415",
        ),
        (head("POST", &sized("text/plain")), &body, "415"),
        (
            head(
                "POST",
                "content-type: application/json\r\ntransfer-encoding: chunked",
            ),
            &chunk,
            "413",
        ),
        (
            head(
                "POST",
                "content-type: text/plain\r\ntransfer-encoding: chunked",
            ),
            &chunk,
            "415",
        ),
        (head("POST", &token), &body, "401"),
        (head("PUT", &sized("application/json")), &body, "405"),
        (head("POST", &accept), &body, "406"),
        (
            head("POST", &sized("application/json")).replace("/graphql", "/graphql/nothing"),
            &body,
            "404",
        ),
        // Refused below HTTP.
        (
            head(
                "POST",
                &format!("x: {}\r\n{}", "a".repeat(60_000), sized("application/json")),
            ),
            &body,
            "431",
        ),
    ] {
        let answer = write_then_read(&world, &head, body).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{status}: {answer}"
        );
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(status == "431" || answer.contains(r#""code":"#), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_expects_100_is_refused_before_it_writes() {
    let world = World::start().await;
    for (content_type, status) in [("application/json", "413"), ("text/plain", "415")] {
        let mut stream = world.tcp().await;
        let head = head(
            "POST",
            &format!("expect: 100-continue\r\n{}", sized(content_type)),
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}

/// Writes until the server has closed.
async fn write_on(stream: &mut TcpStream) -> usize {
    let mut written = 0;
    while let Ok(count) = soon(stream.write(&[b' '; 10_000])).await {
        written += count;
        tokio::task::yield_now().await;
    }
    written
}

#[tokio::test]
async fn the_lingering_close_has_an_end() {
    let long = Duration::from_secs(600);
    for bounds in [
        HeadBounds {
            linger_bytes: 100_000,
            linger: long,
            ..HeadBounds::default()
        },
        HeadBounds {
            linger_bytes: usize::MAX,
            linger: Duration::from_millis(50),
            ..HeadBounds::default()
        },
    ] {
        let world = World::with(ServerBounds {
            head: bounds,
            ..ServerBounds::default()
        })
        .await;
        let mut stream = world.tcp().await;
        let lines = "content-type: text/plain\r\ncontent-length: 1000000000000";
        stream
            .write_all(head("POST", lines).as_bytes())
            .await
            .unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
        let written = write_on(&mut stream).await;
        assert!(bounds.linger < long || written < 20_000_000, "{written}");
    }
}

/// A client that is not told sends its next request on a connection that is closed under it.
#[tokio::test]
async fn a_connection_is_kept_where_the_body_was_read_and_its_end_is_told_where_it_was_not() {
    let world = World::start().await;
    let mut stream = world.tcp().await;
    for (content_type, status, is_kept) in [
        ("application/json", "422", true),
        ("application/json", "422", true),
        ("text/plain", "415", false),
    ] {
        let head = head(
            "POST",
            &format!("content-type: {content_type}\r\ncontent-length: 2"),
        );
        stream
            .write_all(format!("{head}{{}}").as_bytes())
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}]}") {
            answer.push(soon(stream.read_u8()).await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert_eq!(answer.contains("connection: close"), !is_kept, "{answer}");
    }
    assert_eq!(read_all(&mut stream).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch_of_node_reads_why_it_is_refused() {
    let Some(node) = tokio::task::spawn_blocking(Node::installed).await.unwrap() else {
        return;
    };
    let world = World::start().await;
    let url = world.url();
    tokio::task::spawn_blocking(move || node.run("refused.js", &[&url]))
        .await
        .unwrap();
}
