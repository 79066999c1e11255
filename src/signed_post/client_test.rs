//! The client against receivers of a few lines.

use std::io::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const LIMITS: PostLimits = PostLimits {
    deadline: Duration::from_secs(2),
    answer_bytes: 1_024,
};

fn secrets() -> SecretFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    SecretFile::open(file.path()).unwrap()
}

fn message() -> SignedMessage {
    SignedMessage {
        id: "msg_1".to_owned(),
        timestamp: 7,
        body: Bytes::from_static(b"{}"),
    }
}

/// Reads one request: its head, and two bytes of body.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"{}") {
        let mut chunk = [0; 1_024];
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => text.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
    String::from_utf8(text).ok()
}

/// A client, and its receiver, which gives these answers on each connection and then closes it. It returns the requests and
/// the number of connections.
async fn client_of(
    answers: &'static [&'static str],
) -> (PostClient, tokio::sync::mpsc::Receiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        for connection in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in answers {
                let Some(request) = request(&mut stream).await else {
                    break;
                };
                sender.send((connection, request)).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    let target = PostTarget::parse(&url, true).unwrap();
    (PostClient::new(target, secrets()).unwrap(), receiver)
}

#[tokio::test]
async fn a_message_is_signed_and_its_answer_read() {
    let (client, mut requests) = client_of(&[
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ])
    .await;
    let first = client.post(&message(), LIMITS).await.unwrap();
    assert!(first.is_success());
    assert_eq!(first.body.unwrap(), "ok");
    let (_, request) = requests.recv().await.unwrap();
    let lower = request.to_lowercase();
    assert!(
        request.starts_with("POST /hook?a=b HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(lower.contains("webhook-id: msg_1\r\n"), "{request}");
    assert!(lower.contains("webhook-timestamp: 7\r\n"), "{request}");
    assert!(lower.contains("webhook-signature: v1,"), "{request}");
    let second = client.post(&message(), LIMITS).await.unwrap();
    assert_eq!(second.status, 204);
    let (connection, _) = requests.recv().await.unwrap();
    assert_eq!(connection, 0, "the connection is kept");
    // The receiver has closed it.
    assert!(client.post(&message(), LIMITS).await.unwrap().is_success());
    assert_eq!(requests.recv().await.unwrap().0, 1);
}

#[tokio::test]
async fn a_long_answer_is_not_read_and_a_redirect_not_followed() {
    let (client, mut requests) = client_of(&[
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 100000\r\n\r\nabc",
    ])
    .await;
    let redirect = client.post(&message(), LIMITS).await.unwrap();
    assert_eq!((redirect.status, redirect.is_success()), (302, false));
    let short = PostLimits {
        deadline: Duration::from_millis(300),
        ..LIMITS
    };
    let busy = client.post(&message(), short).await.unwrap();
    assert_eq!((busy.status, busy.body), (429, None));
    assert_eq!(busy.retry_after, Some(Duration::from_secs(7)));
    assert_eq!(requests.recv().await.unwrap().0, 0);
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let (client, _requests) = client_of(&[""]).await;
    let short = PostLimits {
        deadline: Duration::from_millis(200),
        ..LIMITS
    };
    // The receiver closes without an answer, then nobody listens.
    assert!(client.post(&message(), short).await.is_err());
    let target = PostTarget::parse("http://127.0.0.1:9/", true).unwrap();
    let nobody = PostClient::new(target, secrets()).unwrap();
    assert!(matches!(
        nobody.post(&message(), short).await,
        Err(PostError::Connect(_) | PostError::Timeout)
    ));
}

#[test]
fn a_pause_is_read_in_both_forms() {
    let now = OffsetDateTime::from_unix_timestamp(784_111_770).unwrap();
    let parsed = |text| parse_retry_after(text, now);
    assert_eq!(parsed("120"), Some(Duration::from_secs(120)));
    assert_eq!(
        parsed("Sun, 06 Nov 1994 08:49:37 GMT"),
        Some(Duration::from_secs(7))
    );
    assert_eq!(
        parsed("Sat, 06 Nov 1993 08:49:37 GMT"),
        Some(Duration::ZERO),
        "it is over"
    );
    assert_eq!(parsed("99999999999"), Some(RETRY_AFTER_MAX));
    assert_eq!(parsed("soon"), None);
}
