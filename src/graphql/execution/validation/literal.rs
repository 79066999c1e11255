//! Literals of arguments and defaults against the input types, and the variables inside them.

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{BaseType, Type};
use async_graphql::{Name, Pos};
use async_graphql_value::Value;

use crate::graphql::execution::schema_types::{InputField, InputType, InputTypes, ValuePath};

/// Use of a variable.
pub(super) struct VariableUsage<'a> {
    pub(super) name: &'a Name,
    pub(super) position: Pos,
    /// Expected type, and whether the position has a default of its own. `None` inside a custom
    /// scalar, which accepts any type.
    pub(super) expected: Option<(&'a Type, bool)>,
}

/// Check of one literal.
pub(super) struct LiteralCheck<'a, 'f> {
    pub(super) inputs: &'a InputTypes,
    pub(super) position: Pos,
    pub(super) usages: &'f mut Vec<VariableUsage<'a>>,
}

impl<'a> LiteralCheck<'a, '_> {
    pub(super) fn value(
        &mut self,
        ty: &'a Type,
        has_default: bool,
        value: &'a Value,
        path: ValuePath<'_>,
    ) -> Result<(), String> {
        match (value, &ty.base) {
            (Value::Variable(name), _) => {
                self.variable(name, Some((ty, has_default)));
                Ok(())
            }
            (Value::Null, _) if ty.nullable => Ok(()),
            (Value::Null, _) => Err(path.is_null(ty)),
            (Value::List(values), BaseType::List(of)) => {
                let mut values = values.iter().enumerate();
                values.try_for_each(|(index, value)| {
                    self.value(of, false, value, ValuePath::Item(&path, index))
                })
            }
            // A single value coerces to a list of one.
            (one, BaseType::List(of)) => self.value(of, false, one, path),
            (value, BaseType::Named(name)) => self.named(name, value, path),
        }
    }

    fn named(
        &mut self,
        name: &'a Name,
        value: &'a Value,
        path: ValuePath<'_>,
    ) -> Result<(), String> {
        let is_of_its_kind = match (self.inputs.get(name), value) {
            (Some(InputType::Enum(names)), Value::Enum(value)) if names.contains(value) => true,
            (Some(InputType::Enum(names)), _) => return Err(path.is_none_of(names)),
            (Some(InputType::Object(fields)), Value::Object(values)) => {
                return self.object(name, fields, values, path);
            }
            (Some(InputType::Custom), value) => {
                self.any(value);
                true
            }
            (Some(InputType::Int), Value::Number(number)) => number
                .as_i64()
                .is_some_and(|number| i32::try_from(number).is_ok()),
            (Some(InputType::Id), Value::Number(number)) => number.is_i64(),
            (Some(InputType::Float), Value::Number(_))
            | (Some(InputType::String | InputType::Id), Value::String(_))
            | (Some(InputType::Boolean), Value::Boolean(_)) => true,
            (_, _) => false,
        };
        if is_of_its_kind {
            Ok(())
        } else {
            Err(path.has_other_type(name))
        }
    }

    fn object(
        &mut self,
        name: &Name,
        fields: &'a [InputField],
        values: &'a IndexMap<Name, Value>,
        path: ValuePath<'_>,
    ) -> Result<(), String> {
        for field in fields {
            let path = ValuePath::Field(&path, &field.name);
            match values.get(&field.name) {
                Some(value) => self.value(&field.ty, field.has_default, value, path)?,
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

    fn any(&mut self, value: &'a Value) {
        match value {
            Value::Variable(name) => self.variable(name, None),
            Value::List(values) => values.iter().for_each(|value| self.any(value)),
            Value::Object(values) => values.values().for_each(|value| self.any(value)),
            Value::Null
            | Value::Number(_)
            | Value::String(_)
            | Value::Boolean(_)
            | Value::Binary(_)
            | Value::Enum(_) => {}
        }
    }

    fn variable(&mut self, name: &'a Name, expected: Option<(&'a Type, bool)>) {
        self.usages.push(VariableUsage {
            name,
            position: self.position,
            expected,
        });
    }
}

/// Whether a variable of a type fits a position of another one, apart from null at the top.
pub(super) fn fits(variable: &Type, expected: &Type) -> bool {
    match (&variable.base, &expected.base) {
        (BaseType::Named(one), BaseType::Named(other)) => one == other,
        (BaseType::List(one), BaseType::List(other)) => {
            (other.nullable || !one.nullable) && fits(one, other)
        }
        (BaseType::Named(_), BaseType::List(_)) | (BaseType::List(_), BaseType::Named(_)) => false,
    }
}
