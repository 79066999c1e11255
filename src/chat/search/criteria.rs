//! Criteria of a search, and the function that decides whether a message matches.

use sha2::{Digest, Sha256};

use super::walk::SearchBudget;
use crate::analysis::{self, Judgement, SearchQuery, SnippetSpan, TermLookup};
use crate::chat::access::blocks::BlockList;
use crate::chat::error::{Error, Result};
use crate::chat::index::TermGroups;
use crate::chat::index::content::{
    ContentKind, EVERYONE_TERM, SearchedContent, kind_term, mention_term, sender_term,
};
use crate::model::{Content, ConversationKind, Message, OrderKey, Timestamp, UserId};

/// Names in one list of a filter.
const NAMES_MAX: usize = 10;

/// A filter as the client gave it. `None` selects all.
#[derive(Debug, Clone, Default)]
pub struct SearchFilter {
    pub sender_usernames: Option<Vec<String>>,
    /// A message that mentions everyone mentions each of them.
    pub mentioned_usernames: Option<Vec<String>>,
    pub has: Option<Vec<ContentKind>>,
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub conversation_kind: Option<ConversationKind>,
}

/// A search as the client gave it.
#[derive(Debug, Clone, Default)]
pub struct SearchInput {
    pub query: Option<String>,
    pub filter: Option<SearchFilter>,
}

/// A valid search.
#[derive(Debug, Clone)]
pub struct Search {
    query: Option<SearchQuery>,
    senders: Vec<UserId>,
    mentioned: Vec<UserId>,
    has: Vec<ContentKind>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    kind: Option<ConversationKind>,
    fingerprint: [u8; 8],
}

impl Search {
    /// A search needs a query with a word, or a filter. Its lists are not empty.
    pub fn parse(input: SearchInput) -> Result<Self> {
        let SearchInput { query, filter } = input;
        let filter = filter.unwrap_or_default();
        let parse = |text: &String| {
            SearchQuery::parse(text).map_err(|error| Error::bad_input(&["query"], error))
        };
        let parsed = query.as_ref().map(parse).transpose()?;
        let senders = users(&["filter", "senderUsernames"], filter.sender_usernames)?;
        let mentioned = users(
            &["filter", "mentionedUsernames"],
            filter.mentioned_usernames,
        )?;
        let has = match filter.has {
            Some(kinds) if kinds.is_empty() => {
                return Err(Error::bad_input(&["filter", "has"], "the list is empty"));
            }
            kinds => kinds.unwrap_or_default(),
        };
        let is_narrowed = !senders.is_empty()
            || !mentioned.is_empty()
            || !has.is_empty()
            || filter.from.is_some()
            || filter.until.is_some()
            || filter.conversation_kind.is_some();
        if parsed.is_none() && !is_narrowed {
            return Err(Error::bad_input(&["query"], "give a query or a filter"));
        }
        let micros = |moment: Option<Timestamp>| moment.map(Timestamp::micros);
        let parts = (
            &query,
            &senders,
            &mentioned,
            &has,
            micros(filter.from),
            micros(filter.until),
            filter
                .conversation_kind
                .map(|kind| kind == ConversationKind::Direct),
        );
        let bytes = postcard::to_stdvec(&parts).expect("plain data serialises");
        let digest = Sha256::digest(bytes);
        let fingerprint = *digest.first_chunk().expect("a digest has 32 bytes");
        Ok(Self {
            query: parsed,
            senders,
            mentioned,
            has,
            from: filter.from,
            until: filter.until,
            kind: filter.conversation_kind,
            fingerprint,
        })
    }

    /// Short hash of the input. A cursor of one search is none of another.
    pub fn fingerprint(&self) -> [u8; 8] {
        self.fingerprint
    }

