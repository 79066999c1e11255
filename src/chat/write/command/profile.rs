//! Profile of a conversation as a client gives it, and its validation.

use crate::chat::error::{Error, Result};
use crate::model::{Body, ConversationProfile, Metadata, Profile, TextError, Viewer, text};
use crate::store::ConversationProfileChange;

/// Profile of a conversation as a client gives it. `None` keeps a field; `Some(None)` removes it.
#[derive(Debug, Clone, Default)]
pub struct ConversationProfileInput {
    pub description: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
    /// JSON text.
    pub metadata: Option<Option<String>>,
}

impl ConversationProfileInput {
    pub(crate) fn parse(self, caller: &Viewer) -> Result<ConversationProfileChange> {
        if self.metadata.is_some() && caller.service_name().is_none() {
            return Err(Error::Forbidden(
                "only a service may set the metadata of a conversation",
            ));
        }
        let description = self.description.map(|text| {
            let bytes_max = ConversationProfile::DESCRIPTION_BYTES_MAX;
            let parse = |text| Body::parse(text, bytes_max, false);
            let parsed = text.map(parse).transpose();
            parsed.map(|text| text.map(|text| text.as_str().to_owned()))
        });
        let refused = |error: TextError| {
            Error::bad_input(
                &["input", "description"],
                format!("the description {error}"),
            )
        };
        Ok(ConversationProfileChange {
            description: description.transpose().map_err(refused)?,
            avatar_url: parse_avatar(self.avatar_url)?,
            metadata: parse_metadata(self.metadata)?,
        })
    }
}

pub(crate) fn parse_avatar(url: Option<Option<String>>) -> Result<Option<Option<String>>> {
    if let Some(Some(url)) = &url {
        check_avatar(url).map_err(|message| Error::bad_input(&["input", "avatarUrl"], message))?;
    }
    Ok(url)
}

pub(crate) fn parse_metadata(metadata: Option<Option<String>>) -> Result<Option<Option<Metadata>>> {
    let parse = |text: String| Metadata::parse(&text, Metadata::BYTES_MAX);
    let metadata = metadata.map(|metadata| metadata.map(parse).transpose());
    metadata
        .transpose()
        .map_err(|error| Error::bad_input(&["input", "metadata"], format!("the metadata {error}")))
}

fn check_avatar(url: &str) -> Result<(), String> {
    text::parse_line(url, Profile::AVATAR_URL_BYTES_MAX)
        .map_err(|error| format!("the avatarUrl {error}"))?;
    check_web_url("the avatarUrl", url)
}

/// The rule of URLs: a browser may load them.
pub(crate) fn check_web_url(name: &str, url: &str) -> Result<(), String> {
    match url::Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        Ok(_) => Err(format!("{name} begins with https:// or http://")),
        Err(_) => Err(format!("{name} is not a URL")),
    }
}
