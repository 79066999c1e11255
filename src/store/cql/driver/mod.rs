//! CQL and its tables: the connection, prepared statements and their values, the schema and its migrations.

pub(crate) mod address;
pub(crate) mod clock_skew;
pub(crate) mod connect;
pub(crate) mod error;
pub(crate) mod executor;
pub(crate) mod migrate;
pub(crate) mod schema;
pub(crate) mod statement;
#[cfg(test)]
pub(crate) mod statements_test;
pub(crate) mod value;
