//! Guard: applies the limits to a document before its execution, in time linear in the document.
//!
//! Each fragment is measured once (memoized), and its measure is added at each spread; sums
//! saturate. A fragment bomb, in which each fragment spreads the next one twice, is refused in the
//! time of one pass.

use std::collections::{HashMap, HashSet};

use async_graphql::Name;
use async_graphql::parser::types::{ExecutableDocument, Selection, SelectionSet};

use super::limits::DocumentBounds;

/// Reason of a refusal, as a sentence for the author of the document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    #[error("The document has more than {most} {what}.")]
    TooMuch { what: &'static str, most: usize },
    #[error("Introspection is switched off here.")]
    Introspection,
    #[error("The fragment `{0}` spreads itself.")]
    Cycle(Name),
}

/// Checks every operation of a parsed document, fragments expanded.
pub(in crate::graphql) fn check(
    document: &ExecutableDocument,
    bounds: &DocumentBounds,
) -> Result<(), GuardError> {
    within(
        "operations",
        document.operations.iter().count(),
        bounds.operations,
    )?;
    let mut meter = SelectionMeter {
        document,
        measured: HashMap::with_capacity(document.fragments.len()),
        open: HashSet::new(),
    };
    for (_, operation) in document.operations.iter() {
        let mut measure = meter.measure(&operation.node.selection_set.node, 0)?;
        let variables = operation.node.variable_definitions.iter();
        let of_variables: usize = variables.map(|one| one.node.directives.len()).sum();
        let own = operation.node.directives.len() + of_variables;
        measure.directives = measure.directives.saturating_add(own);
        measure.check(bounds)?;
    }
    // Validation refuses unused fragments later, but it must not meet a cycle.
    for (name, fragment) in &document.fragments {
        meter.fragment(name, &fragment.node.selection_set.node, 0)?;
    }
    Ok(())
}

pub(super) fn within(what: &'static str, found: usize, most: usize) -> Result<(), GuardError> {
    if found > most {
        Err(GuardError::TooMuch { what, most })
    } else {
        Ok(())
    }
}

/// List fields of the introspection types that lead to further types.
const INTROSPECTION_LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// Selection sets and spreads inside one another. async-graphql refuses more than 32; `STACK_MAX`
/// bounds the recursion of the measurement.
const LEVELS_MAX: usize = 32;
const STACK_MAX: usize = 256;

/// Measure of a selection set, fragments expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SelectionMeasure {
    root_fields: usize,
    fields: usize,
    depth: usize,
    /// Depth, with fragments as levels of their own.
    levels: usize,
    aliases: usize,
    directives: usize,
    spreads: usize,
    /// Introspection lists inside one another, if the set is part of an introspection.
    lists: usize,
    introspection_fields: usize,
    introspection_depth: usize,
    introspection_lists: usize,
}

impl SelectionMeasure {
    /// Adds the measure of a sibling.
    fn add(&mut self, other: &Self) {
        self.root_fields = self.root_fields.saturating_add(other.root_fields);
        self.fields = self.fields.saturating_add(other.fields);
        self.depth = self.depth.max(other.depth);
        self.levels = self.levels.max(other.levels);
        self.aliases = self.aliases.saturating_add(other.aliases);
        self.directives = self.directives.saturating_add(other.directives);
        self.spreads = self.spreads.saturating_add(other.spreads);
        self.lists = self.lists.max(other.lists);
        self.introspection_fields = self
            .introspection_fields
            .saturating_add(other.introspection_fields);
        self.introspection_depth = self.introspection_depth.max(other.introspection_depth);
        self.introspection_lists = self.introspection_lists.max(other.introspection_lists);
    }

