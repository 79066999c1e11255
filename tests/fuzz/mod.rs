//! What nobody would send on purpose, and some do: at random, for a few seconds. No panic, no `INTERNAL`, no growth.

mod worst;
