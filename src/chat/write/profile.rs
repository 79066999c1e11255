//! Profiles: the display name and avatar that users set for themselves.

use super::WriteService;
use crate::chat::error::{Error, Result};
use crate::model::{Profile, UserId, text};
use crate::store::ProfileChange;

/// Change of a profile as received from the client. `None` keeps a field; `Some(None)` removes it.
#[derive(Debug, Clone, Default)]
pub struct ProfileInput {
    pub display_name: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
}

impl WriteService {
    /// Changes the viewer's profile. Every later read shows it.
    pub async fn update_profile(&self, viewer: &UserId, input: ProfileInput) -> Result<()> {
        Ok(self
            .context
            .store
            .change_profile(viewer, &parse(input)?)
            .await?)
    }
}

fn parse(input: ProfileInput) -> Result<ProfileChange> {
    if let Some(Some(name)) = &input.display_name {
        text::parse_name(name, Profile::DISPLAY_NAME_BYTES_MAX).map_err(|error| {
            Error::bad_input(
                &["input", "displayName"],
                format!("the displayName {error}"),
            )
        })?;
    }
    if let Some(Some(url)) = &input.avatar_url {
        check_avatar(url).map_err(|message| Error::bad_input(&["input", "avatarUrl"], message))?;
    }
    let ProfileInput {
        display_name,
        avatar_url,
    } = input;
    Ok(ProfileChange {
        display_name,
        avatar_url,
    })
}

fn check_avatar(url: &str) -> Result<(), String> {
    text::parse_line(url, Profile::AVATAR_URL_BYTES_MAX)
        .map_err(|error| format!("the avatarUrl {error}"))?;
    match url::Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        Ok(_) => Err("the avatarUrl begins with https:// or http://".to_owned()),
        Err(_) => Err("the avatarUrl is not a URL".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(
        display_name: Option<&str>,
        avatar_url: Option<&str>,
    ) -> Option<&'static [&'static str]> {
        let input = |text: Option<&str>| text.map(|text| Some(text.to_owned()));
        match parse(ProfileInput {
            display_name: input(display_name),
            avatar_url: input(avatar_url),
        }) {
            Ok(_) => None,
            Err(Error::BadInput { path, .. }) => Some(path),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refusal_names_the_input() {
        let (name, avatar) = (
            Some(["input", "displayName"].as_slice()),
            Some(["input", "avatarUrl"].as_slice()),
        );
        for text in [
            "",
            " \u{2003}",
            "bell\u{7}",
            "two\nlines",
            "Bo\u{202e}b",
            "\u{feff}Bob",
            "\u{200d}",
            &"x".repeat(129),
        ] {
            assert_eq!(refused(Some(text), None), name, "{text:?}");
        }
        let long = format!("https://example.org/{}", "x".repeat(2_029));
        for text in [
            "",
            "no url",
            "/a.png",
            "javascript:alert(1)",
            "data:image/png;base64,AA",
            "https://a.example/\u{0}",
            &long,
        ] {
            assert_eq!(refused(None, Some(text)), avatar, "{text:?}");
        }
        assert_eq!(
            refused(Some(&"é".repeat(64)), Some(&long[..2_048])),
            None,
            "at their bounds"
        );
        assert_eq!(refused(Some("Zoë"), Some("http://example.org/z.png")), None);
        assert_eq!(refused(None, None), None);
    }
}
