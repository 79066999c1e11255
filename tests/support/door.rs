//! The HTTP door of a world, without a network: the real router, called in this process.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use wideroom::auth::Auth;
use wideroom::chat::Chat;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::model::{ServiceRights, UserId};
use wideroom::server::{self, AdmissionBounds, Server, ServerBounds};

use super::world::PATIENCE;

const SECRET: &[u8] = b"thirty-two bytes for a test key.";
const LIFE: std::time::Duration = std::time::Duration::from_secs(3_600);
/// The service of the tests.
pub(crate) const SERVICE: &str = "backend";

#[derive(Clone)]
pub(crate) struct Door {
    router: TowerToHyperService<Router>,
    auth: Arc<Auth>,
}

/// Credentials of a request: a token, and the values of `Wideroom-As`.
#[derive(Clone, Debug)]
pub(crate) struct Badge {
    token: String,
    acts_as: Vec<Vec<u8>>,
}

impl Badge {
    /// The same token, in the name of a user.
    pub(crate) fn acting_as(mut self, user: &str) -> Self {
        self.acts_as.push(user.as_bytes().to_vec());
        self
    }

    /// The same token, with these bytes in the header.
    pub(crate) fn with_header(mut self, bytes: &[u8]) -> Self {
        self.acts_as.push(bytes.to_vec());
        self
    }
}

/// Answer of the door: its status and its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    /// The code of the first error.
    pub(crate) fn code(&self) -> String {
        self.json()["errors"][0]["extensions"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Door {
    /// The door of a chat, without rates, because tests act faster than users, and as patient as the tests are: a busy machine may search
    /// for longer than a server lets it.
    pub(crate) fn of(chat: &Chat) -> Self {
        let rates = AdmissionBounds {
            is_on: false,
            ..AdmissionBounds::default()
        };
        Self::with(
            chat,
            ServerBounds {
                rates,
                request: PATIENCE,
                ..ServerBounds::default()
            },
        )
    }

    pub(crate) fn with(chat: &Chat, bounds: ServerBounds) -> Self {
        let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
        let auth = Arc::new(Auth::with_secret(SECRET));
        let server = Server::new(api, Arc::clone(&auth), Arc::new(SystemClock), bounds);
        let router = server::router(Arc::new(server), Router::new());
        Self {
            router: TowerToHyperService::new(router),
            auth,
        }
    }

    /// A user with a token of their own.
    pub(crate) fn user(&self, name: &str) -> Badge {
        let user = UserId::parse(name).unwrap();
        Badge {
            token: self.auth.issue(&user, LIFE, SystemClock.now()),
            acts_as: Vec::new(),
        }
    }

    /// A token with any claims.
    pub(crate) fn signed(&self, claims: &Value) -> Badge {
        let key = jsonwebtoken::EncodingKey::from_secret(SECRET);
        let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
        Badge {
            token: jsonwebtoken::encode(&header, claims, &key).unwrap(),
            acts_as: Vec::new(),
        }
    }

    pub(crate) fn service(&self) -> Badge {
        self.service_named(SERVICE)
    }

    pub(crate) fn service_named(&self, name: &str) -> Badge {
        self.scoped(name, ServiceRights::ALL_SCOPE)
    }

    /// A token with these scopes.
    pub(crate) fn scoped(&self, name: &str, scopes: &str) -> Badge {
        let now = SystemClock.now().micros() / 1_000_000;
        self.signed(&json!({"sub": name, "scope": scopes, "iat": now, "exp": now + 3_600}))
    }

    pub(crate) async fn ask(&self, badge: &Badge, document: &str, variables: &Value) -> Said {
        let response = self
            .post(
                badge,
                "application/graphql-response+json",
                document,
                variables,
            )
            .await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Said {
            status,
            text: String::from_utf8(bytes.into()).unwrap(),
        }
    }

    /// The payloads of a subscription over Server-Sent Events.
    pub(crate) fn subscribe(
        &self,
        badge: &Badge,
        document: &str,
        variables: &Value,
    ) -> BoxStream<'static, Value> {
        let (door, badge) = (self.clone(), badge.clone());
        let (document, variables) = (document.to_owned(), variables.clone());
        let opening = async move {
            let response = door
                .post(&badge, "text/event-stream", &document, &variables)
                .await;
            assert_eq!(response.status().as_u16(), 200, "{document}");
            payloads(response.into_body())
        };
        opening.flatten_stream().boxed()
    }

    async fn post(
        &self,
        badge: &Badge,
        accept: &str,
        document: &str,
        variables: &Value,
    ) -> Response<Body> {
        let body = json!({ "query": document, "variables": variables }).to_string();
        let mut request = Request::post("/graphql")
            .header("content-type", "application/json")
            .header("accept", accept)
            .header("authorization", format!("Bearer {}", badge.token));
        for name in &badge.acts_as {
            request = request.header("wideroom-as", name.as_slice());
        }
        let request = request.body(Body::from(body)).unwrap();
        self.router.call(request).await.unwrap()
    }
}

/// Parses the events `next` of a body until `complete` or its end.
fn payloads(body: Body) -> BoxStream<'static, Value> {
    let chunks = body.into_data_stream();
    stream::unfold((chunks, String::new()), async |(mut chunks, mut text)| {
        loop {
            if let Some((event, rest)) = text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                text = rest;
                if event.starts_with("event: complete") {
                    return None;
                }
                if let Some(data) = event.strip_prefix("event: next\ndata: ") {
                    let payload = serde_json::from_str(data).unwrap();
                    return Some((payload, (chunks, text)));
                }
                continue;
            }
            let chunk = chunks.next().await?.unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    })
    .boxed()
}
