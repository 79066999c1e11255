//! Wideroom: a chat backend whose conversations are wide rows.
pub mod auth;
pub mod bus;
pub mod chat;
pub mod clock;
pub mod graphql;
pub mod model;
pub mod server;
pub mod store;
