//! Wideroom: a chat backend whose conversations are wide rows.
pub mod auth;
pub mod bus;
pub mod chat;
pub mod cli;
pub mod clock;
pub mod config;
pub mod graphql;
pub mod model;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod transfer;
