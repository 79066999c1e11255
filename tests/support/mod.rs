//! Fixtures and clients that several test areas share.

pub mod admin;
pub mod as_agent;
pub mod cases;
pub mod cassandra;
pub mod client;
pub mod clocked_server;
pub mod cost;
pub mod door;
pub mod faketime;
pub mod go;
pub mod ground;
pub mod java;
pub mod nats;
pub mod node;
pub mod peer;
pub mod port;
pub mod program;
pub mod proxy;
pub mod python;
pub mod receiver;
pub mod server;
pub mod size;
pub mod tool;
pub mod words;
pub mod world;
pub mod worst;
