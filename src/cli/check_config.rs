//! `wideroom check-config`: what would be in force, and from where. Looks at the files that it names, and opens nothing else.

use super::settings::{Given, SERVE};
use super::{Error, print};
use crate::auth::Auth;
use crate::server::TrustedDocuments;
use crate::{config, telemetry};

pub(super) fn run(given: &Given<SERVE>) -> Result<(), Error> {
    let (config, sources) = given.resolve()?;
    telemetry::check(&config.log)?;
    // The key of the data folder is not made by looking: what is checked are the files of the operator.
    Auth::with_secret(&[]).with_rules(config.tokens.clone())?;
    if let Some(path) = &config.trusted_documents {
        TrustedDocuments::read(path).map_err(|source| Error::Trusted {
            path: path.clone(),
            source,
        })?;
    }
    print(config::in_force(&config, &sources).trim_end())
}
