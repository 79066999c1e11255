//! Contents of messages that a search finds, and the terms by which an index has them beside those of their texts.

use strum::VariantArray;

use crate::model::{Attachment, Content, Message, MessageKind, UserId};

/// First bytes of terms. Those of texts have others.
const SENDER: u8 = b's';
const MENTION: u8 = b'm';
const EVERYONE: u8 = b'e';
const CONTENT_KIND: u8 = b'h';

/// Kind of content that a message carries beside its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, serde::Serialize)]
pub enum ContentKind {
    /// A link in the body.
    Link,
    Image,
    Video,
    Audio,
    /// An attachment of any other kind.
    File,
}

impl ContentKind {
    /// Whether a content carries it.
    pub(crate) fn is_in(self, content: &Content) -> bool {
        if self == Self::Link {
            return has_link(content.body.as_str());
        }
        content.attachments.iter().any(|one| kind_of(one) == self)
    }
}

/// A message that searches find: a TEXT message that is not deleted.
pub(crate) struct SearchedContent<'a> {
    pub(crate) sender: &'a UserId,
    pub(crate) content: &'a Content,
}

impl<'a> SearchedContent<'a> {
    pub(crate) fn of(message: &'a Message) -> Option<Self> {
        let content = message.content.as_ref()?;
        let is_searched = message.kind == MessageKind::Text && message.deleted_at.is_none();
        is_searched.then_some(Self {
            sender: &message.sender,
            content,
        })
    }

    /// The body, and the names of attachments.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'a str> {
        let names = self.content.attachments.iter();
        let names = names.filter_map(|one| one.name.as_deref());
        std::iter::once(self.content.body.as_str()).chain(names)
    }
}

/// Calls `add` with the terms of a message other than those of its texts.
pub(super) fn terms(searched: &SearchedContent<'_>, mut add: impl FnMut(&[u8])) {
    let SearchedContent { sender, content } = searched;
    add(&sender_term(sender));
    let mentions = &content.mentions;
    let users = mentions.users().iter();
    users.for_each(|user| add(&mention_term(user)));
    if mentions.everyone {
        add(&EVERYONE_TERM);
    }
    for kind in ContentKind::VARIANTS.iter().copied() {
        if kind.is_in(content) {
            add(&kind_term(kind));
        }
    }
}

/// Term of a message that mentions everyone.
pub(crate) const EVERYONE_TERM: [u8; 1] = [EVERYONE];

pub(crate) fn sender_term(user: &UserId) -> Vec<u8> {
    [&[SENDER], user.as_str().as_bytes()].concat()
}

pub(crate) fn mention_term(user: &UserId) -> Vec<u8> {
    [&[MENTION], user.as_str().as_bytes()].concat()
}

pub(crate) fn kind_term(kind: ContentKind) -> [u8; 2] {
    [CONTENT_KIND, kind as u8]
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
}
