//! Requests to addresses that the operator has configured: signed POST as Standard Webhooks 1.0.0, and GET.
//!
//! [`SecretFile`] holds the secrets and follows their rotation, [`PostTarget`] is a checked address, and [`PostClient`] and
//! [`GetClient`] ask with a deadline and a bound of the answer. They follow no redirect and use no proxy.

mod client;
mod secret;
mod target;

pub use self::client::{GetClient, PostAnswer, PostClient, PostError, PostLimits, SignedMessage};
pub use self::secret::{SecretFile, SecretFileError, SigningSecrets};
pub use self::target::{Dialer, PostTarget};
