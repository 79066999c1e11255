//! Signed POST requests to addresses that the operator has configured, as Standard Webhooks 1.0.0.
//!
//! [`SecretFile`] holds the secrets and follows their rotation, [`PostTarget`] is a checked address, and [`PostClient`] sends
//! with a deadline and a bound of the answer. It follows no redirect and uses no proxy.

mod client;
mod secret;
mod target;

pub use self::client::{PostAnswer, PostClient, PostError, PostLimits, SignedMessage};
pub use self::secret::{SecretFile, SecretFileError, SigningSecrets};
pub use self::target::{Dialer, PostTarget};
