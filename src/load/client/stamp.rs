//! Message bodies that carry a sequence number and a send time. Subscribers read the stamp from the JSON of a payload without parsing it.

const FILLER: &str = "and some words, as people write them to each other; ";
/// The fields `body` and `text` in serialised JSON.
const BODY_FIELD: &str = r#""body":"#;
const TEXT_FIELD: &str = r#""text":"#;
/// Room for the stamp itself.
pub(crate) const BODY_BYTES_MIN: usize = 48;
pub(crate) const BODY_BYTES_MAX: usize = 16_000;

/// Sequence number and send time of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyStamp {
    pub(crate) number: u64,
    /// Microseconds since the start of the run, which sender and subscribers share.
    pub(crate) sent_micros: u64,
}

impl BodyStamp {
    pub(crate) fn body(self, bytes: usize) -> String {
        let mut text = format!("#{} @{} ", self.number, self.sent_micros);
        while text.len() < bytes {
            text.push_str(&FILLER[..FILLER.len().min(bytes - text.len())]);
        }
        // The server trims a trailing space, and the body would then be too short.
        text.pop();
        text.push('.');
        text
    }

    /// Stamp in a JSON payload that selects `body`. `None` for a message without a stamp.
    pub(crate) fn find_in(payload: &str) -> Option<Self> {
        Self::find_after(BODY_FIELD, payload)
    }

    /// First stamp in a JSON payload that selects `text`, and the length of the text in bytes. Texts of a run have no escapes.
    pub(crate) fn find_in_text(payload: &str) -> Option<(Self, usize)> {
        let stamp = Self::find_after(TEXT_FIELD, payload)?;
        let (_, text) = payload.split_once(TEXT_FIELD)?;
        let (text, _) = text.strip_prefix('"')?.split_once('"')?;
        Some((stamp, text.len()))
    }

    fn find_after(field: &str, payload: &str) -> Option<Self> {
        let (_, body) = payload.split_once(field)?;
        let (number, rest) = body.strip_prefix("\"#")?.split_once(" @")?;
        let (sent_micros, _) = rest.split_once(' ')?;
        Some(Self {
            number: number.parse().ok()?,
            sent_micros: sent_micros.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_yields_the_stamp_of_its_body() {
        for (number, bytes) in [(0, BODY_BYTES_MIN), (17, 200), (u64::MAX, BODY_BYTES_MIN)] {
            let stamp = BodyStamp {
                number,
                sent_micros: 123_456_789,
            };
            let text = stamp.body(bytes);
            assert_eq!(text.len(), bytes);
            let payload = json!({"type": "next", "payload": {"data": {"messageAdded": {"node": {"body": text, "id": "x"}}}}});
            assert_eq!(BodyStamp::find_in(&payload.to_string()), Some(stamp));
        }
        assert_eq!(BodyStamp::find_in(r#"{"body":"something else"}"#), None);
    }

    #[test]
    fn a_payload_yields_the_first_stamp_of_its_text() {
        let stamp = |number| BodyStamp {
            number,
            sent_micros: 5,
        };
        let texts = [stamp(3), stamp(4)].map(|stamp| stamp.body(50)).concat();
        let payload = json!({"type": "next", "payload": {"data": {"liveMessages": {"liveMessage": {"id": "x"}, "text": texts}}}});
        assert_eq!(
            BodyStamp::find_in_text(&payload.to_string()),
            Some((stamp(3), 100))
        );
        assert_eq!(BodyStamp::find_in_text(r#"{"text":""}"#), None);
    }
}
