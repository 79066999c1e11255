//! Queries: words and quoted phrases.

use super::fold::{FoldedText, QUOTES, is_within_hebrew};
use super::token::{TokenKind, tokens};

/// A parsed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    pub(super) terms: Vec<Term>,
}

/// A word, or several tokens that must follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) tokens: Vec<(TokenKind, String)>,
    /// Whether the last token may be the beginning of a word.
    pub(super) is_prefix: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("a query has at most {} characters", SearchQuery::CHARACTERS_MAX)]
    TooLong,
    #[error("the query holds no word")]
    NoWord,
}

impl SearchQuery {
    pub const CHARACTERS_MAX: usize = 200;

    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.chars().count() > Self::CHARACTERS_MAX {
            return Err(QueryError::TooLong);
        }
        let mut terms = Vec::new();
        // Every second part is between quotation marks. One that nobody closed is a phrase so far.
        let parts = split_at_quotes(text);
        for (number, part) in parts.iter().enumerate() {
            if number % 2 == 1 {
                let is_open = number + 1 == parts.len();
                terms.extend(Term::parse(part, is_open));
            } else {
                terms.extend(
                    part.split_whitespace()
                        .filter_map(|word| Term::parse(word, false)),
                );
                let is_last = number + 1 == parts.len() && !part.trim().is_empty();
                if let Some(last) = terms.last_mut().filter(|_| is_last) {
                    last.is_prefix = true;
                }
            }
        }
        match terms.is_empty() {
            true => Err(QueryError::NoWord),
            false => Ok(Self { terms }),
        }
    }
}

fn split_at_quotes(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, quote) in text.match_indices(QUOTES) {
        let after = at + quote.len();
        if !is_within_hebrew(&text[..at], &text[after..]) {
            parts.push(&text[start..at]);
            start = after;
        }
    }
    parts.push(&text[start..]);
    parts
}

impl Term {
    /// `None` for a text without a word.
    fn parse(text: &str, is_prefix: bool) -> Option<Self> {
        let folded = FoldedText::of(text).text;
        let tokens: Vec<_> = tokens(&folded)
            .into_iter()
            .map(|token| (token.kind, folded[token.range].to_owned()))
            .collect();
        (!tokens.is_empty()).then_some(Self { tokens, is_prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Vec<(Vec<String>, bool)> {
        let query = SearchQuery::parse(text).unwrap();
        let terms = query.terms.into_iter();
        terms
            .map(|term| {
                let tokens = term.tokens.into_iter().map(|(_, text)| text).collect();
                (tokens, term.is_prefix)
            })
            .collect()
    }

    fn term(words: &[&str], is_prefix: bool) -> (Vec<String>, bool) {
        (
            words.iter().map(|&word| word.to_owned()).collect(),
            is_prefix,
        )
    }

    #[test]
    fn the_last_word_may_be_a_beginning_and_quotes_make_a_phrase() {
        assert_eq!(
            shape("Hot SOUP"),
            [term(&["hot"], false), term(&["soup"], true)]
        );
        assert_eq!(shape("\"hot soup\""), [term(&["hot", "soup"], false)]);
        assert_eq!(shape("\"hot so"), [term(&["hot", "so"], true)]);
        assert_eq!(
            shape("\"a b\" c"),
            [term(&["a", "b"], false), term(&["c"], true)]
        );
        assert_eq!(shape("a@b.c"), [term(&["a", "b", "c"], true)]);
    }

    #[test]
    fn a_query_is_bounded_and_holds_a_word() {
        assert_eq!(SearchQuery::parse(" \"\" ?!"), Err(QueryError::NoWord));
        assert_eq!(SearchQuery::parse(""), Err(QueryError::NoWord));
        assert!(SearchQuery::parse(&"é".repeat(200)).is_ok());
        assert_eq!(
            SearchQuery::parse(&"é".repeat(201)),
            Err(QueryError::TooLong)
        );
        assert_eq!(shape(&"a ".repeat(100)).len(), 100);
    }
}
