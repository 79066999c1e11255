//! Objects that are written as JSON while they are met.
//!
//! The library makes a boxed future of each field of each object, and a map of each object. Most fields of a page wait for nothing: they
//! are written as text here, one after the other, and only those that do wait are resolved by the library, all of a list together. What
//! was written goes into the answer as it is: a [`Value`] in the form that stands for JSON in `serde_json`, and in the library's own
//! serialiser by its feature `raw_value`.
//!
//! Text cannot be put together with other text. So an operation that asks for an object twice under one key is left to the library.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use async_graphql::parser::types::{Field, FragmentDefinition, Selection, SelectionSet};
use async_graphql::registry::{MetaType, Registry};
use async_graphql::resolver_utils::{ContainerType, resolve_container, resolve_list};
use async_graphql::{ContextSelectionSet, Name, OutputType, Positioned, ServerResult, Value};
use futures_util::future::{BoxFuture, try_join_all};
use serde::Serialize;

use crate::graphql::execution::AnswerBudget;
use crate::graphql::scalar::verbatim;
use crate::graphql::scope::ExecutionContext;

/// A list charges its text to the budget of the answer in steps of so many bytes, so that a page that is too large ends early.
const CHARGE_BYTES: usize = 4 << 10;

type Fragments = HashMap<Name, Positioned<FragmentDefinition>>;

/// An object with write_sync fields.
pub(in crate::graphql) trait SyncFields: ContainerType {
    /// Its type and its interfaces: a fragment on one of these is for it.
    const TYPES: &'static [&'static str];

    /// Writes the value of a field that is there. `false`: nothing was written, and the field is for its resolver.
    fn write_sync(&self, field: &Field, json: &mut JsonText<'_>) -> bool;
}

impl<T: SyncFields> SyncFields for &T {
    const TYPES: &'static [&'static str] = T::TYPES;

    fn write_sync(&self, field: &Field, json: &mut JsonText<'_>) -> bool {
        T::write_sync(self, field, json)
    }
}

/// An object, resolved so.
pub(in crate::graphql) struct SyncObject<T>(pub(in crate::graphql) T);

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
        if is_merged(set) {
            return resolve_container(set, &self.0).await;
        }
        let mut rows = ObjectWriter::new(set);
        rows.push(set, &self.0);
        rows.finish().await
    }
}

/// A list of objects, resolved so.
pub(in crate::graphql) struct SyncList<T>(pub(in crate::graphql) Vec<T>);

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
        field: &Positioned<Field>,
    ) -> ServerResult<Value> {
        if is_merged(set) {
            return resolve_list(set, field, &self.0, Some(self.0.len())).await;
        }
        let contexts: Vec<_> = (0..self.0.len())
            .map(|index| set.with_index(index))
            .collect();
        let mut rows = ObjectWriter::new(set);
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

/// JSON in the making.
pub(in crate::graphql) struct JsonText<'a> {
    text: Vec<u8>,
    fragments: &'a Fragments,
}

impl JsonText<'_> {
    /// Writes anything that is a value. `true`, for [`SyncFields::write_sync`].
    pub(in crate::graphql) fn put(&mut self, value: impl Serialize) -> bool {
        serde_json::to_writer(&mut self.text, &value)
            .expect("what a field holds has a text in JSON");
        true
    }

    /// Writes an object of which nothing is asked that must be waited for. Of another one nothing is written.
    pub(in crate::graphql) fn object<T: SyncFields>(&mut self, object: &T, field: &Field) -> bool {
        let begin = self.text.len();
        let is_plain = self.fields::<T>(&field.selection_set.node, &mut |json, field| {
            object.write_sync(&field.node, json)
        });
        if !is_plain {
            self.text.truncate(begin);
        }
        is_plain
    }

    /// Writes the fields of an object as `write` does, for as long as it says so.
    fn fields<'s, T: SyncFields>(
        &mut self,
        set: &'s SelectionSet,
        write: &mut WriteField<'_, 's, Self>,
    ) -> bool
    where
        Self: 's,
    {
        self.text.push(b'{');
        let is_whole = self.selected::<T>(set, &mut Vec::with_capacity(set.items.len()), write);
        self.text.push(b'}');
        is_whole
    }

    /// The document was validated, or is being executed by a schema that does: fragments are there, and those on another type are for
    /// others.
    fn selected<'s, T: SyncFields>(
        &mut self,
        set: &'s SelectionSet,
        keys: &mut Vec<&'s str>,
        write: &mut WriteField<'_, 's, Self>,
    ) -> bool
    where
        Self: 's,
    {
        set.items.iter().all(|item| {
            let (condition, inner) = match &item.node {
                Selection::Field(field) => return self.field::<T>(field, keys, write),
                selection @ (Selection::InlineFragment(_) | Selection::FragmentSpread(_)) => {
                    fragment(self.fragments, selection)
                }
            };
            !condition.is_none_or(|condition| T::TYPES.contains(&condition))
                || self.selected::<T>(inner, keys, write)
        })
    }

    fn field<'s, T: SyncFields>(
        &mut self,
        field: &'s Positioned<Field>,
        keys: &mut Vec<&'s str>,
        write: &mut WriteField<'_, 's, Self>,
    ) -> bool {
        let key = field.node.response_key().node.as_str();
        // A value that is asked for twice is one.
        if keys.contains(&key) {
            return true;
        }
        if !keys.is_empty() {
            self.text.push(b',');
        }
        keys.push(key);
        self.put(key);
        self.text.push(b':');
        if field.node.name.node == "__typename" {
            self.put(T::TYPES[0])
        } else {
            write(self, field)
        }
    }
}

