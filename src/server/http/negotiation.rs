//! Content negotiation: media types of requests, and the answer format that `Accept` prefers.

use axum::http::{HeaderMap, header};

use super::stream_format::StreamFormat;

/// Media types of a single answer. The JSON is the same; the meaning of the HTTP status differs.
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
}

/// Formats that `Accept` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AcceptedMedia {
    /// Preferred media type of a single answer. Plain JSON without a preference, for clients that know no newer one.
    pub(super) media: Option<Media>,
    /// Preferred format of a stream. A wildcard never selects one.
    pub(super) stream: Option<StreamFormat>,
    /// Whether the client prefers a stream also for a query or a mutation.
    is_stream_preferred: bool,
    /// Whether `Accept-Encoding` allows gzip.
    pub(super) is_gzip: bool,
}

impl AcceptedMedia {
    pub(super) fn by(headers: &HeaderMap) -> Self {
        let mut ranges = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .peekable();
        if ranges.peek().is_none() {
            return Self {
                media: Some(Media::Json),
                is_gzip: accepts_gzip(headers),
                ..Self::default()
            };
        }
        let [mut graphql, mut json, mut events, mut parts] = [Preference::default(); 4];
        for range in ranges {
            let range = MediaRange::parse(range);
            graphql.consider(
                range.specificity("application", "graphql-response+json"),
                &range,
            );
            json.consider(range.specificity("application", "json"), &range);
            events.consider(range.names("text", "event-stream"), &range);
            parts.consider(
                range
                    .names("multipart", "mixed")
                    .filter(|_| range.is_for_subscriptions),
                &range,
            );
        }
        // A wildcard alone selects plain JSON. With equal preferences the named GraphQL media type wins: its status says more.
        let is_named = graphql.specificity == NAMED || graphql.specificity > json.specificity;
        let is_ours = graphql.quality > json.quality || graphql.quality == json.quality && is_named;
        let (media_quality, media) = if is_ours {
            (graphql.quality, Media::GraphqlResponse)
        } else {
            (json.quality, Media::Json)
        };
        let (stream_quality, stream) = if parts.quality > events.quality {
            (parts.quality, StreamFormat::Parts)
        } else {
            (events.quality, StreamFormat::Events)
        };
        // Apollo's clients accept `multipart/mixed` with every request, but expect it for subscriptions only.
        let is_stream_preferred = media_quality == 0 || events.quality > media_quality;
        Self {
            media: (media_quality > 0).then_some(media),
            stream: (stream_quality > 0).then_some(stream),
            is_stream_preferred,
            is_gzip: accepts_gzip(headers),
        }
    }

    pub(super) fn without_streams(self) -> Self {
        Self {
            stream: None,
            ..self
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.media.is_none() && self.stream.is_none()
    }

    /// Format of a query's or mutation's answer, where the client prefers a stream.
    pub(super) fn stream_of_one(&self) -> Option<StreamFormat> {
        if self.is_stream_preferred {
            self.stream
        } else {
            None
        }
    }
}

/// Specificity of a range that names one media type.
const NAMED: u8 = 3;

/// One media range of `Accept`.
struct MediaRange<'a> {
    main: &'a str,
    subtype: &'a str,
    /// Weight in thousandths. `None` if it is malformed.
    quality: Option<u16>,
    is_for_subscriptions: bool,
}

impl<'a> MediaRange<'a> {
    fn parse(range: &'a str) -> Self {
        let mut parts = range.split(';').map(str::trim);
        let (main, subtype) = parts
            .next()
            .unwrap_or_default()
            .split_once('/')
            .unwrap_or_default();
        let (mut quality, mut is_for_subscriptions) = (Some(1_000), false);
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            if name.eq_ignore_ascii_case("q") {
                let weight = value
                    .parse::<f32>()
                    .ok()
                    .filter(|weight| (0.0..=1.0).contains(weight));
                quality = weight.map(|weight| (weight * 1_000.0) as u16);
            } else if name.eq_ignore_ascii_case("subscriptionSpec") {
                is_for_subscriptions = matches!(value.trim_matches('"'), "1.0" | "1");
            }
        }
        Self {
            main,
            subtype,
            quality,
            is_for_subscriptions,
        }
    }

    fn names(&self, main: &str, subtype: &str) -> Option<u8> {
        (self.main.eq_ignore_ascii_case(main) && self.subtype.eq_ignore_ascii_case(subtype))
            .then_some(NAMED)
    }

    /// Specificity for this media type, or `None` without a match.
    fn specificity(&self, main: &str, subtype: &str) -> Option<u8> {
        match (self.main, self.subtype) {
            ("*", "*") => Some(1),
            (range, "*") => range.eq_ignore_ascii_case(main).then_some(2),
            _ => self.names(main, subtype),
        }
    }
}

/// Weight of one media type, in thousandths, from the most specific range that matches.
#[derive(Clone, Copy, Default)]
struct Preference {
    quality: u16,
    specificity: u8,
}

