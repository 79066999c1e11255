//! Arguments and input fields whose variable has no value.
//!
//! The specification treats them as omitted, but async-graphql reads null, which clears a setting and is no value where
//! an argument has a default. They are removed before the execution, so that no resolver meets them.

use async_graphql::parser::types::{OperationDefinition, Selection, SelectionSet};
use async_graphql::{Name, Variables};
use async_graphql_value::Value;

/// Removes the arguments and input fields of a merged operation whose variable has no value.
pub(super) fn remove_omitted(operation: &mut OperationDefinition, variables: &Variables) {
    if operation.variable_definitions.len() > variables.len() {
        let is_omitted = |name: &Name| !variables.contains_key(name);
        of_selections(&mut operation.selection_set.node, &is_omitted);
    }
}

fn of_selections(set: &mut SelectionSet, is_omitted: &impl Fn(&Name) -> bool) {
    for selection in &mut set.items {
        match &mut selection.node {
            Selection::Field(field) => {
                let field = &mut field.node;
                field
                    .arguments
                    .retain_mut(|(_, value)| is_given(&mut value.node, is_omitted));
                of_selections(&mut field.selection_set.node, is_omitted);
            }
            Selection::InlineFragment(inline) => {
                of_selections(&mut inline.node.selection_set.node, is_omitted);
            }
            Selection::FragmentSpread(_) => {}
        }
    }
}

/// Whether a value is given. Removes the omitted fields of objects within it; an omitted item of a list
/// is null, as the specification says.
fn is_given(value: &mut Value, is_omitted: &impl Fn(&Name) -> bool) -> bool {
    match value {
        Value::Variable(name) => return !is_omitted(name),
        Value::List(items) => {
            for item in items {
                if !is_given(item, is_omitted) {
                    *item = Value::Null;
                }
            }
        }
        Value::Object(fields) => fields.retain(|_, value| is_given(value, is_omitted)),
        Value::Null
        | Value::Number(_)
        | Value::String(_)
        | Value::Boolean(_)
        | Value::Binary(_)
        | Value::Enum(_) => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::types::{TypeKind, TypeSystemDefinition};
    use async_graphql::parser::{parse_query, parse_schema};
    use serde_json::json;

    use super::*;
    use crate::graphql::types_sdl;

    fn executed(text: &str, variables: serde_json::Value) -> String {
        let document = parse_query(text).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let mut operation = operation.node.clone();
        remove_omitted(&mut operation, &Variables::from_json(variables));
        let set = &operation.selection_set.node;
        let Selection::Field(field) = &set.items[0].node else {
            panic!("the operation begins with a field")
        };
        let arguments = field.node.arguments.iter();
        let written = arguments.map(|(name, value)| format!("{}: {}", name.node, value.node));
        written.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_has_no_value_is_left_out_at_any_depth() {
        let text = "mutation($a: Int, $b: Int) { f(a: $a, b: $b, c: {a: $a, b: [$a, {a: $a, b: $b}], n: null}) }";
        assert_eq!(
            executed(text, json!({"b": null})),
            "b: $b, c: {b: [null, {b: $b}], n: null}"
        );
    }

    #[test]
    fn every_optional_field_of_an_input_may_be_left_out() {
        let schema = parse_schema(types_sdl()).unwrap();
        let mut fields = 0;
        for definition in &schema.definitions {
            let TypeSystemDefinition::Type(definition) = definition else {
                continue;
            };
            let TypeKind::InputObject(input) = &definition.node.kind else {
                continue;
            };
            for field in input.fields.iter().map(|field| &field.node) {
                let (name, ty) = (&field.name.node, &field.ty.node);
                if !ty.nullable {
                    continue;
                }
                fields += 1;
                for (written, left) in [
                    (format!("input: {{{name}: $v}}"), "input: {}"),
                    (
                        format!("input: {{all: [{{{name}: $v}}]}}"),
                        "input: {all: [{}]}",
                    ),
                    (format!("{name}: $v"), ""),
                ] {
                    let text = format!("mutation($v: {ty}) {{ f({written}) }}");
                    assert_eq!(executed(&text, json!({})), left, "{text}");
                }
            }
        }
        assert!(fields > 50, "{fields}");
    }
}
