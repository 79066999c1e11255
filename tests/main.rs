//! One test binary. The modules stand in the order in which one should read them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unreachable_pub,
    reason = "nothing outside of this binary reaches anything in it"
)]

mod api;
mod auth;
mod binary;
mod browser;
mod cassandra;
mod cli;
mod clients;
mod cluster;
mod delivery;
mod dependencies;
mod figures;
mod fuzz;
mod house;
mod live;
mod model;
mod operators;
mod pages;
mod power_cut;
mod quiet;
mod schema;
mod servers;
mod store;
mod support;