/// Writes the value of a field, or says that it does not.
type WriteField<'w, 's, J> = dyn FnMut(&mut J, &'s Positioned<Field>) -> bool + 'w;

/// The condition of a fragment, and what it selects.
fn fragment<'s>(
    fragments: &'s Fragments,
    selection: &'s Selection,
) -> (Option<&'s str>, &'s SelectionSet) {
    static NOTHING: SelectionSet = SelectionSet { items: Vec::new() };
    let (condition, set) = match selection {
        Selection::InlineFragment(inline) => (
            inline.node.type_condition.as_ref(),
            &inline.node.selection_set.node,
        ),
        Selection::FragmentSpread(spread) => match fragments.get(&spread.node.fragment_name.node) {
            Some(fragment) => (
                Some(&fragment.node.type_condition),
                &fragment.node.selection_set.node,
            ),
            None => (None, &NOTHING),
        },
        Selection::Field(_) => (None, &NOTHING),
    };
    (
        condition.map(|condition| condition.node.on.node.as_str()),
        set,
    )
}

/// Objects that are written, with gaps for what is waited for.
struct ObjectWriter<'a> {
    json: JsonText<'a>,
    budget: &'a AnswerBudget,
    /// Bytes of the text that the budget knows of.
    charged: usize,
    gaps: Vec<usize>,
    waiting: Vec<BoxFuture<'a, ServerResult<Value>>>,
}

impl<'a> ObjectWriter<'a> {
    fn new(set: &ContextSelectionSet<'a>) -> Self {
        let json = JsonText {
            text: Vec::new(),
            fragments: &set.query_env.fragments,
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

    /// Charges what was written since the last time, where that is so much.
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
        let mut whole = JsonText {
            text: Vec::new(),
            fragments: json.fragments,
        };
        for (gap, value) in gaps.into_iter().zip(try_join_all(waiting).await?) {
            whole.text.extend_from_slice(&json.text[rest..gap]);
            whole.put(value);
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

/// Whether an object is asked for twice under one key, and its two answers are to be put together: somewhere in the operation, so that no
/// text is among what is.
fn is_merged(set: &ContextSelectionSet<'_>) -> bool {
    let merger = MergeDetector {
        fragments: &set.query_env.fragments,
        types: &set.schema_env.registry.types,
    };
    merger.is_merged(&set.query_env.operation.node.selection_set.node)
}

struct MergeDetector<'a> {
    fragments: &'a Fragments,
    types: &'a BTreeMap<String, MetaType>,
}

impl<'a> MergeDetector<'a> {
    fn is_merged(&self, set: &'a SelectionSet) -> bool {
        let mut objects = Vec::new();
        self.gather(set, None, &mut objects);
        let is_again = |(place, (one, of)): (usize, &(&Field, Option<&str>))| {
            objects[..place].iter().any(|(other, of_other)| {
                // Of two types of object, one object has but one.
                let may_be_one = of.is_none() || of_other.is_none() || of == of_other;
                may_be_one && other.response_key() == one.response_key()
            })
        };
        objects.iter().enumerate().any(is_again)
            || objects
                .iter()
                .any(|(field, _)| self.is_merged(&field.selection_set.node))
    }

    /// The fields that are objects, each with the type of object that its fragments are for, where they say one.
    fn gather(
        &self,
        set: &'a SelectionSet,
        of: Option<&'a str>,
        objects: &mut Vec<(&'a Field, Option<&'a str>)>,
    ) {
        for item in &set.items {
            match &item.node {
                Selection::Field(field) if field.node.selection_set.node.items.is_empty() => {}
                Selection::Field(field) => objects.push((&field.node, of)),
                selection @ (Selection::InlineFragment(_) | Selection::FragmentSpread(_)) => {
                    let (condition, inner) = fragment(self.fragments, selection);
                    let is_object = |condition: &&str| {
                        matches!(self.types.get(*condition), Some(MetaType::Object { .. }))
                    };
                    self.gather(inner, condition.filter(is_object).or(of), objects);
                }
            }
        }
    }
}
