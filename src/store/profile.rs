//! Changes of the profiles of users and conversations.

use crate::model::{ConversationProfile, Metadata, Profile};

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

/// A change of a conversation's profile. Fields that are `None` stay; `Some(None)` removes one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationProfileChange {
    pub description: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
    pub metadata: Option<Option<Metadata>>,
}

impl ConversationProfileChange {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The profile after the change.
    pub fn apply(&self, profile: ConversationProfile) -> ConversationProfile {
        ConversationProfile {
            description: self.description.clone().unwrap_or(profile.description),
            avatar_url: self.avatar_url.clone().unwrap_or(profile.avatar_url),
            metadata: self.metadata.clone().unwrap_or(profile.metadata),
            app_key: profile.app_key,
        }
    }
}

impl From<ConversationProfile> for ConversationProfileChange {
    /// The change that sets the fields of a new profile. No change sets an app key.
    fn from(profile: ConversationProfile) -> Self {
        Self {
            description: profile.description.map(Some),
            avatar_url: profile.avatar_url.map(Some),
            metadata: profile.metadata.map(Some),
        }
    }
}
