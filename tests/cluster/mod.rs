//! Wideroom on a ring of three Cassandras: nodes and servers are killed, answers are lost, and no promise is broken.
//!
//! The ring is real and so is the server; its clients come over HTTP and WebSockets.

mod answers;
mod chaos;
mod club;
mod crowd;
mod doors;
mod faults;
mod line;
pub(crate) mod place;
