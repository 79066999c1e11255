//! What tests of several areas share.

pub mod words;
pub mod world;
