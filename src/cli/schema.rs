//! `wideroom schema`: prints the schema of the API.

use super::{Error, print};

pub(super) fn run() -> Result<(), Error> {
    print(crate::graphql::sdl().trim_end_matches('\n'))
}
