//! Sizes of the lists that introspection answers with, counted in the schema that is served: the price of introspection is made of them.

use std::collections::HashMap;

use async_graphql::Positioned;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, Type, TypeKind, TypeSystemDefinition,
};

/// The scalars of GraphQL and the types of introspection, which the text of a schema does not name.
const BUILT_IN_TYPES: usize = 13;
/// Fields of the types of introspection.
const BUILT_IN_FIELDS: usize = 36;
/// Directives that every schema has, and the places where one of them may stand.
const DIRECTIVES: f64 = 5.0;
const LOCATIONS: f64 = 3.0;
/// Lists and non-null marks around one name: no field of a schema has more.
const WRAPPERS_MAX: usize = 4;

/// The elements of one kind of list.
#[derive(Debug, Clone, Copy, Default)]
struct ListSize {
    /// Over all types, those that have none included.
    mean: f64,
    most: f64,
}

/// The lists of introspection.
#[derive(Debug, Default)]
pub(in crate::graphql) struct IntrospectionSizes {
    sizes: HashMap<&'static str, ListSize>,
    /// How many of the types that are wrapped so often are wrapped once more.
    wrapped: [f64; WRAPPERS_MAX],
}

/// The elements of each list, by type.
#[derive(Default)]
struct ListCounts {
    types: usize,
    lists: HashMap<&'static str, (usize, usize)>,
    fields: usize,
    wrapped: [usize; WRAPPERS_MAX + 1],
}

impl ListCounts {
    fn list(&mut self, name: &'static str, count: usize) {
        let (sum, most) = self.lists.entry(name).or_default();
        *sum += count;
        *most = count.max(*most);
    }

    fn fields(&mut self, fields: &[Positioned<FieldDefinition>]) {
        self.list("fields", fields.len());
        self.fields += fields.len();
        for field in fields {
            self.list("args", field.node.arguments.len());
            self.wrappers(&field.node.ty.node);
            field
                .node
                .arguments
                .iter()
                .for_each(|argument| self.wrappers(&argument.node.ty.node));
        }
    }

    fn wrappers(&mut self, of: &Type) {
        let wrappers = wrappers(of).min(WRAPPERS_MAX);
        self.wrapped[..=wrappers]
            .iter_mut()
            .for_each(|count| *count += 1);
    }
}

fn wrappers(of: &Type) -> usize {
    let inside = match &of.base {
        BaseType::Named(_) => 0,
        BaseType::List(inner) => 1 + wrappers(inner),
    };
    inside + usize::from(!of.nullable)
}

impl IntrospectionSizes {
    pub(in crate::graphql) fn of<'a>(
        definitions: impl IntoIterator<Item = &'a TypeSystemDefinition>,
    ) -> Self {
        let mut census = ListCounts {
            types: BUILT_IN_TYPES,
            ..ListCounts::default()
        };
        census.lists.insert("fields", (BUILT_IN_FIELDS, 0));
        for definition in definitions {
            let TypeSystemDefinition::Type(definition) = definition else {
                continue;
            };
            census.types += 1;
            match &definition.node.kind {
                TypeKind::Object(object) => {
                    census.fields(&object.fields);
                    census.list("interfaces", object.implements.len());
                }
                TypeKind::Interface(interface) => {
                    census.fields(&interface.fields);
                    census.list("interfaces", interface.implements.len());
                }
                TypeKind::Union(union) => census.list("possibleTypes", union.members.len()),
                TypeKind::Enum(values) => census.list("enumValues", values.values.len()),
                TypeKind::InputObject(input) => {
                    census.list("inputFields", input.fields.len());
                    input
                        .fields
                        .iter()
                        .for_each(|field| census.wrappers(&field.node.ty.node));
                }
                TypeKind::Scalar => {}
            }
        }
        census.into()
    }

    /// How many elements a field of introspection has. `is_one`: of a type that was asked for by its name, which may be the largest one.
    /// `wrappers` is how many `ofType` stand around it.
    pub(in crate::graphql) fn count(&self, name: &str, is_one: bool, wrappers: usize) -> f64 {
        if name == "ofType" {
            return self.wrapped.get(wrappers).copied().unwrap_or_default();
        }
        self.sizes
            .get(name)
            .map_or(1.0, |size| if is_one { size.most } else { size.mean })
    }
}

impl From<ListCounts> for IntrospectionSizes {
    fn from(census: ListCounts) -> Self {
        let ListCounts {
            types,
            lists,
            fields,
            wrapped,
        } = census;
        let ratio = |count: usize, of: usize| count as f64 / of.max(1) as f64;
        let size = |(name, (sum, most)): (&'static str, (usize, usize))| {
            let mean = ratio(sum, if name == "args" { fields } else { types });
            (
                name,
                ListSize {
                    mean,
                    most: most as f64,
                },
            )
        };
        let mut sizes: HashMap<_, _> = lists.into_iter().map(size).collect();
        for (name, count) in [
            ("types", types as f64),
            ("directives", DIRECTIVES),
            ("locations", LOCATIONS),
        ] {
            sizes.insert(
                name,
                ListSize {
                    mean: count,
                    most: count,
                },
            );
        }
        Self {
            sizes,
            wrapped: std::array::from_fn(|wrappers| {
                ratio(wrapped[wrappers + 1], wrapped[wrappers])
            }),
        }
    }
}
