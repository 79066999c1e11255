//! Preparation of documents, and the budget of their answers: everything about an operation but its
//! resolvers.
//!
//! [`DocumentCache::prepare`] parses the text within its bounds (`syntax`), applies the limits
//! (`guard`), validates the document (`validation`) and merges the selections of each operation
//! (`merged_operation`). [`Prepared::coerce`] then checks the variables of one request (`variable`)
//! and computes its price (`cost`).

mod budget;
mod cost;
mod document;
mod document_cache;
mod guard;
mod limits;
mod merged_operation;
mod omission;
mod request_error;
mod schema_types;
mod selections;
mod syntax;
mod validation;
mod variable;

pub use budget::{ANSWER_BYTES_MAX, AnswerAccount, AnswerBudget, Exceeded, HeldBytes};
pub use cost::OperationCost;
pub use document::{CoercedVariables, Prepared};
pub use document_cache::DocumentCache;
pub use limits::{DocumentBounds, ExecutionLimits};
pub use request_error::{RequestError, RequestErrorKind, is_request_error};
pub use schema_types::SchemaTypes;
pub(in crate::graphql) use selections::{each_field, each_field_of};
