//! Pure code against properties: the order of ids, the generator that gives them, and the registers that keep the greatest.

mod generator;
mod id;
mod marker;
