//! Profiles of conversations: a cell for each field, so that two editors of two fields both win. An empty text stands for an absent one.
//! A lightweight transaction claims an app key for a conversation, for good.

use std::collections::{BTreeSet, HashMap};

use scylla::value::Row;
use uuid::Uuid;

use super::Messages;
use crate::model::{AppKey, AppKeyClaim, ConversationId, ConversationProfile, InputHash, Metadata};
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, non_empty, values};
use crate::store::{ConversationProfileChange, Result};

const APP_KEYS: &str = "conversations_by_app_key";

statements! {
    SELECT_APP_KEY: Read "SELECT conversation_id, input_hash FROM conversations_by_app_key WHERE app_key = ?";
    CLAIM_APP_KEY: Conditional "INSERT INTO conversations_by_app_key (app_key, conversation_id, input_hash) VALUES (?, ?, ?) IF NOT EXISTS";
    SELECT_CONVERSATION_PROFILES: Read "SELECT conversation_id, description, avatar_url, metadata, app_key FROM profiles_by_conversation WHERE conversation_id IN ?";
    UPDATE_APP_KEY: Write "INSERT INTO profiles_by_conversation (conversation_id, app_key) VALUES (?, ?) USING TIMESTAMP ?";
    UPDATE_CONVERSATION_PROFILE: Write "INSERT INTO profiles_by_conversation (conversation_id, description, avatar_url, metadata) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
}

impl Messages {
    pub(crate) async fn app_key_claim(&self, key: &AppKey) -> Result<Option<AppKeyClaim>> {
        let row = self
            .executor
            .read_one::<(Uuid, Option<Vec<u8>>)>(&SELECT_APP_KEY, values![key.as_str()])
            .await?;
        let Some((conversation, input_hash)) = row else {
            return Ok(None);
        };
        let hash = |bytes: Vec<u8>| {
            let bytes = bytes.try_into();
            bytes
                .map(InputHash)
                .map_err(|_| corrupt(APP_KEYS, "a hash has 32 bytes"))
        };
        Ok(Some(AppKeyClaim {
            conversation: ConversationId(conversation),
            input_hash: input_hash.map(hash).transpose()?,
        }))
    }

    /// Claims a key, and returns the claim that has it.
    pub(crate) async fn claim_app_key(
        &self,
        key: &AppKey,
        claim: AppKeyClaim,
    ) -> Result<AppKeyClaim> {
        let hash = claim.input_hash.map(|InputHash(bytes)| bytes.to_vec());
        let values = values![key.as_str(), claim.conversation, hash];
        let taken = self
            .executor
            .write_if::<Row>(&CLAIM_APP_KEY, values)
            .await?;
        if taken.is_none() {
            return Ok(claim);
        }
        self.app_key_claim(key)
            .await?
            .ok_or_else(|| unavailable("cannot read an app key that another server has claimed"))
    }

    pub(crate) async fn conversation_profiles(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<ConversationProfile>> {
        type Columns = (
            Uuid,
            Option<String>,
            Option<String>,
            Option<String>,
            Option<String>,
        );
        let ids: BTreeSet<_> = conversations.iter().map(|id| id.0).collect();
        let ids: Vec<_> = ids.into_iter().map(ConversationId).collect();
        let reads = ids.chunks(PARTITIONS_MAX).map(|piece| {
            let ids = list(piece.iter().copied());
            self.executor
                .read::<Columns>(&SELECT_CONVERSATION_PROFILES, values![ids])
        });
        let rows = concurrently(reads).await?.into_iter().flatten();
        let profile = |(id, description, avatar_url, metadata, app_key): Columns| {
            let profile = ConversationProfile {
                description: non_empty(description),
                avatar_url: non_empty(avatar_url),
                metadata: non_empty(metadata).map(Metadata::of_stored),
                app_key: app_key.and_then(|key| AppKey::parse(&key).ok()),
            };
            (ConversationId(id), profile)
        };
        let profiles: HashMap<_, _> = rows.map(profile).collect();
        let profile = |id| profiles.get(id).cloned().unwrap_or_default();
        Ok(conversations.iter().map(profile).collect())
    }
}

impl Writes {
    /// Writes the profile of a new conversation.
    pub(crate) fn put_first_profile(
        &mut self,
        id: ConversationId,
        profile: &ConversationProfile,
        at: i64,
    ) {
        self.put_conversation_profile(id, &profile.clone().into(), at);
        if let Some(key) = &profile.app_key {
            self.push(&UPDATE_APP_KEY, values![id, key.as_str(), at]);
        }
    }

    /// Sets the fields that a change has. Of two values of one field the later one stays.
    pub(crate) fn put_conversation_profile(
        &mut self,
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
        self.push(&UPDATE_CONVERSATION_PROFILE, values);
    }
}
