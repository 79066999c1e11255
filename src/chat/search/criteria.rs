//! Criteria of a search, and the function that decides whether a message matches.

use std::ops::Bound;

use sha2::{Digest, Sha256};

use crate::analysis::{self, SearchQuery, SnippetSpan};
use crate::chat::access::blocks::BlockList;
use crate::chat::error::{Error, Result};
use crate::model::{
    Attachment, Content, ConversationKind, Cut, Message, MessageKind, OrderKey, Timestamp, UserId,
};

/// Names in one list of a filter.
const NAMES_MAX: usize = 10;

/// Kind of content that a message carries beside its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum ContentKind {
    /// A link in the body.
    Link,
    Image,
    Video,
    Audio,
    /// An attachment of any other kind.
    File,
}

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
        let has_filter = filter.is_some();
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
        if parsed.is_none() && !(has_filter && is_narrowed) {
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
        let (fingerprint, _) = Sha256::digest(bytes)
            .split_first_chunk::<8>()
            .map(|(first, rest)| (*first, rest.len()))
            .expect("a digest has 32 bytes");
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

    /// The range of time in which messages are read.
    pub(super) fn cut(&self) -> Cut<OrderKey> {
        let at = |moment: Timestamp| OrderKey::first_at(moment);
        Cut {
            start: self
                .from
                .map_or(Bound::Unbounded, |from| Bound::Included(at(from))),
            end: self
                .until
                .map_or(Bound::Unbounded, |until| Bound::Excluded(at(until))),
        }
    }

    /// The same as positions, both inclusive.
    pub(super) fn range(&self) -> (OrderKey, OrderKey) {
        (
            self.from.map_or(OrderKey::MIN, OrderKey::first_at),
            self.until
                .map_or(OrderKey::MAX, |until| OrderKey::first_at(until).before()),
        )
    }

    /// Decides whether a message matches for a viewer with these blocks. Returns its snippet.
    pub(super) fn judge(&self, message: &Message, blocks: &BlockList) -> Option<Vec<SnippetSpan>> {
        let content = message.content.as_ref()?;
        let is_searched = message.kind == MessageKind::Text
            && message.deleted_at.is_none()
            && (self.senders.is_empty() || self.senders.contains(&message.sender))
            && !blocks.has(&message.sender)
            && (self.mentioned.is_empty() || mentions(content, &self.mentioned))
            && self.has.iter().all(|kind| carries(content, *kind));
        if !is_searched {
            return None;
        }
        let Some(query) = &self.query else {
            return Some(Vec::new());
        };
        let names = content
            .attachments
            .iter()
            .filter_map(|one| one.name.as_deref());
        let texts: Vec<_> = std::iter::once(content.body.as_str())
            .chain(names)
            .collect();
        let found = analysis::find(query, texts.iter().copied())?;
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

fn carries(content: &Content, kind: ContentKind) -> bool {
    if kind == ContentKind::Link {
        return has_link(content.body.as_str());
    }
    content.attachments.iter().any(|one| kind_of(one) == kind)
}

/// Kind of an attachment by the first part of its media type.
fn kind_of(attachment: &Attachment) -> ContentKind {
    let (family, _) = attachment.mime_type.split_once('/').unwrap_or_default();
    match family.to_ascii_lowercase().as_str() {
        "image" => ContentKind::Image,
        "video" => ContentKind::Video,
        "audio" => ContentKind::Audio,
        _ => ContentKind::File,
    }
}

/// Whether a text holds an address of the web.
fn has_link(text: &str) -> bool {
    text.match_indices("://").any(|(at, separator)| {
        let scheme = text[..at]
            .bytes()
            .rev()
            .take_while(u8::is_ascii_alphabetic)
            .count();
        let scheme = &text[at - scheme..at];
        let has_host = text[at + separator.len()..]
            .chars()
            .next()
            .is_some_and(|char| char.is_alphanumeric() || char == '[');
        has_host
            && ["http", "https"]
                .iter()
                .any(|known| scheme.eq_ignore_ascii_case(known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_scheme_of_the_web_and_a_host() {
        for text in [
            "see https://example.com",
            "HTTP://a.b",
            "(http://[::1]/)",
            "中http://例.cn",
        ] {
            assert!(has_link(text), "{text}");
        }
        for text in ["https://", "ftp://a.b", "http:// a", "http:/a", "plain"] {
            assert!(!has_link(text), "{text}");
        }
    }

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
