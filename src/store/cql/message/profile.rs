//! Profiles of conversations: a cell for each field, so that two editors of two fields both win. An empty text stands for an absent one.

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use super::Messages;
use crate::model::{ConversationId, ConversationProfile, Metadata};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, non_empty, values};
use crate::store::{ConversationProfileChange, Result};

statements! {
    SELECT_CONVERSATION_PROFILES: Read "SELECT conversation_id, description, avatar_url, metadata FROM profiles_by_conversation WHERE conversation_id IN ?";
    UPDATE_CONVERSATION_PROFILE: Write "INSERT INTO profiles_by_conversation (conversation_id, description, avatar_url, metadata) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
}

impl Messages {
    pub(crate) async fn conversation_profiles(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<ConversationProfile>> {
        type Columns = (Uuid, Option<String>, Option<String>, Option<String>);
        let ids: BTreeSet<_> = conversations.iter().map(|id| id.0).collect();
        let ids: Vec<_> = ids.into_iter().map(ConversationId).collect();
        let reads = ids.chunks(PARTITIONS_MAX).map(|piece| {
            let ids = list(piece.iter().copied());
            self.executor
                .read::<Columns>(&SELECT_CONVERSATION_PROFILES, values![ids])
        });
        let rows = concurrently(reads.collect()).await?.into_iter().flatten();
        let profile = |(id, description, avatar_url, metadata): Columns| {
            let profile = ConversationProfile {
                description: non_empty(description),
                avatar_url: non_empty(avatar_url),
                metadata: non_empty(metadata).map(Metadata::of_stored),
            };
            (ConversationId(id), profile)
        };
        let profiles: HashMap<_, _> = rows.map(profile).collect();
        let profile = |id| profiles.get(id).cloned().unwrap_or_default();
        Ok(conversations.iter().map(profile).collect())
    }

    /// Sets the fields that a change has. Of two values of one field the later one stays.
    pub(crate) fn put_conversation_profile(
        &self,
        writes: &mut Writes,
        id: ConversationId,
        to: &ConversationProfileChange,
        at: i64,
    ) {
        if to.is_empty() {
            return;
        }
        let text = |field: &Option<Option<String>>| {
            let given = field.as_ref();
            given.map(|text| text.clone().unwrap_or_default())
        };
        let metadata = to.metadata.as_ref().map(|metadata| {
            let metadata = metadata.as_ref();
            metadata.map_or_else(String::new, |metadata| metadata.as_str().to_owned())
        });
        let values = values![
            id,
            text(&to.description),
            text(&to.avatar_url),
            metadata,
            at
        ];
        writes.push(&UPDATE_CONVERSATION_PROFILE, values);
    }
}
