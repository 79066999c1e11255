//! Equality of subscriptions: the document, its operation, and all variables except the start
//! position.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use async_graphql::parser::types::{Field, OperationDefinition};
use async_graphql::{Name, Value, Variables};

use crate::graphql::execution::{Prepared, each_field};

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
    let start = start_variables(prepared.definition());
    let payload: BTreeMap<_, _> = variables
        .iter()
        .filter(|(name, _)| !start.contains(name))
        .collect();
    serde_json::to_string(&payload).expect("variables are a tree of text and numbers")
}

/// Variables used in the `after` argument of the root field and nowhere else.
fn start_variables(operation: &OperationDefinition) -> Vec<Name> {
    let (mut start, mut others) = (Vec::new(), Vec::new());
    each_field(&operation.selection_set.node, &mut |root| {
        collect(root, |argument| argument == "after", &mut start);
        collect(root, |argument| argument != "after", &mut others);
        collect_below(root, &mut others);
    });
    start.retain(|name| !others.contains(name));
    start
}

fn collect_below(field: &Field, found: &mut Vec<Name>) {
    each_field(&field.selection_set.node, &mut |inner| {
        collect(inner, |_| true, found);
        collect_below(inner, found);
    });
}

fn collect(field: &Field, is_wanted: impl Fn(&str) -> bool, found: &mut Vec<Name>) {
    let arguments = field.arguments.iter();
    for (_, value) in arguments.filter(|(argument, _)| is_wanted(&argument.node)) {
        let Ok(_) = value.node.clone().into_const_with(|name| {
            found.push(name);
            Ok::<_, Infallible>(Value::Null)
        });
    }
}
