//! Receiver of webhooks: a small HTTP server that records each request before it answers, and answers as a test says.

pub(crate) mod process;

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wideroom::chat::{OutboxTypes, ReaderName};
use wideroom::signed_post::{Dialer, PostTarget, SigningSecrets};
use wideroom::webhook::WebhookSettings;

use crate::support::world::PATIENCE;

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Another one, which follows it.
pub(crate) const NEXT_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Bytes on their way to a receiver in memory.
const PIPE_BYTES: usize = 1 << 16;

/// Request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    pub(crate) at: Instant,
    /// Requests of this event before it.
    pub(crate) tries: usize,
}

impl Received {
    pub(crate) fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether one of the signatures is that of this secret.
    pub(crate) fn is_signed_by(&self, secret: &str) -> bool {
        let timestamp = self.headers["webhook-timestamp"].parse().unwrap();
        let signed =
            SigningSecrets::parse(secret)
                .unwrap()
                .sign(self.id(), timestamp, self.body.as_bytes());
        let mut signatures = self.headers["webhook-signature"].split(' ');
        signatures.any(|signature| signature == signed)
    }
}

/// Answer to one request.
pub(crate) enum Reply {
    Status(u16),
    /// With this header line.
    With(u16, &'static str),
    /// 200 and a body of so many bytes.
    Long(usize),
    /// With this body.
    Json(u16, String),
    /// With this body, once it is notified.
    Held(Arc<Notify>, String),
    /// Another reply, after so long.
    Late(Duration, Box<Self>),
    Hang,
    Close,
}

impl ReceiverState {
    /// Takes everything.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            received: Mutex::default(),
            record: None,
            tries: Mutex::default(),
            behaviour: Mutex::new(Box::new(|_| Reply::Status(204))),
        })
    }
}

type Behaviour = Box<dyn FnMut(&Received) -> Reply + Send>;

/// Place where a request is recorded before it is answered.
type Record = Box<dyn Fn(&Received) + Send + Sync>;

struct ReceiverState {
    received: Mutex<Vec<Received>>,
    /// `None`: in `received`.
    record: Option<Record>,
    tries: Mutex<HashMap<String, usize>>,
    behaviour: Mutex<Behaviour>,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    state: Arc<ReceiverState>,
    stop: CancellationToken,
    /// `None` for a receiver that listens at its address.
    dialer: Option<Dialer>,
}

