//! `wideroom check-config`: prints the settings in force and their sources. It reads the files that they name, and opens no store.

use super::settings::{SERVE, SettingFlags};
use super::{Error, print, warnings};
use crate::auth::Auth;
use crate::chat::SendHook;
use crate::server::TrustedDocuments;
use crate::{config, telemetry, webhook};

pub(super) fn run(given: &SettingFlags<SERVE>) -> Result<(), Error> {
    let (config, sources) = given.resolve()?;
    telemetry::check(&config.log)?;
    // Checks the operator's files only, and does not create the key of the data folder.
    Auth::with_secret(&[]).with_rules(config.tokens.clone())?;
    if let Some(path) = &config.trusted_documents {
        TrustedDocuments::read(path).map_err(|source| Error::Trusted {
            path: path.clone(),
            source,
        })?;
    }
    if !config.webhooks.is_empty() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        for webhook in &config.webhooks {
            runtime.block_on(webhook::check(webhook))?;
        }
    }
    if let Some(hook) = &config.before_send {
        SendHook::open(hook)?;
    }
    for warning in warnings(&config) {
        eprintln!("wideroom: {warning}");
    }
    print(config::in_force(&config, &sources).trim_end())
}
