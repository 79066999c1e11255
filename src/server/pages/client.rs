//! The package `wideroom-client`: served by every server, and written out for npm.
//!
//! Modules import each other, so their folder holds the hash. `/client/index.js` has a stable address and re-exports the
//! module of this version. Every origin may read them: they hold no data.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{JS, TEXT, fingerprint, forever};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("client/", $name)))),*]
    };
}

/// Files of the package.
pub const FILES: [(&str, &str); 21] = files![
    "README.md",
    "conversation.js",
    "documents.js",
    "feed.js",
    "graphql-ws.d.ts",
    "graphql-ws.js",
    "inbox.js",
    "index.d.ts",
    "index.js",
    "live.d.ts",
    "live.js",
    "outbox.js",
    "package.json",
    "presence.js",
    "react.d.ts",
    "react.js",
    "storage.js",
    "store.js",
    "text.js",
    "transport.js",
    "window.js",
];

const ANY_ORIGIN: (axum::http::HeaderName, HeaderValue) =
    (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));

/// Routes of `GET /client/…`.
pub fn router() -> Router {
    let folder: Arc<str> = fingerprint(FILES.map(|(_, text)| text).concat().as_bytes()).into();
    Router::new()
        .route("/client/{name}", get(entry))
        .route("/client/{folder}/{name}", get(file))
        .with_state(folder)
}

/// A module that re-exports the one of this version.
async fn entry(State(folder): State<Arc<str>>, Path(name): Path<String>) -> Response {
    if !name.ends_with(".js") || text_of(&name).is_none() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(JS)),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ANY_ORIGIN,
    ];
    (headers, format!("export * from \"./{folder}/{name}\";\n")).into_response()
}

async fn file(
    State(own): State<Arc<str>>,
    Path((folder, name)): Path<(String, String)>,
) -> Response {
    match text_of(&name) {
        Some(text) if *folder == *own => {
            let content_type = if name.ends_with(".js") { JS } else { TEXT };
            let response = forever(content_type, Bytes::from_static(text.as_bytes()));
            ([ANY_ORIGIN], response).into_response()
        }
        Some(_) | None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn text_of(name: &str) -> Option<&'static str> {
    FILES
        .iter()
        .find_map(|(own, text)| (*own == name).then_some(*text))
}
