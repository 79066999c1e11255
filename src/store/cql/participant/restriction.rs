//! Restrictions of users: suspensions and revoked tokens, with a log by which the servers hear of changes.
//!
//! The rows are spread over a few partitions, so that a server reads all of them at its start. `suspension` is a register: the last write
//! wins, and a restoration is an empty one. `tokens_from` is a maximum register. The restriction of everyone has an empty name.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::clock::Clock;
use crate::model::{Restriction, Suspension, Timestamp, UserId};
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, row_limit, user, values};
use crate::store::cql::participant::profile::{ENSURE_USER, SELECT_USER, later_than};
use crate::store::rules::finding;
use crate::store::{LoggedRestriction, Restricted, RestrictionChange, Result, Verified};

const TABLE: &str = "restrictions";
const SHARDS: i8 = 16;
/// Rows of one read.
const ROWS_MAX: usize = 1_000;
/// Entries of the log that one read returns. A server that misses some of more reads them with its next poll.
const LOG_ROWS_MAX: usize = 10_000;
const HOUR_MICROS: i64 = 3_600 * 1_000_000;
/// Version of a stored suspension.
const VERSION: u8 = 1;

statements! {
    SELECT_RESTRICTION: Read "SELECT suspension, tokens_from, WRITETIME(suspension) FROM restrictions WHERE shard = ? AND user_id = ?";
    SELECT_RESTRICTIONS: Read "SELECT user_id, suspension, tokens_from FROM restrictions WHERE shard = ? LIMIT ?";
    SELECT_RESTRICTIONS_AFTER: Read "SELECT user_id, suspension, tokens_from FROM restrictions WHERE shard = ? AND user_id > ? LIMIT ?";
    UPDATE_SUSPENSION: Write "UPDATE restrictions USING TIMESTAMP ? SET suspension = ? WHERE shard = ? AND user_id = ?";
    UPDATE_TOKENS_FROM: Write "UPDATE restrictions USING TIMESTAMP ? SET tokens_from = ? WHERE shard = ? AND user_id = ?";
    INSERT_LOGGED: Write "INSERT INTO restriction_log (hour, at, user_id) VALUES (?, ?, ?) USING TIMESTAMP ?";
    SELECT_LOGGED: Poll "SELECT at, user_id FROM restriction_log WHERE hour = ? AND at >= ? LIMIT ?";
}

type RestrictionColumns = (String, Option<Vec<u8>>, Option<Vec<u8>>);

/// Restrictions, without a cache: a chat holds them in memory.
pub(crate) struct RestrictionTable {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
}

fn name_of(restricted: &Restricted) -> &str {
    restricted.as_ref().map_or("", UserId::as_str)
}

fn shard_of(name: &str) -> i8 {
    (Sha256::digest(name)[0] % SHARDS.cast_unsigned()).cast_signed()
}

fn encode_suspension(suspension: Option<&Suspension>) -> Vec<u8> {
    postcard::to_extend(&suspension, vec![VERSION]).expect("plain data serialises")
}

fn decode_suspension(bytes: &[u8]) -> Result<Option<Suspension>> {
    match bytes.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes(body).map_err(|error| corrupt(TABLE, error)),
        // A later version wrote it: for this one, it holds until it is lifted.
        Some((version, _)) if *version > VERSION => Ok(Some(Suspension {
            since: Timestamp::ZERO,
            until: None,
            reason: None,
        })),
        Some(_) | None => Err(corrupt(TABLE, "a suspension begins with its version")),
    }
}

fn encode_moment(moment: Timestamp) -> Vec<u8> {
    moment.micros().to_be_bytes().to_vec()
}

fn decode_moment(bytes: &[u8]) -> Result<Timestamp> {
    let bytes = bytes
        .try_into()
        .map_err(|_| corrupt(TABLE, "a moment has eight bytes"))?;
    Ok(Timestamp::from_micros(i64::from_be_bytes(bytes)))
}

fn decode(suspension: Option<Vec<u8>>, tokens_from: Option<Vec<u8>>) -> Result<Restriction> {
    Ok(Restriction {
        suspension: suspension
            .map(|bytes| decode_suspension(&bytes))
            .transpose()?
            .flatten(),
        tokens_from: tokens_from.map(|bytes| decode_moment(&bytes)).transpose()?,
    })
}

fn restricted(name: &str) -> Result<Restricted> {
    if name.is_empty() {
        return Ok(None);
    }
    user(TABLE, name).map(Some)
}

fn hour_of(moment: Timestamp) -> i64 {
    moment.micros().div_euclid(HOUR_MICROS)
}

/// Logs a change of a user's restriction or blocks for the other servers.
pub(crate) fn put_log(writes: &mut Writes, now: Timestamp, name: &str) {
    writes.push(&INSERT_LOGGED, values![hour_of(now), now, name, now]);
}

