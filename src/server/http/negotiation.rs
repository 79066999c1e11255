//! Media types: what is read, and which of our two a client would rather have.

use axum::http::{HeaderMap, header};

/// The two forms of an answer. The JSON is the same; what the status means is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    GraphqlResponse,
    Json,
}

impl Media {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::GraphqlResponse => "application/graphql-response+json; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
        }
    }

    fn is(self, subtype: &str) -> bool {
        match self {
            Self::GraphqlResponse => subtype.eq_ignore_ascii_case("graphql-response+json"),
            Self::Json => subtype.eq_ignore_ascii_case("json"),
        }
    }
}

/// What `Accept` likes best; our own media type where it does not care. `None` where it allows neither.
pub(super) fn accepted(headers: &HeaderMap) -> Option<Media> {
    let mut ranges =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).peekable();
    if ranges.peek().is_none() {
        return Some(Media::GraphqlResponse);
    }
    let (mut graphql, mut json) = (Wish::default(), Wish::default());
    for range in ranges {
        graphql.consider(range, Media::GraphqlResponse);
        json.consider(range, Media::Json);
    }
    match (graphql.quality, json.quality) {
        (0, 0) => None,
        (graphql, json) if json > graphql => Some(Media::Json),
        _ => Some(Media::GraphqlResponse),
    }
}

/// How much one media type is wished for, in thousandths, by the most specific range that names it.
#[derive(Default)]
struct Wish {
    quality: u16,
    specificity: u8,
}

impl Wish {
    fn consider(&mut self, range: &str, media: Media) {
        let mut parts = range.split(';').map(str::trim);
        let specificity = match parts.next().unwrap_or_default().split_once('/') {
            Some(("*", "*")) => 1,
            Some((main, "*")) if main.eq_ignore_ascii_case("application") => 2,
            Some((main, subtype)) if main.eq_ignore_ascii_case("application") && media.is(subtype) => 3,
            _ => return,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = weight.map_or(Some(1.0), |text| text.parse::<f32>().ok()).filter(|quality| (0.0..=1.0).contains(quality));
        if let Some(quality) = quality
            && specificity >= self.specificity
        {
            *self = Self { quality: (quality * 1_000.0) as u16, specificity };
        }
    }
}

/// `application/json`, with UTF-8 or no charset.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let mut parts = value.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, charset)) if name.eq_ignore_ascii_case("charset") => charset.trim_matches('"').eq_ignore_ascii_case("utf-8"),
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn the_greatest_wish_wins_and_ours_wins_a_tie() {
        use Media::{GraphqlResponse, Json};
        assert_eq!(accepted(&HeaderMap::new()), Some(GraphqlResponse));
        for (accept, media) in [
            ("*/*", Some(GraphqlResponse)),
            ("application/*", Some(GraphqlResponse)),
            ("application/json", Some(Json)),
            ("APPLICATION/JSON", Some(Json)),
            ("application/graphql-response+json", Some(GraphqlResponse)),
            ("application/json, application/graphql-response+json", Some(GraphqlResponse)),
            ("application/graphql-response+json; charset=utf-8; q=0.5, application/json;q=0.9", Some(Json)),
            ("application/graphql-response+json, application/json;q=0.9", Some(GraphqlResponse)),
            ("application/json, multipart/mixed", Some(Json)),
            ("application/json, */*;q=0.1", Some(Json)),
            ("text/html, */*;q=0.8", Some(GraphqlResponse)),
            ("application/graphql-response+json;q=0, */*", Some(Json)),
            ("text/html", None),
            ("application/json;q=0", None),
            ("", None),
        ] {
            assert_eq!(accepted(&headers(header::ACCEPT, accept)), media, "{accept}");
        }
    }

    #[test]
    fn a_post_is_json_in_utf_8() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json; charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("text/plain", false),
            ("application/graphql", false),
            ("application/jsonp", false),
            ("", false),
        ] {
            assert_eq!(is_json(&headers(header::CONTENT_TYPE, value)), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
