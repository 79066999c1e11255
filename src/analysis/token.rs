//! Tokens of a folded text.

use std::ops::Range;

use icu_properties::props::{GeneralCategory, Script};
use icu_properties::{CodePointMapData, CodePointMapDataBorrowed};
use unicode_segmentation::UnicodeSegmentation as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A word of UAX #29, or a part of one: it matches as a whole, or by its beginning.
    Word,
    /// A run of a script without spaces: it matches by any part.
    Run,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// The bytes of the folded text.
    pub(super) range: Range<usize>,
}

const SCRIPTS: CodePointMapDataBorrowed<'static, Script> = CodePointMapData::<Script>::new();
const CATEGORIES: CodePointMapDataBorrowed<'static, GeneralCategory> =
    CodePointMapData::<GeneralCategory>::new();

/// The tokens of a folded text, in its order.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    if text.is_ascii() {
        ascii_words(text.as_bytes(), &mut tokens);
        return tokens;
    }
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let is_run = rest.chars().next().is_some_and(has_no_spaces);
        let len = rest
            .find(|char| has_no_spaces(char) != is_run)
            .unwrap_or(rest.len());
        let range = start..start + len;
        start = range.end;
        if is_run {
            tokens.push(Token {
                kind: TokenKind::Run,
                range,
            });
        } else {
            words(text, range, &mut tokens);
        }
    }
    tokens
}

/// Words of ASCII, most texts, as [`words`] finds them at ten times the cost: runs of letters and digits, with a comma or
/// semicolon between two digits, and the signs of names.
fn ascii_words(text: &[u8], tokens: &mut Vec<Token>) {
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let is_in = |at: usize| match text[at] {
        b',' | b';' => at > 0 && is_digit(at - 1) && is_digit(at + 1),
        byte => byte.is_ascii_alphanumeric(),
    };
    let mut start = None;
    for at in 0..=text.len() {
        let is_word = at < text.len() && is_in(at);
        match start {
            None if is_word => start = Some(at),
            Some(first) if !is_word => {
                let kind = TokenKind::Word;
                let range = first..at;
                tokens.push(Token { kind, range });
                start = None;
            }
            None | Some(_) => {}
        }
        if start.is_none() && at < text.len() {
            push_sign(char::from(text[at]), at, tokens);
        }
    }
}

/// Adds a sign that is part of a name, as in C++ or C#: it follows a word, or another sign of it.
fn push_sign(char: char, at: usize, tokens: &mut Vec<Token>) {
    let follows = tokens.last().is_some_and(|last| last.range.end == at);
    if follows && matches!(char, '+' | '#') {
        tokens.push(Token {
            kind: TokenKind::Word,
            range: at..at + 1,
        });
    }
}

fn words(text: &str, within: Range<usize>, tokens: &mut Vec<Token>) {
    for (start, word) in text[within.clone()].split_word_bound_indices() {
        let mut part_start = within.start + start;
        if let [byte] = word.as_bytes() {
            push_sign(char::from(*byte), part_start, tokens);
        }
        // A name like user_name or 3.14 is found by its parts, and as a phrase of them.
        for part in word.split(['.', '_', '-', '\'', '·', '‧', '/', ':', '@']) {
            let range = part_start..part_start + part.len();
            part_start = text[range.end..]
                .chars()
                .next()
                .map_or(range.end, |separator| range.end + separator.len_utf8());
            if part.chars().any(is_searchable) {
                tokens.push(Token {
                    kind: TokenKind::Word,
                    range,
                });
            }
        }
    }
}

/// Letters, digits and pictures. Punctuation and white space are in no token.
fn is_searchable(char: char) -> bool {
    char.is_alphanumeric()
        || (!char.is_ascii() && CATEGORIES.get(char) == GeneralCategory::OtherSymbol)
}

/// Whether a character is of a script that puts no spaces between words.
fn has_no_spaces(char: char) -> bool {
    if char < '\u{e00}' {
        return false;
    }
    // The prolonged sound mark is common to the two scripts of kana.
    char == 'ー'
        || [
            Script::Han,
            Script::Hiragana,
            Script::Katakana,
            Script::Hangul,
            Script::Thai,
            Script::Lao,
            Script::Khmer,
            Script::Myanmar,
        ]
        .contains(&SCRIPTS.get(char))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text)
            .into_iter()
            .map(|token| &text[token.range])
            .collect()
    }

    #[test]
    fn words_are_found_by_their_parts_and_runs_as_a_whole() {
        for (text, expected) in [
            ("don't stop", &["don", "t", "stop"] as &[&str]),
            ("user_name@example.com", &["user", "name", "example", "com"]),
            ("iphone手机 ok", &["iphone", "手机", "ok"]),
            ("コーヒーを飲む", &["コーヒーを飲む"]),
            ("안녕 하세요", &["안녕", "하세요"]),
            ("well 🎉🎉 done", &["well", "🎉", "🎉", "done"]),
            (
                "c++ c# a+b +1 #2",
                &["c", "+", "+", "c", "#", "a", "+", "b", "1", "2"],
            ),
            ("手机+ é#", &["手机", "+", "é", "#"]),
            ("?!… --", &[]),
            ("", &[]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn words_of_ascii_are_those_of_any_text(text in "[a-c19 ._\\-'\"/:@,;!?+#\\r\\n\\t\\x00]{0,24}|[\\x00-\\x7f]{0,24}") {
            let (mut quick, mut general) = (Vec::new(), Vec::new());
            ascii_words(text.as_bytes(), &mut quick);
            words(&text, 0..text.len(), &mut general);
            prop_assert_eq!(quick, general);
        }
    }
}
