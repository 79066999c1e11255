//! What a prepared operation costs, by its variables, before it is executed: for the rates at the doors.
//!
//! The same sum as the schema's own complexity, made from the document alone: each field counts one, and what is inside of a list counts as
//! often as the list may have elements. It is linear in the expanded document, which the guard has bounded.

use std::borrow::Cow;
use std::convert::Infallible;

use async_graphql::parser::types::{ExecutableDocument, Field, OperationDefinition, Selection, SelectionSet};
use async_graphql::{Value as ConstValue, Variables};

use super::document::Prepared;
use crate::model::PageRequest;

/// What an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Fields of its answer, each counted as often as the lists around it may have elements.
    pub fields: usize,
    /// Its root fields: of a mutation, each does something.
    pub roots: usize,
}

impl Prepared {
    pub fn cost(&self, variables: &Variables) -> Cost {
        let Some(operation) = self.definition() else { return Cost { fields: 0, roots: 0 } };
        let teller = Teller { document: &self.document, operation, variables };
        let root = &operation.selection_set.node;
        Cost { fields: teller.fields(root), roots: teller.roots(root) }
    }
}

struct Teller<'a> {
    document: &'a ExecutableDocument,
    operation: &'a OperationDefinition,
    variables: &'a Variables,
}

impl<'a> Teller<'a> {
    /// What stands in this set, with its fragments written out.
    fn each(&self, set: &'a SelectionSet, visit: &mut impl FnMut(&'a Field)) {
        for item in &set.items {
            match &item.node {
                Selection::Field(field) => visit(&field.node),
                Selection::InlineFragment(inline) => self.each(&inline.node.selection_set.node, visit),
                Selection::FragmentSpread(spread) => {
                    if let Some(fragment) = self.document.fragments.get(&spread.node.fragment_name.node) {
                        self.each(&fragment.node.selection_set.node, visit);
                    }
                }
            }
        }
    }

    fn fields(&self, set: &'a SelectionSet) -> usize {
        let mut sum = 0_usize;
        self.each(set, &mut |field| {
            let inside = self.fields(&field.selection_set.node);
            sum = sum.saturating_add(inside.saturating_mul(self.count(field)).saturating_add(1));
        });
        sum
    }

    fn roots(&self, set: &'a SelectionSet) -> usize {
        let mut roots = 0;
        self.each(set, &mut |field| roots += usize::from(field.name.node != "__typename"));
        roots
    }

    /// How many elements a field may have: those of a page, or as many as ids are given.
    fn count(&self, field: &'a Field) -> usize {
        let number = |name| match self.argument(field, name).as_deref() {
            Some(ConstValue::Number(number)) => number.as_i64(),
            _ => None,
        };
        let page = |count: i64| usize::try_from(count).unwrap_or(0).min(PageRequest::<()>::COUNT_MAX);
        if let Some(count) = number("first").or_else(|| number("last")) {
            return page(count);
        }
        if let Some(ConstValue::List(ids)) = self.argument(field, "ids").as_deref() {
            return ids.len();
        }
        let mut is_page = false;
        self.each(&field.selection_set.node, &mut |inner| is_page |= inner.name.node == "edges");
        if is_page { PageRequest::<()>::COUNT_DEFAULT } else { 1 }
    }

    /// An argument as the operation's variables make it. Variables may be large, and are not copied; those inside of a literal stay null.
    fn argument(&self, field: &'a Field, name: &str) -> Option<Cow<'a, ConstValue>> {
        let mut variable = None;
        let written = field.get_argument(name)?.node.clone().into_const_with(|name| {
            variable.get_or_insert(name);
            Ok::<_, Infallible>(ConstValue::Null)
        });
        let Ok(written) = written;
        match variable {
            Some(name) if written == ConstValue::Null => self.variable(&name).map(Cow::Borrowed),
            _ => Some(Cow::Owned(written)),
        }
    }

    fn variable(&self, name: &str) -> Option<&'a ConstValue> {
        let default = || {
            let definitions = &self.operation.variable_definitions;
            let definition = definitions.iter().find(|definition| definition.node.name.node == name)?;
            Some(&definition.node.default_value.as_ref()?.node)
        };
        self.variables.get(name).or_else(default)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::graphql::{DocumentBounds, Documents};

    fn cost(text: &str, variables: serde_json::Value) -> Cost {
        let prepared = Documents::new(DocumentBounds::default(), "").prepare(text, None).unwrap();
        prepared.cost(&Variables::from_json(variables))
    }

    #[test]
    fn a_page_counts_as_often_as_it_may_have_edges() {
        let fields = |text: &str| cost(text, json!({})).fields;
        assert_eq!(fields("{ viewer { username } }"), 2);
        assert_eq!(fields("{ inbox { edges { cursor } } }"), 1 + 20 * 2);
        assert_eq!(fields("{ inbox(first: 5) { edges { cursor } } }"), 1 + 5 * 2);
        assert_eq!(fields("{ inbox(last: 1000000) { edges { cursor } } }"), 1 + 100 * 2);
        assert_eq!(fields("{ inbox(first: -1) { edges { cursor } } }"), 1);
        assert_eq!(fields(r#"{ nodes(ids: ["a", "b", "c"]) { id } }"#), 1 + 3);
        assert_eq!(fields(r#"query($a: ID!) { nodes(ids: [$a, "b"]) { id } }"#), 1 + 2);
        assert_eq!(
            fields("{ inbox(first: 3) { ...page } } fragment page on X { edges { node { a(first: 7) { edges { b } } } } }"),
            1 + 3 * (2 + 1 + 7 * 2)
        );
    }

    #[test]
    fn variables_and_their_defaults_count() {
        let text = "query($n: Int = 7) { inbox(first: $n) { edges { cursor } } }";
        assert_eq!(cost(text, json!({})).fields, 1 + 7 * 2);
        assert_eq!(cost(text, json!({ "n": 9 })).fields, 1 + 9 * 2);
        assert_eq!(cost(text, json!({ "n": null })).fields, 1 + 20 * 2);
        assert_eq!(cost("query($ids: [ID!]!) { nodes(ids: $ids) { id } }", json!({ "ids": ["a", "b", "c"] })).fields, 1 + 3);
    }

    #[test]
    fn each_root_field_of_a_mutation_counts() {
        let text = "mutation { a: markRead { x } ...more __typename } fragment more on Mutation { b: markRead { x } c: markRead { x } }";
        assert_eq!(cost(text, json!({})).roots, 3);
    }
}
