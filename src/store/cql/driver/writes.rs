//! Writes of one batch, and the statements that they belong to.

use scylla::statement::batch::BatchType;
use scylla::value::MaybeUnset;

use super::next_version;
use super::statement::Statement;
use super::value::{Value, Values};

/// Writes of one batch. Those to one partition are a single mutation; others go through the cluster's batch log.
#[derive(Clone)]
pub(crate) struct Writes {
    pub(super) kind: BatchType,
    pub(super) statements: Vec<&'static Statement>,
    pub(super) values: Vec<Values>,
}

impl Writes {
    /// To any partitions: all or nothing, as the cluster itself completes a logged batch.
    pub(crate) fn logged() -> Self {
        Self::of(BatchType::Logged)
    }

    /// To one partition.
    pub(crate) fn of_one_partition() -> Self {
        Self::of(BatchType::Unlogged)
    }

    fn of(kind: BatchType) -> Self {
        Self {
            kind,
            statements: Vec::new(),
            values: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, statement: &'static Statement, values: Values) {
        if let Some(further) = next_version::further_row(statement, &values) {
            self.statements.push(statement);
            self.values.push(further);
        }
        self.statements.push(statement);
        self.values.push(values);
    }

    /// Adds a write unless the batch has the same one already.
    pub(crate) fn push_once(&mut self, statement: &'static Statement, values: Values) {
        let is_same = |other: &Values| {
            other
                .iter()
                .zip(&values)
                .all(|(one, other)| is_same_value(one, other))
        };
        let mut present = self.statements.iter().zip(&self.values);
        if !present.any(|(other, others)| std::ptr::eq(*other, statement) && is_same(others)) {
            self.push(statement, values);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (MaybeUnset::Set(one), MaybeUnset::Set(other)) => one == other,
        (MaybeUnset::Unset, MaybeUnset::Unset) => true,
        (MaybeUnset::Set(_), MaybeUnset::Unset) | (MaybeUnset::Unset, MaybeUnset::Set(_)) => false,
    }
}
