//! The text of a message: its number, when it was sent, and as many bytes as are asked for. It is found again in what a subscription tells,
//! without taking that apart.

const WORDS: &str = "and some words, as people write them to each other; ";
/// How the field stands in the JSON of an answer.
const FIELD: &str = r#""body":"#;
/// The least that has room for what is read again.
pub(super) const BYTES_MIN: usize = 48;
pub(super) const BYTES_MAX: usize = 16_000;

/// What is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) number: u64,
    /// Microseconds after a moment that sender and reader share.
    pub(super) at: u64,
}

impl Mark {
    pub(super) fn text(self, bytes: usize) -> String {
        let mut text = format!("#{} @{} ", self.number, self.at);
        while text.len() < bytes {
            text.push_str(&WORDS[..WORDS.len().min(bytes - text.len())]);
        }
        // No blank at the end, which the length would not count on.
        text.pop();
        text.push('.');
        text
    }

    /// Out of a payload in JSON that asks for the `body`. `None` where it is not of ours.
    pub(super) fn find(payload: &str) -> Option<Self> {
        let (_, body) = payload.split_once(FIELD)?;
        let (number, rest) = body.strip_prefix("\"#")?.split_once(" @")?;
        let (at, _) = rest.split_once(' ')?;
        Some(Self { number: number.parse().ok()?, at: at.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_found_again() {
        for (number, bytes) in [(0, BYTES_MIN), (17, 200), (u64::MAX, BYTES_MIN)] {
            let mark = Mark { number, at: 123_456_789 };
            let text = mark.text(bytes);
            assert_eq!(text.len(), bytes);
            let payload = json!({"type": "next", "payload": {"data": {"messageAdded": {"node": {"body": text, "id": "x"}}}}});
            assert_eq!(Mark::find(&payload.to_string()), Some(mark));
        }
        assert_eq!(Mark::find(r#"{"body":"something else"}"#), None);
    }
}
