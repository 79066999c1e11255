//! Wideroom: a chat backend whose conversations are wide rows.
pub mod auth;
pub mod bus;
pub mod cli;
pub mod clock;
pub mod config;
pub mod model;
pub mod store;
pub mod telemetry;
pub mod transfer;
