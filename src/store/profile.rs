//! Changes of a user's profile.

use crate::model::{Metadata, Profile};

/// A change of a profile. Fields that are `None` stay; `Some(None)` removes one.
#[derive(Debug, Clone, Default)]
pub struct ProfileChange {
    pub display_name: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
    pub metadata: Option<Option<Metadata>>,
}

impl ProfileChange {
    /// The profile after the change.
    pub fn apply(&self, profile: Profile) -> Profile {
        Profile {
            display_name: self.display_name.clone().unwrap_or(profile.display_name),
            avatar_url: self.avatar_url.clone().unwrap_or(profile.avatar_url),
            metadata: self.metadata.clone().unwrap_or(profile.metadata),
            last_seen_at: profile.last_seen_at,
        }
    }
}
