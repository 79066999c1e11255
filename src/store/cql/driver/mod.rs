//! Driver: the connection to the cluster, prepared statements and their values, the schema and its migrations.
//!
//! This folder knows CQL and the tables, and nothing of conversations or messages.

pub(crate) mod address;
pub(crate) mod connect;
pub(crate) mod connection;
mod data_centre;
pub(crate) mod error;
pub(crate) mod executor;
pub(crate) mod migrate;
pub(crate) mod next_version;
pub(crate) mod nodes;
mod open_error;
mod request;
pub(crate) mod schema;
mod scylladb;
pub(crate) mod statement;
mod unprepared;
pub(crate) mod upgrade;
pub(crate) mod value;

pub use self::open_error::ClusterOpenError;
