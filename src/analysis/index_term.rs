//! Terms of a search index: those of a text, and those that a query looks up.
//!
//! An index proposes, and [`super::find`] decides. So a text that matches a query has all that the query looks up, and a
//! text that does not match may have it too.

use super::fold::FoldedText;
use super::query::{SearchQuery, Term};
use super::token::{TokenKind, tokens};

/// Version of the terms. An index of another one is built again.
pub const INDEX_TERM_VERSION: u8 = 2;
/// Characters of a word that its term has.
const CHARACTERS_MAX: usize = 24;
/// Terms that one query looks up: those of its first words.
const LOOKUPS_MAX: usize = 10;
/// First bytes of terms. Those of other modules are none of these.
const WORD: u8 = b'w';
const RUN: u8 = b'r';

/// A term that an index is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermLookup {
    pub term: Vec<u8>,
    /// Whether all terms that begin with it count.
    pub is_prefix: bool,
}

/// Calls `add` with each term of a text: its words, and of the scripts without spaces each pair of neighbours and the last
/// character of a run.
pub fn index_terms(text: &str, mut add: impl FnMut(&[u8])) {
    let folded = FoldedText::of(text).text;
    let mut term = Vec::with_capacity(4 * CHARACTERS_MAX);
    let mut add = |kind, text: &str| {
        term.clear();
        term.push(kind);
        term.extend_from_slice(text.as_bytes());
        add(&term);
    };
    for token in tokens(&folded) {
        let text = &folded[token.range];
        match token.kind {
            TokenKind::Word => add(WORD, beginning(text)),
            TokenKind::Run => {
                pairs(text).for_each(|pair| add(RUN, pair));
                if let Some((last, _)) = text.char_indices().next_back() {
                    add(RUN, &text[last..]);
                }
            }
        }
    }
}

impl SearchQuery {
    /// Terms that every matching text has, each once. A long query is looked up by its first words and judged by all.
    pub fn lookups(&self) -> Vec<TermLookup> {
        let mut found = Vec::new();
        for lookup in self.terms.iter().flat_map(lookups) {
            if found.len() < LOOKUPS_MAX && !found.contains(&lookup) {
                found.push(lookup);
            }
        }
        found
    }
}

fn lookups(term: &Term) -> Vec<TermLookup> {
    let last = term.tokens.len() - 1;
    let mut found = Vec::new();
    for (number, (kind, text)) in term.tokens.iter().enumerate() {
        match kind {
            TokenKind::Word => {
                let beginning = beginning(text);
                let is_open = number == last && term.is_prefix;
                // Words that are longer than a term differ behind its end.
                let is_prefix = is_open && beginning.chars().count() < CHARACTERS_MAX;
                found.push(lookup(WORD, beginning, is_prefix));
            }
            TokenKind::Run if text.chars().count() > 1 => {
                found.extend(pairs(text).map(|pair| lookup(RUN, pair, false)));
            }
            // A single character begins a pair, or is the last one.
            TokenKind::Run => found.push(lookup(RUN, text, true)),
        }
    }
    found
}

fn lookup(kind: u8, text: &str, is_prefix: bool) -> TermLookup {
    let term = [&[kind], text.as_bytes()].concat();
    TermLookup { term, is_prefix }
}

fn beginning(word: &str) -> &str {
    match word.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => &word[..end],
        None => word,
    }
}

/// Neighbours in a text, two characters each.
fn pairs(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
    starts
        .zip(ends.skip(1))
        .map(|(start, end)| &text[start..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::analysis::find;

    fn terms(text: &str) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        index_terms(text, |term| all.push(term.to_vec()));
        all
    }

    fn proposes(text: &str, query: &SearchQuery) -> bool {
        let terms = terms(text);
        query.lookups().iter().all(|lookup| {
            terms.iter().any(|term| {
                *term == lookup.term || lookup.is_prefix && term.starts_with(&lookup.term)
            })
        })
    }

    #[test]
    fn terms_are_words_and_pairs_of_neighbours() {
        assert_eq!(terms("Hot Soup!"), [b"whot".to_vec(), b"wsoup".to_vec()]);
        let pairs: Vec<_> = ["全文", "文搜", "搜"].map(|one| format!("r{one}")).into();
        assert_eq!(
            terms("全文搜"),
            pairs
                .into_iter()
                .map(String::into_bytes)
                .collect::<Vec<_>>()
        );
        let long = "x".repeat(99);
        assert_eq!(terms(&long), [format!("w{}", "x".repeat(24)).into_bytes()]);
        assert!(proposes(&long, &SearchQuery::parse(&long[..60]).unwrap()));
    }

    #[test]
    fn a_query_looks_up_its_first_words_each_once() {
        let lookups = |text: &str| SearchQuery::parse(text).unwrap().lookups().len();
        let han: String = ('一'..='鿿').take(199).collect();
        assert_eq!(lookups(&han), LOOKUPS_MAX);
        assert_eq!(lookups("a b c d e f g h i j k l m n"), LOOKUPS_MAX);
        assert_eq!(lookups("so so so so \"so\""), 1);
    }

    proptest! {
        #[test]
        fn an_index_proposes_each_text_that_matches(
            texts in prop::collection::vec("[a-cé ß中文搜한국ไทย😀ﬁ'.\\-+#אבйʼ]{0,24}|[a-b]{20,40}", 1..4),
            query in "[a-cé 中文搜한ไ😀ﬁ\".+#אבйʼ]{1,12}|[a-b]{1,40}|[ab 中文]{40}",
        ) {
            if let Ok(query) = SearchQuery::parse(&query) {
                // Terms may be in different texts of one message.
                let all = texts.join("\n");
                let found = find(&query, texts.iter().map(String::as_str));
                let each: Vec<_> = texts.iter().flat_map(|text| terms(text)).collect();
                let has = |lookup: &TermLookup| each.iter().any(|term| {
                    *term == lookup.term || lookup.is_prefix && term.starts_with(&lookup.term)
                });
                prop_assert!(found.is_none() || query.lookups().iter().all(has), "{all} {query:?}");
            }
        }
    }
}
