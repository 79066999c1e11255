//! Delivery between servers, in virtual time, on an oracle of the directory: no acknowledged event
//! is missed by a stream, whatever the order of steps, whichever server dies or stalls, and
//! whatever the clocks show.
//!
//! Each run is one seed: latencies, faults and the actions of users and servers follow from it. The
//! protocol is the real one (`wideroom::cluster`); the log of events and the clients are a model.

mod cost;
pub(crate) mod directory;
mod properties;
mod registry;
mod scenario;
mod world;
