//! Subscription roots: inlines the fragments there and requires exactly one field. async-graphql
//! ignores fragments at the root of a subscription and would emit no events.

use std::collections::HashSet;

use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, Field, OperationDefinition, OperationType, Selection,
    SelectionSet,
};
use async_graphql::{Name, Positioned};

use super::guard::GuardError;

/// Root type of subscriptions. Fragments at the root must be on this type.
const SUBSCRIPTION: &str = "Subscription";

/// Inlines the fragments at the root of each subscription.
pub(in crate::graphql) fn flatten(document: &mut ExecutableDocument) -> Result<(), GuardError> {
    if !document
        .operations
        .iter()
        .any(|(_, operation)| operation.node.ty == OperationType::Subscription)
    {
        return Ok(());
    }
    let used_before = used_fragments(document);
    let unchanged = document.clone();
    let flatten = |operation: &mut OperationDefinition| {
        if operation.ty == OperationType::Subscription {
            let field = single_root_field(&unchanged, &operation.selection_set.node)?;
            let position = operation.selection_set.pos;
            let items = vec![Positioned::new(Selection::Field(field), position)];
            operation.selection_set.node = SelectionSet { items };
        }
        Ok(())
    };
    match &mut document.operations {
        DocumentOperations::Single(operation) => flatten(&mut operation.node)?,
        DocumentOperations::Multiple(operations) => operations
            .values_mut()
            .try_for_each(|operation| flatten(&mut operation.node))?,
    }
    // Drops the fragments that were inlined. Validation reports fragments that were unused from the
    // start.
    let used_after = used_fragments(document);
    document
        .fragments
        .retain(|name, _| used_after.contains(name) || !used_before.contains(name));
    Ok(())
}

/// The single field at this root. Merges the selections of a field that is repeated with the same
/// arguments.
fn single_root_field(
    document: &ExecutableDocument,
    root: &SelectionSet,
) -> Result<Positioned<Field>, GuardError> {
    let mut fields = Vec::new();
    collect_root_fields(document, root, &mut fields)?;
    let mut fields = fields.into_iter();
    let mut single = fields.next().ok_or(GuardError::SubscriptionRoots)?.clone();
    if single.node.name.node.starts_with("__") {
        return Err(GuardError::SubscriptionIntrospection);
    }
    for other in fields {
        let is_same = other.node.response_key().node == single.node.response_key().node
            && other.node.name.node == single.node.name.node
            && other.node.arguments == single.node.arguments;
        if !is_same {
            return Err(GuardError::SubscriptionRoots);
        }
        single
            .node
            .selection_set
            .node
            .items
            .extend(other.node.selection_set.node.items.iter().cloned());
    }
    Ok(single)
}

/// Terminates: the guard has refused cyclic fragments and bounded the spreads.
fn collect_root_fields<'a>(
    document: &'a ExecutableDocument,
    root: &'a SelectionSet,
    fields: &mut Vec<&'a Positioned<Field>>,
) -> Result<(), GuardError> {
    for item in &root.items {
        if item
            .node
            .directives()
            .iter()
            .any(|directive| matches!(directive.node.name.node.as_str(), "skip" | "include"))
        {
            return Err(GuardError::SubscriptionDirective);
        }
        let (condition, set) = match &item.node {
            Selection::Field(field) => {
                fields.push(field);
                continue;
            }
            Selection::InlineFragment(inline) => (
                inline.node.type_condition.as_ref(),
                &inline.node.selection_set.node,
            ),
            Selection::FragmentSpread(spread) => {
                match document.fragments.get(&spread.node.fragment_name.node) {
                    Some(fragment) => (
                        Some(&fragment.node.type_condition),
                        &fragment.node.selection_set.node,
                    ),
                    None => return Err(GuardError::SubscriptionFragment),
                }
            }
        };
        if condition.is_some_and(|condition| condition.node.on.node != SUBSCRIPTION) {
            return Err(GuardError::SubscriptionFragment);
        }
        collect_root_fields(document, set, fields)?;
    }
    Ok(())
}

/// Fragments reachable from some operation.
fn used_fragments(document: &ExecutableDocument) -> HashSet<Name> {
    let mut used = HashSet::new();
    let mut open: Vec<_> = document
        .operations
        .iter()
        .map(|(_, operation)| &operation.node.selection_set.node)
        .collect();
    while let Some(set) = open.pop() {
        for item in &set.items {
            match &item.node {
                Selection::Field(field) => open.push(&field.node.selection_set.node),
                Selection::InlineFragment(inline) => open.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    if used.insert(name.clone()) {
                        open.extend(
                            document
                                .fragments
                                .get(name)
                                .map(|fragment| &fragment.node.selection_set.node),
                        );
                    }
                }
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;

    fn flattened(text: &str) -> Result<ExecutableDocument, GuardError> {
        let mut document = parse_query(text).unwrap();
        flatten(&mut document).map(|()| document)
    }

    /// Names of the items at the root of the only operation, with `...` for a fragment.
    fn root(document: &ExecutableDocument) -> Vec<String> {
        let (_, operation) = document.operations.iter().next().unwrap();
        let name = |item: &Positioned<Selection>| match &item.node {
            Selection::Field(field) => field.node.response_key().node.to_string(),
            Selection::FragmentSpread(_) | Selection::InlineFragment(_) => "...".to_owned(),
        };
        operation
            .node
            .selection_set
            .node
            .items
            .iter()
            .map(name)
            .collect()
    }

    #[test]
    fn fragments_at_the_root_of_a_subscription_are_inlined() {
        let text = "subscription S { ...A } fragment A on Subscription { ... on Subscription { ...B } } fragment B on Subscription { told { ...C } } fragment C on T { id }";
        let document = flattened(text).unwrap();
        assert_eq!(root(&document), ["told"]);
        let mut left: Vec<_> = document.fragments.keys().map(Name::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["C"]);
    }

    #[test]
    fn an_unused_fragment_stays_for_validation_to_report() {
        let document = flattened(
            "subscription { ...A } fragment A on Subscription { told } fragment B on T { id }",
        )
        .unwrap();
        assert!(document.fragments.contains_key("B"));
    }

    #[test]
    fn the_same_root_field_twice_is_one() {
        let document =
            flattened("subscription { told(a: 1) { id } ... { told(a: 1) { body } } }").unwrap();
        assert_eq!(root(&document), ["told"]);
        let (_, operation) = document.operations.iter().next().unwrap();
        let Selection::Field(field) = &operation.node.selection_set.node.items[0].node else {
            panic!()
        };
        assert_eq!(field.node.selection_set.node.items.len(), 2);
    }

    #[test]
    fn a_subscription_has_one_root_field_and_it_is_always_asked_for() {
        for text in [
            "subscription { a b }",
            "subscription { a(x: 1) a(x: 2) }",
            "subscription { a x: a }",
            "subscription { a ...F } fragment F on Subscription { b }",
            "subscription { __typename }",
            "subscription { __schema { description } }",
            "subscription { a @skip(if: true) }",
            "subscription { ...F @include(if: false) } fragment F on Subscription { a }",
            "subscription { ... on Query { a } }",
            "subscription { ...Nowhere }",
            "query Q { a } subscription S { a b }",
        ] {
            assert!(flattened(text).is_err(), "{text}");
        }
    }
}
