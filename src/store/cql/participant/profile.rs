//! Profiles of users: a later write wins, also if the clocks of two servers differ.
//!
//! A write is always later than the row that it was decided on. No column is deleted: an empty text stands for an absent one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::clock::Clock;
use crate::model::{Metadata, Profile, Timestamp, UserId};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{Executor, PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, list, non_empty, values};
use crate::store::{ProfileChange, Result};

statements! {
    ENSURE_USER: Write "INSERT INTO users (user_id) VALUES (?) USING TIMESTAMP ?";
    SELECT_USER: Read "SELECT user_id FROM users WHERE user_id = ?";
    SELECT_PROFILE: Read "SELECT display_name, avatar_url, metadata, last_seen_at, WRITETIME(display_name), WRITETIME(avatar_url), WRITETIME(metadata) FROM users WHERE user_id = ?";
    SELECT_PROFILES: Read "SELECT user_id, display_name, avatar_url, metadata, last_seen_at FROM users WHERE user_id IN ?";
    UPDATE_PROFILE: Write "INSERT INTO users (user_id, display_name, avatar_url, metadata) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    DELETE_PROFILE: Write "DELETE display_name, avatar_url, metadata, last_seen_at FROM users USING TIMESTAMP ? WHERE user_id = ?";
    UPDATE_LAST_SEEN: Write "INSERT INTO users (user_id, last_seen_at) VALUES (?, ?) USING TIMESTAMP ?";
}

type ProfileColumns = (
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

/// Profiles, without a cache.
pub(crate) struct Profiles {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
}

fn profile(
    display_name: Option<String>,
    avatar_url: Option<String>,
    metadata: Option<String>,
    last_seen_at: Option<i64>,
) -> Profile {
    Profile {
        display_name: non_empty(display_name),
        avatar_url: non_empty(avatar_url),
        metadata: non_empty(metadata).map(Metadata::of_stored),
        last_seen_at: last_seen_at.map(Timestamp::from_micros),
    }
}

impl Profiles {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self { executor, clock }
    }

    /// Deletes all but the row itself, by which exports find the restriction of the user.
    pub(crate) async fn erase(&self, user: &UserId, at: Timestamp) -> Result<()> {
        let mut writes = Writes::of_one_partition();
        writes.push(&DELETE_PROFILE, values![at, user]);
        let values = values![user, REGISTER_TIMESTAMP];
        writes.push(&ENSURE_USER, values);
        self.executor.write_all(writes).await
    }

    pub(crate) async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        type Columns = (
            String,
            Option<String>,
            Option<String>,
            Option<String>,
            Option<i64>,
        );
        if let [user] = users {
            return Ok(vec![self.read(user).await?.map(|(profile, _)| profile)]);
        }
        let names: BTreeSet<&UserId> = users.iter().collect();
        let names: Vec<_> = names.into_iter().collect();
        let reads = names.chunks(PARTITIONS_MAX).map(|piece| {
            let names = list(piece.iter().copied());
            self.executor
                .read::<Columns>(&SELECT_PROFILES, values![names])
        });
        let rows = concurrently(reads).await?.into_iter().flatten();
        let profiles: HashMap<String, Profile> = rows
            .map(|(name, display_name, avatar_url, metadata, last_seen_at)| {
                (
                    name,
                    profile(display_name, avatar_url, metadata, last_seen_at),
                )
            })
            .collect();
        Ok(users
            .iter()
            .map(|user| profiles.get(user.as_str()).cloned())
            .collect())
    }

    /// A profile, with the timestamp of the last write to its texts.
    async fn read(&self, user: &UserId) -> Result<Option<(Profile, i64)>> {
        let row = self
            .executor
            .read_one::<ProfileColumns>(&SELECT_PROFILE, values![user])
            .await?;
        Ok(row.map(
            |(
                display_name,
                avatar_url,
                metadata,
                last_seen_at,
                name_at,
                avatar_at,
                metadata_at,
            )| {
                (
                    profile(display_name, avatar_url, metadata, last_seen_at),
                    name_at.max(avatar_at).max(metadata_at).unwrap_or_default(),
                )
            },
        ))
    }

    pub(crate) async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        let (before, written) = self.read(user).await?.unwrap_or_default();
        let after = to.apply(before.clone());
        if after == before {
            return Ok(());
        }
        let text = |metadata: Option<Metadata>| metadata.map(|one| one.as_str().to_owned());
        let changed = |before: Option<String>, after: Option<String>| {
            (before != after).then(|| after.unwrap_or_default())
        };
        let values = values![
            user,
            changed(before.display_name, after.display_name),
            changed(before.avatar_url, after.avatar_url),
            changed(text(before.metadata), text(after.metadata)),
            later_than(&*self.clock, written),
        ];
        self.executor.write(&UPDATE_PROFILE, values).await
    }

    /// Advances the last-seen time. The time is also the write timestamp, so the later one wins.
    pub(crate) async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        self.executor
            .write(&UPDATE_LAST_SEEN, values![user, at, at])
            .await
    }
}

/// A write timestamp after another one: the present microsecond, or the first after it.
pub(crate) fn later_than(clock: &dyn Clock, written: i64) -> i64 {
    clock.now().micros().max(written + 1)
}
