//! What nobody would send on purpose, and some do: at random, for a few seconds. No panic, no `INTERNAL`, and the server is alive after.
//!
//! Each case is a tape of numbers, by which something valid is put together and then damaged. What fails is made smaller by itself, and
//! printed. `WIDEROOM_FUZZ_SECONDS` makes each of them go on for longer.

mod cursor;
mod document;
mod frame;
mod import;
mod server;
mod tape;
mod token;
mod worst;
