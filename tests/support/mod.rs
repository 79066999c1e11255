//! What tests of several areas share.

pub mod cassandra;
pub mod client;
pub mod program;
pub mod server;
pub mod words;
pub mod world;
