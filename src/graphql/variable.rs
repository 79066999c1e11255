//! Variables, held against the types that an operation declares for them, before anything is executed.
//!
//! The library does this as a part of validating the document, each time. The document stays as it is, so that part is done once, and this
//! part with each request. What a scalar of the contract may be (a DateTime, a UUID) is said by that scalar while it is read.

use std::collections::HashMap;
use std::fmt;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{BaseType, InputValueDefinition, OperationDefinition, Type, TypeKind, TypeSystemDefinition};
use async_graphql::{Name, Value, Variables};

/// A name that a client made up is cut to so many characters.
const NAME_CHARS_MAX: usize = 64;

/// The types that a variable may have.
#[derive(Debug)]
pub(super) struct Inputs(HashMap<Name, Input>);

#[derive(Debug)]
enum Input {
    Scalar,
    Enum(Vec<Name>),
    Object(Vec<Field>),
}

#[derive(Debug)]
struct Field {
    name: Name,
    ty: Type,
    has_default: bool,
}

impl Inputs {
    /// Those of a schema in its text form.
    pub(super) fn of(sdl: &str) -> Self {
        let schema = parse_schema(sdl).map(|schema| schema.definitions).unwrap_or_default();
        let inputs = schema.into_iter().filter_map(|definition| {
            let TypeSystemDefinition::Type(definition) = definition else { return None };
            let input = match definition.node.kind {
                TypeKind::Scalar => Input::Scalar,
                TypeKind::Enum(one) => Input::Enum(one.values.into_iter().map(|value| value.node.value.node).collect()),
                TypeKind::InputObject(object) => Input::Object(object.fields.into_iter().map(|field| Field::from(field.node)).collect()),
                TypeKind::Object(_) | TypeKind::Interface(_) | TypeKind::Union(_) => return None,
            };
            Some((definition.node.name.node, input))
        });
        Self(inputs.collect())
    }

    /// Why these variables are none of this operation's, in a sentence.
    pub(super) fn check(&self, operation: &OperationDefinition, variables: &Variables) -> Result<(), String> {
        for definition in &operation.variable_definitions {
            let (name, ty) = (&definition.node.name.node, &definition.node.var_type.node);
            match variables.get(name) {
                Some(value) => self.value(ty, value, Place::Variable(name))?,
                None if ty.nullable || definition.node.default_value.is_some() => {}
                None => return Err(Place::Variable(name).missing(ty)),
            }
        }
        Ok(())
    }

    fn value(&self, ty: &Type, value: &Value, place: Place<'_>) -> Result<(), String> {
        match (value, &ty.base) {
            (Value::Null, _) if ty.nullable => Ok(()),
            (Value::Null, _) => Err(place.said(format_args!("must not be null; it is of the type `{ty}`"))),
            (Value::List(values), BaseType::List(of)) => {
                values.iter().enumerate().try_for_each(|(index, value)| self.value(of, value, Place::Item(&place, index)))
            }
            // One stands for a list of one.
            (one, BaseType::List(of)) => self.value(of, one, place),
            (value, BaseType::Named(name)) => self.named(name, value, place),
        }
    }

    fn named(&self, name: &Name, value: &Value, place: Place<'_>) -> Result<(), String> {
        let is_of_its_kind = match (name.as_str(), self.0.get(name)) {
            ("Int", _) => matches!(value, Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())),
            ("Float", _) => matches!(value, Value::Number(_)),
            ("String", _) => matches!(value, Value::String(_)),
            ("Boolean", _) => matches!(value, Value::Boolean(_)),
            ("ID", _) => matches!(value, Value::String(_)) || matches!(value, Value::Number(number) if number.is_i64()),
            (_, Some(Input::Enum(names))) => return one_of(names, value, place),
            (_, Some(Input::Object(fields))) => {
                if let Value::Object(values) = value {
                    return self.object(name, fields, values, place);
                }
                false
            }
            // A type that is none is for validation to name.
            (_, Some(Input::Scalar) | None) => true,
        };
        if is_of_its_kind { Ok(()) } else { Err(place.said(format_args!("must be of the type `{name}`"))) }
    }

    fn object(&self, name: &Name, fields: &[Field], values: &IndexMap<Name, Value>, place: Place<'_>) -> Result<(), String> {
        for field in fields {
            let place = Place::Field(&place, &field.name);
            match values.get(&field.name) {
                Some(value) => self.value(&field.ty, value, place)?,
                None if field.ty.nullable || field.has_default => {}
                None => return Err(place.missing(&field.ty)),
            }
        }
        let unknown = values.keys().find(|key| fields.iter().all(|field| field.name != **key));
        unknown.map_or(Ok(()), |unknown| {
            let unknown: String = unknown.chars().take(NAME_CHARS_MAX).collect();
            Err(place.said(format_args!("has a field `{unknown}` that `{name}` does not have")))
        })
    }
}

