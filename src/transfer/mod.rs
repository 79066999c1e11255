//! The format between stores, and from elsewhere: JSON lines, one fact each.
//!
//! `line` is what stands in a line, `rows` what a line means to a store and `written` the way back. `reader` cuts a file into lines and
//! `import` brings them in; `export` writes them, into a `partial` file until it is whole. A line that is broken is named by its number and
//! nothing of it is kept; the others go on. Importing twice is importing once.

pub mod export;
pub mod import;
pub mod line;
#[cfg(test)]
mod memory;
pub mod partial;
pub mod reader;
mod rows;
mod spool;
mod written;

pub use export::Export;
pub use import::Import;
