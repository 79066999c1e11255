//! Wideroom: a chat backend whose conversations are wide rows.
pub mod bus;
pub mod clock;
pub mod model;
pub mod server;
pub mod store;
