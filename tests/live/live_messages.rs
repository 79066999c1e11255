//! Live messages through every transport: the same payloads over WebSocket, Server-Sent Events and parts, each byte once, also for
//! subscribers who are cut and resume.

use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::chat_server::{ChatServer, without_rates};
use super::streams::{EVENTS, PARTS};
use crate::support::client::{Socket, soon};
use crate::support::world::Actor;

const LIVES: &str =
    "subscription($c: ID!, $a: String) { liveMessages(conversationId: $c, after: $a) {
    cursor text isWhole liveMessage { id state } } }";
const WRITE: &str =
    "mutation($i: WriteLiveMessageInput!) { writeLiveMessage(input: $i) { nextPosition } }";
const KEY: &str = "answer";
/// Bytes of an event besides its text, with all that the transport adds.
const EVENT_BYTES_MAX: usize = 400;

#[derive(Debug, Clone, Copy)]
enum Transport {
    WebSocket,
    ServerSentEvents,
    Multipart,
}

const TRANSPORTS: [Transport; 3] = [
    Transport::WebSocket,
    Transport::ServerSentEvents,
    Transport::Multipart,
];

/// Open subscription of alice.
enum Reading {
    Socket(Socket),
    /// The answer, the text that was not taken yet, and what stands around a payload.
    Body(Response<Incoming>, String, [&'static str; 2]),
}

impl Reading {
    async fn open(server: &ChatServer, transport: Transport, variables: &Value) -> Self {
        let request = json!({ "query": LIVES, "variables": variables });
        let (accept, frame) = match transport {
            Transport::WebSocket => {
                let mut socket = server.socket("alice").await;
                let subscribe = json!({"type": "subscribe", "id": "1", "payload": request});
                socket.say(&subscribe).await;
                return Self::Socket(socket);
            }
            Transport::ServerSentEvents => (EVENTS, ["event: next\ndata: ", "\n\n"]),
            Transport::Multipart => (PARTS, ["{\"payload\":", "}\r\n--graphql"]),
        };
        let stream = TcpStream::connect(server.address).await.unwrap();
        let opened = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = opened.await.unwrap();
        tokio::spawn(connection);
        let request = hyper::Request::post("/graphql")
            .header("host", "localhost")
            .header("accept", accept)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", server.token("alice")))
            .body(Full::new(Bytes::from(request.to_string())))
            .unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        Self::Body(response, String::new(), frame)
    }

    /// The next payload, and the bytes that came for it.
    async fn next(&mut self) -> (Value, usize) {
        match self {
            Self::Socket(socket) => {
                let mut heard = socket.hear().await;
                let bytes = heard.to_string().len();
                assert_eq!(heard["type"], "next", "{heard}");
                (heard["payload"].take(), bytes)
            }
            Self::Body(response, text, [before, after]) => loop {
                let found = text.find(*before).and_then(|from| {
                    let from = from + before.len();
                    let to = from + text[from..].find(*after)?;
                    Some((from, to))
                });
                if let Some((from, to)) = found {
                    let payload = serde_json::from_str(&text[from..to]).unwrap();
                    let bytes = to + after.len();
                    text.drain(..bytes);
                    return (payload, bytes);
                }
                let frame = soon(response.frame()).await.expect("it goes on").unwrap();
                text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            },
        }
    }
}

/// Text that a subscriber has, and what was received for it.
#[derive(Default)]
struct Heard {
    text: String,
    cursor: Option<String>,
    /// Payloads with a live message, without their cursors.
    payloads: Vec<Value>,
    bytes: usize,
}

impl Heard {
    /// Opens a stream that resumes. Its first payload is the position alone.
    async fn resume(&mut self, server: &ChatServer, transport: Transport, c: &str) -> Reading {
        let variables = json!({"c": c, "a": self.cursor});
        let mut reading = Reading::open(server, transport, &variables).await;
        let (first, _) = reading.next().await;
        let first = &first["data"]["liveMessages"];
        assert!(first["liveMessage"].is_null(), "{transport:?}: {first}");
        let cursor = first["cursor"].as_str().unwrap();
        assert!(self.cursor.as_deref().is_none_or(|after| after == cursor));
        self.cursor = Some(cursor.to_owned());
        reading
    }

    /// Takes a payload, which is no larger than its text allows.
    async fn take(&mut self, reading: &mut Reading) {
        let (mut payload, bytes) = reading.next().await;
        let payload = &mut payload["data"]["liveMessages"];
        let added = payload["text"].as_str().unwrap();
        assert!(bytes <= added.len() + EVENT_BYTES_MAX, "{bytes}: {payload}");
        self.bytes += bytes;
        if payload["isWhole"] == true {
            self.text.clear();
        }
        self.text += added;
        let Value::String(cursor) = payload["cursor"].take() else {
            panic!("{payload}")
        };
        self.cursor = Some(cursor);
        self.payloads.push(payload.take());
    }
}

async fn write(bob: &Actor, c: &str, position: usize, added: &str) {
    let input = json!({"conversationId": c, "key": KEY, "writer": "w", "position": position, "text": added});
    bob.data(WRITE, json!({ "i": input })).await;
}

/// Text of characters of one to four bytes.
fn part(number: usize) -> String {
    format!("pärt {number}, 漢字 😀 ").repeat(1 + number % 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transport_delivers_the_same_text_once_and_resumes_in_the_middle() {
    let server = ChatServer::start(without_rates(), Default::default()).await;
    let bob = server.user("bob");
    let c = bob.direct("alice").await;
    let (mut stays, mut resumes): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for transport in TRANSPORTS {
        let mut heard = Heard::default();
        let reading = heard.resume(&server, transport, &c).await;
        stays.push((heard, reading));
        resumes.push((transport, Heard::default()));
    }
    let mut all = String::new();
    for number in 0..12 {
        write(&bob, &c, all.len(), &part(number)).await;
        all += &part(number);
        for (heard, reading) in &mut stays {
            heard.take(reading).await;
            assert_eq!(heard.text, all);
        }
        // Every stream but one in four is cut before its payload comes, and resumed by the next transport.
        for (index, (transport, heard)) in resumes.iter_mut().enumerate() {
            *transport = TRANSPORTS[(number + index) % TRANSPORTS.len()];
            let mut reading = heard.resume(&server, *transport, &c).await;
            if number % 4 != 3 {
                heard.take(&mut reading).await;
                assert_eq!(heard.text, all);
            }
        }
    }
    let [first, others @ ..] = &stays[..] else {
        unreachable!("there are three")
    };
    for (heard, _) in others {
        assert_eq!(heard.payloads, first.0.payloads);
    }
    let send = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { node { id } } } }";
    let input = json!({"conversationId": c, "body": all, "idempotencyKey": KEY});
    bob.data(send, json!({ "i": input })).await;
    for (heard, reading) in &mut stays {
        heard.take(reading).await;
    }
    for (transport, heard) in &mut resumes {
        let mut reading = heard.resume(&server, *transport, &c).await;
        heard.take(&mut reading).await;
    }
    let heard = stays.iter().map(|(heard, _)| heard);
    for heard in heard.chain(resumes.iter().map(|(_, heard)| heard)) {
        let last = heard.payloads.last().unwrap();
        assert_eq!(last["liveMessage"]["state"], "SENT", "{last}");
        assert_eq!(heard.text, all);
        let texts = heard
            .payloads
            .iter()
            .map(|one| one["text"].as_str().unwrap().len());
        assert_eq!(texts.sum::<usize>(), all.len(), "each byte came once");
        let bytes_max = all.len() + heard.payloads.len() * EVENT_BYTES_MAX;
        assert!(heard.bytes <= bytes_max, "{} of {bytes_max}", heard.bytes);
    }
}

/// The doors of a suspended user close in the middle of an answer, whichever transport it comes by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_ends_every_stream_in_the_middle_of_an_answer() {
    let server = ChatServer::start(without_rates(), Default::default()).await;
    let bob = server.user("bob");
    let c = bob.direct("alice").await;
    let mut streams = Vec::new();
    for transport in TRANSPORTS {
        let mut heard = Heard::default();
        streams.push((heard.resume(&server, transport, &c).await, heard));
    }
    write(&bob, &c, 0, "Seen").await;
    for (reading, heard) in &mut streams {
        heard.take(reading).await;
    }
    let token = server.service_token("backend", 0);
    let service = crate::support::client::Caller::connect(server.address, &token).await;
    let suspend = "mutation { suspendUser(input: {username: \"alice\"}) { user { id } } }";
    service.unwrap().data(suspend, &json!({})).await.unwrap();
    for (reading, _) in streams {
        match reading {
            Reading::Socket(mut socket) => assert_eq!(socket.closed().await.0, 4401),
            Reading::Body(mut response, ..) => {
                let mut rest = String::new();
                while let Some(Ok(frame)) = soon(response.frame()).await {
                    rest += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
                }
                assert!(!rest.contains("liveMessages"), "{rest}");
            }
        }
    }
    // Nobody hears what comes then, and the writer goes on.
    write(&bob, &c, 4, ", and not seen").await;
}
