//! `wideroom schema`: prints the API's schema, as it is committed.

use super::{Error, print};

pub(super) fn run() -> Result<(), Error> {
    print(crate::graphql::sdl().trim_end_matches('\n'))
}
