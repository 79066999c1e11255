//! What tests of several areas share.

pub mod cassandra;
pub mod client;
pub mod nats;
pub mod node;
pub mod program;
pub mod server;
pub mod words;
pub mod world;
pub mod worst;
