//! List lengths of introspection answers, counted in the schema: the basis of the price of
//! introspection.

use std::collections::HashMap;

use async_graphql::Positioned;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, Type, TypeKind, TypeSystemDefinition,
};

/// Built-in scalars and introspection types, which the text of a schema does not define.
const BUILT_IN_TYPES: usize = 13;
/// Fields of the introspection types.
const BUILT_IN_FIELDS: usize = 36;
/// Built-in directives, and the locations of one of them.
const DIRECTIVES: f64 = 5.0;
const LOCATIONS: f64 = 3.0;
/// Maximum number of list and non-null wrappers around a type name.
const WRAPPERS_MAX: usize = 4;

/// Length of one kind of list.
#[derive(Debug, Clone, Copy, Default)]
struct ListSize {
    /// Mean over all types, including types without such a list.
    mean: f64,
    most: f64,
}

/// Lengths of the lists of introspection.
#[derive(Debug, Default)]
pub(in crate::graphql) struct IntrospectionSizes {
    sizes: HashMap<&'static str, ListSize>,
    /// Share of the types with at least N wrappers that have one more, by N.
    wrapped: [f64; WRAPPERS_MAX],
}

/// Elements of each kind of list, summed over all types.
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
        let mut counts = ListCounts {
            types: BUILT_IN_TYPES,
            ..ListCounts::default()
        };
        counts.lists.insert("fields", (BUILT_IN_FIELDS, 0));
        for definition in definitions {
            let TypeSystemDefinition::Type(definition) = definition else {
                continue;
            };
            counts.types += 1;
            match &definition.node.kind {
                TypeKind::Object(object) => {
                    counts.fields(&object.fields);
                    counts.list("interfaces", object.implements.len());
                }
                TypeKind::Interface(interface) => {
                    counts.fields(&interface.fields);
                    counts.list("interfaces", interface.implements.len());
                }
                TypeKind::Union(union) => counts.list("possibleTypes", union.members.len()),
                TypeKind::Enum(values) => counts.list("enumValues", values.values.len()),
                TypeKind::InputObject(input) => {
                    counts.list("inputFields", input.fields.len());
                    input
                        .fields
                        .iter()
                        .for_each(|field| counts.wrappers(&field.node.ty.node));
                }
                TypeKind::Scalar => {}
            }
        }
        counts.into()
    }

    /// Expected number of elements of an introspection field. `is_one` means a field of a type
    /// selected by name, which may be the largest type. `wrappers` is the number of `ofType` fields
    /// around the field.
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
    fn from(counts: ListCounts) -> Self {
        let ListCounts {
            types,
            lists,
            fields,
            wrapped,
        } = counts;
        let ratio = |count: usize, of: usize| count as f64 / of.max(1) as f64;
        let size = |(name, (sum, most)): (&'static str, (usize, usize))| {
            let mean = ratio(sum, if name == "args" { fields } else { types });
            let most = most as f64;
            (name, ListSize { mean, most })
        };
        let mut sizes: HashMap<_, _> = lists.into_iter().map(size).collect();
        for (name, most) in [
            ("types", types as f64),
            ("directives", DIRECTIVES),
            ("locations", LOCATIONS),
        ] {
            sizes.insert(name, ListSize { mean: most, most });
        }
        Self {
            sizes,
            wrapped: std::array::from_fn(|wrappers| {
                ratio(wrapped[wrappers + 1], wrapped[wrappers])
            }),
        }
    }
}
