//! Messages and close codes of the protocol `graphql-transport-ws`.

use std::borrow::Cow;

use async_graphql::ServerError;
use axum::extract::ws::{CloseFrame, Utf8Bytes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::graphql::Refusal;
use crate::server::origin::AS_HEADER;
use crate::server::trace_context::{TRACEPARENT, TraceContext};

/// Longest id of an operation. The server stores each while the operation runs.
const ID_BYTES_MAX: usize = 256;
const AUTHORIZATION: &str = "authorization";
/// Bytes of a control frame beside the code.
const REASON_BYTES_MAX: usize = 123;

/// Close code and reason of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) code: u16,
    reason: Cow<'static, str>,
}

impl Close {
    const fn fixed(code: u16, reason: &'static str) -> Self {
        assert!(reason.len() <= REASON_BYTES_MAX);
        Self {
            code,
            reason: Cow::Borrowed(reason),
        }
    }

    fn new(code: u16, mut reason: String) -> Self {
        if reason.len() > REASON_BYTES_MAX {
            let end = (0..=REASON_BYTES_MAX)
                .rev()
                .find(|&end| reason.is_char_boundary(end))
                .unwrap_or(0);
            reason.truncate(end);
        }
        Self {
            code,
            reason: reason.into(),
        }
    }

    pub(super) fn invalid(why: impl std::fmt::Display) -> Self {
        Self::new(4400, format!("Invalid message: {why}"))
    }

    pub(super) fn too_big(bytes_max: usize) -> Self {
        Self::new(1009, format!("A message has at most {bytes_max} bytes"))
    }

    pub(super) const BROKEN: Self = Self::fixed(
        1002,
        "The frame breaks the WebSocket protocol, or is far too large",
    );

    pub(super) const UNAUTHORIZED: Self = Self::fixed(
        4401,
        "Unauthorized: wait for connection_ack before you subscribe",
    );

    pub(super) fn forbidden(why: &str) -> Self {
        Self::new(4403, format!("Forbidden: {why}"))
    }

    /// Close of a socket whose token was revoked: a client comes back with a new token.
    pub(super) const REVOKED: Self = Self::fixed(4403, "Forbidden: the token was revoked");

    /// Close of a socket whose user is suspended. It is final: the usual client does not reconnect.
    pub(super) const SUSPENDED: Self = Self::fixed(4401, "Unauthorized: the user is suspended");

    pub(super) const EXPIRED: Self = Self::fixed(4403, "Forbidden: the token has expired");

    /// Close of a socket whose `connection_init` showed no token, after the same time as [`Close::INIT_TIMEOUT`].
    pub(super) const NO_VIEWER: Self = Self::fixed(
        4403,
        "Forbidden: no token was shown in connection_init in time; connect with one",
    );

    pub(super) fn too_much_before_init(bytes_max: usize) -> Self {
        Self::new(
            1009,
            format!("Until connection_init is accepted a socket takes at most {bytes_max} bytes"),
        )
    }

    /// The usual client reconnects after it (RFC 6455's registry: try again later).
    pub(super) const EVICTED: Self = Self::fixed(
        1013,
        "Sockets are short: one without a viewer makes room for another; try again later",
    );

    pub(super) const SUBPROTOCOL: Self = Self::fixed(
        4406,
        "Subprotocol not acceptable: speak graphql-transport-ws",
    );

    pub(super) const INIT_TIMEOUT: Self = Self::fixed(4408, "Connection initialisation timeout");

    /// Not in the protocol; a client reconnects after it, as after the other 4408.
    pub(super) const PONG_TIMEOUT: Self = Self::fixed(4408, "Pong timeout");

    /// Close of a socket whose message began and did not end in time.
    pub(super) const MESSAGE_TIMEOUT: Self = Self::fixed(
        4408,
        "Message timeout: the rest of a message did not arrive",
    );

    pub(super) fn duplicate(id: &str) -> Self {
        Self::new(4409, format!("Subscriber for {id} already exists"))
    }

    pub(super) const TOO_MANY_INITS: Self = Self::fixed(4429, "Too many initialisation requests");

    /// The usual client does not reconnect after 4429, which is right for one that floods.
    pub(super) fn too_fast(per_second: u32) -> Self {
        Self::new(
            4429,
            format!("Too many messages: send at most {per_second} a second"),
        )
    }