    /// Measure of a field of this name around the set.
    fn inside(mut self, name: &str) -> Self {
        if matches!(name, "__schema" | "__type") {
            self.introspection_fields = self.introspection_fields.saturating_add(self.fields);
            self.introspection_depth = self.introspection_depth.max(self.depth.saturating_add(1));
            self.introspection_lists = self.introspection_lists.max(self.lists);
            (self.fields, self.depth, self.lists) = (0, 0, 0);
        }
        self.root_fields = usize::from(name != "__typename");
        self.fields = self.fields.saturating_add(1);
        self.depth = self.depth.saturating_add(1);
        self.levels = self.levels.saturating_add(1);
        self.lists = self
            .lists
            .saturating_add(usize::from(INTROSPECTION_LISTS.contains(&name)));
        self
    }

    fn check(&self, bounds: &DocumentBounds) -> Result<(), GuardError> {
        if !bounds.introspection && self.introspection_depth > 0 {
            return Err(GuardError::Introspection);
        }
        within("fields, fragments expanded", self.fields, bounds.fields)?;
        within("fields inside one another", self.depth, bounds.depth)?;
        within("aliases, fragments expanded", self.aliases, bounds.aliases)?;
        within(
            "directives, fragments expanded",
            self.directives,
            bounds.directives,
        )?;
        within(
            "fragment spreads, fragments expanded",
            self.spreads,
            bounds.spreads,
        )?;
        within(
            "root fields in one operation",
            self.root_fields,
            bounds.root_fields,
        )?;
        within(
            "fields of introspection",
            self.introspection_fields,
            bounds.introspection_fields,
        )?;
        within(
            "fields of introspection inside one another",
            self.introspection_depth,
            bounds.introspection_depth,
        )?;
        within(
            "lists of introspection inside one another",
            self.introspection_lists,
            bounds.introspection_lists,
        )?;
        within(
            "fields and fragments inside one another",
            self.levels,
            LEVELS_MAX,
        )
    }
}

struct SelectionMeter<'a> {
    document: &'a ExecutableDocument,
    measured: HashMap<&'a Name, SelectionMeasure>,
    /// Fragments being measured. Meeting one of them again means a cycle.
    open: HashSet<&'a Name>,
}

impl<'a> SelectionMeter<'a> {
    fn measure(
        &mut self,
        set: &'a SelectionSet,
        stack: usize,
    ) -> Result<SelectionMeasure, GuardError> {
        within("fields and fragments inside one another", stack, STACK_MAX)?;
        let mut whole = SelectionMeasure::default();
        for item in &set.items {
            let mut part = match &item.node {
                Selection::Field(field) => {
                    let mut inner = self
                        .measure(&field.node.selection_set.node, stack + 1)?
                        .inside(&field.node.name.node);
                    inner.aliases = inner
                        .aliases
                        .saturating_add(usize::from(field.node.alias.is_some()));
                    inner
                }
                Selection::InlineFragment(inline) => self
                    .measure(&inline.node.selection_set.node, stack + 1)?
                    .spread(),
                Selection::FragmentSpread(spread) => {
                    // Validation reports unknown fragments.
                    match self
                        .document
                        .fragments
                        .get_key_value(&spread.node.fragment_name.node)
                    {
                        Some((name, fragment)) => self
                            .fragment(name, &fragment.node.selection_set.node, stack + 1)?
                            .spread(),
                        None => SelectionMeasure::default().spread(),
                    }
                }
            };
            part.directives = part.directives.saturating_add(item.node.directives().len());
            whole.add(&part);
        }
        Ok(whole)
    }

    fn fragment(
        &mut self,
        name: &'a Name,
        set: &'a SelectionSet,
        stack: usize,
    ) -> Result<SelectionMeasure, GuardError> {
        if let Some(measure) = self.measured.get(name) {
            return Ok(*measure);
        }
        if !self.open.insert(name) {
            return Err(GuardError::Cycle(name.clone()));
        }
        let measure = self.measure(set, stack)?;
        self.open.remove(name);
        self.measured.insert(name, measure);
        Ok(measure)
    }
}

impl SelectionMeasure {
    fn spread(mut self) -> Self {
        self.spreads = self.spreads.saturating_add(1);
        self.levels = self.levels.saturating_add(1);
        self
    }
}

#[cfg(test)]
#[path = "guard_test.rs"]
mod tests;
