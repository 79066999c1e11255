//! HTTP client of one receiver, over connections that are kept open.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::secret::SecretFile;
use super::target::PostTarget;

/// Connections without a request that are kept open.
const IDLE_MAX: usize = 64;
/// How long a connection is kept open without a request.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// Longest part of the deadline for a new connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest pause that an answer may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);
const USER_AGENT: &str = concat!("wideroom/", env!("CARGO_PKG_VERSION"));

/// One message of a receiver.
#[derive(Debug, Clone)]
pub struct SignedMessage {
    /// Identity of the message, the same in each try: visible ASCII.
    pub id: String,
    /// Time of the try, in seconds since 1970.
    pub timestamp: i64,
    /// JSON.
    pub body: Bytes,
}

/// Reads documents from one address, each over a connection of its own, without a signature.
pub struct GetClient {
    target: PostTarget,
    tls: Option<TlsConnector>,
}

impl GetClient {
    /// Reads the root certificates of the system, if the address is https. Blocks.
    pub fn new(target: PostTarget) -> Result<Self, PostError> {
        let tls = target.is_https.then(connector).transpose()?;
        Ok(Self { target, tls })
    }

    /// Asks once, and reads the answer within the limits.
    pub async fn get(&self, limits: PostLimits) -> Result<PostAnswer, PostError> {
        let deadline = Instant::now() + limits.deadline;
        let exchange = async {
            let mut sender = connect(&self.target, self.tls.as_ref()).await?;
            let request = Request::get(&self.target.path)
                .header(header::HOST, &self.target.authority)
                .header(header::USER_AGENT, USER_AGENT)
                .header(header::ACCEPT, HeaderValue::from_static("application/json"))
                .header(header::CONNECTION, HeaderValue::from_static("close"))
                .body(Full::default())
                .map_err(|error| PostError::Connect(error.to_string()))?;
            let response = sender.send_request(request).await;
            response.map_err(|error| PostError::Broken(error.to_string()))
        };
        let response = timeout_at(deadline, exchange)
            .await
            .map_err(|_| PostError::Timeout)??;
        Ok(answer(response, deadline, limits.answer_bytes).await)
    }
}

/// Bounds of one request.
#[derive(Debug, Clone, Copy)]
pub struct PostLimits {
    /// Time from the connection to the last byte of the answer.
    pub deadline: Duration,
    /// Bytes of the answer that are read.
    pub answer_bytes: usize,
}

/// Answer of a receiver. A redirect is one, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostAnswer {
    pub status: u16,
    /// Pause that the receiver asks for.
    pub retry_after: Option<Duration>,
    /// Body, if it was received whole within the limits.
    pub body: Option<Bytes>,
}

impl PostAnswer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Reason for a message without an answer. The receiver may have received it.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the receiver did not answer within the deadline")]
    Timeout,
    #[error("the root certificates are unusable: {0}")]
    Roots(String),
    #[error("the message has an id that no header may hold")]
    Id,
}

/// Sends signed messages to one receiver.
pub struct PostClient {
    target: PostTarget,
    secrets: SecretFile,
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<IdleConnection>>,
}

struct IdleConnection {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

impl PostClient {
    /// Reads the root certificates of the system, if the address is https. Blocks.
    pub fn new(target: PostTarget, secrets: SecretFile) -> Result<Self, PostError> {
        let tls = target.is_https.then(connector).transpose()?;
        Ok(Self {
            target,
            secrets,
            tls,
            idle: Mutex::default(),
        })
    }

    pub fn target(&self) -> &PostTarget {
        &self.target
    }

    /// Sends a message once, and reads the answer within the limits.
    pub async fn post(
        &self,
        message: &SignedMessage,
        limits: PostLimits,
    ) -> Result<PostAnswer, PostError> {
        let deadline = Instant::now() + limits.deadline;
        let signature =
            self.secrets
                .current()
                .await
                .sign(&message.id, message.timestamp, &message.body);
        let exchange = self.exchange(message, &signature);
        let (sender, response) = timeout_at(deadline, exchange)
            .await
            .map_err(|_| PostError::Timeout)??;
        let answer = answer(response, deadline, limits.answer_bytes).await;
        // After an answer that was not read whole, the connection is closed.
        if answer.body.is_some() {
            self.put_back(sender);
        }
        Ok(answer)
    }

