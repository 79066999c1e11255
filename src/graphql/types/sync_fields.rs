//! Fast path of objects: writes synchronous fields straight to JSON text.
//!
//! async-graphql makes a boxed future of each field, and a map of each object. Most fields of a
//! page need no await: they are written as text here. async-graphql resolves only the others, for
//! all objects of a list at once. The text becomes part of the answer as a [`verbatim`] value.
//!
//! Texts of one object cannot be merged. A merged operation selects an object once under each key.

use std::borrow::Cow;

use async_graphql::parser::types::{Field, Selection, SelectionSet};
use async_graphql::registry::Registry;
use async_graphql::resolver_utils::{ContainerType, EnumType};
use async_graphql::{ContextSelectionSet, OutputType, Positioned, ServerResult, Value};
use futures_util::future::{BoxFuture, try_join_all};
use serde::Serialize;
use smallvec::SmallVec;

use crate::graphql::execution::AnswerBudget;
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::{AnswerJson, verbatim};
use crate::graphql::scope::ExecutionContext;
use crate::model::Timestamp;

/// Bytes that a list writes between two charges of the answer's budget. A page over the budget ends
/// early.
const CHARGE_BYTES: usize = 4 << 10;
/// First allocation of the text: bytes for each object, and at most.
const OBJECT_BYTES: usize = 256;
const FIRST_BYTES_MAX: usize = 16 << 10;

/// Keys of the fields that an object has so far.
type Keys<'s> = SmallVec<[&'s str; 16]>;

/// Object with synchronous fields.
pub(crate) trait SyncFields: ContainerType {
    /// Name of its type, then of its interfaces: the fragment conditions that it matches.
    const TYPES: &'static [&'static str];

    /// Writes the value of a field. Returns `false`, and writes nothing, for a field that needs its
    /// resolver.
    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool;
}

impl<T: SyncFields> SyncFields for &T {
    const TYPES: &'static [&'static str] = T::TYPES;

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        T::write_sync(self, field, json)
    }
}

/// Object on the fast path.
pub(crate) struct SyncObject<T>(pub(crate) T);

impl<T: SyncFields + OutputType> OutputType for SyncObject<T> {
    fn type_name() -> Cow<'static, str> {
        T::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        T::create_type_info(registry)
    }

    async fn resolve(
        &self,
        set: &ContextSelectionSet<'_>,
        _: &Positioned<Field>,
    ) -> ServerResult<Value> {
        let mut rows = ObjectWriter::new(set, 1);
        rows.push(set, &self.0);
        rows.finish().await
    }
}

/// List of objects on the fast path.
pub(crate) struct SyncList<T>(pub(crate) Vec<T>);

impl<T: SyncFields + OutputType> OutputType for SyncList<T> {
    fn type_name() -> Cow<'static, str> {
        Vec::<T>::type_name()
    }

    fn qualified_type_name() -> String {
        Vec::<T>::qualified_type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        Vec::<T>::create_type_info(registry)
    }

    async fn resolve(
        &self,
        set: &ContextSelectionSet<'_>,
        _: &Positioned<Field>,
    ) -> ServerResult<Value> {
        let contexts: Vec<_> = (0..self.0.len())
            .map(|index| set.with_index(index))
            .collect();
        let mut rows = ObjectWriter::new(set, self.0.len());
        rows.json.text.push(b'[');
        for (index, (context, object)) in contexts.iter().zip(&self.0).enumerate() {
            if index > 0 {
                rows.json.text.push(b',');
            }
            rows.push(context, object);
            rows.charge(CHARGE_BYTES)?;
        }
        rows.json.text.push(b']');
        rows.finish().await
    }
}

/// Writer of JSON text.
pub(crate) struct JsonText {
    text: Vec<u8>,
}

impl JsonText {
    /// Writes a value. Always returns `true`, as a result of [`SyncFields::write_sync`].
    pub(crate) fn put(&mut self, value: impl Serialize) -> bool {
        serde_json::to_writer(&mut self.text, &value)
            .expect("the values of fields have a JSON text");
        true
    }

    /// Writes a text. Always returns `true`.
    pub(crate) fn put_text(&mut self, text: &str) -> bool {
        // Most texts have nothing to escape, and a copy costs a fraction of a search byte by byte.
        if is_plain(text) {
            self.put_plain(text)
        } else {
            self.put(text)
        }
    }

    /// Writes a text or null. Always returns `true`.
    pub(crate) fn put_text_or_null(&mut self, text: Option<&str>) -> bool {
        match text {
            Some(text) => self.put_text(text),
            None => self.put(()),
        }
    }

    /// Writes an id. Always returns `true`.
    pub(crate) fn put_id(&mut self, id: &GlobalId) -> bool {
        self.text.push(b'"');
        id.append_to(&mut self.text);
        self.text.push(b'"');
        true
    }

    /// Writes a text that JSON does not escape, such as a cursor or the name of an enum value.
    /// Always returns `true`.
    pub(crate) fn put_plain(&mut self, text: &str) -> bool {
        debug_assert!(is_plain(text), "{text:?} needs escapes");
        self.text.push(b'"');
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(b'"');
        true
    }

    /// Writes a value of an enum. Always returns `true`.
    pub(crate) fn put_enum(&mut self, value: impl EnumType) -> bool {
        self.put_plain(enum_name(value))
    }

    /// Writes a time. Always returns `true`.
    pub(crate) fn put_time(&mut self, time: Timestamp) -> bool {
        self.text.push(b'"');
        self.text.extend_from_slice(time.text().as_bytes());
        self.text.push(b'"');
        true
    }

