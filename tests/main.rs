//! One test binary. The modules stand in the order in which one should read them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli;
