//! Profiles: the display name and avatar that users set for themselves, and all of it as services set it.

use super::WriteService;
use super::command::profile::{parse_avatar, parse_metadata};
use crate::chat::access::restrictions::require;
use crate::chat::error::{Error, Result};
use crate::model::{Profile, ServiceRight, UserId, Viewer, text};
use crate::store::ProfileChange;

/// Change of a profile as received from the client. `None` keeps a field; `Some(None)` removes it.
#[derive(Debug, Clone, Default)]
pub struct ProfileInput {
    pub display_name: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
    /// JSON text.
    pub metadata: Option<Option<String>>,
}

/// Users of one `upsertUsers`.
const UPSERTED_MAX: usize = 100;

const USERS_PATH: &[&str] = &["input", "users"];

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

impl WriteService {
    /// Creates or changes the profiles of users, in their order. Every input is checked before the first
    /// change. Returns the users.
    pub async fn upsert_users(
        &self,
        caller: &Viewer,
        profiles: Vec<(String, ProfileInput)>,
    ) -> Result<Vec<UserId>> {
        require(caller, ServiceRight::Users)?;
        if profiles.is_empty() || profiles.len() > UPSERTED_MAX {
            let message = format!("1 to {UPSERTED_MAX} users in one call");
            return Err(Error::bad_input(USERS_PATH, message));
        }
        let changes = profiles
            .into_iter()
            .enumerate()
            .map(|(index, (username, input))| {
                let refused =
                    |why: String| Error::bad_input(USERS_PATH, format!("user {index}: {why}"));
                let user =
                    UserId::parse_new(&username).map_err(|error| refused(error.to_string()))?;
                let change = parse(input).map_err(|error| refused(error.to_string()))?;
                Ok((user, change))
            })
            .collect::<Result<Vec<_>>>()?;
        for (user, change) in &changes {
            self.context.store.change_profile(user, change).await?;
        }
        Ok(changes.into_iter().map(|(user, _)| user).collect())
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
    Ok(ProfileChange {
        display_name: input.display_name,
        avatar_url: parse_avatar(input.avatar_url)?,
        metadata: parse_metadata(input.metadata)?,
    })
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
            metadata: None,
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
