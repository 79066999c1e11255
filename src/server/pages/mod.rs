//! Pages: GraphiQL with our defaults at `/`, the demo chat at `/demo`, and their files, embedded in the binary.
//!
//! No code here knows the API: the pages use its public transports. With `demo_users` the pages offer these users for
//! sign-in, and `POST /demo/token` issues tokens for them and for the agents that the demo page runs. Without, that
//! route does not exist.

pub mod client;
mod demo;
mod vendored;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use vendored::{VENDORED, Vendored};

const CDN: &str = "https://cdn.jsdelivr.net/npm/";
const DEMO_BODY_BYTES_MAX: usize = 1024;
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Empty in a build without npm: the page then loads the files from the CDN.
const EMBEDDED: [&[u8]; VENDORED.len()] = [
    include_bytes!(concat!(env!("OUT_DIR"), "/pages/graphiql-3.9.0.css")),
    include_bytes!(concat!(env!("OUT_DIR"), "/pages/react-18.3.1.js")),
    include_bytes!(concat!(env!("OUT_DIR"), "/pages/react-dom-18.3.1.js")),
    include_bytes!(concat!(env!("OUT_DIR"), "/pages/graphiql-3.9.0.js")),
    include_bytes!(concat!(env!("OUT_DIR"), "/pages/graphql-ws-5.16.2.js")),
];
static LICENCES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pages/licences.txt"));

/// Issues a token for a demo user.
pub type Issue = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

pub struct PageOptions {
    /// Users that the pages offer for sign-in. Empty outside of a demo: the page then has a field for a token.
    pub demo_users: Vec<String>,
    /// Agents that the demo page runs: it gets tokens for them, and offers none for sign-in.
    pub demo_agents: Vec<String>,
    pub issue: Issue,
}

/// Whether this build embeds GraphiQL. Otherwise the page loads it from the CDN.
pub fn is_embedded() -> bool {
    EMBEDDED.iter().all(|bytes| !bytes.is_empty())
}

/// Routes `GET /`, `GET /demo`, `GET /assets/…`, `GET /client/…` and, in a demo, `POST /demo/token`.
pub fn router(options: PageOptions) -> Router {
    let PageOptions {
        demo_users,
        demo_agents,
        issue,
    } = options;
    let people = serde_json::json!(demo_users).to_string();
    let pages = Arc::new(Pages::new(&people));
    let router = Router::new()
        .route("/", get(index))
        .route("/assets/{name}", get(asset))
        .with_state(pages)
        .merge(client::router())
        .merge(demo::router(&people));
    if demo_users.is_empty() {
        return router;
    }
    let sign_in = post(demo_token)
        .layer(DefaultBodyLimit::max(DEMO_BODY_BYTES_MAX))
        .with_state(Arc::new(DemoTokens {
            users: [demo_users, demo_agents].concat(),
            issue,
        }));
    router.route("/demo/token", sign_in)
}

struct Asset {
    name: String,
    content_type: &'static str,
    bytes: Bytes,
}

/// HTML page with its security policy. Browsers revalidate it on each visit (ETag).
struct HtmlPage {
    html: Bytes,
    tag: HeaderValue,
    policy: HeaderValue,
}

impl HtmlPage {
    fn new(html: String, policy: HeaderValue) -> Self {
        let tag = HeaderValue::try_from(format!("\"{}\"", fingerprint(html.as_bytes())))
            .expect("base64 is visible ASCII");
        Self {
            html: Bytes::from(html),
            tag,
            policy,
        }
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        let common = [
            (CONTENT_TYPE, HeaderValue::from_static(HTML)),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (ETAG, self.tag.clone()),
            (CONTENT_SECURITY_POLICY, self.policy.clone()),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        ];
        if headers.get(IF_NONE_MATCH) == Some(&self.tag) {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        (common, self.html.clone()).into_response()
    }
}

struct Pages {
    page: HtmlPage,
    assets: Vec<Asset>,
}

impl Pages {
    fn new(people: &str) -> Self {
        let css = include_bytes!("page.css");
        let examples = include_bytes!("examples.js");
        let css_name = format!("page-{}.css", fingerprint(css));
        let examples_name = format!("examples-{}.js", fingerprint(examples));
        let js = include_str!("page.js").replace("examples.js", &examples_name);
        let js_name = format!("page-{}.js", fingerprint(js.as_bytes()));

        let mut styles = String::new();
        let mut scripts = String::new();
        let mut assets = Vec::new();
        for (file, bytes) in VENDORED.iter().zip(EMBEDDED) {
            let tags = if file.is_css() {
                &mut styles
            } else {
                &mut scripts
            };
            tags.push_str(&format!("    {}\n", tag(file, bytes)));
            if !bytes.is_empty() {
                let content_type = if file.is_css() { CSS } else { JS };
                assets.push(Asset {
                    name: file.name.to_owned(),
                    content_type,
                    bytes: Bytes::from_static(bytes),
                });
            }
        }
        styles.push_str(&format!(
            "    <link rel=\"stylesheet\" href=\"assets/{css_name}\">"
        ));
        scripts.push_str(&format!(
            "    <script type=\"module\" src=\"assets/{js_name}\"></script>"
        ));
        let own = [
            (css_name, CSS, Bytes::from_static(css)),
            (examples_name, JS, Bytes::from_static(examples)),
            (js_name, JS, Bytes::from(js)),
        ];
        assets.extend(own.map(|(name, content_type, bytes)| Asset {
            name,
            content_type,
            bytes,
        }));
        if !LICENCES.is_empty() {
            let name = format!("licences-{}.txt", fingerprint(LICENCES));
            styles.push_str(&format!(
                "\n    <link rel=\"license\" href=\"assets/{name}\">"
            ));
            assets.push(Asset {
                name,
                content_type: TEXT,
                bytes: Bytes::from_static(LICENCES),
            });
        }

        let html = include_str!("index.html")
            .replace("<!-- styles -->", styles.trim_start())
            .replace("<!-- scripts -->", scripts.trim_start())
            .replace("<!-- people -->", &escape(people));
        Self {
            page: HtmlPage::new(html, policy()),
            assets,
        }
    }
}

impl Vendored {
    fn is_css(&self) -> bool {
        self.name.ends_with(".css")
    }

