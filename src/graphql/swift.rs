//! Objects whose plain fields are answered as they are met.
//!
//! The library makes a boxed future of each field of each object, and most fields of a page of history wait for nothing. Here only those
//! that do are resolved by the library.

use std::borrow::Cow;

use async_graphql::indexmap::IndexMap;
use async_graphql::indexmap::map::Entry;
use async_graphql::parser::types::{Field, Selection, SelectionSet};
use async_graphql::registry::Registry;
use async_graphql::resolver_utils::ContainerType;
use async_graphql::{Context, ContextSelectionSet, Name, OutputType, Positioned, ServerResult, Value};
use futures_util::future::{BoxFuture, try_join_all};

/// An object with plain fields.
pub(super) trait Plain: ContainerType {
    /// Its type and its interfaces: a fragment on one of these is for it.
    const TYPES: &'static [&'static str];

    /// The value of a field that is there. `None`: the field is for its resolver.
    fn plain(&self, field: &Context<'_>) -> Option<Value>;
}

impl<T: Plain> Plain for &T {
    const TYPES: &'static [&'static str] = T::TYPES;

    fn plain(&self, field: &Context<'_>) -> Option<Value> {
        T::plain(self, field)
    }
}

/// The value of an object of which nothing is asked that must be waited for.
pub(super) fn at_once<T: Plain>(object: &T, field: &Context<'_>) -> Option<Value> {
    let set = field.with_selection_set(&field.item.node.selection_set);
    let mut answer = Answer::default();
    answer.collect(&set, object, set.item);
    answer.resolving.is_empty().then(|| answer.finish())
}

/// An object, resolved so.
pub(super) struct Swift<T>(pub(super) T);

impl<T: Plain> OutputType for Swift<T> {
    fn type_name() -> Cow<'static, str> {
        T::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        T::create_type_info(registry)
    }

    async fn resolve(&self, set: &ContextSelectionSet<'_>, _: &Positioned<Field>) -> ServerResult<Value> {
        let mut answer = Answer::default();
        answer.collect(set, &self.0, set.item);
        for (index, value) in try_join_all(std::mem::take(&mut answer.resolving)).await? {
            answer.fields[index].1 = value;
        }
        Ok(answer.finish())
    }
}

/// What is asked of one object, in the order in which it is asked.
#[derive(Default)]
struct Answer<'a> {
    fields: Vec<(Name, Value)>,
    /// Those that are waited for, by their place among the fields.
    resolving: Vec<BoxFuture<'a, ServerResult<(usize, Value)>>>,
}

impl<'a> Answer<'a> {
    /// The document was validated, or is being executed by a schema that does: fragments are there, and those on another type are for
    /// others.
    fn collect<T: Plain>(&mut self, context: &ContextSelectionSet<'a>, object: &'a T, set: &'a Positioned<SelectionSet>) {
        for selection in &set.node.items {
            let (condition, inner) = match &selection.node {
                Selection::Field(field) => {
                    self.field(context, object, field);
                    continue;
                }
                Selection::InlineFragment(inline) => (inline.node.type_condition.as_ref(), &inline.node.selection_set),
                Selection::FragmentSpread(spread) => match context.query_env.fragments.get(&spread.node.fragment_name.node) {
                    Some(fragment) => (Some(&fragment.node.type_condition), &fragment.node.selection_set),
                    None => continue,
                },
            };
            if condition.is_none_or(|condition| T::TYPES.contains(&condition.node.on.node.as_str())) {
                self.collect(context, object, inner);
            }
        }
    }

    fn field<T: Plain>(&mut self, context: &ContextSelectionSet<'a>, object: &'a T, field: &'a Positioned<Field>) {
        let name = field.node.response_key().node.clone();
        let value = match field.node.name.node.as_str() {
            "__typename" => Some(Value::from(T::TYPES[0])),
            _ => object.plain(&context.with_field(field)),
        };
        if value.is_none() {
            let (index, context) = (self.fields.len(), context.clone());
            self.resolving.push(Box::pin(async move {
                let field = context.with_field(field);
                Ok((index, object.resolve_field(&field).await?.unwrap_or_default()))
            }));
        }
        self.fields.push((name, value.unwrap_or_default()));
    }

    fn finish(self) -> Value {
        let mut object = IndexMap::with_capacity(self.fields.len());
        self.fields.into_iter().for_each(|(name, value)| merge(&mut object, name, value));
        Value::Object(object)
    }
}

/// A field that is asked twice is one, and what is asked of it is put together.
fn merge(object: &mut IndexMap<Name, Value>, name: Name, value: Value) {
    match object.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(value);
        }
        Entry::Occupied(mut entry) => merge_values(entry.get_mut(), value),
    }
}

fn merge_values(there: &mut Value, other: Value) {
    match (there, other) {
        (Value::Object(there), Value::Object(other)) => other.into_iter().for_each(|(name, value)| merge(there, name, value)),
        (Value::List(there), Value::List(other)) => there.iter_mut().zip(other).for_each(|(there, other)| merge_values(there, other)),
        // The same, twice.
        _ => {}
    }
}
