//! Coercion of variables to the types that the operation declares, before its execution.
//!
//! async-graphql does it as part of each validation, and skips literals around a variable. Here the
//! literals are checked once for each document (`literal`), and the variables with each request.
//! Custom scalars (DateTime, UUID) check their own text during execution.

use std::collections::HashMap;
use std::fmt;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{
    BaseType, InputValueDefinition, OperationDefinition, Type, TypeDefinition, TypeKind,
};
use async_graphql::{Name, Value, Variables};

/// Maximum number of characters of a client's text in an error message.
const NAME_CHARS_MAX: usize = 64;

/// Input types of a schema, by name.
#[derive(Debug)]
pub(in crate::graphql) struct InputTypes(HashMap<Name, InputType>);

#[derive(Debug)]
enum InputType {
    Scalar,
    Enum(Vec<Name>),
    Object(Vec<InputField>),
}

/// Field of an input object, or argument of a field.
#[derive(Debug)]
pub(in crate::graphql) struct InputField {
    pub(in crate::graphql) name: Name,
    pub(in crate::graphql) ty: Type,
    has_default: bool,
}

impl InputTypes {
    /// Input types among the types of a schema.
    pub(in crate::graphql) fn of<'a>(types: impl IntoIterator<Item = &'a TypeDefinition>) -> Self {
        let inputs = types.into_iter().filter_map(|definition| {
            let input = match &definition.kind {
                TypeKind::Scalar => InputType::Scalar,
                TypeKind::Enum(one) => InputType::Enum(
                    one.values
                        .iter()
                        .map(|value| value.node.value.node.clone())
                        .collect(),
                ),
                TypeKind::InputObject(object) => InputType::Object(
                    object
                        .fields
                        .iter()
                        .map(|field| InputField::of(&field.node))
                        .collect(),
                ),
                TypeKind::Object(_) | TypeKind::Interface(_) | TypeKind::Union(_) => return None,
            };
            Some((definition.name.node.clone(), input))
        });
        let built_in = ["Int", "Float", "String", "Boolean", "ID"]
            .map(|name| (Name::new(name), InputType::Scalar));
        Self(inputs.chain(built_in).collect())
    }

    /// Values of the declared variables, from the request or the defaults. Drops undeclared
    /// variables. The error is a sentence for the client.
    pub(in crate::graphql) fn coerce(
        &self,
        operation: &OperationDefinition,
        mut request: Variables,
    ) -> Result<Variables, String> {
        let mut accepted = Variables::default();
        for definition in &operation.variable_definitions {
            let (name, ty) = (&definition.node.name.node, &definition.node.var_type.node);
            let value = match (request.remove(name), &definition.node.default_value) {
                (Some(value), _) => {
                    self.value(ty, &value, ValuePath::Variable(name))?;
                    value
                }
                (None, Some(default)) => default.node.clone(),
                (None, None) if ty.nullable => continue,
                (None, None) => return Err(ValuePath::Variable(name).missing(ty)),
            };
            accepted.insert(name.clone(), value);
        }
        Ok(accepted)
    }

    pub(in crate::graphql) fn has(&self, ty: &Type) -> bool {
        match &ty.base {
            BaseType::Named(name) => self.0.contains_key(name),
            BaseType::List(of) => self.has(of),
        }
    }

    pub(in crate::graphql) fn value(
        &self,
        ty: &Type,
        value: &Value,
        path: ValuePath<'_>,
    ) -> Result<(), String> {
        match (value, &ty.base) {
            // Placeholder of a variable in a literal. JSON has no binary values.
            (Value::Binary(_), _) => Ok(()),
            (Value::Null, _) if ty.nullable => Ok(()),
            (Value::Null, _) => {
                Err(path.error(format_args!("must not be null; it is of the type `{ty}`")))
            }
            (Value::List(values), BaseType::List(of)) => {
                values.iter().enumerate().try_for_each(|(index, value)| {
                    self.value(of, value, ValuePath::Item(&path, index))
                })
            }
            // A single value coerces to a list of one.
            (one, BaseType::List(of)) => self.value(of, one, path),
            (value, BaseType::Named(name)) => self.named(name, value, path),
        }
    }

    fn named(&self, name: &Name, value: &Value, path: ValuePath<'_>) -> Result<(), String> {
        let is_of_its_kind = match (name.as_str(), self.0.get(name)) {
            ("Int", _) => {
                matches!(value, Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()))
            }
            ("Float", _) => matches!(value, Value::Number(_)),
            ("String", _) => matches!(value, Value::String(_)),
            ("Boolean", _) => matches!(value, Value::Boolean(_)),
            ("ID", _) => {
                matches!(value, Value::String(_))
                    || matches!(value, Value::Number(number) if number.is_i64())
            }
            (_, Some(InputType::Enum(names))) => return one_of(names, value, path),
            (_, Some(InputType::Object(fields))) => {
                if let Value::Object(values) = value {
                    return self.object(name, fields, values, path);
                }
                false
            }
            // Custom scalars accept any JSON. A document with an unknown type was refused before.
            (_, Some(InputType::Scalar) | None) => true,
        };
        if is_of_its_kind {
            Ok(())
        } else {
            Err(path.error(format_args!("must be of the type `{name}`")))
        }
    }

    fn object(
        &self,
        name: &Name,
        fields: &[InputField],
        values: &IndexMap<Name, Value>,
        path: ValuePath<'_>,
    ) -> Result<(), String> {
        for field in fields {
            let path = ValuePath::Field(&path, &field.name);
            match values.get(&field.name) {
                Some(value) => self.value(&field.ty, value, path)?,
                None if field.ty.nullable || field.has_default => {}
                None => return Err(path.missing(&field.ty)),
            }
        }
        let unknown = values
            .keys()
            .find(|key| fields.iter().all(|field| field.name != **key));
        unknown.map_or(Ok(()), |unknown| {
            let unknown: String = unknown.chars().take(NAME_CHARS_MAX).collect();
            Err(path.error(format_args!(
                "has a field `{unknown}` that `{name}` does not have"
            )))
        })
    }
}