impl Receiver {
    /// Takes everything.
    pub(crate) async fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any).await.unwrap();
        let state = ReceiverState::new();
        let address = listener.local_addr().unwrap();
        let stop = serve(listener, &state);
        Self {
            address,
            state,
            stop,
            dialer: None,
        }
    }

    /// A receiver without sockets, for tests in virtual time. It refuses connections once it is killed.
    pub(crate) fn in_memory() -> Self {
        let (state, stop) = (ReceiverState::new(), CancellationToken::new());
        let (served, stopped) = (Arc::clone(&state), stop.clone());
        let dial = move || {
            if stopped.is_cancelled() {
                return Err(ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let (state, stopped) = (Arc::clone(&served), stopped.clone());
            tokio::spawn(async move { stopped.run_until_cancelled(talk(theirs, &state)).await });
            Ok(ours)
        };
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 9)),
            state,
            stop,
            dialer: Some(Dialer(Arc::new(dial))),
        }
    }

    pub(crate) fn answer(&self, behaviour: impl FnMut(&Received) -> Reply + Send + 'static) {
        *self.state.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    /// Listens no more, and closes all connections.
    pub(crate) fn kill(&self) {
        self.stop.cancel();
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    /// Waits until the requests are as a test wants them.
    #[track_caller]
    pub(crate) fn until(
        &self,
        is_done: impl Fn(&[Received]) -> bool,
    ) -> impl Future<Output = Vec<Received>> {
        self.until_within(PATIENCE, is_done)
    }

    /// The same with another deadline.
    #[track_caller]
    pub(crate) fn until_within(
        &self,
        patience: Duration,
        is_done: impl Fn(&[Received]) -> bool,
    ) -> impl Future<Output = Vec<Received>> {
        let place = std::panic::Location::caller();
        async move {
            let began = Instant::now();
            loop {
                let received = self.received();
                if is_done(&received) {
                    return received;
                }
                assert!(began.elapsed() < patience, "{place}: {received:#?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Settings of a webhook to this receiver, with its secret in this file.
    pub(crate) fn settings(&self, name: &str, secret_file: PathBuf) -> WebhookSettings {
        let url = format!("http://{}/hook", self.address);
        let target = PostTarget::parse(&url, true).unwrap();
        WebhookSettings {
            name: ReaderName::parse(name).unwrap(),
            target: match &self.dialer {
                Some(dialer) => target.dialed_by(dialer.clone()),
                None => target,
            },
            url,
            allow_http: true,
            secret_file,
            types: OutboxTypes::default(),
            document: None,
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn serve(listener: TcpListener, state: &Arc<ReceiverState>) -> CancellationToken {
    let (stop, state) = (CancellationToken::new(), Arc::clone(state));
    let stopped = stop.clone();
    tokio::spawn(async move {
        // Dropped with the listener: all connections end.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                Ok((stream, _)) = listener.accept() => {
                    let state = Arc::clone(&state);
                    stream.set_nodelay(true).unwrap();
                    connections.spawn(async move { talk(stream, &state).await });
                }
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
    });
    stop
}

/// Answers the requests of one connection.
async fn talk(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &ReceiverState,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let (mut request, rest) = loop {
            if let Some(whole) = parse(&bytes) {
                break whole;
            }
            let mut chunk = [0; 16 * 1_024];
            let count = stream
                .read(&mut chunk)
                .await
                .ok()
                .filter(|count| *count > 0)?;
            bytes.extend_from_slice(&chunk[..count]);
        };
        bytes = rest;
        {
            let mut tries = state.tries.lock().unwrap();
            let tries = tries.entry(request.id().to_owned()).or_default();
            request.tries = *tries;
            *tries += 1;
            match &state.record {
                Some(record) => record(&request),
                None => state.received.lock().unwrap().push(request.clone()),
            }
        }
        let mut reply = state.behaviour.lock().unwrap()(&request);
        while let Reply::Late(pause, then) = reply {
            tokio::time::sleep(pause).await;
            reply = *then;
        }
        let answer = match reply {
            Reply::Status(status) => head(status, "x-nothing: 0", 0),
            Reply::With(status, header) => head(status, header, 0),
            Reply::Long(length) => {
                let mut answer = head(200, "x-nothing: 0", length);
                answer.resize(answer.len() + length, b'x');
                answer
            }
            Reply::Json(status, body) => {
                let mut answer = head(status, "content-type: application/json", body.len());
                answer.extend_from_slice(body.as_bytes());
                answer
            }
            Reply::Held(release, body) => {
                release.notified().await;
                let mut answer = head(200, "content-type: application/json", body.len());
                answer.extend_from_slice(body.as_bytes());
                answer
            }
            Reply::Late(..) => unreachable!("it was waited for"),
            Reply::Hang => std::future::pending().await,
            Reply::Close => return None,
        };
        stream.write_all(&answer).await.ok()?;
    }
}

fn head(status: u16, header: &str, length: usize) -> Vec<u8> {
    format!("HTTP/1.1 {status} Status\r\n{header}\r\ncontent-length: {length}\r\n\r\n").into_bytes()
}

/// The first request, and the bytes after it. `None`: it is not whole yet.
fn parse(bytes: &[u8]) -> Option<(Received, Vec<u8>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..end]).unwrap();
    assert!(text.starts_with("POST /hook HTTP/1.1\r\n"), "{text}");
    let headers: BTreeMap<_, _> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers["content-length"].parse().unwrap();
    let body = bytes.get(end + 4..end + 4 + length)?;
    let request = Received {
        headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
        at: Instant::now(),
        tries: 0,
    };
    Some((request, bytes[end + 4 + length..].to_vec()))
}
