//! `wideroom token`: prints one signed token. Never opens the store.

use super::{Error, TokenFlags, print};
use crate::auth::{Auth, TokenRules};
use crate::clock::{Clock as _, SystemClock};

pub(super) fn run(flags: &TokenFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    if let Some(max) = config.tokens.life_max.filter(|max| flags.ttl > *max) {
        return Err(Error::LongLife(max));
    }
    // The files of other keys are the server's: this signs with the one of the data folder.
    let rules = TokenRules {
        secret: None,
        keys: None,
        ..config.tokens
    };
    let auth = Auth::open(&config.data)?.with_rules(rules)?;
    print(&auth.issue(&flags.user, flags.ttl, SystemClock.now()))
}
