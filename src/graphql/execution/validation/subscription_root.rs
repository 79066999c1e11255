//! Root of a subscription: one field, without a condition.

use async_graphql::parser::types::{ExecutableDocument, OperationDefinition, Selection};

use crate::graphql::execution::RequestError;

/// Terminates soon: the guard has bounded the spreads.
pub(super) fn check(
    document: &ExecutableDocument,
    operation: &OperationDefinition,
) -> Result<(), RequestError> {
    let mut key = None;
    let mut open = vec![&operation.selection_set.node];
    while let Some(set) = open.pop() {
        for item in &set.items {
            let problem = match &item.node {
                selection if !selection.directives().is_empty() => {
                    "`@skip` and `@include` do not go with the root of a subscription."
                }
                Selection::Field(field) if field.node.name.node.starts_with("__") => {
                    "The root field of a subscription must not be `__typename` or introspection."
                }
                Selection::Field(field) => {
                    let own = &field.node.response_key().node;
                    if *key.get_or_insert(own) == own {
                        continue;
                    }
                    "A subscription has exactly one root field."
                }
                Selection::InlineFragment(inline) => {
                    open.push(&inline.node.selection_set.node);
                    continue;
                }
                Selection::FragmentSpread(spread) => {
                    let fragment = document.fragments.get(&spread.node.fragment_name.node);
                    open.extend(fragment.map(|fragment| &fragment.node.selection_set.node));
                    continue;
                }
            };
            return Err(RequestError::invalid_at(problem.to_owned(), item.pos));
        }
    }
    Ok(())
}