impl Preference {
    fn consider(&mut self, specificity: Option<u8>, range: &MediaRange<'_>) {
        if let (Some(specificity), Some(quality)) = (specificity, range.quality)
            && specificity >= self.specificity
        {
            *self = Self {
                quality,
                specificity,
            };
        }
    }
}

/// Whether `Accept-Encoding` allows gzip. Without the header nothing is compressed.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let codings = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut by_wildcard = false;
    for coding in codings {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        let is_allowed = weight.parse::<f32>().is_ok_and(|weight| weight > 0.0);
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => return is_allowed,
            "*" => by_wildcard = is_allowed,
            _ => {}
        }
    }
    by_wildcard
}

/// Whether the body is `application/json`, with UTF-8 or no charset.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let is_json = parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, charset)) if name.eq_ignore_ascii_case("charset") => {
                charset.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
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
    fn the_greatest_wish_wins_and_ours_wins_a_tie_of_names() {
        use Media::{GraphqlResponse, Json};
        assert_eq!(AcceptedMedia::by(&HeaderMap::new()).media, Some(Json));
        for (accept, media) in [
            ("*/*", Some(Json)),
            ("application/*", Some(Json)),
            ("application/json", Some(Json)),
            ("APPLICATION/JSON", Some(Json)),
            ("application/graphql-response+json", Some(GraphqlResponse)),
            (
                "application/json, application/graphql-response+json",
                Some(GraphqlResponse),
            ),
            (
                "application/graphql-response+json; charset=utf-8; q=0.5, application/json;q=0.9",
                Some(Json),
            ),
            (
                "application/graphql-response+json, application/json;q=0.9",
                Some(GraphqlResponse),
            ),
            ("application/json, multipart/mixed", Some(Json)),
            ("application/json, */*;q=0.1", Some(Json)),
            (
                "application/graphql-response+json, */*",
                Some(GraphqlResponse),
            ),
            ("application/json, */*", Some(Json)),
            ("text/html, */*;q=0.8", Some(Json)),
            ("application/graphql-response+json;q=0, */*", Some(Json)),
            ("text/html", None),
            ("application/json;q=0", None),
            ("", None),
        ] {
            let accepted = AcceptedMedia::by(&headers(header::ACCEPT, accept));
            assert_eq!((accepted.media, accepted.stream), (media, None), "{accept}");
        }
    }

    #[test]
    fn a_stream_is_for_those_who_name_it() {
        use StreamFormat::{Events, Parts};
        let apollo = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/graphql-response+json,application/json;q=0.9";
        for (accept, stream, of_one) in [
            ("text/event-stream", Some(Events), Some(Events)),
            ("Text/Event-Stream;q=0.5", Some(Events), Some(Events)),
            ("text/event-stream;q=0, application/json", None, None),
            ("text/*, */*", None, None),
            ("application/json, text/event-stream", Some(Events), None),
            (
                "application/json;q=0.9, text/event-stream",
                Some(Events),
                Some(Events),
            ),
            ("text/event-stream;q=0.1, */*", Some(Events), None),
            (apollo, Some(Parts), None),
            (
                "multipart/mixed; boundary=\"graphql\"; subscriptionSpec=\"1.0\"",
                Some(Parts),
                Some(Parts),
            ),
            (
                "multipart/mixed;subscriptionSpec=1.0, application/json;q=0.1",
                Some(Parts),
                None,
            ),
            (
                "multipart/mixed;subscriptionSpec=2.0, application/json",
                None,
                None,
            ),
            (
                "multipart/mixed;deferSpec=20220824, application/json",
                None,
                None,
            ),
            (
                "multipart/mixed;subscriptionSpec=1.0;q=0.8, text/event-stream;q=0.7",
                Some(Parts),
                Some(Parts),
            ),
            (
                "multipart/mixed;subscriptionSpec=1.0, text/event-stream",
                Some(Events),
                Some(Events),
            ),
        ] {
            let accepted = AcceptedMedia::by(&headers(header::ACCEPT, accept));
            assert_eq!(
                (accepted.stream, accepted.stream_of_one()),
                (stream, of_one),
                "{accept}"
            );
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
            assert_eq!(
                is_json(&headers(header::CONTENT_TYPE, value)),
                expected,
                "{value}"
            );
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn gzip_is_used_where_it_is_accepted() {
        for (codings, is_gzip) in [
            ("gzip", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("deflate, *", true),
            ("*, gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip; q=0.1", true),
            ("gzip;q=high", false),
            ("identity", false),
            ("", false),
        ] {
            let accepted = AcceptedMedia::by(&headers(header::ACCEPT_ENCODING, codings));
            assert_eq!(accepted.is_gzip, is_gzip, "{codings}");
        }
        assert!(!AcceptedMedia::by(&HeaderMap::new()).is_gzip);
    }
}
