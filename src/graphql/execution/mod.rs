//! Preparation of documents, and the budget of their answers: everything about an operation but its
//! resolvers.
//!
//! [`DocumentCache::prepare`] measures the text (`lexer`), parses it, applies the limits (`guard`),
//! inlines the fragments at the root of a subscription and checks the literals (`literal`).
//! [`Prepared::coerce`] then checks the variables of one request (`variable`) and computes its
//! price (`cost`).

mod budget;
mod cost;
mod document;
mod document_cache;
mod guard;
mod introspection;
mod lexer;
mod limits;
mod literal;
mod request_error;
mod subscription_root;
mod variable;

pub use budget::{ANSWER_BYTES_MAX, AnswerAccount, AnswerBudget, Exceeded, HeldBytes};
pub use cost::OperationCost;
pub use document::{CoercedVariables, Prepared};
pub use document_cache::DocumentCache;
pub use limits::{DocumentBounds, ExecutionLimits};
pub use request_error::{RequestError, RequestErrorKind, is_request_error};
