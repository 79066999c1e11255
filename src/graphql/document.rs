//! Documents: parsed, guarded and validated once, and cached by their exact text, because that is most of what a small request costs.
//!
//! A document enters the cache when it was executed for an authenticated viewer: clients without a token cannot evict what others use.
//!
//! Two things are set right here, before the library sees them. The root of a subscription is written out (`subscription_root`). And a
//! mutation that names one root field twice is refused, because the library would execute it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_graphql::parser::types::{ExecutableDocument, OperationDefinition, OperationType};
use async_graphql::parser::{self, parse_query};
use async_graphql::{Name, Pos, Value, Variables};
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::free::{Free, free};
use super::guard::{self, DocumentBounds, GuardError};
use super::introspection::Introspection;
use super::literal::{self, Misfit, Types};
use super::{Cost, subscription_root};
use crate::metrics::CacheCounts;

/// A document that may be executed, and which of its operations.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Shared with the cache: `Request::set_parsed_query` takes a clone of what is inside.
    pub document: Arc<ExecutableDocument>,
    pub operation: OperationType,
    /// The operation's name, where it has one.
    pub name: Option<Name>,
    /// Shared with the cache: whether the document, apart from its variables, was found to fit the schema.
    is_valid: Arc<AtomicBool>,
    /// Its key in the cache.
    text: Arc<str>,
    documents: Arc<Inner>,
}

/// Variables that an operation may be executed with, and what that costs.
#[derive(Debug, Clone)]
pub struct Ready {
    pub variables: Variables,
    pub cost: Cost,
}

impl Prepared {
    pub(super) fn definition(&self) -> Option<&OperationDefinition> {
        self.document
            .operations
            .iter()
            .find(|(name, _)| *name == self.name.as_ref())
            .map(|(_, operation)| &operation.node)
    }

    /// The variables that the operation declares, from what was given and from its defaults. The library would notice some of what is wrong
    /// with them only while it executes, after what it did before.
    pub fn accept(&self, given: Variables) -> Result<Ready, Refused> {
        let Some(operation) = self.definition() else {
            return Ok(Ready {
                variables: Variables::default(),
                cost: Cost::default(),
            });
        };
        let variables = self
            .documents
            .types
            .inputs
            .accept(operation, given)
            .map_err(Refused::variables)?;
        let is_null = |name: &Name| matches!(variables.get(name), Some(Value::Null));
        // Looked for only where there may be one: the library would take it for false.
        if variables.values().any(|value| *value == Value::Null)
            && let Some(name) = literal::conditions(&self.document)
                .into_iter()
                .find(is_null)
        {
            return Err(Refused::variables(format!(
                "The variable `${name}` must not be null: it decides what is answered."
            )));
        }
        let cost = self.cost(&variables);
        let (what, most) = match self.operation {
            OperationType::Query => ("The answer", self.documents.bounds.complexity),
            OperationType::Mutation => (
                "The payload of a mutation",
                self.documents.bounds.payload_complexity,
            ),
            OperationType::Subscription => (
                "The payload of an event",
                self.documents.bounds.payload_complexity,
            ),
        };
        if cost.fields > most {
            let fields = cost.fields;
            return Err(Refused::invalid(format!(
                "{what} may come to {fields} fields, pages counted in full; at most {most} are answered."
            )));
        }
        Ok(Ready { variables, cost })
    }

    /// Once it was executed under validation, and that had nothing to say, it needs none with other variables that are accepted.
    pub(super) fn is_valid(&self) -> bool {
        self.is_valid.load(Ordering::Relaxed)
    }

    /// It was executed. What was executed for an authenticated viewer enters the cache.
    pub(super) fn passed(&self, is_authenticated: bool) {
        self.is_valid.store(true, Ordering::Relaxed);
        if is_authenticated {
            let entry = Entry {
                document: Arc::clone(&self.document),
                is_valid: Arc::clone(&self.is_valid),
            };
            self.documents.lock().insert(&self.text, entry);
        }
    }

    pub(super) fn introspection(&self) -> &Introspection {
        &self.documents.types.introspection
    }

