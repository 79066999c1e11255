//! Profiles and notes on the cluster.
//!
//! What was told last wins, also where two clocks differ: a write is always later than what it was decided on. Nothing is deleted: an empty
//! text says that there is none any more.

use scylla::value::Row;

use crate::model::{Profile, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;
use crate::store::{ProfileChange, Result};

statements! {
    /// The statements of this file.
    Statements {
        profile: Read "SELECT display_name, avatar_url, last_seen_at, WRITETIME(display_name), WRITETIME(avatar_url) FROM users WHERE user_id = ?";
        change: Write "INSERT INTO users (user_id, display_name, avatar_url) VALUES (?, ?, ?) USING TIMESTAMP ?";
        seen: Write "INSERT INTO users (user_id, last_seen_at) VALUES (?, ?) USING TIMESTAMP ?";
        note: Read "SELECT value, WRITETIME(value) FROM notes WHERE name = ?";
        note_once: Conditional "INSERT INTO notes (name, value) VALUES (?, ?) IF NOT EXISTS";
        set_note: Write "INSERT INTO notes (name, value) VALUES (?, ?) USING TIMESTAMP ?";
    }
}

type Columns = (Option<String>, Option<String>, Option<i64>, Option<i64>, Option<i64>);

pub(crate) async fn profiles(inner: &Inner, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
    let each = async |user: &UserId| Ok(read(inner, user).await?.map(|(profile, _)| profile));
    at_once(users.iter().map(each).collect()).await
}

/// With the microsecond of the last write to any part of it.
async fn read(inner: &Inner, user: &UserId) -> Result<Option<(Profile, i64)>> {
    let row = inner.cluster.read_one::<Columns>(&inner.statements.profile.profile, cells![user]).await?;
    Ok(row.map(|(display_name, avatar_url, last_seen_at, name_written, avatar_written)| {
        let last_seen_at = last_seen_at.map(Timestamp::from_micros);
        let profile = Profile { display_name: told(display_name), avatar_url: told(avatar_url), last_seen_at };
        (profile, name_written.max(avatar_written).unwrap_or_default())
    }))
}

/// An empty text says that there is none any more.
pub(crate) fn told(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

pub(crate) async fn change_profile(inner: &Inner, user: &UserId, to: &ProfileChange) -> Result<()> {
    let (before, written) = read(inner, user).await?.unwrap_or_default();
    let after = to.apply(before.clone());
    if after == before {
        return Ok(());
    }
    let news = |before: Option<String>, after: Option<String>| (before != after).then(|| after.unwrap_or_default());
    let values =
        cells![user, news(before.display_name, after.display_name), news(before.avatar_url, after.avatar_url), later_than(inner, written),];
    inner.cluster.write(&inner.statements.profile.change, values).await
}

/// The later moment wins, as it is its own timestamp.
pub(crate) async fn mark_seen(inner: &Inner, user: &UserId, at: Timestamp) -> Result<()> {
    inner.cluster.write(&inner.statements.profile.seen, cells![user, at, at]).await
}

/// Before what a note says, so that an empty one is told apart from none.
const PRESENT: char = '=';

async fn read_note(inner: &Inner, name: &str) -> Result<Option<(String, i64)>> {
    let row = inner.cluster.read_one::<(Option<String>, Option<i64>)>(&inner.statements.profile.note, cells![name]).await?;
    Ok(row.and_then(|(value, written)| Some((value?, written?))))
}

pub(crate) async fn note(inner: &Inner, name: &str) -> Result<Option<String>> {
    Ok(read_note(inner, name).await?.and_then(|(value, _)| value.strip_prefix(PRESENT).map(str::to_owned)))
}

pub(crate) async fn set_note(inner: &Inner, name: &str, value: Option<&str>) -> Result<()> {
    let written = read_note(inner, name).await?.map_or(0, |(_, written)| written);
    let value = value.map_or_else(String::new, |value| format!("{PRESENT}{value}"));
    inner.cluster.write(&inner.statements.profile.set_note, cells![name, value, later_than(inner, written)]).await
}

pub(crate) async fn note_once(inner: &Inner, name: &str, value: &str) -> Result<String> {
    if let Some(there) = note(inner, name).await? {
        return Ok(there);
    }
    let values = cells![name, format!("{PRESENT}{value}")];
    if inner.cluster.write_if::<Row>(&inner.statements.profile.note_once, values).await?.is_none() {
        return Ok(value.to_owned());
    }
    note(inner, name).await?.ok_or_else(|| unavailable("a note that is taken is not to be read"))
}

/// The present microsecond, or the first after that one.
fn later_than(inner: &Inner, written: i64) -> i64 {
    inner.clock.now().micros().max(written + 1)
}
