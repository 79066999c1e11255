//! Coercion of variables to the types that the operation declares, before its execution.
//!
//! async-graphql would report some wrong variables only during execution, after earlier fields of a
//! mutation were executed. Custom scalars (DateTime, UUID) check their own text during execution.

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{BaseType, OperationDefinition, Type};
use async_graphql::{Name, Number, Value, Variables};

use super::schema_types::{InputField, InputType, InputTypes, ValuePath};

/// Integers up to this one have exact floating-point values.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

impl InputTypes {
    /// Values of the declared variables, from the request or the defaults. Drops undeclared
    /// variables. The error is a sentence for the client.
    pub(super) fn coerce(
        &self,
        operation: &OperationDefinition,
        mut request: Variables,
    ) -> Result<Variables, String> {
        let mut accepted = Variables::default();
        for definition in &operation.variable_definitions {
            let (name, ty) = (&definition.node.name.node, &definition.node.var_type.node);
            let value = match (request.remove(name), &definition.node.default_value) {
                (Some(mut value), _) => {
                    self.value(ty, &mut value, ValuePath::Variable(name))?;
                    value
                }
                (None, Some(default)) => default.node.clone(),
                (None, None) if ty.nullable => continue,
                (None, None) => return Err(ValuePath::Variable(name).is_missing(ty)),
            };
            accepted.insert(name.clone(), value);
        }
        Ok(accepted)
    }

    fn value(&self, ty: &Type, value: &mut Value, path: ValuePath<'_>) -> Result<(), String> {
        match (value, &ty.base) {
            (Value::Null, _) if ty.nullable => Ok(()),
            (Value::Null, _) => Err(path.is_null(ty)),
            (Value::List(values), BaseType::List(of)) => {
                let mut values = values.iter_mut().enumerate();
                values.try_for_each(|(index, value)| {
                    self.value(of, value, ValuePath::Item(&path, index))
                })
            }
            // A single value coerces to a list of one.
            (one, BaseType::List(of)) => self.value(of, one, path),
            (value, BaseType::Named(name)) => self.named(name, value, path),
        }
    }

    fn named(&self, name: &Name, value: &mut Value, path: ValuePath<'_>) -> Result<(), String> {
        let is_of_its_kind = match (self.get(name), &*value) {
            (Some(InputType::Int), Value::Number(number)) => integer(number)
                .filter(|integer| i32::try_from(*integer).is_ok())
                .map(|integer| *value = integer.into())
                .is_some(),
            (Some(InputType::Id), Value::Number(number)) => {
                integer(number).map(|integer| *value = integer.into()).is_some()
            }
            (Some(InputType::Enum(names)), Value::String(text)) => {
                if names.iter().any(|known| known == text) {
                    return Ok(());
                }
                return Err(path.is_none_of(names));
            }
            (Some(InputType::Enum(names)), _) => return Err(path.is_none_of(names)),
            (Some(InputType::Object(fields)), Value::Object(_)) => {
                let Value::Object(values) = value else { return Ok(()) };
                return self.object(name, fields, values, path);
            }
            (Some(InputType::Float), Value::Number(_))
            | (Some(InputType::String | InputType::Id), Value::String(_))
            | (Some(InputType::Boolean), Value::Boolean(_))
            // Validation has refused an unknown type.
            | (Some(InputType::Custom) | None, _) => true,
            (Some(_), _) => false,
        };
        if is_of_its_kind {
            Ok(())
        } else {
            Err(path.has_other_type(name))
        }
    }

    fn object(
        &self,
        name: &Name,
        fields: &[InputField],
        values: &mut IndexMap<Name, Value>,
        path: ValuePath<'_>,
    ) -> Result<(), String> {
        for field in fields {
            let path = ValuePath::Field(&path, &field.name);
            match values.get_mut(&field.name) {
                Some(value) => self.value(&field.ty, value, path)?,
                None if field.is_required() => return Err(path.is_missing(&field.ty)),
                None => {}
            }
        }
        let is_unknown = |key: &&Name| fields.iter().all(|field| field.name != **key);
        match values.keys().find(is_unknown) {
            Some(unknown) => Err(path.has_unknown_field(unknown, name)),
            None => Ok(()),
        }
    }
}

/// The integer that a JSON number is, also if it is written with a fraction, as `20.0`.
fn integer(number: &Number) -> Option<i64> {
    let whole = |number: f64| {
        let is_exact = number.fract() == 0.0 && number.abs() < EXACT_INTEGER_MAX;
        is_exact.then_some(number as i64)
    };
    let is_float = number.is_f64();
    number
        .as_i64()
        .or_else(|| number.as_f64().filter(|_| is_float).and_then(whole))
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
    fn a_number_without_a_fraction_is_an_integer_however_it_is_written() {
        let coerced = coerce(
            "$a: Int, $b: [Int], $c: ID, $d: Float",
            json!({ "a": 20.0, "b": [1e3, -0.0], "c": 7.0, "d": 2.0 }),
        );
        let integers = json!({ "a": 20, "b": [1000, 0], "c": 7, "d": 2.0 });
        assert_eq!(coerced.unwrap(), Variables::from_json(integers));
        for (declared, value) in [("$a: Int", json!(2147483648.0)), ("$a: ID", json!(1e17))] {
            assert!(coerce(declared, json!({ "a": value })).is_err(), "{value}");
        }
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
