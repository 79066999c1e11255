//! Wideroom: a chat backend whose conversations are wide rows.
pub mod bus;
pub mod chat;
pub mod clock;
pub mod graphql;
pub mod model;
pub mod store;
