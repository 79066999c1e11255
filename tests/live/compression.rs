//! Compression of answers: large ones are gzip for clients that accept it, and the text is the
//! same.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use serde_json::{Value, json};
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::world::{World, soon};

const GZIP: (&str, &str) = ("accept-encoding", "gzip, br");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn compressing() -> World {
    World::with(ServerBounds {
        compression: true,
        ..ServerBounds::default()
    })
    .await
}

/// Headers and bytes of an answer with so many bytes of text.
async fn large(world: &World, bytes: usize, headers: &[(&str, &str)]) -> (HeaderMap, Vec<u8>) {
    let body = json!({ "query": format!("{{ large(bytes: {bytes}) }}") }).to_string();
    let headers = [&[JSON], headers].concat();
    let answer = world
        .ask("POST", "/graphql", &headers, body.as_bytes())
        .await;
    let (head, body) = answer.into_parts();
    let bytes = soon(body.collect()).await.unwrap().to_bytes();
    (head.headers, bytes.into())
}

fn text_bytes(json: &[u8]) -> usize {
    let answer: Value = serde_json::from_slice(json).unwrap();
    answer["data"]["large"].as_str().unwrap().len()
}

fn decoded(gzip: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut text).unwrap();
    text
}

#[tokio::test]
async fn a_large_answer_is_compressed_whole_or_in_chunks() {
    let world = compressing().await;
    // One chunk, several chunks, and many.
    for bytes in [5_000, 200_000, 2 << 20] {
        let (headers, body) = large(&world, bytes, &[GZIP]).await;
        assert_eq!(headers[CONTENT_ENCODING], "gzip");
        assert!(headers[VARY].to_str().unwrap().contains("accept-encoding"));
        assert!(body.len() < bytes / 20, "{} of {bytes}", body.len());
        assert_eq!(text_bytes(&decoded(&body)), bytes);
        let length = headers.get(CONTENT_LENGTH);
        assert_eq!(length.is_some(), bytes == 5_000, "{length:?}");
    }
}

#[tokio::test]
async fn a_small_answer_and_a_client_without_gzip_get_plain_text() {
    let world = compressing().await;
    let refused = ("accept-encoding", "gzip;q=0, deflate");
    let events = ("accept", "text/event-stream");
    for (bytes, headers) in [
        (3_000, &[GZIP][..]),
        (5_000, &[]),
        (5_000, &[refused]),
        (5_000, &[GZIP, events]),
    ] {
        let (headers, body) = large(&world, bytes, headers).await;
        assert_eq!(headers.get(CONTENT_ENCODING), None);
        assert!(body.len() > bytes);
    }
    // Compression is off by default.
    let world = World::start().await;
    let (headers, body) = large(&world, 5_000, &[GZIP]).await;
    assert_eq!(headers.get(CONTENT_ENCODING), None);
    assert_eq!(text_bytes(&body), 5_000);
}

/// The quota counts the text until its compressed form is written.
#[tokio::test]
async fn a_compressed_answer_leaves_the_quota_once_it_is_read() {
    let world = World::with(ServerBounds {
        compression: true,
        rates: AdmissionBounds {
            user_answer_bytes: 300_000,
            ..AdmissionBounds::default()
        },
        ..ServerBounds::default()
    })
    .await;
    for _ in 0..5 {
        let (_, body) = large(&world, 200_000, &[GZIP]).await;
        assert_eq!(text_bytes(&decoded(&body)), 200_000);
    }
}