    /// Equal in all that were prepared from one text.
    pub(super) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether everybody who may see what it asks for sees the same. Where so, it is executed once for all who ask it.
    pub fn is_free(&self) -> bool {
        self.free().is_some()
    }

    pub(super) fn free(&self) -> Option<Free> {
        free(
            &self.document,
            &self.definition()?.selection_set.node,
            self.operation,
        )
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
        Self {
            kind: RefusedKind::Variables,
            message,
            positions: Vec::new(),
        }
    }

    fn invalid(message: String) -> Self {
        Self {
            kind: RefusedKind::Invalid,
            message,
            positions: Vec::new(),
        }
    }
}

impl From<Misfit> for Refused {
    fn from(Misfit(message, position): Misfit) -> Self {
        Self {
            positions: vec![position],
            ..Self::invalid(message)
        }
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
        let last = drawing
            .lines()
            .last()
            .unwrap_or_default()
            .trim()
            .trim_start_matches("= ");
        let said = if drawing.lines().count() > 1 {
            last.replace('_', " ")
        } else {
            last.to_owned()
        };
        Self {
            kind: RefusedKind::Syntax,
            message: format!("The document cannot be parsed: {said}."),
            positions: error.positions().collect(),
        }
    }
}

/// Parsed and guarded documents, the least recently used ones evicted first.
pub struct Documents(Arc<Inner>);

struct Inner {
    bounds: DocumentBounds,
    types: Types,
    cache: Mutex<Cache>,
    meter: CacheCounts,
}

struct Cache {
    documents: LruCache<Arc<str>, Entry>,
    bytes: usize,
}

#[derive(Clone)]
struct Entry {
    document: Arc<ExecutableDocument>,
    is_valid: Arc<AtomicBool>,
}

impl Documents {
    pub const ENTRIES_MAX: usize = 1_000;
    /// Of text. A parsed document takes some twenty times as much.
    pub const BYTES_MAX: usize = 1024 * 1024;

    /// For the schema of this text.
    pub fn new(bounds: DocumentBounds, sdl: &str) -> Self {
        let cache = Mutex::new(Cache {
            documents: LruCache::unbounded(),
            bytes: 0,
        });
        Self(Arc::new(Inner {
            bounds,
            types: Types::of(sdl),
            cache,
            meter: CacheCounts::new("documents"),
        }))
    }

    /// The document of this text, and in it the operation of this name, or the only one.
    pub fn prepare(&self, text: &str, operation_name: Option<&str>) -> Result<Prepared, Refused> {
        let documents = &self.0;
        let cached = documents.lock().get(text);
        let (text, entry) = match documents.meter.count(cached) {
            Some(cached) => cached,
            None => (
                text.into(),
                Entry {
                    document: Arc::new(documents.parse(text)?),
                    is_valid: Arc::default(),
                },
            ),
        };
        let Entry { document, is_valid } = entry;
        let (operation, name) = pick(&document, operation_name)?;
        Ok(Prepared {
            document,
            operation,
            name,
            is_valid,
            text,
            documents: Arc::clone(documents),
        })
    }

    pub(super) fn meter(&self) -> &CacheCounts {
        &self.0.meter
    }
}

impl Inner {
    fn parse(&self, text: &str) -> Result<ExecutableDocument, Refused> {
        guard::check_text(text, &self.bounds)?;
        let mut document = parse_query(text)?;
        guard::check(&document, &self.bounds)?;
        subscription_root::flatten(&mut document)?;
        self.types.check(&document)?;
        Ok(document)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Documents").finish_non_exhaustive()
    }
}

impl Cache {
    fn get(&mut self, text: &str) -> Option<(Arc<str>, Entry)> {
        let entry = self.documents.get(text)?.clone();
        let (text, _) = self.documents.peek_mru()?;
        Some((Arc::clone(text), entry))
    }

