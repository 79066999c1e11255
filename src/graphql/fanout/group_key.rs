//! Equality of subscriptions: the document, its operation, and all variables except the start
//! position.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use async_graphql::parser::types::{
    Directive, ExecutableDocument, Field, OperationDefinition, Selection, SelectionSet,
};
use async_graphql::{Name, Value, Variables};

use crate::graphql::execution::Prepared;

/// Key of a subscription group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    text: Arc<str>,
    operation: Option<Name>,
    /// JSON of the variables that affect the payload.
    variables: String,
}

impl GroupKey {
    pub(super) fn new(prepared: &Prepared, variables: &Variables) -> Self {
        Self {
            text: Arc::clone(prepared.text()),
            operation: prepared.name.clone(),
            variables: payload_variables(prepared, variables),
        }
    }
}

/// The variables as text, without those that only say where the stream starts.
fn payload_variables(prepared: &Prepared, variables: &Variables) -> String {
    let start = prepared
        .definition()
        .map(|operation| start_variables(&prepared.document, operation))
        .unwrap_or_default();
    let payload: BTreeMap<_, _> = variables
        .iter()
        .filter(|(name, _)| !start.contains(name))
        .collect();
    serde_json::to_string(&payload).expect("variables are a tree of text and numbers")
}

/// Variables used in the `after` argument of the root field and nowhere else.
fn start_variables(document: &ExecutableDocument, operation: &OperationDefinition) -> Vec<Name> {
    let Some(Selection::Field(root)) = operation
        .selection_set
        .node
        .items
        .first()
        .map(|item| &item.node)
    else {
        return Vec::new();
    };
    let root = &root.node;
    let (mut start, mut others) = (Vec::new(), Vec::new());
    collect_from_arguments(root, |argument| argument == "after", &mut start);
    collect_from_arguments(root, |argument| argument != "after", &mut others);
    collect_below(document, root, &mut others);
    start.retain(|name| !others.contains(name));
    start
}

fn collect_below(document: &ExecutableDocument, root: &Field, found: &mut Vec<Name>) {
    let mut open: Vec<&SelectionSet> = vec![&root.selection_set.node];
    while let Some(set) = open.pop() {
        for item in &set.items {
            for directive in item.node.directives() {
                collect_from_directive(&directive.node, found);
            }
            match &item.node {
                Selection::Field(field) => {
                    collect_from_arguments(&field.node, |_| true, found);
                    open.push(&field.node.selection_set.node);
                }
                Selection::InlineFragment(inline) => open.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(spread) => {
                    open.extend(
                        document
                            .fragments
                            .get(&spread.node.fragment_name.node)
                            .map(|fragment| &fragment.node.selection_set.node),
                    );
                }
            }
        }
    }
}

fn collect_from_arguments(field: &Field, is_wanted: impl Fn(&str) -> bool, found: &mut Vec<Name>) {
    for (_, value) in field
        .arguments
        .iter()
        .filter(|(argument, _)| is_wanted(&argument.node))
    {
        let Ok(_) = value.node.clone().into_const_with(|name| push(name, found));
    }
}

fn collect_from_directive(directive: &Directive, found: &mut Vec<Name>) {
    for (_, value) in &directive.arguments {
        let Ok(_) = value.node.clone().into_const_with(|name| push(name, found));
    }
}

fn push(name: Name, found: &mut Vec<Name>) -> Result<Value, Infallible> {
    found.push(name);
    Ok(Value::Null)
}