impl From<InputValueDefinition> for Field {
    fn from(definition: InputValueDefinition) -> Self {
        Self { name: definition.name.node, ty: definition.ty.node, has_default: definition.default_value.is_some() }
    }
}

fn one_of(names: &[Name], value: &Value, place: Place<'_>) -> Result<(), String> {
    // JSON has no enum values, only text.
    if matches!(value, Value::String(name) if names.iter().any(|known| known == name)) {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(Name::as_str).collect();
    Err(place.said(format_args!("must be one of {}", names.join(", "))))
}

/// Where in the variables one is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Variable(&'a Name),
    Field(&'a Self, &'a Name),
    Item(&'a Self, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "${name}"),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

impl Place<'_> {
    fn said(self, what: fmt::Arguments<'_>) -> String {
        format!("The variable `{self}` {what}.")
    }

    fn missing(self, ty: &Type) -> String {
        self.said(format_args!("is missing; it is of the type `{ty}`"))
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;
    use serde_json::{Value as Json, json};

    use super::*;

    const SDL: &str = "scalar Any enum Role { OWNER MEMBER } input Part { url: String!, size: Int = 3 } \
                       input Draft { id: ID!, body: String! = \"\", parts: [Part!], any: Any, role: Role, draft: Draft }";

    fn check(declared: &str, variables: Json) -> Result<(), String> {
        let document = parse_query(format!("query ({declared}) {{ a }}")).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        Inputs::of(SDL).check(&operation.node, &Variables::from_json(variables))
    }

    #[test]
    fn what_is_declared_is_let_through() {
        for (declared, variables) in [
            ("$a: Int!, $b: Int! = 1, $c: Int", json!({ "a": 1, "c": null, "unknown": [] })),
            ("$a: [[Int!]!]!", json!({ "a": [[1, 2], 3] })),
            ("$a: [Int]", json!({ "a": 3 })),
            ("$a: [Int]", json!({ "a": [null] })),
            ("$a: Float, $b: Boolean", json!({ "a": 1, "b": true })),
            ("$a: ID, $b: ID", json!({ "a": 1, "b": "1" })),
            ("$a: Any", json!({ "a": { "x": [1, { "y": null }] } })),
            ("$a: Nowhere", json!({ "a": 1 })),
            ("$a: Draft", json!({ "a": { "id": "1", "parts": [{ "url": "u" }], "role": "OWNER", "draft": { "id": 2 } } })),
        ] {
            assert_eq!(check(declared, variables.clone()), Ok(()), "{declared} {variables}");
        }
    }

    #[test]
    fn what_is_not_is_named_by_its_place() {
        for (declared, variables, said) in [
            ("$a: Int!", json!({}), "The variable `$a` is missing; it is of the type `Int!`."),
            ("$a: Int!", json!({ "a": null }), "The variable `$a` must not be null; it is of the type `Int!`."),
            ("$b: Int! = 1", json!({ "b": null }), "The variable `$b` must not be null; it is of the type `Int!`."),
            ("$a: [Int!]", json!({ "a": [1, null] }), "The variable `$a[1]` must not be null; it is of the type `Int!`."),
            ("$a: Int", json!({ "a": 2_147_483_648_u64 }), "The variable `$a` must be of the type `Int`."),
            ("$a: Int", json!({ "a": 1.5 }), "The variable `$a` must be of the type `Int`."),
            ("$a: Int", json!({ "a": [1] }), "The variable `$a` must be of the type `Int`."),
            ("$a: String", json!({ "a": 1 }), "The variable `$a` must be of the type `String`."),
            ("$a: Boolean", json!({ "a": "true" }), "The variable `$a` must be of the type `Boolean`."),
            ("$a: ID", json!({ "a": 1.5 }), "The variable `$a` must be of the type `ID`."),
            ("$a: Role", json!({ "a": "KING" }), "The variable `$a` must be one of OWNER, MEMBER."),
            ("$a: Draft", json!({ "a": "text" }), "The variable `$a` must be of the type `Draft`."),
            ("$a: Draft", json!({ "a": {} }), "The variable `$a.id` is missing; it is of the type `ID!`."),
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
            assert_eq!(check(declared, variables).unwrap_err(), said);
        }
    }
}
