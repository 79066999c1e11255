//! The function that decides whether texts match a query.

use std::ops::Range;

use super::fold::FoldedText;
use super::query::{SearchQuery, Term};
use super::token::{Token, TokenKind, tokens};

/// Matches in the texts of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Number of the first text with a match.
    pub text: usize,
    /// The matches in that text: ranges of its bytes, in order, which do not overlap.
    pub ranges: Vec<Range<usize>>,
}

/// Judgement of one message, and its cost.
#[derive(Debug, Default)]
pub struct Judgement {
    pub found: Option<Found>,
    /// Bytes of the texts after folding.
    pub bytes: usize,
    /// Work of folding and comparing, in bytes of a text that is not ASCII.
    pub work: usize,
}

/// Comparisons of a token with a term in the time in which a byte is folded.
const COMPARISONS_PER_BYTE: usize = 16;

/// Finds a query in the texts of one message. Every term must occur in one of the texts.
pub fn find<'a>(query: &SearchQuery, texts: impl IntoIterator<Item = &'a str>) -> Option<Found> {
    judge(query, texts).found
}

/// Finds a query as [`find`] does, and counts the work.
pub fn judge<'a>(query: &SearchQuery, texts: impl IntoIterator<Item = &'a str>) -> Judgement {
    let fields: Vec<_> = texts.into_iter().map(Field::of).collect();
    let tokens: usize = fields.iter().map(|field| field.tokens.len()).sum();
    let mut terms = 0;
    let has_all = query.terms.iter().all(|term| {
        terms += 1;
        let mut fields = fields.iter();
        fields.any(|field| !field.occurrences(term).is_empty())
    });
    let folding: usize = fields.iter().map(|field| field.folded.work()).sum();
    Judgement {
        found: has_all.then(|| first_match(query, &fields)).flatten(),
        bytes: fields.iter().map(|field| field.folded.text.len()).sum(),
        work: folding + terms * tokens / COMPARISONS_PER_BYTE,
    }
}

fn first_match(query: &SearchQuery, fields: &[Field]) -> Option<Found> {
    fields.iter().enumerate().find_map(|(number, field)| {
        let terms = query.terms.iter();
        let ranges: Vec<_> = terms.flat_map(|term| field.occurrences(term)).collect();
        (!ranges.is_empty()).then(|| Found {
            text: number,
            ranges: merged(ranges.iter().map(|range| field.folded.original(range))),
        })
    })
}

struct Field {
    folded: FoldedText,
    tokens: Vec<Token>,
}

impl Field {
    fn of(text: &str) -> Self {
        let folded = FoldedText::of(text);
        let tokens = tokens(&folded.text);
        Self { folded, tokens }
    }

    fn text(&self, token: &Token) -> &str {
        &self.folded.text[token.range.clone()]
    }

    /// The ranges of the folded text at which the term occurs.
    fn occurrences(&self, term: &Term) -> Vec<Range<usize>> {
        if let [(TokenKind::Run, part)] = term.tokens.as_slice() {
            return self.substrings(part);
        }
        self.tokens
            .windows(term.tokens.len())
            .filter_map(|window| self.phrase(term, window))
            .collect()
    }

    fn substrings(&self, part: &str) -> Vec<Range<usize>> {
        let runs = self
            .tokens
            .iter()
            .filter(|token| token.kind == TokenKind::Run);
        runs.flat_map(|run| {
            let found = self.text(run).match_indices(part);
            found.map(|(at, _)| run.range.start + at..run.range.start + at + part.len())
        })
        .collect()
    }

    /// The range of a phrase at these tokens. A run at its start needs only to end with the text, one
    /// at its end only to begin with it.
    fn phrase(&self, term: &Term, window: &[Token]) -> Option<Range<usize>> {
        let last = window.len() - 1;
        let (mut start, mut end) = (window[0].range.start, window[last].range.end);
        for (number, (token, (kind, wanted))) in window.iter().zip(&term.tokens).enumerate() {
            let text = self.text(token);
            let is_match = token.kind == *kind
                && match kind {
                    TokenKind::Word if number == last && term.is_prefix => text.starts_with(wanted),
                    TokenKind::Run if number == 0 => text.ends_with(wanted),
                    TokenKind::Run if number == last => text.starts_with(wanted),
                    TokenKind::Word | TokenKind::Run => text == wanted,
                };
            if !is_match {
                return None;
            }
            if *kind == TokenKind::Run && number == 0 {
                start = token.range.end - wanted.len();
            }
            if *kind == TokenKind::Run && number == last {
                end = token.range.start + wanted.len();
            }
        }
        Some(start..end)
    }
}

