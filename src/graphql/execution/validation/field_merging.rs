//! Merging of fields: all fields of one response key have values of one shape, and those that may be
//! of one object have the same name and arguments.
//!
//! Each group of fields is compared with its first field, as both relations are equivalences. The
//! second walk visits a field once for each object type beside it, so that it has a bound of its own.

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{
    BaseType, ExecutableDocument, Field, OperationDefinition, SelectionSet, Type,
};
use async_graphql::{Name, Positioned};

use crate::graphql::execution::RequestError;
use crate::graphql::execution::guard::within;
use crate::graphql::execution::schema_types::{SchemaTypes, innermost};
use crate::graphql::execution::selections::Selected;

/// Visits of fields in one operation. Five for each of the fields that the guard accepts.
const VISITS_MAX: usize = 5_000;

pub(super) fn check<'a>(
    types: &'a SchemaTypes,
    document: &'a ExecutableDocument,
    root: &'a Name,
    operation: &'a OperationDefinition,
) -> Result<(), RequestError> {
    let mut merging = FieldMerging {
        types,
        document,
        visits: 0,
    };
    let sets = [(root, &operation.selection_set.node)];
    merging.same_shapes(&sets)?;
    merging.same_fields(&sets)
}

/// Field with the type that it is selected on, and its own type.
#[derive(Clone, Copy)]
struct SelectedField<'a> {
    parent: &'a Name,
    field: &'a Positioned<Field>,
    ty: &'a Type,
}

type Set<'a> = (&'a Name, &'a SelectionSet);
type FieldsByKey<'a> = IndexMap<&'a Name, Vec<SelectedField<'a>>>;

struct FieldMerging<'a> {
    types: &'a SchemaTypes,
    document: &'a ExecutableDocument,
    visits: usize,
}

impl<'a> FieldMerging<'a> {
    /// Checks that the values of each response key have one shape, whatever the object is.
    fn same_shapes(&mut self, sets: &[Set<'a>]) -> Result<(), RequestError> {
        for fields in self.by_key(sets)?.into_values() {
            let first = fields[0];
            for other in &fields[1..] {
                if !self.has_same_shape(first.ty, other.ty) {
                    return Err(conflict(first, *other, "values of other types"));
                }
            }
            self.same_shapes(&inner_sets(&fields))?;
        }
        Ok(())
    }

    /// Checks that the fields of each response key that may be of one object are the same field.
    fn same_fields(&mut self, sets: &[Set<'a>]) -> Result<(), RequestError> {
        for fields in self.by_key(sets)?.into_values() {
            for fields in self.by_object(&fields) {
                let first = fields[0];
                for other in &fields[1..] {
                    if !is_same_field(first, *other) {
                        return Err(conflict(first, *other, "another field or other arguments"));
                    }
                }
                self.same_fields(&inner_sets(&fields))?;
            }
        }
        Ok(())
    }

    fn by_key(&mut self, sets: &[Set<'a>]) -> Result<FieldsByKey<'a>, RequestError> {
        let mut fields = FieldsByKey::new();
        for (parent, set) in sets {
            self.collect(parent, set, &mut fields)?;
        }
        Ok(fields)
    }

    fn collect(
        &mut self,
        parent: &'a Name,
        set: &'a SelectionSet,
        fields: &mut FieldsByKey<'a>,
    ) -> Result<(), RequestError> {
        for item in &set.items {
            let (condition, set) = match Selected::of(self.document, &item.node) {
                Selected::Field(field) => {
                    self.visits += 1;
                    within("comparisons of fields of one name", self.visits, VISITS_MAX)?;
                    let known = self.types.field(parent, &field.node.name.node);
                    let ty = &known.expect("the field was validated").ty;
                    let field = SelectedField { parent, field, ty };
                    fields
                        .entry(&field.field.node.response_key().node)
                        .or_default()
                        .push(field);
                    continue;
                }
                Selected::Fragment(condition, set) => (condition, set),
            };
            let parent = condition.map_or(parent, |condition| &condition.node.on.node);
            self.collect(parent, set, fields)?;
        }
        Ok(())
    }

    /// Groups of fields that may be of one object: those of each object type, each with those of
    /// interfaces.
    fn by_object(&self, fields: &[SelectedField<'a>]) -> Vec<Vec<SelectedField<'a>>> {
        let mut of_objects = IndexMap::<_, Vec<_>>::new();
        let mut of_interfaces = Vec::new();
        for field in fields {
            if self.types.composites[field.parent].is_object {
                of_objects.entry(field.parent).or_default().push(*field);
            } else {
                of_interfaces.push(*field);
            }
        }
        if of_objects.is_empty() {
            return vec![of_interfaces];
        }
        let mut groups: Vec<_> = of_objects.into_values().collect();
        for group in &mut groups {
            group.extend(&of_interfaces);
        }
        groups
    }

    fn has_same_shape(&self, one: &Type, other: &Type) -> bool {
        one.nullable == other.nullable
            && match (&one.base, &other.base) {
                (BaseType::List(one), BaseType::List(other)) => self.has_same_shape(one, other),
                (BaseType::Named(one), BaseType::Named(other)) => {
                    let is_composite = |name| self.types.composites.contains_key(name);
                    one == other || (is_composite(one) && is_composite(other))
                }
                (BaseType::Named(_), BaseType::List(_))
                | (BaseType::List(_), BaseType::Named(_)) => false,
            }
    }
}

fn inner_sets<'a>(fields: &[SelectedField<'a>]) -> Vec<Set<'a>> {
    let inner =
        |field: &SelectedField<'a>| (innermost(field.ty), &field.field.node.selection_set.node);
    fields.iter().map(inner).collect()
}

fn is_same_field(one: SelectedField<'_>, other: SelectedField<'_>) -> bool {
    let (one, other) = (&one.field.node, &other.field.node);
    let has_same_arguments = || {
        one.arguments.len() == other.arguments.len()
            && one.arguments.iter().all(|(name, value)| {
                other
                    .get_argument(&name.node)
                    .is_some_and(|other| other == value)
            })
    };
    std::ptr::eq(one, other) || (one.name == other.name && has_same_arguments())
}

fn conflict(first: SelectedField<'_>, other: SelectedField<'_>, what: &str) -> RequestError {
    let key = &first.field.node.response_key().node;
    let message = format!("`{key}` stands here for {what}. Give one of them an alias.");
    RequestError {
        positions: vec![first.field.pos, other.field.pos],
        ..RequestError::invalid(message)
    }
}