    /// A client reconnects after it: the limit may count a dead socket of its own that no ping has found yet.
    pub(super) fn too_many_sockets(max: usize) -> Self {
        Self::new(
            4291,
            format!(
                "Too many sockets: a user has at most {max}; close another one and connect again"
            ),
        )
    }

    pub(super) const SLOW_CONSUMER: Self =
        Self::fixed(4290, "Slow consumer: resume from your last cursor");

    /// Whether the queued messages are dropped: their reader is too slow, or no longer allowed in.
    pub(super) fn drops_queue(&self) -> bool {
        [Self::SLOW_CONSUMER, Self::REVOKED, Self::SUSPENDED].contains(self)
    }

    pub(super) const DRAINING: Self = Self::fixed(1012, "This server is stopping; connect again");

    pub(super) fn frame(self) -> CloseFrame {
        CloseFrame {
            code: self.code,
            reason: Utf8Bytes::from(self.reason.into_owned()),
        }
    }
}

/// Message of a client.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    Init {
        authorization: Option<String>,
        /// User in whose name a service acts.
        acted_user: Option<String>,
        trace: Option<TraceContext>,
    },
    Ping {
        payload: Option<&'a RawValue>,
    },
    Pong,
    Subscribe {
        id: Cow<'a, str>,
        payload: &'a RawValue,
    },
    Complete {
        id: Cow<'a, str>,
    },
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object with `type`")]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

/// Payload of `connection_init`. Some clients put the headers of a request into it, others below `headers`.
#[derive(Default, Deserialize)]
#[serde(expecting = "a JSON object")]
struct InitPayload {
    #[serde(default)]
    headers: Option<Map<String, Value>>,
    #[serde(rename = "as", default)]
    acted_user: Option<String>,
    #[serde(flatten)]
    own: Map<String, Value>,
}

impl InitPayload {
    /// Value of a header, whatever the case of its name.
    fn header(&self, name: &str) -> Option<&Value> {
        let mut all = self.own.iter().chain(self.headers.iter().flatten());
        all.find(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null())
            .map(|(_, value)| value)
    }

    /// Value of a header that must be text: ignored, it would change the rights of the socket.
    fn text(&self, name: &str) -> Result<Option<String>, Close> {
        match self.header(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Close::invalid(format!("`{name}` must be a string"))),
        }
    }

    fn into_init<'a>(self) -> Result<Incoming<'a>, Close> {
        let trace = self.header(TRACEPARENT).and_then(Value::as_str);
        Ok(Incoming::Init {
            authorization: self.text(AUTHORIZATION)?,
            trace: trace.and_then(TraceContext::parse),
            acted_user: match self.acted_user {
                None => self.text(AS_HEADER)?,
                named => named,
            },
        })
    }
}

impl From<Refusal> for Close {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Revoked => Self::REVOKED,
            Refusal::Suspended => Self::SUSPENDED,
        }
    }
}

impl<'a> Incoming<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Close> {
        if text.trim_ascii_start().starts_with('[') {
            return Err(Close::invalid("expected a JSON object"));
        }
        let Envelope { kind, id, payload } = serde_json::from_str(text).map_err(Close::invalid)?;
        match kind.as_ref() {
            "connection_init" => {
                let payload = payload.map(|raw| {
                    object(raw).and_then(|raw| {
                        serde_json::from_str::<InitPayload>(raw.get()).map_err(Close::invalid)
                    })
                });
                payload.transpose()?.unwrap_or_default().into_init()
            }
            "ping" => Ok(Self::Ping {
                payload: payload.map(object).transpose()?,
            }),
            "pong" => Ok(Self::Pong),
            "subscribe" => {
                let payload =
                    payload.ok_or_else(|| Close::invalid("`subscribe` has no `payload`"))?;
                Ok(Self::Subscribe {
                    id: checked(id)?,
                    payload: object(payload)?,
                })
            }
            "complete" => Ok(Self::Complete { id: checked(id)? }),
            _ => Err(Close::invalid("its `type` is no message of a client")),
        }
    }
}

fn object(raw: &RawValue) -> Result<&RawValue, Close> {
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err(Close::invalid("`payload` must be an object"))
    }
}