/// Ranges in order, those that touch joined.
fn merged(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found<'a>(query: &str, text: &'a str) -> Option<Vec<&'a str>> {
        let query = SearchQuery::parse(query).unwrap();
        let found = find(&query, [text])?;
        Some(found.ranges.into_iter().map(|range| &text[range]).collect())
    }

    #[test]
    fn all_words_must_occur_and_the_last_one_by_its_beginning() {
        assert_eq!(found("hot so", "Soup, hot!"), Some(vec!["Soup", "hot"]));
        assert_eq!(found("so hot", "Soup, hot!"), None, "only the last one");
        assert_eq!(found("hot tea", "Soup, hot!"), None);
        assert_eq!(found("\"soup hot\"", "Soup, hot!"), Some(vec!["Soup, hot"]));
        assert_eq!(found("\"hot soup\"", "Soup, hot!"), None);
        assert_eq!(
            found("\"hot so\"", "hot soup"),
            None,
            "a closed phrase has whole words"
        );
        assert_eq!(found("ecole", "À l'École"), Some(vec!["École"]));
        assert_eq!(found("a@b.com", "Mail a@b.com now"), Some(vec!["a@b.com"]));
        assert_eq!(found("b", "Mail a@b.com now"), Some(vec!["b"]));
        assert_eq!(found("🎉", "done 🎉"), Some(vec!["🎉"]));
    }

    #[test]
    fn scripts_without_spaces_match_by_any_part() {
        assert_eq!(found("全文", "支持全文搜索"), Some(vec!["全文"]));
        assert_eq!(found("索", "支持全文搜索"), Some(vec!["索"]));
        assert_eq!(found("搜文", "支持全文搜索"), None);
        assert_eq!(found("手机壳", "iPhone手机壳红"), Some(vec!["手机壳"]));
        assert_eq!(
            found("iphone手机", "iPhone手机壳红"),
            Some(vec!["iPhone手机"])
        );
        assert_eq!(found("コーヒ", "熱いコーヒー"), Some(vec!["コーヒ"]));
        assert_eq!(found("녕하", "안녕하세요"), Some(vec!["녕하"]));
        assert_eq!(found("กิน", "ผมกินข้าว"), Some(vec!["กิน"]));
        assert_eq!(found("שלום", "אמר שָׁלוֹם"), Some(vec!["שָׁלוֹם"]));
    }

    #[test]
    fn terms_may_lie_in_several_texts_and_the_first_one_is_shown() {
        let query = SearchQuery::parse("plan pdf").unwrap();
        let found = find(&query, ["The plan", "final.pdf"]).unwrap();
        assert_eq!((found.text, found.ranges.first()), (0, Some(&(4..8))));
        let query = SearchQuery::parse("pdf").unwrap();
        let found = find(&query, ["The plan", "final.pdf"]).unwrap();
        assert_eq!((found.text, found.ranges.first()), (1, Some(&(6..9))));
    }

    proptest! {
        #[test]
        fn each_word_of_a_text_finds_the_text(words in prop::collection::vec("[a-zé中文ก]{1,6}", 1..6)) {
            let text = words.join(" ");
            for word in &words {
                let query = SearchQuery::parse(word).unwrap();
                let found = find(&query, [text.as_str()]);
                prop_assert!(found.is_some(), "{} in {}", word, text);
                for range in found.unwrap().ranges {
                    prop_assert!(text.get(range).is_some());
                }
            }
        }

        #[test]
        fn any_text_and_any_query_are_judged(query in "\\PC{1,20}", text in "\\PC{0,60}") {
            if let Ok(query) = SearchQuery::parse(&query)
                && let Some(found) = find(&query, [text.as_str()])
            {
                for range in found.ranges {
                    prop_assert!(text.get(range).is_some());
                }
            }
        }
    }
}
