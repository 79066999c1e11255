//! Wideroom on a ring of three Cassandras: nodes and servers are killed, answers are lost, and no promise is broken.
//!
//! The ring is real and so is the server; its clients come over HTTP and WebSockets.

mod answers;
mod chaos;
mod club;
mod crowd;
mod doors;
mod faults;
mod hung;
mod line;
mod load;
mod novelties;
mod outbox;
pub(crate) mod place;
mod ranges;
mod restriction;
mod rolling_upgrade;
mod slow_nodes;
mod webhook;
mod wrong_clocks;
