//! Cross-origin policy: origins whose pages may use the API from a browser (CORS), and open WebSockets.
//!
//! The server uses no cookies, so a foreign page has no credentials to abuse; CORS never allows credentials.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::Response;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use url::{Origin, Url};

/// Header of a service that names the user in whose name it acts.
pub(super) const AS_HEADER: &str = "wideroom-as";

/// Time for which a browser may cache a preflight.
const MAX_AGE: Duration = Duration::from_secs(3_600);

/// Allowed origins, besides our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    Any,
    These(Vec<String>),
}

impl Default for Origins {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

/// Parses origins with commas between them, `*` or `none`.
impl FromStr for Origins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let origin = |text: &str| {
            is_origin(text)
                .then(|| text.to_owned())
                .ok_or_else(|| refused(text))
        };
        match text {
            "*" => Ok(Self::Any),
            "none" => Ok(Self::default()),
            text => text
                .split(',')
                .map(|part| origin(part.trim()))
                .collect::<Result<_, _>>()
                .map(Self::These),
        }
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::These(origins) if origins.is_empty() => f.write_str("none"),
            Self::These(origins) => f.write_str(&origins.join(",")),
        }
    }
}

/// Origins of pages that have none: of a sandboxed frame or a file, and of a file in some apps.
const OPAQUE: [&str; 2] = ["null", "file://"];

/// Sentence about an entry of the list that is no origin. It shows no password.
fn refused(text: &str) -> String {
    let shown = if text.contains('@') {
        "one of them"
    } else {
        text
    };
    let origin = Url::parse(text).map(|url| url.origin());
    let hint = match origin.map(|origin| origin.ascii_serialization()) {
        Ok(origin) if is_origin(&origin) && !text.contains('*') => {
            format!("; write {origin}")
        }
        Ok(_) | Err(_) => String::new(),
    };
    format!(
        "must be origins with commas between them, as https://chat.example.org, or * or none: {shown} is no origin{hint}"
    )
}

/// Whether the text is an origin as browsers write it: no path and no default port. Apps have a scheme of their own.
fn is_origin(text: &str) -> bool {
    if OPAQUE.contains(&text) {
        return true;
    }
    // Refuse a star within an origin: it would look like a pattern, which the server does not support.
    if text.contains('*') {
        return false;
    }
    match Url::parse(text).map(|url| url.origin()) {
        Ok(origin @ Origin::Tuple(..)) => origin.ascii_serialization() == text,
        Ok(Origin::Opaque(_)) => {
            let host = text.split_once("://").map_or("", |(_, host)| host);
            !host.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_graphic())
                && !host.contains(['/', '?', '#'])
        }
        Err(_) => false,
    }
}

impl Origins {
    fn has(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Any => true,
            Self::These(origins) => origins
                .iter()
                .any(|allowed| allowed.as_bytes() == origin.as_bytes()),
        }
    }

    /// CORS layer for the allowed origins. `None` if no other origin is allowed.
    pub(super) fn cors(&self) -> Option<CorsLayer> {
        let allowed = match self {
            Self::Any => AllowOrigin::any(),
            Self::These(origins) if origins.is_empty() => return None,
            Self::These(_) => {
                let origins = self.clone();
                AllowOrigin::predicate(move |origin, _| origins.has(origin))
            }
        };
        let layer = CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST]);
        // Clients send headers of their own. `without_service_header` removes the one that grants a permission.
        let layer = layer.allow_headers(AllowHeaders::mirror_request());
        Some(
            layer
                .expose_headers([header::DATE, header::RETRY_AFTER, header::WWW_AUTHENTICATE])
                .max_age(MAX_AGE),
        )
    }

    /// Whether a WebSocket may be opened. Only browsers send `Origin`, and they send no preflight.
    pub(super) fn may_open(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return true;
        };
        self.has(origin) || is_our_own(origin, headers)
    }
}

