//! Import and export: JSON lines, one fact each, between stores and from other systems.
//!
//! - `line`: the fields of a line.
//! - `row`: the rows of a line, validated; `format` turns a row into its line again.
//! - `reader`: cuts a file into lines; `import` writes their rows into a store.
//! - `export`: writes the rows of a store, into a `partial` file until it is complete.
//!
//! A broken line is reported by its number and imported not at all; the others are imported. Importing
//! a file twice is importing it once.

pub mod export;
mod format;
pub mod import;
mod import_run;
pub mod line;
mod long_histories;
pub mod partial;
mod progress;
pub mod reader;
mod row;
mod rules;
mod spool;

use rustix::fs::OFlags;

pub use export::Export;
pub use import::Import;

/// Flag of files whose names others can guess: a link that another user has put there is not followed.
const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
