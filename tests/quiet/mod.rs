//! Quiet time, in virtual time: all that has a lease, a heartbeat, a lifetime, a backoff, a poll or a cache runs through hours of
//! nothing, trickles and outages. An event after any time of quiet is delivered as if it were the first.
//!
//! The chat, the embedded store and the webhooks are the real ones. Time advances only while every task waits for a timer: it stands
//! still while a thread of the store works ([`store`]), and the receiver of webhooks has no sockets. So nothing depends on the speed of
//! the machine, and hours cost seconds. A cluster is two servers over one embedded store and the simulated directory of `delivery`.

mod background;
mod before_send;
mod live;
mod live_rights;
mod live_viewers;
mod presence;
mod screen;
mod settler;
mod store;
mod stream;
mod webhook;
mod world;
