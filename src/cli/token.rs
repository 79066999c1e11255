//! `wideroom token`: prints one signed token. Never opens the store.

use std::time::Duration;

use super::settings::{DATA, SettingFlags};
use super::{Error, print};
use crate::auth::{Auth, TokenRules};
use crate::clock::{Clock as _, SystemClock};
use crate::config;
use crate::model::{ServiceRight, ServiceRights, UserId};

#[derive(clap::Args)]
pub(super) struct TokenFlags {
    /// Username in the token: 1 to 128 bytes of text without control characters. A name that begins with `agent:` is an
    /// agent's, and its token has the scope `wideroom:agent`
    #[arg(long, env = "WIDEROOM_USER", hide_env_values = true, value_name = "NAME", value_parser = UserId::parse_new, required_unless_present = "service", conflicts_with = "service")]
    user: Option<UserId>,
    /// Name of a service, instead of a user: the token of a backend
    #[arg(long, env = "WIDEROOM_SERVICE", hide_env_values = true, value_name = "NAME", value_parser = parse_service)]
    service: Option<UserId>,
    /// Rights of the service, several with commas between them: outbox, read, act, moderate, users, erase. Without it: all
    #[arg(long, env = "WIDEROOM_SCOPE", hide_env_values = true, value_name = "SCOPES", value_parser = parse_right, value_delimiter = ',', conflicts_with = "user")]
    scope: Vec<ServiceRight>,
    /// Lifetime of the token
    #[arg(long, env = "WIDEROOM_TTL", hide_env_values = true, value_name = "TIME", default_value = "24h", value_parser = config::parse_duration)]
    ttl: Duration,
    #[command(flatten)]
    given: SettingFlags<DATA>,
}

/// Parses the name of a person. Nothing lists the conversations of an agent, which is none.
pub(super) fn parse_person(text: &str) -> Result<UserId, String> {
    let user = UserId::parse_living(text).map_err(|error| error.to_string())?;
    match user.is_agent() {
        true => Err("an agent is no person, and no list has its conversations".to_owned()),
        false => Ok(user),
    }
}

/// Parses the name of a service. An agent has no right of a service.
fn parse_service(text: &str) -> Result<UserId, String> {
    let name = UserId::parse_new(text).map_err(|error| error.to_string())?;
    match name.is_agent() {
        true => Err(format!(
            "a name that begins with `{}` is an agent's: print its token with --user",
            UserId::AGENT_PREFIX
        )),
        false => Ok(name),
    }
}

/// Parses the scope of a right, with or without its prefix.
fn parse_right(text: &str) -> Result<ServiceRight, &'static str> {
    let name = text.strip_prefix("wideroom:").unwrap_or(text);
    ServiceRight::ALL
        .iter()
        .copied()
        .find(|right| right.scope().strip_prefix("wideroom:") == Some(name))
        .ok_or("a scope is outbox, read, act, moderate, users or erase")
}

pub(super) fn run(flags: &TokenFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    if let Some(max) = config.tokens.life_max.filter(|max| flags.ttl > *max) {
        return Err(Error::LongLife(max));
    }
    // The keys of a provider verify only, and replace the key of the data folder.
    let TokenRules { keys, keys_url, .. } = &config.tokens;
    let keys = keys.as_ref().map(|path| path.display().to_string());
    let provider = keys.or_else(|| keys_url.as_ref().map(ToString::to_string));
    if let (Some(provider), None) = (provider, &config.tokens.secret) {
        return Err(Error::OtherIssuer(provider));
    }
    let rules = TokenRules {
        secret: None,
        keys: None,
        keys_url: None,
        ..config.tokens.clone()
    };
    let auth = match &config.tokens.secret {
        Some(path) => Auth::open_secret(path)?,
        None => Auth::open(&config.data)?,
    };
    let (auth, now) = (auth.with_rules(rules)?, SystemClock.now());
    match (&flags.user, &flags.service) {
        (_, Some(service)) => {
            let rights = if flags.scope.is_empty() {
                ServiceRights::ALL
            } else {
                flags.scope.iter().copied().collect()
            };
            print(&auth.issue_service(service, rights, flags.ttl, now))
        }
        (Some(user), None) => print(&auth.issue(user, flags.ttl, now)),
        (None, None) => unreachable!("one of the two flags is required"),
    }
}
