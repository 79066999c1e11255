//! Sessions and listeners: the rows by which a server says which users and large conversations it
//! serves.
//!
//! A session has the partition of the user, a listener that of the conversation, so that
//! registering depends on no range but the one that the reader needs anyway.

use uuid::Uuid;

use crate::model::UserId;
use crate::store::Result;
use crate::store::cluster::{ServerId, Session, SessionKind};
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, user, values};

const TABLE: &str = "sessions_by_user";
/// Users of one statement, whose coordinator reads a partition for each. Cassandra 5 refuses more
/// than 20.
const USERS_AT_ONCE: usize = 16;
/// Rows of one statement. A user on more servers than these all is on servers that have ended.
pub(crate) const ROWS_MAX: i32 = 10_000;

statements! {
    INSERT_SESSION: Write "INSERT INTO sessions_by_user (user_id, kind, server_id) VALUES (?, ?, ?) USING TIMESTAMP ?";
    DELETE_SESSION: Write "DELETE FROM sessions_by_user USING TIMESTAMP ? WHERE user_id = ? AND kind = ? AND server_id = ?";
    SELECT_SESSIONS: Read "SELECT user_id, kind, server_id FROM sessions_by_user WHERE user_id IN ? LIMIT ?";
    INSERT_LISTENER: Write "INSERT INTO listeners_by_conversation (conversation_id, server_id) VALUES (?, ?) USING TIMESTAMP ?";
    DELETE_LISTENER: Write "DELETE FROM listeners_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND server_id = ?";
    SELECT_LISTENERS: Read "SELECT server_id FROM listeners_by_conversation WHERE conversation_id = ? LIMIT ?";
}

type SessionColumns = (String, i8, Uuid);

pub(crate) async fn read_sessions(executor: &Executor, users: &[UserId]) -> Result<Vec<Session>> {
    let reads = users
        .chunks(USERS_AT_ONCE)
        .map(|some| session_rows(executor, some));
    let mut sessions = Vec::new();
    for (name, kind, server) in concurrently(reads).await?.into_iter().flatten() {
        // A later version may register for a reason that this one does not know.
        let Some(kind) = SessionKind::from_number(kind) else {
            continue;
        };
        sessions.push(Session {
            user: user(TABLE, &name)?,
            kind,
            server: ServerId(server),
        });
    }
    Ok(sessions)
}

/// Rows of a few users. An answer that reached its bound may lack some, so each user is read
/// alone then.
async fn session_rows(executor: &Executor, users: &[UserId]) -> Result<Vec<SessionColumns>> {
    let read = |users: &[UserId]| {
        executor.read::<SessionColumns>(&SELECT_SESSIONS, values![list(users.iter()), ROWS_MAX])
    };
    let rows = read(users).await?;
    if users.len() == 1 || rows.len() < ROWS_MAX.unsigned_abs() as usize {
        return Ok(rows);
    }
    let alone = users.iter().map(|user| read(std::slice::from_ref(user)));
    Ok(concurrently(alone).await?.into_iter().flatten().collect())
}
