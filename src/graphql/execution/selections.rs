//! Selections: what one is, and a visitor of those of a merged operation.

use async_graphql::Positioned;
use async_graphql::parser::types::{
    ExecutableDocument, Field, Selection, SelectionSet, TypeCondition,
};

/// A selection, where a fragment is the same inline and by its name.
pub(super) enum Selected<'a> {
    Field(&'a Positioned<Field>),
    Fragment(Option<&'a Positioned<TypeCondition>>, &'a SelectionSet),
}

impl<'a> Selected<'a> {
    /// A selection of a document whose spreads all have their fragments.
    pub(super) fn of(document: &'a ExecutableDocument, selection: &'a Selection) -> Self {
        match selection {
            Selection::Field(field) => Self::Field(field),
            Selection::InlineFragment(inline) => {
                let inline = &inline.node;
                Self::Fragment(inline.type_condition.as_ref(), &inline.selection_set.node)
            }
            Selection::FragmentSpread(spread) => {
                let fragment = &document.fragments[&spread.node.fragment_name.node].node;
                Self::Fragment(Some(&fragment.type_condition), &fragment.selection_set.node)
            }
        }
    }
}

/// Visits the fields of a set, those of its fragments included, whatever type they are on.
pub(in crate::graphql) fn each_field<'a>(set: &'a SelectionSet, visit: &mut impl FnMut(&'a Field)) {
    each_field_of("", set, &mut |_, field| visit(field));
}

/// The same, with the type that each field is selected on: of the innermost fragment, else `parent`.
pub(in crate::graphql) fn each_field_of<'a>(
    parent: &'a str,
    set: &'a SelectionSet,
    visit: &mut impl FnMut(&'a str, &'a Field),
) {
    for item in &set.items {
        match &item.node {
            Selection::Field(field) => visit(parent, &field.node),
            Selection::InlineFragment(inline) => {
                let condition = inline.node.type_condition.as_ref();
                let parent = condition.map_or(parent, |condition| condition.node.on.node.as_str());
                each_field_of(parent, &inline.node.selection_set.node, visit);
            }
            // A merged operation has none.
            Selection::FragmentSpread(_) => {}
        }
    }
}
