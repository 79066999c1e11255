//! Documents: parsed and guarded once, and kept by their exact text, because parsing is most of what a small request costs.
//!
//! Two things are set right here, before the library sees them. Fragments at the root of a subscription are written out, because the library
//! does not look into them. And a mutation that names one root field twice is refused, because the library would execute it twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, Field, OperationDefinition, OperationType, Selection, SelectionSet,
};
use async_graphql::parser::{self, parse_query};
use async_graphql::{Name, Pos, Positioned, Value, Variables};
use lru::LruCache;

use super::guard::{self, DocumentBounds, GuardError};
use crate::metrics::CacheCounts;

/// The root type of subscriptions, on which the fragments at their root must be.
const SUBSCRIPTION: &str = "Subscription";

/// A document that may be executed, and which of its operations.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Shared with the cache: `Request::set_parsed_query` takes a clone of what is inside.
    pub document: Arc<ExecutableDocument>,
    pub operation: OperationType,
    /// The operation's name, where it has one.
    pub name: Option<Name>,
}

impl Prepared {
    /// That no variable is missing which must be there. The library would notice while it executes, after what it did before.
    pub fn check(&self, variables: &Variables) -> Result<(), Refused> {
        let Some((_, operation)) = self.document.operations.iter().find(|(name, _)| *name == self.name.as_ref()) else { return Ok(()) };
        for definition in &operation.node.variable_definitions {
            let (name, definition) = (&definition.node.name.node, &definition.node);
            let is_needed = !definition.var_type.node.nullable;
            match variables.get(name) {
                None if is_needed && definition.default_value.is_none() => {
                    return Err(Refused::variables(format!(
                        "The variable `${name}` is missing; it is of the type `{}`.",
                        definition.var_type.node
                    )));
                }
                Some(Value::Null) if is_needed => {
                    return Err(Refused::variables(format!(
                        "The variable `${name}` must not be null; it is of the type `{}`.",
                        definition.var_type.node
                    )));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// Why a document is refused, in a sentence for whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub kind: RefusedKind,
    pub message: String,
    pub positions: Vec<Pos>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedKind {
    /// It cannot be parsed.
    Syntax,
    /// It asks for too much, or for nothing that can be done.
    Invalid,
    /// It is as it should be, and its variables are not.
    Variables,
}

impl Refused {
    fn variables(message: String) -> Self {
        Self { kind: RefusedKind::Variables, message, positions: Vec::new() }
    }

    fn invalid(message: String) -> Self {
        Self { kind: RefusedKind::Invalid, message, positions: Vec::new() }
    }
}

impl From<GuardError> for Refused {
    fn from(error: GuardError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<parser::Error> for Refused {
    fn from(error: parser::Error) -> Self {
        // The parser draws the place in several lines; its last one says what it expected, in the names of its rules.
        let drawing = error.to_string();
        let last = drawing.lines().last().unwrap_or_default().trim().trim_start_matches("= ");
        let said = if drawing.lines().count() > 1 { last.replace('_', " ") } else { last.to_owned() };
        Self {
            kind: RefusedKind::Syntax,
            message: format!("The document cannot be parsed: {said}."),
            positions: error.positions().collect(),
        }
    }
}

/// Parsed and guarded documents, the least recently used ones forgotten first.
pub struct Documents {
    bounds: DocumentBounds,
    cache: Mutex<Cache>,
    meter: CacheCounts,
}

struct Cache {
    documents: LruCache<Arc<str>, Arc<ExecutableDocument>>,
    bytes: usize,
}

impl Documents {
    pub const ENTRIES_MAX: usize = 1_000;
    /// Of text. A parsed document takes some twenty times as much.
    pub const BYTES_MAX: usize = 1024 * 1024;

    pub fn new(bounds: DocumentBounds) -> Self {
        Self { bounds, cache: Mutex::new(Cache { documents: LruCache::unbounded(), bytes: 0 }), meter: CacheCounts::new("documents") }
    }

    /// The document of this text, and in it the operation of this name, or the only one.
    pub fn prepare(&self, text: &str, operation_name: Option<&str>) -> Result<Prepared, Refused> {
        let known = self.meter.saw(self.lock().documents.get(text).cloned());
        let document = match known {
            Some(document) => document,
            None => {
                let document = Arc::new(parse(text, &self.bounds)?);
                self.lock().keep(text, &document);
                document
            }
        };
        let (operation, name) = pick(&document, operation_name)?;
        Ok(Prepared { document, operation, name })
    }

    pub(super) fn meter(&self) -> &CacheCounts {
        &self.meter
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().expect("no panic while the cache is held")
    }
}

impl Cache {
    fn keep(&mut self, text: &str, document: &Arc<ExecutableDocument>) {
        self.bytes += text.len();
        if let Some((replaced, _)) = self.documents.push(text.into(), Arc::clone(document)) {
            self.bytes -= replaced.len();
        }
        while self.documents.len() > Documents::ENTRIES_MAX || self.bytes > Documents::BYTES_MAX {
            let Some((forgotten, _)) = self.documents.pop_lru() else { break };
            self.bytes -= forgotten.len();
        }
    }
}

fn parse(text: &str, bounds: &DocumentBounds) -> Result<ExecutableDocument, Refused> {
    guard::check_text(text, bounds)?;
    let mut document = parse_query(text)?;
    guard::check(&document, bounds)?;
    flatten_subscriptions(&mut document)?;
    Ok(document)
}

fn pick(document: &ExecutableDocument, wanted: Option<&str>) -> Result<(OperationType, Option<Name>), Refused> {
    let mut operations = document.operations.iter();
    let found = match wanted {
        Some(wanted) => operations
            .find(|(name, _)| name.is_some_and(|name| name == wanted))
            .ok_or_else(|| Refused::invalid("The document has no operation of the name in `operationName`.".to_owned()))?,
        None if operations.len() > 1 => {
            return Err(Refused::invalid("The document has several operations: say in `operationName` which one is meant.".to_owned()));
        }
        None => operations.next().ok_or_else(|| Refused::invalid("The document has no operation.".to_owned()))?,
    };
    let (name, operation) = found;
    Ok((operation.node.ty, name.cloned()))
}

/// Writes out the fragments at the root of each subscription, which must come to one field.
fn flatten_subscriptions(document: &mut ExecutableDocument) -> Result<(), GuardError> {
    if !document.operations.iter().any(|(_, operation)| operation.node.ty == OperationType::Subscription) {
        return Ok(());
    }
    let used_before = used_fragments(document);
    let unchanged = document.clone();
    let flatten = |operation: &mut OperationDefinition| {
        if operation.ty == OperationType::Subscription {
            let field = single_root_field(&unchanged, &operation.selection_set.node)?;
            let position = operation.selection_set.pos;
            let items = vec![Positioned::new(Selection::Field(field), position)];
            operation.selection_set.node = SelectionSet { items };
        }
        Ok(())
    };
    match &mut document.operations {
        DocumentOperations::Single(operation) => flatten(&mut operation.node)?,
        DocumentOperations::Multiple(operations) => operations.values_mut().try_for_each(|operation| flatten(&mut operation.node))?,
    }
    // A fragment that is used no more has been written out. One that never was used is for validation to name.
    let used_after = used_fragments(document);
    document.fragments.retain(|name, _| used_after.contains(name) || !used_before.contains(name));
    Ok(())
}

/// The one field at this root. Where it stands several times with the same arguments, the selections are put together.
fn single_root_field(document: &ExecutableDocument, root: &SelectionSet) -> Result<Positioned<Field>, GuardError> {
    let mut fields = Vec::new();
    collect_root_fields(document, root, &mut fields)?;
    let mut fields = fields.into_iter();
    let mut single = fields.next().ok_or(GuardError::SubscriptionRoots)?.clone();
    if single.node.name.node.starts_with("__") {
        return Err(GuardError::SubscriptionIntrospection);
    }
    for other in fields {
        let is_same = other.node.response_key().node == single.node.response_key().node
            && other.node.name.node == single.node.name.node
            && other.node.arguments == single.node.arguments;
        if !is_same {
            return Err(GuardError::SubscriptionRoots);
        }
        single.node.selection_set.node.items.extend(other.node.selection_set.node.items.iter().cloned());
    }
    Ok(single)
}

/// Fragments that spread themselves were refused before, and the number of spreads is bounded.
fn collect_root_fields<'a>(
    document: &'a ExecutableDocument,
    root: &'a SelectionSet,
    fields: &mut Vec<&'a Positioned<Field>>,
) -> Result<(), GuardError> {
    for item in &root.items {
        if item.node.directives().iter().any(|directive| matches!(directive.node.name.node.as_str(), "skip" | "include")) {
            return Err(GuardError::SubscriptionDirective);
        }
        let (condition, set) = match &item.node {
            Selection::Field(field) => {
                fields.push(field);
                continue;
            }
            Selection::InlineFragment(inline) => (inline.node.type_condition.as_ref(), &inline.node.selection_set.node),
            Selection::FragmentSpread(spread) => match document.fragments.get(&spread.node.fragment_name.node) {
                Some(fragment) => (Some(&fragment.node.type_condition), &fragment.node.selection_set.node),
                None => return Err(GuardError::SubscriptionFragment),
            },
        };
        if condition.is_some_and(|condition| condition.node.on.node != SUBSCRIPTION) {
            return Err(GuardError::SubscriptionFragment);
        }
        collect_root_fields(document, set, fields)?;
    }
    Ok(())
}

/// The fragments that some operation reaches.
fn used_fragments(document: &ExecutableDocument) -> HashSet<Name> {
    let mut used = HashSet::new();
    let mut open: Vec<_> = document.operations.iter().map(|(_, operation)| &operation.node.selection_set.node).collect();
    while let Some(set) = open.pop() {
        for item in &set.items {
            match &item.node {
                Selection::Field(field) => open.push(&field.node.selection_set.node),
                Selection::InlineFragment(inline) => open.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    if used.insert(name.clone()) {
                        open.extend(document.fragments.get(name).map(|fragment| &fragment.node.selection_set.node));
                    }
                }
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents() -> Documents {
        Documents::new(DocumentBounds::default())
    }

    fn prepare(text: &str, name: Option<&str>) -> Result<Prepared, Refused> {
        documents().prepare(text, name)
    }

    /// The root of the only operation, as the names of its items: `...` for a fragment.
    fn root(prepared: &Prepared) -> Vec<String> {
        let (_, operation) = prepared.document.operations.iter().next().unwrap();
        let name = |item: &Positioned<Selection>| match &item.node {
            Selection::Field(field) => field.node.response_key().node.to_string(),
            Selection::FragmentSpread(_) | Selection::InlineFragment(_) => "...".to_owned(),
        };
        operation.node.selection_set.node.items.iter().map(name).collect()
    }

    #[test]
    fn the_operation_is_the_named_one_or_the_only_one() {
        let both = "query A { a } mutation B { b }";
        assert_eq!(prepare(both, Some("B")).unwrap().operation, OperationType::Mutation);
        assert_eq!(prepare("subscription S { s }", None).unwrap().name, Some(Name::new("S")));
        assert_eq!(prepare("{ a }", None).unwrap().name, None);
        for (text, name) in [(both, None), (both, Some("C")), ("{ a }", Some("A"))] {
            assert_eq!(prepare(text, name).unwrap_err().kind, RefusedKind::Invalid);
        }
    }

    #[test]
    fn a_variable_that_must_be_there_is_missed_before_anything_is_done() {
        let prepared = prepare("query Q($a: Int!, $b: Int! = 1, $c: Int) { x(a: $a, b: $b, c: $c) }", None).unwrap();
        let check = |json| prepared.check(&Variables::from_json(json));
        check(serde_json::json!({ "a": 1, "c": null })).unwrap();
        assert!(check(serde_json::json!({})).unwrap_err().message.contains("`$a` is missing"));
        assert!(check(serde_json::json!({ "a": null })).unwrap_err().message.contains("`$a` must not be null"));
        assert!(check(serde_json::json!({ "a": 1, "b": null })).unwrap_err().message.contains("`Int!`"));
    }

    #[test]
    fn what_cannot_be_parsed_says_where_in_one_line() {
        for text in ["{", "}", "", "{ a(", "query { }", "fragment F on Q { a }", "{ a } { b }", "\u{feff}", "{ a(b: 1x) }"] {
            let refused = prepare(text, None).unwrap_err();
            assert_eq!(refused.kind, RefusedKind::Syntax, "{text}");
            assert!(!refused.message.contains('\n'), "{}", refused.message);
        }
        assert_eq!(prepare("{\n  a(\n}", None).unwrap_err().positions[0].line, 3);
    }

    #[test]
    fn one_text_is_parsed_once() {
        let documents = documents();
        let (one, other) = (documents.prepare("{ a }", None).unwrap(), documents.prepare("{ a }", None).unwrap());
        assert!(Arc::ptr_eq(&one.document, &other.document));
    }

    #[test]
    fn the_cache_ends_by_entries_and_by_bytes() {
        let documents = documents();
        for number in 0..Documents::ENTRIES_MAX + 10 {
            documents.prepare(&format!("{{ a{number} }}"), None).unwrap();
        }
        assert_eq!(documents.lock().documents.len(), Documents::ENTRIES_MAX);
        let comment = "x".repeat(16_000);
        for number in 0..100 {
            documents.prepare(&format!("{{ b{number} }}#{comment}"), None).unwrap();
        }
        let cache = documents.lock();
        let bytes: usize = cache.documents.iter().map(|(text, _)| text.len()).sum();
        assert!(bytes == cache.bytes && bytes <= Documents::BYTES_MAX && bytes > Documents::BYTES_MAX - 17_000);
    }

    #[test]
    fn fragments_at_the_root_of_a_subscription_are_written_out() {
        let text = "subscription S { ...A } fragment A on Subscription { ... on Subscription { ...B } } fragment B on Subscription { told { ...C } } fragment C on T { id }";
        let prepared = prepare(text, None).unwrap();
        assert_eq!(root(&prepared), ["told"]);
        let mut left: Vec<_> = prepared.document.fragments.keys().map(Name::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["C"]);
    }

    #[test]
    fn a_fragment_that_never_was_used_stays_for_validation_to_name() {
        let prepared = prepare("subscription { ...A } fragment A on Subscription { told } fragment B on T { id }", None).unwrap();
        assert!(prepared.document.fragments.contains_key("B"));
    }

    #[test]
    fn the_same_root_field_twice_is_one() {
        let prepared = prepare("subscription { told(a: 1) { id } ... { told(a: 1) { body } } }", None).unwrap();
        assert_eq!(root(&prepared), ["told"]);
        let (_, operation) = prepared.document.operations.iter().next().unwrap();
        let Selection::Field(field) = &operation.node.selection_set.node.items[0].node else { panic!() };
        assert_eq!(field.node.selection_set.node.items.len(), 2);
    }

    #[test]
    fn a_subscription_has_one_root_field_and_it_is_always_asked_for() {
        for text in [
            "subscription { a b }",
            "subscription { a(x: 1) a(x: 2) }",
            "subscription { a x: a }",
            "subscription { a ...F } fragment F on Subscription { b }",
            "subscription { __typename }",
            "subscription { __schema { description } }",
            "subscription { a @skip(if: true) }",
            "subscription { ...F @include(if: false) } fragment F on Subscription { a }",
            "subscription { ... on Query { a } }",
            "subscription { ...Nowhere }",
            "query Q { a } subscription S { a b }",
        ] {
            assert_eq!(prepare(text, text.starts_with("query").then_some("Q")).unwrap_err().kind, RefusedKind::Invalid, "{text}");
        }
    }
}
