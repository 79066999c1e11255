//! `wideroom default-config`: prints a configuration file with every setting and its default.

use super::{Error, print};
use crate::config;

pub(super) fn run() -> Result<(), Error> {
    print(config::default_file().trim_end())
}
