//! Values of the notes that the live store reads.

use crate::model::{DirectIds, Timestamp};
use crate::store::{Error, Result};

/// The time in [`crate::store::NOTE_IMPORTED_AT`] and [`crate::store::NOTE_RESTORED_AT`].
pub(in crate::store) fn time(note: Option<&str>) -> Option<Timestamp> {
    note.and_then(Timestamp::parse)
}

/// The generator whose secret is in [`crate::store::NOTE_DIRECT_SECRET`].
pub(in crate::store) fn direct_ids(note: &str) -> Result<DirectIds> {
    DirectIds::parse(note).ok_or_else(|| Error::Corrupt {
        table: "notes",
        cause: "the secret of direct ids is not 64 digits".into(),
    })
}