    /// One that was parsed a second time at the same time changes nothing.
    fn insert(&mut self, text: &Arc<str>, entry: Entry) {
        if self.documents.contains(text) {
            return;
        }
        self.bytes += text.len();
        self.documents.push(Arc::clone(text), entry);
        while self.documents.len() > Documents::ENTRIES_MAX || self.bytes > Documents::BYTES_MAX {
            let Some((evicted, _)) = self.documents.pop_lru() else {
                break;
            };
            self.bytes -= evicted.len();
        }
    }
}

fn pick(
    document: &ExecutableDocument,
    wanted: Option<&str>,
) -> Result<(OperationType, Option<Name>), Refused> {
    let mut operations = document.operations.iter();
    let found = match wanted {
        Some(wanted) => operations
            .find(|(name, _)| name.is_some_and(|name| name == wanted))
            .ok_or_else(|| {
                Refused::invalid(
                    "The document has no operation of the name in `operationName`.".to_owned(),
                )
            })?,
        None if operations.len() > 1 => {
            return Err(Refused::invalid(
                "The document has several operations: say in `operationName` which one is meant."
                    .to_owned(),
            ));
        }
        None => operations
            .next()
            .ok_or_else(|| Refused::invalid("The document has no operation.".to_owned()))?,
    };
    let (name, operation) = found;
    Ok((operation.node.ty, name.cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents() -> Documents {
        Documents::new(DocumentBounds::default(), "")
    }

    fn prepare(text: &str, name: Option<&str>) -> Result<Prepared, Refused> {
        documents().prepare(text, name)
    }

    #[test]
    fn the_operation_is_the_named_one_or_the_only_one() {
        let both = "query A { a } mutation B { b }";
        assert_eq!(
            prepare(both, Some("B")).unwrap().operation,
            OperationType::Mutation
        );
        assert_eq!(
            prepare("subscription S { s }", None).unwrap().name,
            Some(Name::new("S"))
        );
        assert_eq!(prepare("{ a }", None).unwrap().name, None);
        for (text, name) in [(both, None), (both, Some("C")), ("{ a }", Some("A"))] {
            assert_eq!(prepare(text, name).unwrap_err().kind, RefusedKind::Invalid);
        }
    }

    #[test]
    fn what_cannot_be_parsed_says_where_in_one_line() {
        for text in [
            "{",
            "}",
            "",
            "{ a(",
            "query { }",
            "fragment F on Q { a }",
            "{ a } { b }",
            "\u{feff}",
            "{ a(b: 1x) }",
        ] {
            let refused = prepare(text, None).unwrap_err();
            assert_eq!(refused.kind, RefusedKind::Syntax, "{text}");
            assert!(!refused.message.contains('\n'), "{}", refused.message);
        }
        assert_eq!(
            prepare("{\n  a(\n}", None).unwrap_err().positions[0].line,
            3
        );
    }

    #[test]
    fn one_text_is_parsed_once_it_was_executed_for_somebody() {
        let documents = documents();
        let prepare = || documents.prepare("{ a }", None).unwrap();
        let (one, other) = (prepare(), prepare());
        assert!(!Arc::ptr_eq(&one.document, &other.document));
        one.passed(false);
        assert!(!prepare().is_valid(), "who is nobody leaves nothing here");
        one.passed(true);
        other.passed(true);
        assert!(prepare().is_valid() && Arc::ptr_eq(&one.document, &prepare().document));
    }

    #[test]
    fn the_cache_ends_by_entries_and_by_bytes() {
        let documents = documents();
        for number in 0..Documents::ENTRIES_MAX + 10 {
            documents
                .prepare(&format!("{{ a{number} }}"), None)
                .unwrap()
                .passed(true);
        }
        assert_eq!(documents.0.lock().documents.len(), Documents::ENTRIES_MAX);
        let comment = "x".repeat(16_000);
        for number in 0..100 {
            documents
                .prepare(&format!("{{ b{number} }}#{comment}"), None)
                .unwrap()
                .passed(true);
        }
        let cache = documents.0.lock();
        let bytes: usize = cache.documents.iter().map(|(text, _)| text.len()).sum();
        assert!(
            bytes == cache.bytes
                && bytes <= Documents::BYTES_MAX
                && bytes > Documents::BYTES_MAX - 17_000
        );
    }
}
