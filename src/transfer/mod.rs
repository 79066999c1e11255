//! The import format: JSON lines, one fact each, between stores and from elsewhere.
//!
//! `line` is what stands in a line, `rows` what a line means to the store, `reader` cuts a file into lines, and `import` brings them in.
//! A line that is broken is named by its number and nothing of it is kept; the others go on. Importing twice is importing once.

pub mod import;
pub mod line;
#[cfg(test)]
mod memory;
pub mod reader;
mod rows;
mod spool;

pub use import::{Import, Outcome};
