//! Types of the schema, by name: the basis of validation.

mod input_types;
mod introspection;

use std::collections::{HashMap, HashSet};

use async_graphql::Name;
use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, OperationType, Type, TypeDefinition, TypeKind, TypeSystemDefinition,
};

pub(super) use self::input_types::{InputField, InputType, InputTypes, ValuePath};
pub(super) use self::introspection::IntrospectionSizes;

/// Types of introspection as async-graphql answers them. The text of a schema leaves them out.
const INTROSPECTION_TYPES: &str = include_str!("introspection.graphql");

#[derive(Debug)]
pub struct SchemaTypes {
    pub(in crate::graphql) inputs: InputTypes,
    pub(in crate::graphql) introspection: IntrospectionSizes,
    /// Objects, interfaces and unions.
    pub(super) composites: HashMap<Name, CompositeType>,
    roots: HashMap<&'static str, Name>,
    typename: OutputField,
    /// Argument of `@skip` and `@include`.
    pub(super) condition: InputField,
}

#[derive(Debug)]
pub(super) struct CompositeType {
    fields: HashMap<Name, OutputField>,
    /// Object types of its values: itself, or those that implement or form it.
    pub(super) objects: HashSet<Name>,
    pub(super) is_object: bool,
}

#[derive(Debug)]
pub(super) struct OutputField {
    pub(super) arguments: Vec<InputField>,
    pub(super) ty: Type,
}

impl SchemaTypes {
    /// Types of the schema with this text.
    pub fn of(sdl: &str) -> Self {
        let definitions = [sdl, INTROSPECTION_TYPES].map(|text| {
            let document = parse_schema(text).expect("the schema's own text is well-formed");
            document.definitions
        });
        let introspection = IntrospectionSizes::of(&definitions[0]);
        let mut roots = HashMap::new();
        let mut types: Vec<&TypeDefinition> = Vec::new();
        for definition in definitions.iter().flatten() {
            match definition {
                TypeSystemDefinition::Type(definition) => types.push(&definition.node),
                TypeSystemDefinition::Schema(schema) => {
                    let schema = &schema.node;
                    for (key, name) in [
                        ("query", &schema.query),
                        ("mutation", &schema.mutation),
                        ("subscription", &schema.subscription),
                    ] {
                        roots.extend(name.iter().map(|name| (key, name.node.clone())));
                    }
                }
                TypeSystemDefinition::Directive(_) => {}
            }
        }
        let mut composites: HashMap<_, _> = types
            .iter()
            .filter_map(|definition| composite(definition))
            .collect();
        implement(&types, &mut composites);
        let query = roots.get("query").and_then(|name| composites.get_mut(name));
        if let Some(query) = query {
            query.fields.extend(introspection_roots());
        }
        Self {
            inputs: InputTypes::of(types.iter().copied()),
            introspection,
            composites,
            roots,
            typename: OutputField::plain("String!"),
            condition: InputField::required("if", "Boolean!"),
        }
    }

    /// Root type of an operation.
    pub(super) fn root(&self, operation: OperationType) -> Option<&Name> {
        self.roots.get(match operation {
            OperationType::Query => "query",
            OperationType::Mutation => "mutation",
            OperationType::Subscription => "subscription",
        })
    }

    pub(super) fn field(&self, parent: &Name, name: &Name) -> Option<&OutputField> {
        if name == "__typename" {
            return Some(&self.typename);
        }
        self.composites.get(parent)?.fields.get(name)
    }
}

/// Adds the objects of each interface.
fn implement(types: &[&TypeDefinition], composites: &mut HashMap<Name, CompositeType>) {
    for definition in types {
        if let TypeKind::Object(object) = &definition.kind {
            for interface in &object.implements {
                if let Some(interface) = composites.get_mut(&interface.node) {
                    interface.objects.insert(definition.name.node.clone());
                }
            }
        }
    }
}

