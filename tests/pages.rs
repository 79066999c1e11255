//! The pages at `/` and `/demo` over plain HTTP: what it may load, what browsers may keep, and who gets a token in a demo.

use std::io::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST,
    IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use wideroom::server::pages::{PageOptions, router};

struct Pages {
    address: std::net::SocketAddr,
}

impl Pages {
    async fn of(demo_users: &[&str]) -> Self {
        let issue = Arc::new(|username: &str| Some(format!("a token for {username}")));
        let options = PageOptions {
            demo_users: demo_users.iter().map(|&name| name.to_owned()).collect(),
            demo_agents: vec!["agent:echo".to_owned()],
            issue,
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum::serve(listener, router(options));
        tokio::spawn(async { server.await.unwrap() });
        Self { address }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        header: (hyper::header::HeaderName, &str),
        body: &str,
    ) -> hyper::Response<String> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string());
        let mut request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        request
            .headers_mut()
            .insert(header.0, header.1.parse().unwrap());
        let response = sender.send_request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        hyper::Response::from_parts(
            parts,
            String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap(),
        )
    }

    async fn get(&self, path: &str) -> hyper::Response<String> {
        self.send(Method::GET, path, (CONTENT_TYPE, "text/plain"), "")
            .await
    }

    async fn sign_in(&self, content_type: &str, body: &str) -> hyper::Response<String> {
        self.send(
            Method::POST,
            "/demo/token",
            (CONTENT_TYPE, content_type),
            body,
        )
        .await
    }
}

