//! Trusted documents: a list from a file, as client compilers write it. The server then executes no other document.
//!
//! A client names a document by its id, or sends exactly the text in the list.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::model::BYTE_ORDER_MARK;

/// Prefix of an id that is the hash of the text, in the draft's form.
const SHA256: &str = "sha256:";

/// Trusted documents by id and by text.
#[derive(Debug)]
pub struct TrustedDocuments {
    by_id: HashMap<String, Arc<str>>,
    texts: HashSet<Arc<str>>,
}

/// Reason for an unusable list.
#[derive(Debug, thiserror::Error)]
pub enum TrustedError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("must have at most {} MiB", TrustedDocuments::FILE_BYTES_MAX >> 20)]
    TooLarge,
    #[error("must be a JSON object of documents by their ids: {0}")]
    Form(#[from] serde_json::Error),
    #[error("must hold a document")]
    Empty,
}

/// File of Relay's compiler and graphql-codegen (`{"id": "document"}`), or the manifest of Apollo's tools.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "an object of texts, or a manifest with `operations`"
)]
enum DocumentFile {
    Manifest { operations: Vec<ManifestOperation> },
    Documents(HashMap<String, String>),
}

#[derive(Deserialize)]
struct ManifestOperation {
    id: String,
    body: String,
}

impl TrustedDocuments {
    pub const FILE_BYTES_MAX: u64 = 64 << 20;

    pub fn read(path: &Path) -> Result<Self, TrustedError> {
        let mut json = Vec::new();
        File::open(path)?
            .take(Self::FILE_BYTES_MAX + 1)
            .read_to_end(&mut json)?;
        if json.len() as u64 > Self::FILE_BYTES_MAX {
            return Err(TrustedError::TooLarge);
        }
        Self::parse(&json)
    }

    pub fn parse(json: &[u8]) -> Result<Self, TrustedError> {
        let json = json.strip_prefix(BYTE_ORDER_MARK).unwrap_or(json);
        let documents: Vec<(String, String)> = match serde_json::from_slice(json)? {
            DocumentFile::Manifest { operations } => operations
                .into_iter()
                .map(|operation| (operation.id, operation.body))
                .collect(),
            DocumentFile::Documents(documents) => documents.into_iter().collect(),
        };
        if documents.is_empty() {
            return Err(TrustedError::Empty);
        }
        let (mut by_id, mut texts) = (HashMap::new(), HashSet::new());
        let mut hashed = Vec::new();
        for (id, text) in documents {
            let text = Arc::<str>::from(text);
            hashed.push((hash(&text), Arc::clone(&text)));
            by_id.insert(id, Arc::clone(&text));
            texts.insert(text);
        }
        // The draft's own id is the hash. An id of the file takes precedence.
        for (id, text) in hashed {
            by_id.entry(id).or_insert(text);
        }
        Ok(Self { by_id, texts })
    }

    /// Number of documents.
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    pub(super) fn document(&self, id: &str) -> Option<&str> {
        let found = self
            .by_id
            .get(id)
            .or_else(|| self.by_id.get(id.strip_prefix(SHA256)?));
        found.map(|text| &**text)
    }

    pub(super) fn holds(&self, text: &str) -> bool {
        self.texts.contains(text)
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "query ($id: ID!) {\n  user(id: $id) {\n    name\n  }\n}";
    /// From the example of the draft's appendix.
    const HASH: &str = "7dba4bd717b41f10434822356a93c32b1fb4907b983e854300ad839f84cdcd6e";

    #[test]
    fn a_document_is_found_by_the_id_of_its_file_and_by_its_hash() {
        let json = serde_json::json!({ "my-id": TEXT });
        let manifest = serde_json::json!({
            "format": "apollo-persisted-query-manifest", "version": 1,
            "operations": [{ "id": "my-id", "name": "Q", "type": "query", "body": TEXT }],
        });
        for list in [json.to_string(), format!("\u{feff}{manifest}")] {
            let list = TrustedDocuments::parse(list.as_bytes()).unwrap();
            for id in ["my-id", "sha256:my-id", HASH, &format!("sha256:{HASH}")] {
                assert_eq!(list.document(id), Some(TEXT), "{id}");
            }
            for id in ["", "other", "sha256:", "md5:my-id"] {
                assert_eq!(list.document(id), None, "{id}");
            }
            assert!(list.holds(TEXT) && !list.holds("{ a }") && list.count() == 1);
        }
    }

    #[test]
    fn the_id_that_the_file_gives_goes_before_a_hash() {
        let list = serde_json::json!({ HASH: "{ other }", "b": TEXT }).to_string();
        let list = TrustedDocuments::parse(list.as_bytes()).unwrap();
        assert_eq!(list.document(HASH), Some("{ other }"));
    }

    #[test]
    fn other_json_is_refused() {
        for wrong in [
            "",
            "{",
            "[]",
            "7",
            "{}",
            "{\"a\": 1}",
            "{\"operations\": []}",
            "{\"operations\": [{\"id\": \"a\"}]}",
        ] {
            assert!(
                TrustedDocuments::parse(wrong.as_bytes()).is_err(),
                "{wrong}"
            );
        }
    }
}