    /// Sends a request and receives the head of its response. A connection that the receiver has closed
    /// meanwhile is replaced once.
    async fn exchange(
        &self,
        message: &SignedMessage,
        signature: &str,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), PostError> {
        if let Some(mut sender) = self.take_idle()
            && sender.ready().await.is_ok()
            && let Ok(response) = sender.send_request(self.request(message, signature)?).await
        {
            return Ok((sender, response));
        }
        let mut sender = connect(&self.target, self.tls.as_ref()).await?;
        let broken = |error: hyper::Error| PostError::Broken(error.to_string());
        sender.ready().await.map_err(broken)?;
        let request = self.request(message, signature)?;
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok((sender, response))
    }

    fn request(
        &self,
        message: &SignedMessage,
        signature: &str,
    ) -> Result<Request<Full<Bytes>>, PostError> {
        Request::post(&self.target.path)
            .header(header::HOST, &self.target.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            )
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", signature)
            .body(Full::new(message.body.clone()))
            .map_err(|_| PostError::Id)
    }

    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        idle.retain(|one| one.since.elapsed() < IDLE_FOR && !one.sender.is_closed());
        idle.pop().map(|one| one.sender)
    }

    fn put_back(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            let since = Instant::now();
            idle.push(IdleConnection { sender, since });
        }
    }
}

async fn connect(
    target: &PostTarget,
    tls: Option<&TlsConnector>,
) -> Result<SendRequest<Full<Bytes>>, PostError> {
    timeout(CONNECT_MAX, open_connection(target, tls))
        .await
        .map_err(|_| PostError::Timeout)?
}

async fn open_connection(
    target: &PostTarget,
    tls: Option<&TlsConnector>,
) -> Result<SendRequest<Full<Bytes>>, PostError> {
    let failed = |error: std::io::Error| PostError::Connect(error.to_string());
    if let Some(dialer) = &target.dialer {
        return handshake(TokioIo::new((dialer.0)().map_err(failed)?)).await;
    }
    let address = (target.host.as_str(), target.port);
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = tls else {
        return handshake(TokioIo::new(stream)).await;
    };
    let name = ServerName::try_from(target.host.clone())
        .map_err(|error| PostError::Connect(error.to_string()))?;
    let stream = tls.connect(name, stream).await.map_err(failed)?;
    handshake(TokioIo::new(stream)).await
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, PostError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(stream)
        .await
        .map_err(|error| PostError::Connect(error.to_string()))?;
    // Ends with its sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// Reads an answer. It has no body, if this does not end before the deadline and within so many bytes.
async fn answer(response: Response<Incoming>, deadline: Instant, bytes_max: usize) -> PostAnswer {
    let (status, retry_after) = (response.status().as_u16(), retry_after(&response));
    let body = Limited::new(response.into_body(), bytes_max).collect();
    let body = timeout_at(deadline, body).await.ok().and_then(Result::ok);
    PostAnswer {
        status,
        retry_after,
        body: body.map(Collected::to_bytes),
    }
}

/// Pause in `Retry-After`: seconds, or a moment.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let text = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    parse_retry_after(text, OffsetDateTime::now_utc())
}

fn parse_retry_after(text: &str, now: OffsetDateTime) -> Option<Duration> {
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let format = format_description!(
                "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
            );
            let moment = time::PrimitiveDateTime::parse(text, &format).ok()?;
            Duration::try_from(moment.assume_utc() - now).unwrap_or_default()
        }
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

/// TLS with the root certificates of the system.
fn connector() -> Result<TlsConnector, PostError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(PostError::Roots("no certificate was found".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| PostError::Roots(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
#[path = "client_test.rs"]
mod tests;
