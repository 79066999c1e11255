//! Cache of documents by their exact text. Parsing, checking and validating is most of the cost of
//! a small request.
//!
//! A document enters the cache when an authenticated viewer executes it: clients without a token
//! cannot evict the documents of others.

use std::sync::Arc;

use async_graphql::Name;
use async_graphql::parser::types::ExecutableDocument;

use super::document::{Prepared, PreparedDocument, PreparedOperation};
use super::limits::DocumentBounds;
use super::request_error::RequestError;
use super::schema_types::SchemaTypes;
use super::validation::Validation;
use super::{guard, syntax};
use crate::metrics::CacheCounts;
use crate::weighted_cache::WeightedCache;

/// Prepares documents and caches them. Evicts the least recently used ones first.
pub struct DocumentCache(Arc<DocumentCacheState>);

pub(super) struct DocumentCacheState {
    pub(super) bounds: DocumentBounds,
    pub(super) types: Arc<SchemaTypes>,
    cached: WeightedCache<Arc<str>, (Arc<str>, Arc<PreparedDocument>)>,
    counts: CacheCounts,
}

impl DocumentCache {
    pub const ENTRIES_MAX: usize = 1_000;
    /// Bytes of text. A prepared document takes about twenty times as much memory.
    pub const BYTES_MAX: usize = 1024 * 1024;
    /// Bytes of text that take as much memory as one field. Merged operations repeat the fields of
    /// fragments.
    const FIELD_BYTES: usize = 16;

    /// A cache for the documents of a schema with these types.
    pub fn new(bounds: DocumentBounds, types: Arc<SchemaTypes>) -> Self {
        Self(Arc::new(DocumentCacheState {
            bounds,
            types,
            cached: WeightedCache::new(Self::ENTRIES_MAX, Self::BYTES_MAX),
            counts: CacheCounts::new("documents"),
        }))
    }

    /// Prepares the document of this text and picks its operation: by name, or the only one. An
    /// empty name is none.
    pub fn prepare(
        &self,
        text: &str,
        operation_name: Option<&str>,
    ) -> Result<Prepared, RequestError> {
        let (cache, operation_name) = (&self.0, operation_name.filter(|name| !name.is_empty()));
        let cached = cache.counts.count(cache.cached.get(text));
        let is_cached = cached.is_some();
        let (text, document) = match cached {
            Some(cached) => cached,
            None => (text.into(), Arc::new(cache.parse(text, operation_name)?)),
        };
        let chosen = pick(&document, operation_name)?;
        Ok(Prepared {
            operation: chosen.ty(),
            name: chosen.name.clone(),
            chosen: Arc::clone(chosen),
            is_cached,
            text,
            document,
            cache: Arc::clone(cache),
        })
    }

    pub(in crate::graphql) fn counts(&self) -> &CacheCounts {
        &self.0.counts
    }
}

impl DocumentCacheState {
    fn parse(
        &self,
        text: &str,
        operation_name: Option<&str>,
    ) -> Result<PreparedDocument, RequestError> {
        let document = Arc::new(syntax::parse(text, &self.bounds)?);
        self.validate(&document).map_err(|refused| RequestError {
            operation: chosen_name(&document, operation_name),
            ..refused
        })
    }

    fn validate(
        &self,
        document: &Arc<ExecutableDocument>,
    ) -> Result<PreparedDocument, RequestError> {
        guard::check(document, &self.bounds)?;
        let mut validation = Validation::of(&self.types, document)?;
        let operations = document.operations.iter().map(|(name, operation)| {
            let operation = &operation.node;
            let never_null = validation.operation(operation)?;
            let prepared =
                PreparedOperation::of(&self.types, document, (name, operation), never_null);
            Ok(Arc::new(prepared))
        });
        let operations = operations.collect::<Result<_, RequestError>>()?;
        validation.finish()?;
        Ok(PreparedDocument { operations })
    }

    /// Ignores a document that another request has parsed and inserted at the same time.
    pub(super) fn insert(&self, text: &Arc<str>, document: &Arc<PreparedDocument>) {
        let entry = || (Arc::clone(text), Arc::clone(document));
        let bytes = weight(text, document);
        self.cached.get_or_put(Arc::clone(text), bytes, entry);
    }
}

impl std::fmt::Debug for DocumentCacheState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentCache").finish_non_exhaustive()
    }
}

/// Bytes of text that take as much memory as the document.
fn weight(text: &str, document: &PreparedDocument) -> usize {
    let fields: usize = document
        .operations
        .iter()
        .map(|operation| operation.fields())
        .sum();
    text.len().max(fields * DocumentCache::FIELD_BYTES)
}

/// Name of the operation that a request chose of a document that is refused.
fn chosen_name(document: &ExecutableDocument, wanted: Option<&str>) -> Option<Name> {
    let mut names = document.operations.iter().map(|(name, _)| name);
    match wanted {
        Some(wanted) => names.flatten().find(|name| *name == wanted).cloned(),
        None => names.next()?.filter(|_| names.next().is_none()).cloned(),
    }
}

