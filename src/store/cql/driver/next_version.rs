//! Next version, pretended: this program as a later version of it would be, which knows one more
//! migration and writes forms that this one does not know. The tests run both beside each other
//! through a rolling upgrade and back.
//!
//! Debug builds alone can pretend. In a release the switch is the constant `false`, and the compiler removes
//! everything behind it. A second build of the crate would write the same bytes
//! into the tables, and take minutes of each run of the tests.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use scylla::value::{CqlTimeuuid, CqlValue, MaybeUnset};
use uuid::Uuid;

use super::schema::migrations::MIGRATIONS;
use super::schema::{Migration, columns};
use super::value::{Value, Values};

/// First byte of a cell in a form of the next version. Forms of real versions count up from 1.
const NEXT_FORM: u8 = 127;
/// Kind of a change and of a session that this version does not know.
const NEXT_KIND: i8 = 99;

/// A step that only adds something, so that this version may serve beside it.
static NEXT_MIGRATION: Migration = Migration::new(
    MIGRATIONS[MIGRATIONS.len() - 1].version + 1,
    &[],
    &[
        columns("messages_by_conversation", &[("next_column", "text")]),
        columns(
            "participants_by_conversation",
            &[("next_cell", "blob static")],
        ),
    ],
);

static IS_PRETENDED: AtomicBool = AtomicBool::new(false);

/// Makes this process the next version. It must not have opened a store yet.
#[cfg(debug_assertions)]
pub fn pretend_next_version() {
    IS_PRETENDED.store(true, Ordering::Relaxed);
}

fn is_pretended() -> bool {
    cfg!(debug_assertions) && IS_PRETENDED.load(Ordering::Relaxed)
}

/// All migrations that this process knows, in order.
pub(crate) fn migrations() -> impl Iterator<Item = &'static Migration> {
    let next = is_pretended().then_some(&NEXT_MIGRATION);
    MIGRATIONS.iter().chain(next)
}

/// Text of a statement. A message gets a value in the new column.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if !is_pretended() || !text.starts_with("INSERT INTO messages_by_conversation (") {
        return Cow::Borrowed(text);
    }
    let columns = text.replacen("(", "(next_column, ", 1);
    columns.replacen("VALUES (", "VALUES ('next', ", 1).into()
}

/// Bytes of a cell: in the next form, if the value is a new one.
pub(crate) fn encode(mut bytes: Vec<u8>, is_new: bool) -> Vec<u8> {
    if is_new && is_pretended() {
        bytes.insert(0, NEXT_FORM);
    }
    bytes
}

/// Bytes of a cell in the form that both versions know. A cell in the next form stays as it is,
/// unless this process knows it.
pub(crate) fn decode(bytes: &[u8]) -> &[u8] {
    match bytes {
        [NEXT_FORM, rest @ ..] if is_pretended() => rest,
        bytes => bytes,
    }
}

/// Values of a further row beside that of a statement: a change, a notice or a session of a new
/// kind.
pub(crate) fn further_row(statement: &str, values: &Values) -> Option<Values> {
    if !is_pretended() {
        return None;
    }
    let kind = || MaybeUnset::Set(CqlValue::TinyInt(NEXT_KIND));
    let replaced = match statement {
        "INSERT_CHANGE" | "INSERT_INBOX_CHANGE" => vec![(2, another_id(&values[2])), (3, kind())],
        "INSERT_NOTICE" => {
            let payload = CqlValue::Blob(vec![NEXT_FORM, 1]);
            vec![(3, another_id(&values[3])), (4, MaybeUnset::Set(payload))]
        }
        "INSERT_SESSION" => vec![(1, kind())],
        _ => return None,
    };
    let mut further = values.clone();
    for (at, value) in replaced {
        further[at] = value;
    }
    Some(further)
}

/// An id of the same moment.
fn another_id(id: &Value) -> Value {
    let MaybeUnset::Set(CqlValue::Timeuuid(id)) = id else {
        unreachable!("a row of a log has an id");
    };
    let mut bytes = *id.as_bytes();
    bytes[15] = !bytes[15];
    MaybeUnset::Set(CqlValue::Timeuuid(CqlTimeuuid::from(Uuid::from_bytes(
        bytes,
    ))))
}