fn checked(id: Option<Cow<'_, str>>) -> Result<Cow<'_, str>, Close> {
    match id {
        None => Err(Close::invalid("it has no `id`")),
        Some(id) if id.is_empty() => Err(Close::invalid("its `id` is empty")),
        Some(id) if id.len() > ID_BYTES_MAX => Err(Close::invalid(format!(
            "its `id` has more than {ID_BYTES_MAX} bytes"
        ))),
        Some(id) => Ok(id),
    }
}

/// Message of the server.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Outgoing<'a> {
    ConnectionAck,
    Pong {
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a RawValue>,
    },
    Error {
        id: &'a str,
        payload: &'a [ServerError],
    },
    Complete {
        id: &'a str,
    },
}

impl Outgoing<'_> {
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("a message is a tree of text and numbers")
    }
}

/// Start of a `next` message. Its payload is JSON already.
pub(super) fn next_head(id: &str) -> Box<str> {
    let id = serde_json::to_string(id).expect("a text is one in JSON");
    [r#"{"type":"next","id":"#, &id, r#","payload":"#]
        .concat()
        .into()
}

/// End of a `next` message.
pub(super) const NEXT_TAIL: &str = "}";

/// `next` message around an answer.
pub(super) fn next(head: &str, payload: &str) -> String {
    [head, payload, NEXT_TAIL].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_into_a_control_frame_and_ends_at_a_character() {
        let close = Close::duplicate(&"ä".repeat(200));
        assert!(
            close.reason.len() <= REASON_BYTES_MAX && close.reason.len() > REASON_BYTES_MAX - 2
        );
    }

    #[test]
    fn a_next_around_text_is_valid_json() {
        for id in ["1", "6f8a \"quoted\" \\ \u{1}ä"] {
            let frame: serde_json::Value =
                serde_json::from_str(&next(&next_head(id), "{\"data\":null}")).unwrap();
            assert_eq!(
                frame,
                serde_json::json!({ "type": "next", "id": id, "payload": { "data": null } })
            );
        }
    }

    #[test]
    fn a_malformed_message_is_refused_with_its_reason() {
        for (text, part) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "JSON object"),
            ("7", "JSON object"),
            ("{}", "`type`"),
            (r#"{"type":"next","id":"1"}"#, "`type`"),
            (r#"{"type":"subscribe","payload":{}}"#, "`id`"),
            (
                r#"{"type":"subscribe","id":"","payload":{}}"#,
                "`id` is empty",
            ),
            (r#"{"type":"subscribe","id":"1"}"#, "`payload`"),
            (r#"{"type":"subscribe","id":"1","payload":[]}"#, "object"),
            (r#"{"type":"subscribe","id":1,"payload":{}}"#, "string"),
            (r#"{"type":"complete"}"#, "`id`"),
            (r#"{"type":"ping","payload":7}"#, "object"),
            (
                r#"{"type":"connection_init","payload":"Bearer x"}"#,
                "object",
            ),
            (
                r#"{"type":"connection_init","payload":{"Authorization":7}}"#,
                "string",
            ),
            (
                r#"{"type":"connection_init","payload":{"headers":{"Wideroom-As":7}}}"#,
                "string",
            ),
            (
                r#"{"type":"connection_init","payload":{"headers":"Bearer x"}}"#,
                "map",
            ),
        ] {
            let close = Incoming::parse(text).unwrap_err();
            assert_eq!(close.code, 4400, "{text}");
            assert!(close.reason.contains(part), "{text}: {}", close.reason);
        }
    }

    #[test]
    fn a_token_is_found_where_clients_put_it() {
        for text in [
            r#"{"type":"connection_init","payload":{"Authorization":"Bearer x"}}"#,
            r#"{"type":"connection_init","payload":{"authorization":"Bearer x","other":[1]}}"#,
            r#"{"type":"connection_init","payload":{"AUTHORIZATION":"Bearer x","headers":null}}"#,
            r#"{"type":"connection_init","payload":{"headers":{"Authorization":"Bearer x","a":1}}}"#,
            r#"{"type":"connection_init","payload":{"authorization":null,"headers":{"authorization":"Bearer x"}}}"#,
        ] {
            assert!(
                matches!(Incoming::parse(text), Ok(Incoming::Init { authorization: Some(token), .. }) if token == "Bearer x")
            );
        }
        for text in [
            r#"{"type":"connection_init"}"#,
            r#"{"type":"connection_init","payload":null}"#,
            r#"{"type":"connection_init","payload":{}}"#,
        ] {
            assert!(
                matches!(
                    Incoming::parse(text),
                    Ok(Incoming::Init {
                        authorization: None,
                        ..
                    })
                ),
                "{text}"
            );
        }
    }
}
