//! Settings of access: accepted tokens, trusted origins and proxies, and switches for pages and introspection.

use super::value::{self, setting};
use super::{PageChoice, Scope, Setting};
use crate::auth::{BACKUP_AUDIENCE, DEMO_AUDIENCE};
use crate::model::UserId;
use crate::signed_post::PostTarget;

/// Settings of access, in the order of the help.
pub const ACCESS: &[Setting] = &[
    setting!(file Data "token-keys-file" "WIDEROOM_TOKEN_KEYS_FILE" tokens.keys "File of public keys that verify tokens, as PEM or JWKS, instead of the key in the data folder: RS256, ES256, EdDSA. The server reads it again when it changes"),
    setting!(Data "jwks-url" "WIDEROOM_JWKS_URL" "URL" tokens.keys_url "Address (https) of an identity provider's public keys, a JWKS, that verify tokens instead of the key in the data folder: RS256, ES256, EdDSA. The server fetches it every ten minutes, and uses the last keys for a day while the provider is away";
        |url| value::show_option(url.as_ref(), "none", ToString::to_string),
        |text| value::parse_option(text, "none", |text| match text.starts_with("http:") {
            true => Err("must begin with https://".to_owned()),
            false => PostTarget::parse(text, false),
        })?),
    setting!(file Data "token-secret-file" "WIDEROOM_TOKEN_SECRET_FILE" tokens.secret "File of a secret of at least 32 bytes that verifies tokens (HS256) and signs those of `wideroom token`, instead of the key in the data folder. The server reads it again when it changes"),
    setting!(Data "token-audience" "WIDEROOM_TOKEN_AUDIENCE" "NAME" tokens.audience "Required audience of tokens (`aud`); without it the server refuses tokens with an audience";
    |name| value::show_option(name.clone(), "none", |name| name),
    // A user's token with one of these would open a backup, or pass for a token of a demo.
    |text| match [BACKUP_AUDIENCE, DEMO_AUDIENCE].contains(&text) {
        true => return Err("must be another name: the server reserves this one for its own tokens".to_owned()),
        false => value::parse_option(text, "none", value::parse_text)?,
    }),
    setting!(Data "token-issuer" "WIDEROOM_TOKEN_ISSUER" "NAME" tokens.issuer "Required issuer of tokens (`iss`)";
        |name| value::show_option(name.clone(), "none", |name| name),
        |text| value::parse_option(text, "none", value::parse_text)?),
    setting!(delay Serve "token-leeway" "WIDEROOM_TOKEN_LEEWAY" tokens.leeway "Tolerated difference between the clocks of the issuer and the server"),
    setting!(Data "token-life-max" "WIDEROOM_TOKEN_LIFE_MAX" "TIME" tokens.life_max "Longest accepted life of a token, from `iat` to `exp` (from now, without `iat`)";
        |time| value::show_option(*time, "none", value::show_duration),
        |text| value::parse_option(text, "none", value::parse_time)?),
    setting!(Serve "service-subjects" "WIDEROOM_SERVICE_SUBJECTS" "NAMES" tokens.service_subjects "Subjects, with commas between them, that are services when a key of token-keys-file or jwks-url signed their token and it has a scope of services, such as `wideroom:service`";
    |names| match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().map(UserId::as_str).collect::<Vec<_>>().join(","),
    },
    |text| {
        let names = text.split(',').filter(|_| text != "none");
        let names = names.map(|name| UserId::parse(name.trim()));
        names.collect::<Result<_, _>>().map_err(|_| "must be usernames with commas between them, or none")?
    }),
    setting!(Serve "cors-origins" "WIDEROOM_CORS_ORIGINS" "ORIGINS" server.origins "Origins whose pages may use the API and open sockets, with commas between them, or *; the server's own origin always may";
        |origins| origins.to_string(),
        |text| text.parse()?),
    setting!(Serve "trusted-proxies" "WIDEROOM_TRUSTED_PROXIES" "NETWORKS" server.proxies "Proxies whose X-Forwarded-For the server believes, as 10.0.0.0/8,::1; without it all clients behind a proxy count as one address";
        |proxies| proxies.to_string(),
        |text| text.parse()?),
    setting!(switch Serve "introspection" "WIDEROOM_INTROSPECTION" documents.introspection "Whether clients may query the schema"),
    setting!(switch Serve "compression" "WIDEROOM_COMPRESSION" server.compression "Whether the server compresses answers over 4 KiB with gzip for clients that accept it; their size then tells a little about their text"),
    setting!(Serve "pages" "WIDEROOM_PAGES" "on|off|auto" pages "Whether the server serves the pages at / and /demo; auto: only if --listen is a loopback address";
    |pages| match pages {
        PageChoice::Auto => "auto".to_owned(),
        PageChoice::On => "on".to_owned(),
        PageChoice::Off => "off".to_owned(),
    },
    |text| match text {
        "auto" => PageChoice::Auto,
        text => match value::parse_switch(text).map_err(|_| "must be on, off or auto")? {
            true => PageChoice::On,
            false => PageChoice::Off,
        },
    }),
    setting!(switch Serve "search" "WIDEROOM_SEARCH" chat.is_search_indexed "Whether messages are indexed for search; without an index searches read history"),
    setting!(switch Serve "presence-consent" "WIDEROOM_PRESENCE_CONSENT" chat.needs_presence_consent "Whether a user's presence shows in a conversation only once they sent or read there; off is for closed apps, and shows it in every direct conversation and small group"),
    Setting {
        name: "rates",
        environment: "WIDEROOM_RATES",
        scope: Scope::Serve,
        value_name: Some("on|off"),
        help: "Whether rates and limits of users and addresses hold; off is for load tests",
        beyond: None,
        get: |config| value::show_switch(config.server.rates.is_on),
        set: |config, text| {
            let is_on = value::parse_switch(text)?;
            (config.server.rates.is_on, config.chat.rates.is_on) = (is_on, is_on);
            Ok(())
        },
    },
];
