//! Input types of the schema, by name, and paths of input values.

use std::collections::HashMap;
use std::fmt;

use async_graphql::Name;
use async_graphql::parser::types::{
    BaseType, InputValueDefinition, Type, TypeDefinition, TypeKind,
};

/// Maximum number of characters of a client's text in an error message.
const NAME_CHARS_MAX: usize = 64;

#[derive(Debug)]
pub(in crate::graphql) struct InputTypes(HashMap<Name, InputType>);

#[derive(Debug)]
pub(in crate::graphql::execution) enum InputType {
    Int,
    Float,
    String,
    Boolean,
    Id,
    /// Custom scalars accept any value. They check it during execution.
    Custom,
    Enum(Vec<Name>),
    Object(Vec<InputField>),
}

/// Field of an input object, or argument of a field.
#[derive(Debug)]
pub(in crate::graphql) struct InputField {
    pub(in crate::graphql::execution) name: Name,
    pub(in crate::graphql::execution) ty: Type,
    pub(in crate::graphql::execution) has_default: bool,
}

impl InputTypes {
    /// Input types among the types of a schema.
    pub(in crate::graphql) fn of<'a>(types: impl IntoIterator<Item = &'a TypeDefinition>) -> Self {
        let inputs = types.into_iter().filter_map(|definition| {
            let input = match &definition.kind {
                TypeKind::Scalar => InputType::Custom,
                TypeKind::Enum(one) => {
                    let values = one.values.iter();
                    InputType::Enum(values.map(|value| value.node.value.node.clone()).collect())
                }
                TypeKind::InputObject(object) => {
                    let fields = object.fields.iter();
                    InputType::Object(fields.map(|field| InputField::of(&field.node)).collect())
                }
                TypeKind::Object(_) | TypeKind::Interface(_) | TypeKind::Union(_) => return None,
            };
            Some((definition.name.node.clone(), input))
        });
        let built_in = [
            ("Int", InputType::Int),
            ("Float", InputType::Float),
            ("String", InputType::String),
            ("Boolean", InputType::Boolean),
            ("ID", InputType::Id),
        ]
        .map(|(name, input)| (Name::new(name), input));
        Self(inputs.chain(built_in).collect())
    }

    pub(in crate::graphql::execution) fn get(&self, name: &Name) -> Option<&InputType> {
        self.0.get(name)
    }

    pub(in crate::graphql::execution) fn has(&self, ty: &Type) -> bool {
        match &ty.base {
            BaseType::Named(name) => self.0.contains_key(name),
            BaseType::List(of) => self.has(of),
        }
    }
}

impl InputField {
    pub(in crate::graphql::execution) fn of(definition: &InputValueDefinition) -> Self {
        Self {
            name: definition.name.node.clone(),
            ty: definition.ty.node.clone(),
            has_default: definition.default_value.is_some(),
        }
    }

    pub(in crate::graphql::execution) fn required(name: &str, ty: &str) -> Self {
        Self {
            name: Name::new(name),
            ty: Type::new(ty).expect("it is a type"),
            has_default: false,
        }
    }

    pub(in crate::graphql::execution) fn is_required(&self) -> bool {
        !self.ty.nullable && !self.has_default
    }
}

/// Path of a value in the variables or the arguments.
#[derive(Clone, Copy)]
pub(in crate::graphql::execution) enum ValuePath<'a> {
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
    pub(in crate::graphql::execution) fn is_null(self, ty: &Type) -> String {
        format!("The {self}` must not be null; it is of the type `{ty}`.")
    }

    pub(in crate::graphql::execution) fn is_missing(self, ty: &Type) -> String {
        format!("The {self}` is missing; it is of the type `{ty}`.")
    }

    pub(in crate::graphql::execution) fn has_other_type(self, name: &Name) -> String {
        format!("The {self}` must be of the type `{name}`.")
    }

    pub(in crate::graphql::execution) fn is_none_of(self, names: &[Name]) -> String {
        let names: Vec<_> = names.iter().map(Name::as_str).collect();
        format!("The {self}` must be one of {}.", names.join(", "))
    }

    pub(in crate::graphql::execution) fn has_unknown_field(
        self,
        field: &Name,
        of: &Name,
    ) -> String {
        let field: String = field.chars().take(NAME_CHARS_MAX).collect();
        format!("The {self}` has a field `{field}` that `{of}` does not have.")
    }
}
