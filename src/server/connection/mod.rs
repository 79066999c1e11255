//! Connections: accepting them within a bound, and their bytes below HTTP, with a deadline for each read and write.

mod listener;
mod permits;
mod state;
mod transport;
mod write_timeout;

pub(crate) use self::listener::{ListenerConfig, accept};
pub(crate) use self::permits::{Evicted, Permit, Permits};
pub(crate) use self::state::ConnectionState;
pub use self::transport::HeadBounds;
pub use self::write_timeout::PaceBounds;
