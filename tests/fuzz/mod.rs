//! Fuzzing with random input for a few seconds. The server must not panic, must not answer `INTERNAL`, and must stay alive.
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