    fn cdn_folder(&self) -> String {
        format!("{CDN}{}@{}/", self.package, self.version)
    }
}

/// HTML element that loads one file.
fn tag(file: &Vendored, embedded: &[u8]) -> String {
    let from = source(file, embedded);
    if file.is_css() {
        let from = from.replace("src=", "href=");
        format!("<link rel=\"stylesheet\" {from}>")
    } else {
        format!("<script defer {from}></script>")
    }
}

/// Attributes that load one file: from this server, or from the CDN with subresource integrity.
fn source(file: &Vendored, embedded: &[u8]) -> String {
    if embedded.is_empty() {
        let url = format!("{}{}", file.cdn_folder(), file.path);
        format!(
            "src=\"{url}\" integrity=\"{}\" crossorigin=\"anonymous\"",
            file.integrity
        )
    } else {
        format!("src=\"assets/{}\"", file.name)
    }
}

/// Content security policy: files of this server and, in a build without npm, the pinned folders of the CDN. GraphiQL
/// needs inline styles and fonts as data.
fn policy() -> HeaderValue {
    let missing = || {
        VENDORED
            .iter()
            .zip(EMBEDDED)
            .filter(|(_, bytes)| bytes.is_empty())
            .map(|(file, _)| file)
    };
    let from_cdn = |css: bool| {
        missing()
            .filter(|file| file.is_css() == css)
            .map(|file| format!(" {}", file.cdn_folder()))
            .collect::<String>()
    };
    let policy = format!(
        "default-src 'none'; script-src 'self'{}; style-src 'self' 'unsafe-inline'{}; font-src 'self' data:; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        from_cdn(false),
        from_cdn(true),
    );
    HeaderValue::try_from(policy).expect("the policy is visible ASCII")
}

async fn index(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response {
    pages.page.answer(&headers)
}

async fn asset(State(pages): State<Arc<Pages>>, Path(name): Path<String>) -> Response {
    match pages.assets.iter().find(|asset| asset.name == name) {
        Some(asset) => forever(asset.content_type, asset.bytes.clone()),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Response that browsers cache for good, because its name holds a version or a hash.
fn forever(content_type: &'static str, bytes: Bytes) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000, immutable"),
        ),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, bytes).into_response()
}

struct DemoTokens {
    users: Vec<String>,
    issue: Issue,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    username: String,
}

/// Issues a token. It accepts JSON only: a page of another origin needs a CORS preflight, which only the listed ones pass.
async fn demo_token(
    State(demo): State<Arc<DemoTokens>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !names_this_machine(&headers) {
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let Ok(SignIn { username }) = serde_json::from_slice(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if !demo.users.contains(&username) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Some(token) = (demo.issue)(&username) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, serde_json::json!({ "token": token }).to_string()).into_response()
}

/// Whether `Host` is loopback. By DNS rebinding another site can point its name to this machine; the browser then treats
/// it as our origin, and only `Host` differs.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let authority = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let host = authority.host();
        host.eq_ignore_ascii_case("localhost")
            || host
                .trim_matches(['[', ']'])
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    })
}

fn fingerprint(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    BASE64_URL_SAFE_NO_PAD.encode(&digest[..12])
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;
    use sha2::Sha384;

    use super::*;

    #[test]
    fn embedded_files_equal_those_of_the_cdn() {
        for (file, bytes) in VENDORED
            .iter()
            .zip(EMBEDDED)
            .filter(|(_, bytes)| !bytes.is_empty())
        {
            assert_eq!(
                file.integrity,
                format!("sha384-{}", BASE64_STANDARD.encode(Sha384::digest(bytes))),
                "{}",
                file.name
            );
        }
    }

    #[test]
    fn a_build_without_npm_loads_pinned_files_and_nothing_else() {
        let file = &VENDORED[1];
        let from = source(file, b"");
        assert!(
            from.starts_with("src=\"https://cdn.jsdelivr.net/npm/react@18.3.1/umd/react.production.min.js\" integrity=\"sha384-"),
            "{from}"
        );
        assert_eq!(source(file, b"bytes"), "src=\"assets/react-18.3.1.js\"");
    }
}
