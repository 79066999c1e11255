//! `wideroom token`: prints one signed token. Never opens the store.

use super::{Error, TokenFlags, print};
use crate::auth::Auth;
use crate::clock::{Clock as _, SystemClock};

pub(super) fn run(flags: &TokenFlags) -> Result<(), Error> {
    let auth = Auth::open(&flags.given.config()?.data)?;
    print(&auth.issue(&flags.user, flags.ttl, SystemClock.now()))
}