/// Picks the operation to execute.
fn pick<'d>(
    document: &'d PreparedDocument,
    wanted: Option<&str>,
) -> Result<&'d Arc<PreparedOperation>, RequestError> {
    let problem = match (wanted, document.operations.as_slice()) {
        (None, [only]) => return Ok(only),
        (None, _) => {
            "The document has several operations: say in `operationName` which one is meant."
        }
        (Some(wanted), operations) => {
            let is_wanted = |operation: &&Arc<PreparedOperation>| {
                operation.name.as_ref().is_some_and(|name| name == wanted)
            };
            if let Some(operation) = operations.iter().find(is_wanted) {
                return Ok(operation);
            }
            "The document has no operation of the name in `operationName`."
        }
    };
    Err(RequestError::invalid(problem.to_owned()))
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::types::OperationType;

    use super::*;
    use crate::graphql::execution::RequestErrorKind;

    const SDL: &str = "schema { query: Q mutation: M subscription: S } type Q { a: Int } type M { b: Int } type S { s: Int }";

    fn documents() -> DocumentCache {
        DocumentCache::new(DocumentBounds::default(), SchemaTypes::of(SDL).into())
    }

    fn prepare(text: &str, name: Option<&str>) -> Result<Prepared, RequestError> {
        documents().prepare(text, name)
    }

    #[test]
    fn the_operation_is_the_named_one_or_the_only_one() {
        let both = "query A { a } mutation B { b }";
        let named = prepare(both, Some("B")).unwrap();
        assert_eq!(named.operation, OperationType::Mutation);
        for name in [None, Some("")] {
            let only = prepare("subscription S { s }", name).unwrap();
            assert_eq!(only.name, Some(Name::new("S")));
        }
        assert_eq!(prepare("{ a }", None).unwrap().name, None);
        for (text, name) in [
            (both, None),
            (both, Some("")),
            (both, Some("C")),
            ("{ a }", Some("A")),
        ] {
            assert_eq!(
                prepare(text, name).unwrap_err().kind,
                RequestErrorKind::Invalid
            );
        }
    }

    #[test]
    fn a_refused_document_names_the_operation_that_was_chosen() {
        let both = "query A { a } mutation B { c }";
        for (text, wanted, chosen) in [
            ("query A { c }", None, Some("A")),
            ("{ c }", None, None),
            (both, Some("A"), Some("A")),
            (both, Some("C"), None),
            (both, None, None),
            ("query A { a", Some("A"), None),
        ] {
            let refused = prepare(text, wanted).unwrap_err();
            assert_eq!(refused.operation.as_deref(), chosen, "{text}");
        }
    }

    #[test]
    fn a_syntax_error_has_a_position_and_one_line() {
        for text in [
            "{",
            "}",
            "",
            "{ a(",
            "query { }",
            "fragment F on Q { a }",
            "\u{feff}",
            "{ a(b: 1x) }",
            "{ a(b: 18446744073709551616) }",
        ] {
            let refused = prepare(text, None).unwrap_err();
            assert_eq!(refused.kind, RequestErrorKind::Syntax, "{text}");
            assert!(!refused.message.contains('\n'), "{}", refused.message);
        }
        assert_eq!(
            prepare("{\n  a(\n}", None).unwrap_err().positions[0].line,
            3
        );
    }

    #[test]
    fn an_authenticated_execution_caches_its_document() {
        let documents = documents();
        let prepare = || documents.prepare("{ a }", None).unwrap();
        let (one, other) = (prepare(), prepare());
        assert!(!Arc::ptr_eq(&one.document, &other.document));
        one.cache();
        other.cache();
        let cached = prepare();
        assert!(cached.is_cached && Arc::ptr_eq(&one.document, &cached.document));
    }

    #[test]
    fn the_cache_is_bounded_by_entries_and_by_bytes() {
        let documents = documents();
        let cache = |text: &str| documents.prepare(text, None).unwrap().cache();
        for number in 0..DocumentCache::ENTRIES_MAX + 10 {
            cache(&format!("query q{number} {{ a }}"));
        }
        assert_eq!(documents.0.cached.size().0, DocumentCache::ENTRIES_MAX);
        let comment = "x".repeat(16_000);
        for number in 0..100 {
            cache(&format!("query b{number} {{ a }}#{comment}"));
        }
        let bytes = documents.0.cached.size().1;
        assert!(bytes <= DocumentCache::BYTES_MAX && bytes > DocumentCache::BYTES_MAX - 17_000);
    }

    #[test]
    fn a_document_weighs_at_least_its_fields_with_fragments_expanded() {
        let short = "query A { ...F } query B { ...F } query C { ...F } fragment F on Q { a b: a c: a d: a }";
        let prepared = prepare(short, Some("A")).unwrap();
        assert_eq!(
            weight(short, &prepared.document),
            3 * 4 * DocumentCache::FIELD_BYTES
        );
    }
}
