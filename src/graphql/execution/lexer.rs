//! Lexer that only counts: tokens and nesting of a document, before it is parsed, in one pass
//! without allocation.
//!
//! It accepts malformed documents, which the parser refuses. It must never count fewer tokens or
//! less nesting than the parser would see.

/// Size of a text in tokens and nesting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::graphql) struct TextMeasure {
    pub(in crate::graphql) tokens: usize,
    /// Maximum number of brackets of any kind that are open at once.
    pub(in crate::graphql) nesting: usize,
}

pub(in crate::graphql) fn measure(text: &str) -> TextMeasure {
    let bytes = text.as_bytes();
    let mut measure = TextMeasure::default();
    let mut open = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let length = match byte {
            b' ' | b',' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'#' => {
                at += run(rest, |byte| byte != b'\n' && byte != b'\r');
                continue;
            }
            b'"' => string(rest),
            b'.' if rest.starts_with(b"...") => 3,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_')
            }
            b'0'..=b'9' | b'-' => number(rest),
            // Non-ASCII text outside of strings, such as a byte order mark: one token. The parser
            // refuses it.
            0x80.. => run(rest, |byte| byte >= 0x80),
            b'{' | b'(' | b'[' => {
                open += 1;
                measure.nesting = measure.nesting.max(open);
                1
            }
            b'}' | b')' | b']' => {
                open = open.saturating_sub(1);
                1
            }
            _ => 1,
        };
        measure.tokens += 1;
        at += length;
    }
    measure
}

fn run(bytes: &[u8], mut belongs: impl FnMut(u8) -> bool) -> usize {
    bytes
        .iter()
        .position(|&byte| !belongs(byte))
        .unwrap_or(bytes.len())
}

/// Length of a number. A sign is part of it only at its start and after an `e`: `[1-2]` is two
/// numbers.
fn number(bytes: &[u8]) -> usize {
    let mut last = b'0';
    1 + run(&bytes[1..], |byte| {
        let belongs = matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E')
            || (matches!(byte, b'+' | b'-') && matches!(last, b'e' | b'E'));
        last = byte;
        belongs
    })
}

/// Length of the string or block string that starts here. An unterminated block string reaches to
/// the end of the text.
fn string(bytes: &[u8]) -> usize {
    let (quote, mut at) = if bytes.starts_with(b"\"\"\"") {
        (b"\"\"\"".as_slice(), 3)
    } else {
        (b"\"".as_slice(), 1)
    };
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        if rest.starts_with(quote) {
            return at + quote.len();
        }
        at += match byte {
            b'\\' if quote.len() == 3 && rest.starts_with(b"\\\"\"\"") => 4,
            b'\\' if quote.len() == 3 => 1,
            b'\\' => 2,
            // A string ends with its line. Otherwise a lone quote would hide the rest of the text
            // from the count.
            b'\n' | b'\r' if quote.len() == 1 => return at,
            _ => 1,
        };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_counts_once() {
        for (text, tokens) in [
            ("", 0),
            (" ,\t\r\n # a comment { a b c }", 0),
            ("{ a }", 3),
            ("query Q($a: Int! = -1.5e+3) { b(c: $a) }", 20),
            ("{ ...F ... on T { a } }", 10),
            (
                r#"{ a(b: "x \" y { z", c: """block "quoted" \""" { """) }"#,
                11,
            ),
            ("[1-2-3e+4-5]", 6),
            ("\"\"", 1),
            ("\"\"\"\"\"\"", 1),
            ("{ a @include(if: true) }", 10),
            ("é { a }", 4),
        ] {
            assert_eq!(measure(text).tokens, tokens, "{text}");
        }
    }

    #[test]
    fn a_string_without_an_end_hides_nothing_on_the_next_line() {
        assert_eq!(measure("\"open\n{ a b c }").tokens, 6);
    }

    #[test]
    fn nesting_is_the_most_brackets_open_at_once() {
        assert_eq!(measure("{ a(b: [[{c: 1}]]) { d } }").nesting, 5);
        assert_eq!(measure("}}}{{").nesting, 2);
        assert_eq!(measure("\"{{{{\"").nesting, 0);
    }
}
