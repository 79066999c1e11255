//! Cache of documents by their exact text. Parsing, checking and validating is most of the cost of
//! a small request.
//!
//! A document enters the cache when an authenticated viewer has executed it: clients without a
//! token cannot evict the documents of others.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_graphql::Name;
use async_graphql::parser::parse_query;
use async_graphql::parser::types::{ExecutableDocument, OperationType};
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::document::Prepared;
use super::limits::DocumentBounds;
use super::literal::SchemaTypes;
use super::request_error::RequestError;
use super::{guard, subscription_root};
use crate::metrics::CacheCounts;

/// Prepares documents and caches them. Evicts the least recently used ones first.
pub struct DocumentCache(Arc<DocumentCacheState>);

pub(super) struct DocumentCacheState {
    pub(super) bounds: DocumentBounds,
    pub(super) types: SchemaTypes,
    cached: Mutex<CachedDocuments>,
    counts: CacheCounts,
}

struct CachedDocuments {
    documents: LruCache<Arc<str>, CachedDocument>,
    bytes: usize,
}

#[derive(Clone)]
struct CachedDocument {
    document: Arc<ExecutableDocument>,
    is_valid: Arc<AtomicBool>,
}

impl DocumentCache {
    pub const ENTRIES_MAX: usize = 1_000;
    /// Bytes of text. A parsed document takes about twenty times as much memory.
    pub const BYTES_MAX: usize = 1024 * 1024;

    /// A cache for the documents of this schema.
    pub fn new(bounds: DocumentBounds, sdl: &str) -> Self {
        let cached = Mutex::new(CachedDocuments {
            documents: LruCache::unbounded(),
            bytes: 0,
        });
        Self(Arc::new(DocumentCacheState {
            bounds,
            types: SchemaTypes::of(sdl),
            cached,
            counts: CacheCounts::new("documents"),
        }))
    }

    /// Prepares the document of this text and picks its operation: by name, or the only one.
    pub fn prepare(
        &self,
        text: &str,
        operation_name: Option<&str>,
    ) -> Result<Prepared, RequestError> {
        let cache = &self.0;
        let cached = cache.lock().get(text);
        let (text, entry) = match cache.counts.count(cached) {
            Some(cached) => cached,
            None => (
                text.into(),
                CachedDocument {
                    document: Arc::new(cache.parse(text)?),
                    is_valid: Arc::default(),
                },
            ),
        };
        let CachedDocument { document, is_valid } = entry;
        let (operation, name) = pick(&document, operation_name)?;
        Ok(Prepared {
            document,
            operation,
            name,
            is_valid,
            text,
            cache: Arc::clone(cache),
        })
    }

    pub(in crate::graphql) fn counts(&self) -> &CacheCounts {
        &self.0.counts
    }
}

impl DocumentCacheState {
    fn parse(&self, text: &str) -> Result<ExecutableDocument, RequestError> {
        guard::check_text(text, &self.bounds)?;
        let mut document = parse_query(text)?;
        guard::check(&document, &self.bounds)?;
        subscription_root::flatten(&mut document)?;
        self.types.check(&document)?;
        Ok(document)
    }

    pub(super) fn insert(&self, prepared: &Prepared) {
        let entry = CachedDocument {
            document: Arc::clone(&prepared.document),
            is_valid: Arc::clone(&prepared.is_valid),
        };
        self.lock().insert(&prepared.text, entry);
    }

    fn lock(&self) -> MutexGuard<'_, CachedDocuments> {
        self.cached.lock()
    }
}

impl std::fmt::Debug for DocumentCacheState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentCache").finish_non_exhaustive()
    }
}

impl CachedDocuments {
    fn get(&mut self, text: &str) -> Option<(Arc<str>, CachedDocument)> {
        let entry = self.documents.get(text)?.clone();
        let (text, _) = self.documents.peek_mru()?;
        Some((Arc::clone(text), entry))
    }

    /// Ignores a document that another request has parsed and inserted at the same time.
    fn insert(&mut self, text: &Arc<str>, entry: CachedDocument) {
        if self.documents.contains(text) {
            return;
        }
        self.bytes += text.len();
        self.documents.push(Arc::clone(text), entry);
        while self.documents.len() > DocumentCache::ENTRIES_MAX
            || self.bytes > DocumentCache::BYTES_MAX
        {
            let Some((evicted, _)) = self.documents.pop_lru() else {
                break;
            };
            self.bytes -= evicted.len();
        }
    }
}

/// Picks the operation to execute.
fn pick(
    document: &ExecutableDocument,
    wanted: Option<&str>,
) -> Result<(OperationType, Option<Name>), RequestError> {
    let mut operations = document.operations.iter();
    let found = match wanted {
        Some(wanted) => operations
            .find(|(name, _)| name.is_some_and(|name| name == wanted))
            .ok_or_else(|| {
                RequestError::invalid(
                    "The document has no operation of the name in `operationName`.".to_owned(),
                )
            })?,
        None if operations.len() > 1 => {
            return Err(RequestError::invalid(
                "The document has several operations: say in `operationName` which one is meant."
                    .to_owned(),
            ));
        }
        None => operations
            .next()
            .ok_or_else(|| RequestError::invalid("The document has no operation.".to_owned()))?,
    };
    let (name, operation) = found;
    Ok((operation.node.ty, name.cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graphql::execution::RequestErrorKind;

    fn documents() -> DocumentCache {
        DocumentCache::new(DocumentBounds::default(), "")
    }

    fn prepare(text: &str, name: Option<&str>) -> Result<Prepared, RequestError> {
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
            assert_eq!(
                prepare(text, name).unwrap_err().kind,
                RequestErrorKind::Invalid
            );
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
            "{ a } { b }",
            "\u{feff}",
            "{ a(b: 1x) }",
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
        one.set_valid(false);
        assert!(
            !prepare().is_valid(),
            "an anonymous execution caches nothing"
        );
        one.set_valid(true);
        other.set_valid(true);
        assert!(prepare().is_valid() && Arc::ptr_eq(&one.document, &prepare().document));
    }

    #[test]
    fn the_cache_is_bounded_by_entries_and_by_bytes() {
        let documents = documents();
        for number in 0..DocumentCache::ENTRIES_MAX + 10 {
            documents
                .prepare(&format!("{{ a{number} }}"), None)
                .unwrap()
                .set_valid(true);
        }
        assert_eq!(
            documents.0.lock().documents.len(),
            DocumentCache::ENTRIES_MAX
        );
        let comment = "x".repeat(16_000);
        for number in 0..100 {
            documents
                .prepare(&format!("{{ b{number} }}#{comment}"), None)
                .unwrap()
                .set_valid(true);
        }
        let cache = documents.0.lock();
        let bytes: usize = cache.documents.iter().map(|(text, _)| text.len()).sum();
        assert!(
            bytes == cache.bytes
                && bytes <= DocumentCache::BYTES_MAX
                && bytes > DocumentCache::BYTES_MAX - 17_000
        );
    }
}