/// Removes the header of services from the allowed ones. A page of a foreign origin has no business with the token of a
/// service.
pub(super) async fn without_service_header(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let Some(allowed) = headers
        .get(header::ACCESS_CONTROL_ALLOW_HEADERS)
        .and_then(|value| value.to_str().ok())
    else {
        return response;
    };
    let kept: Vec<_> = allowed
        .split(',')
        .map(str::trim)
        .filter(|name| !name.eq_ignore_ascii_case(AS_HEADER))
        .collect();
    match HeaderValue::from_str(&kept.join(",")) {
        Ok(kept) if !kept.is_empty() => {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, kept);
        }
        Ok(_) | Err(_) => {
            headers.remove(header::ACCESS_CONTROL_ALLOW_HEADERS);
        }
    }
    response
}

/// Whether the page came from the requested host. The scheme may differ, because a proxy may terminate TLS.
fn is_our_own(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let origin = origin
        .to_str()
        .ok()
        .and_then(|origin| Url::parse(origin).ok());
    let (Some(host), Some(origin)) = (host, origin) else {
        return false;
    };
    let requested = Url::parse(&format!("{}://{host}/", origin.scheme())).ok();
    matches!(origin.scheme(), "http" | "https")
        && requested.is_some_and(|requested| requested.origin() == origin.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_open(origins: &str, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        origins.parse::<Origins>().unwrap().may_open(&headers)
    }

    #[test]
    fn a_socket_is_for_our_own_pages_and_for_programs() {
        assert!(may_open("none", "chat.example", None));
        assert!(may_open(
            "none",
            "chat.example",
            Some("https://chat.example")
        ));
        assert!(may_open(
            "none",
            "Chat.Example:443",
            Some("https://chat.example")
        ));
        assert!(may_open(
            "none",
            "127.0.0.1:8080",
            Some("http://127.0.0.1:8080")
        ));
        assert!(may_open("none", "[::1]:8080", Some("http://[::1]:8080")));
        for other in [
            "https://evil.example",
            "https://chat.example.evil.example",
            "https://chat.example:8443",
            "null",
            "file://",
            "x",
            "",
        ] {
            assert!(!may_open("none", "chat.example", Some(other)), "{other}");
        }
    }

    #[test]
    fn a_listed_origin_is_let_in_to_the_letter() {
        let listed = "https://one.example,capacitor://localhost";
        assert!(may_open(
            listed,
            "chat.example",
            Some("https://one.example")
        ));
        assert!(may_open(
            listed,
            "chat.example",
            Some("capacitor://localhost")
        ));
        assert!(!may_open(
            listed,
            "chat.example",
            Some("http://one.example")
        ));
        assert!(!may_open(
            listed,
            "chat.example",
            Some("https://one.example:444")
        ));
        assert!(may_open("*", "chat.example", Some("null")));
        assert!(may_open("null", "chat.example", Some("null")));
        assert!(may_open("file://", "chat.example", Some("file://")));
        assert!(!may_open("file://", "chat.example", Some("null")));
    }

    #[test]
    fn a_list_holds_origins_and_nothing_else() {
        for text in [
            "none",
            "*",
            "https://a.example",
            "http://a.example:81,capacitor://localhost",
            "null,file://",
        ] {
            assert_eq!(text.parse::<Origins>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "a.example",
            "https://a.example/",
            "https://a.example:443",
            "https://A.example",
            "https://*.example",
            "x://",
        ] {
            let list = format!("https://good.example,{text}");
            let refused = list.parse::<Origins>().unwrap_err();
            assert!(
                refused.contains(&format!(": {text} is no origin")),
                "{refused}"
            );
        }
        for (text, part) in [
            ("https://a.example/", "; write https://a.example"),
            ("https://A.example:443", "; write https://a.example"),
        ] {
            let refused = text.parse::<Origins>().unwrap_err();
            assert!(refused.ends_with(part), "{refused}");
        }
        let secret = "https://user:secret@a.example".parse::<Origins>();
        assert!(!secret.unwrap_err().contains("secret"));
    }
}