    pub(super) fn accepts_kind(&self, kind: ConversationKind) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
    }

    /// The range of time in which messages are found, as positions, both inclusive.
    pub(super) fn range(&self) -> (OrderKey, OrderKey) {
        (
            self.from.map_or(OrderKey::MIN, OrderKey::first_at),
            self.until
                .map_or(OrderKey::MAX, |until| OrderKey::first_at(until).before()),
        )
    }

    /// The terms that every message has which matches.
    pub(super) fn term_groups(&self) -> TermGroups {
        let exact = |term: Vec<u8>| TermLookup {
            term,
            is_prefix: false,
        };
        let words = self.query.iter().flat_map(SearchQuery::lookups);
        let mut groups: Vec<_> = words.map(|lookup| vec![lookup]).collect();
        if !self.senders.is_empty() {
            let senders = self.senders.iter();
            groups.push(senders.map(|user| exact(sender_term(user))).collect());
        }
        if !self.mentioned.is_empty() {
            let users = self.mentioned.iter().map(mention_term);
            let terms = users.chain([EVERYONE_TERM.to_vec()]);
            groups.push(terms.map(exact).collect());
        }
        let kinds = self.has.iter().map(|kind| kind_term(*kind).to_vec());
        groups.extend(kinds.map(|term| vec![exact(term)]));
        TermGroups(groups)
    }

    /// Decides whether a message matches for a viewer with these blocks. Returns its snippet, and adds the cost.
    pub(super) fn judge(
        &self,
        message: &Message,
        blocks: &BlockList,
        budget: &mut SearchBudget<'_>,
    ) -> Option<Vec<SnippetSpan>> {
        budget.spend_message();
        let searched = SearchedContent::of(message)?;
        let content = searched.content;
        let is_selected = (self.senders.is_empty() || self.senders.contains(&message.sender))
            && !blocks.has(&message.sender)
            && (self.mentioned.is_empty() || mentions(content, &self.mentioned))
            && self.has.iter().all(|kind| kind.is_in(content));
        if !is_selected {
            return None;
        }
        let Some(query) = &self.query else {
            return Some(Vec::new());
        };
        let texts: Vec<_> = searched.texts().collect();
        let Judgement { found, bytes, work } = analysis::judge(query, texts.iter().copied());
        budget.spend_judgement(bytes, work);
        let found = found?;
        Some(analysis::snippet(texts[found.text], &found.ranges))
    }
}

fn users(path: &'static [&'static str], usernames: Option<Vec<String>>) -> Result<Vec<UserId>> {
    let Some(usernames) = usernames else {
        return Ok(Vec::new());
    };
    if usernames.is_empty() || usernames.len() > NAMES_MAX {
        return Err(Error::bad_input(
            path,
            format!("give 1 to {NAMES_MAX} usernames"),
        ));
    }
    let parse = |name: &String| UserId::parse(name).map_err(|error| Error::bad_input(path, error));
    usernames.iter().map(parse).collect()
}

fn mentions(content: &Content, users: &[UserId]) -> bool {
    users.iter().any(|user| content.mentions.concern(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_needs_a_word_or_a_filter() {
        let path = |input| match Search::parse(input) {
            Err(Error::BadInput { path, .. }) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path(SearchInput::default()), ["query"]);
        let query = |text: &str| SearchInput {
            query: Some(text.to_owned()),
            filter: None,
        };
        assert_eq!(path(query("?!")), ["query"]);
        assert!(Search::parse(query("soup")).is_ok());
        let filter = |filter| SearchInput {
            query: None,
            filter: Some(filter),
        };
        assert_eq!(path(filter(SearchFilter::default())), ["query"]);
        let senders = |count| SearchFilter {
            sender_usernames: Some(vec!["ann".to_owned(); count]),
            ..SearchFilter::default()
        };
        assert_eq!(path(filter(senders(0))), ["filter", "senderUsernames"]);
        assert_eq!(path(filter(senders(11))), ["filter", "senderUsernames"]);
        assert!(Search::parse(filter(senders(10))).is_ok());
    }

    #[test]
    fn another_search_has_another_fingerprint() {
        let of = |text: &str, has| {
            let filter = SearchFilter {
                has,
                ..SearchFilter::default()
            };
            let input = SearchInput {
                query: Some(text.to_owned()),
                filter: Some(filter),
            };
            Search::parse(input).unwrap().fingerprint()
        };
        assert_eq!(of("a", None), of("a", None));
        assert_ne!(of("a", None), of("b", None));
        assert_ne!(of("a", None), of("a", Some(vec![ContentKind::Link])));
    }
}
