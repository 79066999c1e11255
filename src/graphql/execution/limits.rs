//! Limits: the size of one document, and the bytes and the pace of its execution.

use std::sync::Arc;

use super::budget::AnswerBudget;
use crate::rate::Pace;

/// Limits of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentBounds {
    pub bytes: usize,
    pub tokens: usize,
    /// Brackets of any kind, open at once.
    pub nesting: usize,
    pub operations: usize,
    /// Fields of one operation, fragments expanded, without those of introspection.
    pub fields: usize,
    /// Fields inside one another, leaves included.
    pub depth: usize,
    pub aliases: usize,
    pub directives: usize,
    /// Spreads and inline fragments, fragments expanded.
    pub spreads: usize,
    pub root_fields: usize,
    /// Fields of the answer of a query, each multiplied by the page sizes around it. Checked with
    /// the variables of each request.
    pub complexity: usize,
    /// The same limit for the payload of a mutation, and of each event of a subscription.
    pub payload_complexity: usize,
    /// The same limit for an event of `outbox`, which services alone read.
    pub outbox_complexity: usize,
    /// Whether introspection is allowed. `__typename` always is.
    pub introspection: bool,
    pub introspection_fields: usize,
    pub introspection_depth: usize,
    /// Introspection lists inside one another, such as the fields of the types of fields. Each
    /// level multiplies the answer.
    pub introspection_lists: usize,
}

impl Default for DocumentBounds {
    fn default() -> Self {
        Self {
            bytes: 16 * 1024,
            tokens: 2_000,
            nesting: 64,
            operations: 10,
            fields: 500,
            depth: 12,
            aliases: 30,
            directives: 50,
            spreads: 200,
            root_fields: 20,
            complexity: 10_000,
            payload_complexity: 1_000,
            outbox_complexity: 20_000,
            introspection: true,
            introspection_fields: 500,
            introspection_depth: 20,
            introspection_lists: 2,
        }
    }
}

/// Byte budget and pace of one execution.
#[derive(Clone)]
pub struct ExecutionLimits {
    /// Budget of the answer, or of one event of a subscription. The reader of the stream rewinds it
    /// after each event.
    pub budget: Arc<AnswerBudget>,
    /// Rate limit of the executions of a subscription's events.
    pub pace: Pace,
}