impl InputField {
    pub(in crate::graphql) fn of(definition: &InputValueDefinition) -> Self {
        let (name, ty) = (definition.name.node.clone(), definition.ty.node.clone());
        Self {
            name,
            ty,
            has_default: definition.default_value.is_some(),
        }
    }
}

fn one_of(names: &[Name], value: &Value, path: ValuePath<'_>) -> Result<(), String> {
    // Variables are JSON, in which an enum value is a string.
    let is_one = matches!(value, Value::String(name) if names.iter().any(|known| known == name));
    if is_one || matches!(value, Value::Enum(name) if names.contains(name)) {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(Name::as_str).collect();
    Err(path.error(format_args!("must be one of {}", names.join(", "))))
}

/// Path of a value in the variables or the arguments.
#[derive(Clone, Copy)]
pub(in crate::graphql) enum ValuePath<'a> {
    Variable(&'a Name),
    Argument(&'a Name),
    Field(&'a Self, &'a Name),
    Item(&'a Self, usize),
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "variable `${name}"),
            Self::Argument(name) => write!(f, "argument `{name}"),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

impl ValuePath<'_> {
    fn error(self, problem: fmt::Arguments<'_>) -> String {
        format!("The {self}` {problem}.")
    }

    fn missing(self, ty: &Type) -> String {
        self.error(format_args!("is missing; it is of the type `{ty}`"))
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::types::TypeSystemDefinition;
    use async_graphql::parser::{parse_query, parse_schema};
    use serde_json::{Value as Json, json};

    use super::*;

    const SDL: &str = "scalar Any enum Role { OWNER MEMBER } input Part { url: String!, size: Int = 3 } \
                       input Draft { id: ID!, body: String! = \"\", parts: [Part!], any: Any, role: Role, draft: Draft }";

    fn coerce(declared: &str, variables: Json) -> Result<Variables, String> {
        let document = parse_query(format!("query ({declared}) {{ a }}")).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let schema = parse_schema(SDL).unwrap();
        let types = schema
            .definitions
            .iter()
            .map(|definition| match definition {
                TypeSystemDefinition::Type(definition) => &definition.node,
                TypeSystemDefinition::Schema(_) | TypeSystemDefinition::Directive(_) => {
                    panic!("it has types alone")
                }
            });
        InputTypes::of(types).coerce(&operation.node, Variables::from_json(variables))
    }

    #[test]
    fn valid_variables_are_accepted() {
        for (declared, variables) in [
            ("$a: Int!, $c: Int", json!({ "a": 1, "c": null })),
            ("$a: [[Int!]!]!", json!({ "a": [[1, 2], 3] })),
            ("$a: [Int]", json!({ "a": 3 })),
            ("$a: [Int]", json!({ "a": [null] })),
            ("$a: Float, $b: Boolean", json!({ "a": 1, "b": true })),
            ("$a: ID, $b: ID", json!({ "a": 1, "b": "1" })),
            ("$a: Any", json!({ "a": { "x": [1, { "y": null }] } })),
            (
                "$a: Draft",
                json!({ "a": { "id": "1", "parts": [{ "url": "u" }], "role": "OWNER", "draft": { "id": 2 } } }),
            ),
        ] {
            assert_eq!(
                coerce(declared, variables.clone()).unwrap(),
                Variables::from_json(variables),
                "{declared}"
            );
        }
    }

    #[test]
    fn defaults_are_filled_in_and_undeclared_variables_are_dropped() {
        let accepted = coerce(
            "$a: Int = 7, $b: Int = 7, $c: Int",
            json!({ "b": 1, "unknown": [0, 0] }),
        )
        .unwrap();
        assert_eq!(accepted, Variables::from_json(json!({ "a": 7, "b": 1 })));
    }

    #[test]
    fn an_invalid_variable_is_named_by_its_path() {
        for (declared, variables, said) in [
            (
                "$a: Int!",
                json!({}),
                "The variable `$a` is missing; it is of the type `Int!`.",
            ),
            (
                "$a: Int!",
                json!({ "a": null }),
                "The variable `$a` must not be null; it is of the type `Int!`.",
            ),
            (
                "$b: Int! = 1",
                json!({ "b": null }),
                "The variable `$b` must not be null; it is of the type `Int!`.",
            ),
            (
                "$a: [Int!]",
                json!({ "a": [1, null] }),
                "The variable `$a[1]` must not be null; it is of the type `Int!`.",
            ),
            (
                "$a: Int",
                json!({ "a": 2_147_483_648_u64 }),
                "The variable `$a` must be of the type `Int`.",
            ),
            (
                "$a: Int",
                json!({ "a": 1.5 }),
                "The variable `$a` must be of the type `Int`.",
            ),
            (
                "$a: Int",
                json!({ "a": [1] }),
                "The variable `$a` must be of the type `Int`.",
            ),
            (
                "$a: String",
                json!({ "a": 1 }),
                "The variable `$a` must be of the type `String`.",
            ),
            (
                "$a: Boolean",
                json!({ "a": "true" }),
                "The variable `$a` must be of the type `Boolean`.",
            ),
            (
                "$a: ID",
                json!({ "a": 1.5 }),
                "The variable `$a` must be of the type `ID`.",
            ),
            (
                "$a: Role",
                json!({ "a": "KING" }),
                "The variable `$a` must be one of OWNER, MEMBER.",
            ),
            (
                "$a: Draft",
                json!({ "a": "text" }),
                "The variable `$a` must be of the type `Draft`.",
            ),
            (
                "$a: Draft",
                json!({ "a": {} }),
                "The variable `$a.id` is missing; it is of the type `ID!`.",
            ),
            (
                "$a: Draft",
                json!({ "a": { "id": "1", "parts": [{ "url": "u" }, { "url": "u", "size": "big" }] } }),
                "The variable `$a.parts[1].size` must be of the type `Int`.",
            ),
            (
                "$a: Draft",
                json!({ "a": { "id": "1", "draft": { "id": 2, "text": "hi" } } }),
                "The variable `$a.draft` has a field `text` that `Draft` does not have.",
            ),
        ] {
            assert_eq!(coerce(declared, variables).unwrap_err(), said);
        }
    }
}