    /// Writes a time or null. Always returns `true`.
    pub(crate) fn put_time_or_null(&mut self, time: Option<Timestamp>) -> bool {
        match time {
            Some(time) => self.put_time(time),
            None => self.put(()),
        }
    }

    /// Writes an object if all its selected fields are synchronous. Otherwise writes nothing and
    /// returns `false`.
    pub(crate) fn object<T: SyncFields>(&mut self, object: &T, field: &Field) -> bool {
        let begin = self.text.len();
        let is_plain = self.fields::<T>(&field.selection_set.node, &mut |json, field| {
            object.write_sync(&field.node, json)
        });
        if !is_plain {
            self.text.truncate(begin);
        }
        is_plain
    }

    /// Writes the fields of an object with `write`, until it returns `false`.
    fn fields<'s, T: SyncFields>(
        &mut self,
        set: &'s SelectionSet,
        write: &mut WriteField<'_, 's, Self>,
    ) -> bool
    where
        Self: 's,
    {
        self.text.push(b'{');
        let is_whole = self.selected::<T>(set, &mut Keys::new(), write);
        self.text.push(b'}');
        is_whole
    }

    /// Skips fragments on other types.
    fn selected<'s, T: SyncFields>(
        &mut self,
        set: &'s SelectionSet,
        keys: &mut Keys<'s>,
        write: &mut WriteField<'_, 's, Self>,
    ) -> bool
    where
        Self: 's,
    {
        set.items.iter().all(|item| {
            let inline = match &item.node {
                Selection::Field(field) => return self.field::<T>(field, keys, write),
                Selection::InlineFragment(inline) => &inline.node,
                // A merged operation has none.
                Selection::FragmentSpread(_) => return true,
            };
            let condition = inline.type_condition.as_ref();
            !condition.is_none_or(|on| T::TYPES.contains(&on.node.on.node.as_str()))
                || self.selected::<T>(&inline.selection_set.node, keys, write)
        })
    }

    fn field<'s, T: SyncFields>(
        &mut self,
        field: &'s Positioned<Field>,
        keys: &mut Keys<'s>,
        write: &mut WriteField<'_, 's, Self>,
    ) -> bool {
        let key = field.node.response_key().node.as_str();
        // A field that is selected twice is written once.
        if keys.contains(&key) {
            return true;
        }
        if !keys.is_empty() {
            self.text.push(b',');
        }
        keys.push(key);
        // A name of GraphQL has letters, digits and underscores alone.
        self.put_plain(key);
        self.text.push(b':');
        if field.node.name.node == "__typename" {
            self.put_plain(T::TYPES[0])
        } else {
            write(self, field)
        }
    }
}

fn enum_name<T: EnumType>(value: T) -> &'static str {
    let item = T::items().iter().find(|item| item.value == value);
    item.expect("each value of an enum has a name").name
}

/// Whether JSON writes a text as it is.
fn is_plain(text: &str) -> bool {
    // Without an early end, which lets the compiler compare many bytes at once.
    let is_escaped = |byte| byte < b' ' || byte == b'"' || byte == b'\\';
    !text.bytes().fold(false, |any, byte| any | is_escaped(byte))
}

/// Writes the value of a field. Returns `false` if it does not.
type WriteField<'w, 's, J> = dyn FnMut(&mut J, &'s Positioned<Field>) -> bool + 'w;

/// Writer of objects that leaves gaps for the fields that need an await.
struct ObjectWriter<'a> {
    json: JsonText,
    budget: &'a AnswerBudget,
    /// Bytes of the text that the budget was charged for.
    charged: usize,
    gaps: Vec<usize>,
    waiting: Vec<BoxFuture<'a, ServerResult<Value>>>,
}

impl<'a> ObjectWriter<'a> {
    fn new(set: &ContextSelectionSet<'a>, objects: usize) -> Self {
        let json = JsonText {
            text: Vec::with_capacity((objects * OBJECT_BYTES).min(FIRST_BYTES_MAX)),
        };
        let budget = &set.data_unchecked::<ExecutionContext>().budget;
        Self {
            json,
            budget,
            charged: 0,
            gaps: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn push<T: SyncFields>(&mut self, context: &ContextSelectionSet<'a>, object: &'a T) {
        let Self {
            json,
            gaps,
            waiting,
            ..
        } = self;
        json.fields::<T>(&context.item.node, &mut |json, field| {
            if !object.write_sync(&field.node, json) {
                gaps.push(json.text.len());
                let context = context.clone();
                waiting.push(Box::pin(async move {
                    Ok(object
                        .resolve_field(&context.with_field(field))
                        .await?
                        .unwrap_or_default())
                }));
            }
            true
        });
    }

    /// Charges the bytes written since the last charge, if there are at least this many.
    fn charge(&mut self, bytes_min: usize) -> ServerResult<()> {
        let bytes = self.json.text.len() - self.charged;
        if bytes >= bytes_min {
            self.charged += bytes;
            self.budget.spend(bytes)?;
        }
        Ok(())
    }

    async fn finish(mut self) -> ServerResult<Value> {
        self.charge(1)?;
        let Self {
            mut json,
            gaps,
            waiting,
            ..
        } = self;
        let mut rest = 0;
        let mut whole = JsonText { text: Vec::new() };
        for (gap, value) in gaps.into_iter().zip(try_join_all(waiting).await?) {
            whole.text.extend_from_slice(&json.text[rest..gap]);
            whole.put(AnswerJson(&value));
            rest = gap;
        }
        if rest > 0 {
            whole.text.extend_from_slice(&json.text[rest..]);
            json = whole;
        }
        let text = String::from_utf8(json.text).expect("JSON is text");
        Ok(verbatim(text))
    }
}