impl RestrictionTable {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self { executor, clock }
    }

    /// A restriction, with the timestamp of the last write to its suspension.
    async fn read(&self, name: &str) -> Result<(Restriction, i64)> {
        type Columns = (Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>);
        let row = self
            .executor
            .read_one::<Columns>(&SELECT_RESTRICTION, values![shard_of(name), name])
            .await?;
        let Some((suspension, tokens_from, written)) = row else {
            return Ok((Restriction::default(), 0));
        };
        Ok((
            decode(suspension, tokens_from)?,
            written.unwrap_or_default(),
        ))
    }

    pub(crate) async fn restrict(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction> {
        let name = name_of(restricted);
        let (before, written) = self.read(name).await?;
        let at = later_than(&*self.clock, written);
        let after = change.apply(before);
        let mut writes = Writes::logged();
        let shard = shard_of(name);
        match change {
            RestrictionChange::Suspend(_) | RestrictionChange::Restore => {
                let bytes = encode_suspension(after.suspension.as_ref());
                writes.push(&UPDATE_SUSPENSION, values![at, bytes, shard, name]);
            }
            RestrictionChange::RevokeTokens(moment) => writes.push(
                &UPDATE_TOKENS_FROM,
                values![REGISTER_TIMESTAMP, encode_moment(*moment), shard, name],
            ),
        }
        if !name.is_empty() {
            // A restricted user is in exports, with a profile or without.
            writes.push(&ENSURE_USER, values![name, REGISTER_TIMESTAMP]);
        }
        put_log(&mut writes, self.clock.now(), name);
        self.executor.write_all(writes).await?;
        Ok(after)
    }

    /// Writes the restriction of an imported user who had no row yet.
    pub(crate) async fn import(&self, user: &UserId, restriction: &Restriction) -> Result<()> {
        let name = user.as_str();
        let mut writes = Writes::logged();
        if let Some(suspension) = &restriction.suspension {
            let bytes = encode_suspension(Some(suspension));
            let values = values![REGISTER_TIMESTAMP, bytes, shard_of(name), name];
            writes.push(&UPDATE_SUSPENSION, values);
        }
        if let Some(moment) = restriction.tokens_from {
            let bytes = encode_moment(moment);
            let values = values![REGISTER_TIMESTAMP, bytes, shard_of(name), name];
            writes.push(&UPDATE_TOKENS_FROM, values);
        }
        put_log(&mut writes, self.clock.now(), name);
        self.executor.write_all(writes).await
    }

    pub(crate) async fn of(&self, restricted: &Restricted) -> Result<Restriction> {
        Ok(self.read(name_of(restricted)).await?.0)
    }

    pub(crate) async fn of_users(&self, users: &[UserId]) -> Result<Vec<Restriction>> {
        let each = async |user: &UserId| Ok(self.read(user.as_str()).await?.0);
        concurrently(users.iter().map(each)).await
    }

    /// All restrictions that are not empty.
    pub(crate) async fn all(&self) -> Result<Vec<(Restricted, Restriction)>> {
        let mut found = Vec::new();
        for shard in 0..SHARDS {
            for (name, suspension, tokens_from) in self.shard_rows(shard).await? {
                let restriction = decode(suspension, tokens_from)?;
                if !restriction.is_empty() {
                    found.push((restricted(&name)?, restriction));
                }
            }
        }
        Ok(found)
    }

    /// Checks that every restriction can be read, and that its user has the row by which exports find it.
    pub(crate) async fn verify(&self, repair: bool, verified: &mut Verified) -> Result<()> {
        for shard in 0..SHARDS {
            for (name, suspension, tokens_from) in self.shard_rows(shard).await? {
                verified.looked_at += 1;
                if let Err(error) = decode(suspension, tokens_from) {
                    let example = format!("of {TABLE}, of {name:?}: {error}");
                    verified.found(finding::UNREADABLE, example, false);
                }
                let what = finding::RESTRICTED;
                self.verify_user(&name, what, repair, verified).await?;
            }
        }
        Ok(())
    }

    /// Checks that a user with such rows has one of a user.
    pub(crate) async fn verify_user(
        &self,
        name: &str,
        what: &'static str,
        repair: bool,
        verified: &mut Verified,
    ) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        let known = self
            .executor
            .read_one::<(String,)>(&SELECT_USER, values![name])
            .await?;
        if known.is_some() {
            return Ok(());
        }
        if repair {
            let values = values![name, REGISTER_TIMESTAMP];
            self.executor.write(&ENSURE_USER, values).await?;
        }
        verified.found(what, format!("the user {name}"), repair);
        Ok(())
    }

    /// All rows of a shard, read page by page.
    async fn shard_rows(&self, shard: i8) -> Result<Vec<RestrictionColumns>> {
        let mut all: Vec<RestrictionColumns> = Vec::new();
        loop {
            let (statement, values) = match all.last() {
                Some((after, ..)) => (
                    &SELECT_RESTRICTIONS_AFTER,
                    values![shard, after.as_str(), row_limit(ROWS_MAX)],
                ),
                None => (&SELECT_RESTRICTIONS, values![shard, row_limit(ROWS_MAX)]),
            };
            let rows: Vec<RestrictionColumns> = self.executor.read(statement, values).await?;
            let is_last = rows.len() < ROWS_MAX;
            all.extend(rows);
            if is_last {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn log(&self, since: Timestamp) -> Result<Vec<LoggedRestriction>> {
        let hours = hour_of(since)..=hour_of(self.clock.now());
        let each = hours.map(async |hour| {
            let values = values![hour, since, row_limit(LOG_ROWS_MAX)];
            let rows: Vec<(i64, String)> = self.executor.read(&SELECT_LOGGED, values).await?;
            let logged = |(at, name): (i64, String)| {
                Ok(LoggedRestriction {
                    at: Timestamp::from_micros(at),
                    restricted: restricted(&name)?,
                })
            };
            rows.into_iter().map(logged).collect::<Result<Vec<_>>>()
        });
        let logged = concurrently(each).await?;
        Ok(logged.into_iter().flatten().collect())
    }
}
