//! Text analysis of search: the words of a text, the terms of a query, and the function that
//! decides whether a text matches. Pure code, without a store.
//!
//! A text is folded (`fold`): NFKC, lower case, without marks, with plain spellings. The words of UAX #29 are its
//! tokens, and `+` and `#` behind one; scripts without spaces (Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar) are tokens run by
//! run, and match as substrings (`token`). A query is a list of terms (`query`): words and
//! quoted phrases. All terms must occur; the last one may be the beginning of a word
//! (`matching`). An index proposes texts by their terms (`index_term`).

mod fold;
mod index_term;
mod matching;
mod query;
mod snippet;
mod token;

pub use self::index_term::{INDEX_TERM_VERSION, TermLookup, index_terms};
pub use self::matching::{Found, Judgement, find, judge};
pub use self::query::{QueryError, SearchQuery};
pub use self::snippet::{SnippetSpan, snippet};
