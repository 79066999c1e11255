//! The page at `/demo`: a small chat in plain files, on the package `wideroom-client`. It uses the public API only, and
//! loads no file from another host.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{CSS, HtmlPage, JS, escape, fingerprint, forever};

/// Files of the demo. The modules import each other, so their folder holds the hash, not each name.
const FILES: [(&str, &str); 24] = [
    ("demo.css", include_str!("demo/demo.css")),
    ("main.js", include_str!("demo/main.js")),
    ("documents.js", include_str!("demo/documents.js")),
    ("dom.js", include_str!("demo/dom.js")),
    ("inbox.js", include_str!("demo/inbox.js")),
    ("room.js", include_str!("demo/room.js")),
    ("head.js", include_str!("demo/head.js")),
    ("search.js", include_str!("demo/search.js")),
    ("mentions.js", include_str!("demo/mentions.js")),
    ("safety.js", include_str!("demo/safety.js")),
    ("actions.js", include_str!("demo/actions.js")),
    ("log.js", include_str!("demo/log.js")),
    ("live.js", include_str!("demo/live.js")),
    ("echo.js", include_str!("demo/echo.js")),
    ("expiry.js", include_str!("demo/expiry.js")),
    ("message.js", include_str!("demo/message.js")),
    ("menu.js", include_str!("demo/menu.js")),
    ("composer.js", include_str!("demo/composer.js")),
    ("scroll.js", include_str!("demo/scroll.js")),
    ("attachments.js", include_str!("demo/attachments.js")),
    ("names.js", include_str!("demo/names.js")),
    ("press.js", include_str!("demo/press.js")),
    ("sheet.js", include_str!("demo/sheet.js")),
    ("profile.js", include_str!("demo/profile.js")),
];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https: data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

struct DemoPage {
    page: HtmlPage,
    folder: String,
}

/// Routes of `GET /demo` and its files.
pub(super) fn router(people: &str) -> Router {
    let folder = format!(
        "demo-{}",
        fingerprint(FILES.map(|(_, text)| text).concat().as_bytes())
    );
    let html = include_str!("demo/demo.html")
        .replace("<!-- folder -->", &folder)
        .replace("<!-- people -->", &escape(people));
    let demo = DemoPage {
        page: HtmlPage::new(html, HeaderValue::from_static(POLICY)),
        folder,
    };
    Router::new()
        .route("/demo", get(page))
        .route("/assets/{folder}/{name}", get(file))
        .with_state(Arc::new(demo))
}

async fn page(State(demo): State<Arc<DemoPage>>, headers: HeaderMap) -> Response {
    demo.page.answer(&headers)
}

async fn file(
    State(demo): State<Arc<DemoPage>>,
    Path((folder, name)): Path<(String, String)>,
) -> Response {
    match FILES
        .iter()
        .find(|(own, _)| *own == name && demo.folder == folder)
    {
        Some((_, text)) => forever(
            if name.ends_with(".css") { CSS } else { JS },
            Bytes::from_static(text.as_bytes()),
        ),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
