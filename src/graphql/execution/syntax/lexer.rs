//! Lexer of documents: tokens with their positions, by the September 2025 edition of the
//! specification. It also counts tokens and open brackets, and stops beyond the bounds.

use std::borrow::Cow;

use async_graphql::Pos;

use super::string_literal;
use crate::graphql::execution::guard::{GuardError, within};
use crate::graphql::execution::{DocumentBounds, RequestError};

/// One token. The punctuator `...` is the byte `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SyntaxToken<'a> {
    Punctuator(u8),
    Name(&'a str),
    /// Text of a number, in JSON's grammar.
    Number(&'a str),
    String(Cow<'a, str>),
    End,
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Position of the byte `at`.
    position: Pos,
    tokens: usize,
    open: usize,
    bounds: &'a DocumentBounds,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, bounds: &'a DocumentBounds) -> Result<Self, GuardError> {
        within("bytes", text.len(), bounds.bytes)?;
        Ok(Self {
            text,
            at: 0,
            position: Pos { line: 1, column: 1 },
            tokens: 0,
            open: 0,
            bounds,
        })
    }

    /// The next token and its position.
    pub(super) fn token(&mut self) -> Result<(SyntaxToken<'a>, Pos), RequestError> {
        self.skip_ignored();
        let position = self.position;
        let rest = &self.text[self.at..];
        let Some(&first) = rest.as_bytes().first() else {
            return Ok((SyntaxToken::End, position));
        };
        self.tokens += 1;
        within("tokens", self.tokens, self.bounds.tokens)?;
        let unexpected =
            |what: &str| Err(RequestError::syntax(format!("unexpected {what}"), position));
        let (token, length) = match first {
            b'"' => {
                let (value, length) = string_literal::read(rest)
                    .map_err(|problem| RequestError::syntax(problem.to_owned(), position))?;
                (SyntaxToken::String(value), length)
            }
            b'.' if rest.starts_with("...") => (SyntaxToken::Punctuator(b'.'), 3),
            b'!' | b'$' | b'&' | b'(' | b')' | b':' | b'=' | b'@' | b'[' | b']' | b'{' | b'|'
            | b'}' => (SyntaxToken::Punctuator(first), 1),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = run(rest, is_name_byte);
                (SyntaxToken::Name(&rest[..length]), length)
            }
            b'0'..=b'9' | b'-' => {
                let length = number(rest.as_bytes());
                let next = rest.as_bytes().get(length).copied().unwrap_or(b' ');
                if length == 0 || next == b'.' || is_name_byte(next) {
                    return unexpected("characters in a number");
                }
                (SyntaxToken::Number(&rest[..length]), length)
            }
            _ => {
                let character = rest.chars().next().unwrap_or_default();
                return unexpected(&format!("character {character:?}"));
            }
        };
        match first {
            b'{' | b'(' | b'[' => self.open += 1,
            b'}' | b')' | b']' => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        within(
            "brackets inside one another",
            self.open,
            self.bounds.nesting,
        )?;
        self.advance(length);
        Ok((token, position))
    }

    fn skip_ignored(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let length = match rest.as_bytes().first() {
                Some(b' ' | b',' | b'\t' | b'\n' | b'\r') => 1,
                Some(b'#') => run(rest, |byte| byte != b'\n' && byte != b'\r'),
                Some(_) if rest.starts_with('\u{feff}') => '\u{feff}'.len_utf8(),
                _ => return,
            };
            self.advance(length);
        }
    }

    fn advance(&mut self, length: usize) {
        let mut passed = self.text[self.at..self.at + length].chars().peekable();
        self.at += length;
        while let Some(character) = passed.next() {
            let next = passed
                .peek()
                .copied()
                .or_else(|| self.text[self.at..].chars().next());
            // `\r\n` ends one line.
            if character == '\n' || (character == '\r' && next != Some('\n')) {
                self.position.line += 1;
                self.position.column = 1;
            } else if character != '\r' {
                self.position.column += 1;
            }
        }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn run(text: &str, mut belongs: impl FnMut(u8) -> bool) -> usize {
    text.bytes()
        .position(|byte| !belongs(byte))
        .unwrap_or(text.len())
}

/// Length of the number that starts here, or 0 if there is none.
fn number(bytes: &[u8]) -> usize {
    let digits = |from: usize| {
        let digits = bytes.iter().skip(from);
        digits.take_while(|byte| byte.is_ascii_digit()).count()
    };
    let mut length = usize::from(bytes[0] == b'-');
    let whole = digits(length);
    if whole == 0 || (whole > 1 && bytes[length] == b'0') {
        return 0;
    }
    length += whole;
    if bytes.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        if fraction == 0 {
            return 0;
        }
        length += 1 + fraction;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent == 0 {
            return 0;
        }
        length += 1 + sign + exponent;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<(SyntaxToken<'_>, Pos)>, RequestError> {
        let bounds = Box::leak(Box::new(DocumentBounds::default()));
        let mut lexer = Lexer::new(text, bounds)?;
        let mut tokens = Vec::new();
        loop {
            match lexer.token()? {
                (SyntaxToken::End, _) => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn each_kind_of_token_counts_once() {
        for (text, count) in [
            ("", 0),
            (" ,\t\r\n # a comment { a b c }", 0),
            ("{ a }", 3),
            ("query Q($a: Int! = -1.5e+3) { b(c: $a) }", 20),
            ("{ ...F ... on T { a } }", 10),
            (
                r#"{ a(b: "x \" y { z", c: """block "quoted" \""" { """) }"#,
                11,
            ),
            ("[1,-2 3e+4-5]", 6),
            ("\"\"", 1),
            ("\"\"\"\"\"\"", 1),
            ("{ a @include(if: true) }", 10),
            ("\u{feff}{ a \u{feff}}", 3),
        ] {
            assert_eq!(tokens(text).unwrap().len(), count, "{text}");
        }
    }

    #[test]
    fn a_position_counts_lines_and_characters() {
        let positions: Vec<_> = tokens("a \"é\" b\r\nc\rd\n\ne")
            .unwrap()
            .into_iter()
            .map(|(_, Pos { line, column })| (line, column))
            .collect();
        assert_eq!(positions, [(1, 1), (1, 3), (1, 7), (2, 1), (3, 1), (5, 1)]);
    }

    #[test]
    fn a_malformed_token_is_refused() {
        for text in [
            "1x",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "1.2.3",
            "\"open\n\"",
            "\"",
            "\"\"\"open",
            "..",
            "é",
            "%",
            "-a",
            "1_",
        ] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
