//! Trace context of a client: the W3C header `traceparent`. The log lines of its operations carry
//! its ids.

use std::sync::Arc;

/// Name of the header, and of the field in the payload of `connection_init`.
pub(super) const TRACEPARENT: &str = "traceparent";

/// Bytes of version 00: `00-` trace id `-` parent id `-` flags.
const BYTES: usize = 55;

/// A valid `traceparent`, up to its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext(Arc<str>);

impl TraceContext {
    /// `None` for a malformed value, which a receiver must ignore. Later versions may append
    /// fields.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.trim().split_at_checked(BYTES)?;
        let mut parts = known.split('-');
        let (version, trace, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_version_zero = version == "00";
        let is_valid = is_hex(version, 2)
            && version != "ff"
            && is_id(trace, 32)
            && is_id(parent, 16)
            && is_hex(flags, 2)
            && (rest.is_empty() || !is_version_zero && rest.starts_with('-'));
        is_valid.then(|| Self(known.into()))
    }

    pub(super) fn trace_id(&self) -> &str {
        &self.0[3..35]
    }

    /// Id of the client's span.
    pub(super) fn parent_id(&self) -> &str {
        &self.0[36..52]
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == length && text.bytes().all(is_digit)
}

/// An id of zeros is invalid.
fn is_id(text: &str, length: usize) -> bool {
    is_hex(text, length) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_context_has_its_ids() {
        let later = format!("cc{}-what-the-future-adds", &VALID[2..]);
        for text in [VALID, &format!(" {VALID} "), &later] {
            let context = TraceContext::parse(text).unwrap();
            assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!(context.parent_id(), "00f067aa0ba902b7");
        }
    }

    #[test]
    fn a_malformed_context_is_ignored() {
        for text in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-01"),
            &format!("{VALID}0"),
            &format!("cc{}x", &VALID[2..]),
            &VALID.replace("00-4bf", "ff-4bf"),
            &VALID.replace("4bf9", "4BF9"),
            &VALID.replace("-01", "-0g"),
            &VALID.replace("-00f0", "_00f0"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473600-f067aa0ba902b7-01",
            &"ä".repeat(40),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