#[tokio::test]
async fn every_file_that_the_page_names_is_there_and_may_be_kept_for_good() {
    let pages = Pages::of(&[]).await;
    let html = pages.get("/").await.into_body() + pages.get("/demo").await.body();
    let names: Vec<&str> = html
        .split('"')
        .filter(|text| text.starts_with("assets/"))
        .collect();
    assert!(names.len() >= 15, "{html}");
    for name in names {
        let file = pages.get(&format!("/{name}")).await;
        assert_eq!(file.status(), StatusCode::OK, "{name}");
        assert_eq!(
            file.headers()[CACHE_CONTROL],
            "public, max-age=31536000, immutable"
        );
        let kind = match name.rsplit_once('.') {
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(file.headers()[CONTENT_TYPE], kind, "{name}");
        assert!(!file.body().is_empty(), "{name}");
        // Modules of the playground are beside it, each named by its hash.
        if name.starts_with("assets/page-") {
            for module in file.body().split(" from \"./").skip(1) {
                let module = module.split('"').next().unwrap();
                assert!(module.contains('-'), "{module}");
                let beside = pages.get(&format!("/assets/{module}")).await;
                assert_eq!(beside.status(), StatusCode::OK, "{module}");
            }
        }
    }
    assert_eq!(
        pages.get("/assets/index.html").await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn the_client_is_served_to_every_origin_by_its_hash() {
    let pages = Pages::of(&[]).await;
    let entry = pages.get("/client/index.js").await;
    assert_eq!(entry.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    assert_eq!(entry.headers()[CACHE_CONTROL], "no-cache");
    let module = entry.body().split('"').nth(1).unwrap();
    let module = format!("/client/{}", module.trim_start_matches("./"));
    let file = pages.get(&module).await;
    assert_eq!(file.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    assert_eq!(
        file.headers()[CACHE_CONTROL],
        "public, max-age=31536000, immutable"
    );
    assert_eq!(
        file.headers()[CONTENT_TYPE],
        "text/javascript; charset=utf-8"
    );
    assert!(file.body().contains("export function connect"));
    // Each module that it imports is beside it.
    for name in file.body().split("from \"./").skip(1) {
        let name = name.split('"').next().unwrap();
        let beside = module.replace("index.js", name);
        assert_eq!(pages.get(&beside).await.status(), StatusCode::OK, "{name}");
    }
    for missing in [
        "/client/package.json",
        "/client/none.js",
        "/client/x/index.js",
    ] {
        let status = pages.get(missing).await.status();
        assert_eq!(status, StatusCode::NOT_FOUND, "{missing}");
    }
}

/// Gzipped bytes of the chat page with all of its files, each by itself, as browsers get them. It is an example to be read, so it stays
/// small: plain files, a quarter of them comments and styles. The package, on which it is built, has a bound of its own, and so has the agent
/// of a demo (`echo.js`), which the page loads when its user writes to it.
const DEMO_GZIPPED_BYTES_MAX: usize = 60 * 1024;

fn gzipped(text: &str) -> usize {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap().len()
}

#[tokio::test]
async fn the_chat_with_all_its_files_stays_small() {
    let pages = Pages::of(&[]).await;
    let html = pages.get("/demo").await.into_body();
    let mut size = gzipped(&html);
    for name in html.split('"').filter(|text| text.starts_with("assets/")) {
        size += gzipped(pages.get(&format!("/{name}")).await.body());
    }
    assert!(size > 20_000, "the files were counted: {size}");
    assert!(
        !html.contains("echo.js"),
        "the agent is not loaded with the page"
    );
    let folder = html.split("assets/").nth(1).unwrap().split('/').next();
    let agent = format!("/assets/{}/echo.js", folder.unwrap());
    let agent = gzipped(pages.get(&agent).await.body());
    assert!(
        (1_000..=2_304).contains(&agent),
        "the agent has {agent} bytes"
    );
    assert!(
        size <= DEMO_GZIPPED_BYTES_MAX,
        "the chat has {size} bytes, gzipped"
    );
}

#[tokio::test]
async fn the_page_lets_no_other_site_in_and_is_sent_once() {
    let pages = Pages::of(&[]).await;
    let page = pages.get("/").await;
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe-eval"), "{policy}");
    assert_eq!(page.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(page.headers()["referrer-policy"], "no-referrer");

    let tag = page.headers()[ETAG].to_str().unwrap();
    let again = pages.send(Method::GET, "/", (IF_NONE_MATCH, tag), "").await;
    assert_eq!(
        (again.status(), again.body().as_str()),
        (StatusCode::NOT_MODIFIED, "")
    );
}

#[tokio::test]
async fn the_chat_lets_in_no_inline_code_and_pictures_alone_of_other_hosts() {
    let pages = Pages::of(&["alice"]).await;
    let page = pages.get("/demo").await;
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
        "{policy}"
    );
    assert!(
        policy.contains("; img-src 'self' https: data:; connect-src 'self';"),
        "{policy}"
    );
    assert!(
        !policy.contains("unsafe") && policy.matches("http").count() == 1,
        "{policy}"
    );
    assert!(page.body().contains("content=\"[&quot;alice&quot;]\""));
    let tag = page.headers()[ETAG].to_str().unwrap();
    assert_eq!(
        pages
            .send(Method::GET, "/demo", (IF_NONE_MATCH, tag), "")
            .await
            .status(),
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(
        pages
            .get("/assets/demo-of-yesterday/main.js")
            .await
            .status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_demo_gives_tokens_to_its_people_and_to_nobody_else() {
    let pages = Pages::of(&["alice", "O'Neil \"<b>\" & Söhne"]).await;
    let answer = pages
        .sign_in("application/json; charset=utf-8", r#"{"username":"alice"}"#)
        .await;
    assert_eq!(
        (answer.status(), answer.body().as_str()),
        (StatusCode::OK, r#"{"token":"a token for alice"}"#)
    );
    assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
    // The agent that the page runs is not among those that it offers for sign-in.
    let agent = pages
        .sign_in("application/json", r#"{"username":"agent:echo"}"#)
        .await;
    assert_eq!(agent.body(), r#"{"token":"a token for agent:echo"}"#);
    assert!(!pages.get("/demo").await.body().contains("agent:echo"));

    assert_eq!(
        pages
            .sign_in("application/json", r#"{"username":"mallory"}"#)
            .await
            .status(),
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        pages
            .sign_in("text/plain", r#"{"username":"alice"}"#)
            .await
            .status(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    assert_eq!(
        pages.sign_in("application/json", "alice").await.status(),
        StatusCode::BAD_REQUEST
    );
    let long = format!(r#"{{"username":"{}"}}"#, "a".repeat(1024));
    assert_eq!(
        pages.sign_in("application/json", &long).await.status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(
        pages.get("/demo/token").await.status(),
        StatusCode::METHOD_NOT_ALLOWED
    );

    let html = pages.get("/").await.into_body();
    let quoted =
        r#"content="[&quot;alice&quot;,&quot;O'Neil \&quot;&lt;b&gt;\&quot; &amp; Söhne&quot;]""#;
    assert!(html.contains(quoted), "{html}");
}

#[tokio::test]
async fn a_site_whose_name_points_here_gets_no_token() {
    let pages = Pages::of(&["alice"]).await;
    let by_host = async |host: &str| {
        pages
            .send(
                Method::POST,
                "/demo/token",
                (HOST, host),
                r#"{"username":"alice"}"#,
            )
            .await
            .status()
    };
    for foreign in [
        "rebound.example",
        "rebound.example:8080",
        "localhost.rebound.example",
        "10.0.0.1",
        "",
    ] {
        assert_eq!(
            by_host(foreign).await,
            StatusCode::MISDIRECTED_REQUEST,
            "{foreign}"
        );
    }
    for own in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "[::1]:8080",
    ] {
        assert_eq!(
            by_host(own).await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{own}"
        );
    }
}

#[tokio::test]
async fn outside_a_demo_there_is_no_door_for_tokens() {
    let pages = Pages::of(&[]).await;
    assert_eq!(
        pages
            .sign_in("application/json", r#"{"username":"alice"}"#)
            .await
            .status(),
        StatusCode::NOT_FOUND
    );
    assert!(
        pages
            .get("/")
            .await
            .into_body()
            .contains("name=\"people\" content=\"[]\"")
    );
}
