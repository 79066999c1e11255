//! One user on one connection that is kept: asks, and reads the answer whole.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout;

use super::failure::Failure;
use super::target::{Target, WAIT_MAX};

const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Errors come first in an answer, so that nobody has to read further.
const ERRORS: &[u8] = br#"{"errors""#;

pub(super) struct Caller {
    target: Arc<Target>,
    authorization: HeaderValue,
    /// Made when it is needed, and again after a failure.
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Caller {
    pub(super) fn new(target: &Arc<Target>, user: &str) -> Self {
        let authorization = HeaderValue::try_from(target.authorization(user)).expect("a token is ASCII");
        Self { target: Arc::clone(target), authorization, connection: None }
    }

    pub(super) async fn connect(&mut self) -> Result<(), Failure> {
        let stream = self.target.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(cut)?;
        tokio::spawn(connection);
        self.connection = Some(sender);
        Ok(())
    }

    /// An answer without errors, as its bytes.
    pub(super) async fn ask(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        let answered = match timeout(WAIT_MAX, self.exchange(body)).await {
            Ok(answered) => answered,
            Err(_) => Err(Failure::Late),
        };
        if !matches!(answered, Ok(_) | Err(Failure::Refused { .. })) {
            self.connection = None;
        }
        answered
    }

    /// The data of such an answer.
    pub(super) async fn data(&mut self, body: Bytes) -> Result<Value, Failure> {
        let answer = self.ask(body).await?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|error| Failure::Foreign(error.to_string()))?;
        Ok(answer["data"].take())
    }

    async fn exchange(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        if self.connection.as_ref().is_none_or(SendRequest::is_closed) {
            self.connect().await?;
        }
        let connection = self.connection.as_mut().expect("it was made just now");
        connection.ready().await.map_err(cut)?;
        let request = Request::post("/graphql")
            .header(header::HOST, self.target.host())
            .header(header::ACCEPT, "application/graphql-response+json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, self.authorization.clone());
        let request = request.body(Full::new(body)).expect("the request is well-formed");
        let response = connection.send_request(request).await.map_err(cut)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Failure::Cut(error.to_string()))?.to_bytes();
        if status != StatusCode::OK || body.starts_with(ERRORS) {
            return Err(Failure::of_answer(status.as_u16(), &body));
        }
        Ok(body)
    }
}

fn cut(error: hyper::Error) -> Failure {
    Failure::Cut(error.to_string())
}
