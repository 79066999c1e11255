//! HTTP client of one user, on one keep-alive connection.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout;

use super::target::{LoadTarget, WAIT_MAX};
use crate::load::failure::Failure;

const ANSWER_BYTES_MAX: usize = 32 << 20;
/// The server serialises `errors` first, so a prefix decides whether a request failed.
const ERRORS_PREFIX: &[u8] = br#"{"errors""#;

pub struct HttpClient {
    target: Arc<LoadTarget>,
    authorization: HeaderValue,
    /// Opened on first use, and again after a failure.
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl HttpClient {
    pub fn new(target: &Arc<LoadTarget>, user: &str) -> Self {
        Self::with_authorization(target, &target.authorization(user))
    }

    /// Client of a service that acts under its own name.
    pub(crate) fn of_service(target: &Arc<LoadTarget>, name: &str) -> Self {
        Self::with_authorization(target, &target.service_authorization(name))
    }

    fn with_authorization(target: &Arc<LoadTarget>, authorization: &str) -> Self {
        let authorization = HeaderValue::try_from(authorization).expect("a token is ASCII");
        Self {
            target: Arc::clone(target),
            authorization,
            connection: None,
        }
    }

    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        let stream = self.target.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(disconnected)?;
        tokio::spawn(connection);
        self.connection = Some(sender);
        Ok(())
    }

    /// Body of an answer without errors.
    pub async fn post(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        let result = match timeout(WAIT_MAX, self.exchange(body)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Timeout),
        };
        if !matches!(result, Ok(_) | Err(Failure::Refused { .. })) {
            self.connection = None;
        }
        result
    }

    /// The `data` of an answer without errors.
    pub async fn query(&mut self, body: Bytes) -> Result<Value, Failure> {
        let answer = self.post(body).await?;
        let mut answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| Failure::Unexpected(error.to_string()))?;
        Ok(answer["data"].take())
    }

    async fn exchange(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        if self.connection.as_ref().is_none_or(SendRequest::is_closed) {
            self.connect().await?;
        }
        let connection = self.connection.as_mut().expect("connect has set it");
        connection.ready().await.map_err(disconnected)?;
        let request = Request::post("/graphql")
            .header(header::HOST, self.target.host())
            .header(header::ACCEPT, "application/graphql-response+json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, self.authorization.clone());
        let request = request
            .body(Full::new(body))
            .expect("the request is well-formed");
        let response = connection
            .send_request(request)
            .await
            .map_err(disconnected)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body
            .map_err(|error| Failure::Disconnected(error.to_string()))?
            .to_bytes();
        if status != StatusCode::OK || body.starts_with(ERRORS_PREFIX) {
            return Err(Failure::from_answer(status.as_u16(), &body));
        }
        Ok(body)
    }
}

fn disconnected(error: hyper::Error) -> Failure {
    Failure::Disconnected(error.to_string())
}