fn composite(definition: &TypeDefinition) -> Option<(Name, CompositeType)> {
    let name = definition.name.node.clone();
    let (fields, objects): (&[_], _) = match &definition.kind {
        TypeKind::Object(object) => (&object.fields, HashSet::from([name.clone()])),
        TypeKind::Interface(interface) => (&interface.fields, HashSet::new()),
        TypeKind::Union(union) => {
            let members = union.members.iter().map(|member| member.node.clone());
            (&[], members.collect())
        }
        TypeKind::Scalar | TypeKind::Enum(_) | TypeKind::InputObject(_) => return None,
    };
    let fields = fields
        .iter()
        .map(|field| (field.node.name.node.clone(), OutputField::of(&field.node)));
    let composite = CompositeType {
        fields: fields.collect(),
        objects,
        is_object: matches!(definition.kind, TypeKind::Object(_)),
    };
    Some((name, composite))
}

/// Fields that every query root has.
fn introspection_roots() -> [(Name, OutputField); 2] {
    let name = InputField::required("name", "String!");
    let ty = OutputField {
        arguments: vec![name],
        ..OutputField::plain("__Type")
    };
    [
        (Name::new("__schema"), OutputField::plain("__Schema!")),
        (Name::new("__type"), ty),
    ]
}

impl OutputField {
    fn of(definition: &FieldDefinition) -> Self {
        let arguments = definition.arguments.iter();
        Self {
            arguments: arguments
                .map(|argument| InputField::of(&argument.node))
                .collect(),
            ty: definition.ty.node.clone(),
        }
    }

    fn plain(ty: &str) -> Self {
        Self {
            arguments: Vec::new(),
            ty: Type::new(ty).expect("it is a type"),
        }
    }
}

/// The type without its lists.
pub(super) fn innermost(ty: &Type) -> &Name {
    match &ty.base {
        BaseType::Named(name) => name,
        BaseType::List(of) => innermost(of),
    }
}

#[cfg(test)]
mod tests {
    use super::INTROSPECTION_TYPES;

    /// Types of introspection in the text beside the code, and as async-graphql answers them.
    #[tokio::test]
    async fn the_types_of_introspection_are_those_that_are_answered() {
        let schema = &crate::graphql::schema::SCHEMA;
        for ty in [
            "__Schema",
            "__Type",
            "__Field",
            "__InputValue",
            "__EnumValue",
            "__Directive",
        ] {
            let text = format!(
            "{{ __type(name: \"{ty}\") {{ fields {{ name type {{ ...T }} args {{ name defaultValue type {{ ...T }} }} }} }} }}
             fragment T on __Type {{ kind name ofType {{ kind name ofType {{ kind name ofType {{ kind name }} }} }} }}"
        );
            let answer = schema.execute(text).await.data.into_json().unwrap();
            let fields = answer["__type"]["fields"].as_array().unwrap();
            let fields: Vec<_> = fields
                .iter()
                .map(|field| format!("  {}", field_text(field)))
                .collect();
            let definition = format!("type {ty} {{\n{}\n}}\n", fields.join("\n"));
            assert!(INTROSPECTION_TYPES.contains(&definition), "{definition}");
        }
    }

    fn field_text(field: &serde_json::Value) -> String {
        let args: Vec<_> = field["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|arg| {
                let default = arg["defaultValue"].as_str().unwrap();
                format!(
                    "{}: {} = {default}",
                    arg["name"].as_str().unwrap(),
                    type_text(&arg["type"])
                )
            })
            .collect();
        let args = if args.is_empty() {
            String::new()
        } else {
            format!("({})", args.join(", "))
        };
        format!(
            "{}{args}: {}",
            field["name"].as_str().unwrap(),
            type_text(&field["type"])
        )
    }

    fn type_text(ty: &serde_json::Value) -> String {
        match ty["kind"].as_str().unwrap() {
            "NON_NULL" => format!("{}!", type_text(&ty["ofType"])),
            "LIST" => format!("[{}]", type_text(&ty["ofType"])),
            _ => ty["name"].as_str().unwrap().to_owned(),
        }
    }
}
