//! Notes of the operator's tools, such as the progress of an import: a later write wins.

use scylla::value::Row;

use super::Admin;
use crate::model::Timestamp;
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::participant::profile::later_than;
use crate::store::{NOTE_OUTBOX_SINCE, Result, rules};

statements! {
    SELECT_NOTE: Read "SELECT value, WRITETIME(value) FROM notes WHERE name = ?";
    CLAIM_NOTE: Conditional "INSERT INTO notes (name, value) VALUES (?, ?) IF NOT EXISTS";
    INSERT_NOTE: Write "INSERT INTO notes (name, value) VALUES (?, ?) USING TIMESTAMP ?";
}

/// The prefix of a stored note. A row without it stands for no note, so an empty note differs from none.
const PRESENT: char = '=';

impl Admin {
    async fn read_note(&self, name: &str) -> Result<Option<(String, i64)>> {
        let row = self
            .executor
            .read_one::<(Option<String>, Option<i64>)>(&SELECT_NOTE, values![name])
            .await?;
        Ok(row.and_then(|(value, written)| Some((value?, written?))))
    }

    pub(crate) async fn note(&self, name: &str) -> Result<Option<String>> {
        Ok(self
            .read_note(name)
            .await?
            .and_then(|(value, _)| value.strip_prefix(PRESENT).map(str::to_owned)))
    }

    pub(crate) async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        let written = self
            .read_note(name)
            .await?
            .map_or(0, |(_, written)| written);
        let value = value.map_or_else(String::new, |value| format!("{PRESENT}{value}"));
        self.executor
            .write(
                &INSERT_NOTE,
                values![name, value, later_than(&*self.clock, written)],
            )
            .await
    }

    /// The time from which the deployment has an outbox.
    pub(crate) async fn outbox_since(&self) -> Result<Option<Timestamp>> {
        let note = self.note(NOTE_OUTBOX_SINCE).await?;
        Ok(rules::outbox::since(note.as_deref()))
    }

    /// Claims a note by a lightweight transaction. All callers on all servers get the one that was stored first.
    pub(crate) async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        if let Some(present) = self.note(name).await? {
            return Ok(present);
        }
        let values = values![name, format!("{PRESENT}{value}")];
        if self
            .executor
            .write_if::<Row>(&CLAIM_NOTE, values)
            .await?
            .is_none()
        {
            return Ok(value.to_owned());
        }
        self.note(name)
            .await?
            .ok_or_else(|| unavailable("a claimed note could not be read"))
    }
}
