//! Settings of access: accepted tokens, trusted origins and proxies, and switches for pages and introspection.

use std::time::Duration;

use super::{PageChoice, Scope, Setting, value};
use crate::auth::{BACKUP_AUDIENCE, DEMO_AUDIENCE};
use crate::model::UserId;
use crate::signed_post::PostTarget;

/// Settings of access, in the order of the help.
pub const ACCESS: &[Setting] = &[
    Setting {
        name: "token-keys-file",
        environment: "WIDEROOM_TOKEN_KEYS_FILE",
        scope: Scope::Data,
        value_name: Some("FILE"),
        help: "File of public keys that verify tokens, as PEM or JWKS, instead of the key in the data folder: RS256, ES256, EdDSA. The server reads it again when it changes",
        beyond: None,
        get: |config| show_path(config.tokens.keys.as_deref()),
        set: |config, text| value::set_option(&mut config.tokens.keys, text),
    },
    Setting {
        name: "jwks-url",
        environment: "WIDEROOM_JWKS_URL",
        scope: Scope::Data,
        value_name: Some("URL"),
        help: "Address (https) of an identity provider's public keys, a JWKS, that verify tokens instead of the key in the data folder: RS256, ES256, EdDSA. The server fetches it every ten minutes, and uses the last keys for a day while the provider is away",
        beyond: None,
        get: |config| {
            let url = config.tokens.keys_url.as_ref();
            url.map_or_else(|| "none".to_owned(), ToString::to_string)
        },
        set: |config, text| {
            config.tokens.keys_url = match text {
                "none" => None,
                text if text.starts_with("http:") => {
                    return Err("must begin with https://".to_owned());
                }
                text => Some(PostTarget::parse(text, false)?),
            };
            Ok(())
        },
    },
    Setting {
        name: "token-secret-file",
        environment: "WIDEROOM_TOKEN_SECRET_FILE",
        scope: Scope::Data,
        value_name: Some("FILE"),
        help: "File of a secret of at least 32 bytes that verifies tokens (HS256) and signs those of `wideroom token`, instead of the key in the data folder. The server reads it again when it changes",
        beyond: None,
        get: |config| show_path(config.tokens.secret.as_deref()),
        set: |config, text| value::set_option(&mut config.tokens.secret, text),
    },
    Setting {
        name: "token-audience",
        environment: "WIDEROOM_TOKEN_AUDIENCE",
        scope: Scope::Data,
        value_name: Some("NAME"),
        help: "Required audience of tokens (`aud`); without it the server refuses tokens with an audience",
        beyond: None,
        get: |config| {
            config
                .tokens
                .audience
                .clone()
                .unwrap_or_else(|| "none".to_owned())
        },
        set: |config, text| {
            // A user's token with one of these would open a backup, or pass for a token of a demo.
            if [BACKUP_AUDIENCE, DEMO_AUDIENCE].contains(&text) {
                return Err(
                    "must be another name: the server reserves this one for its own tokens"
                        .to_owned(),
                );
            }
            value::set_option(&mut config.tokens.audience, text)
        },
    },
    Setting {
        name: "token-issuer",
        environment: "WIDEROOM_TOKEN_ISSUER",
        scope: Scope::Data,
        value_name: Some("NAME"),
        help: "Required issuer of tokens (`iss`)",
        beyond: None,
        get: |config| {
            config
                .tokens
                .issuer
                .clone()
                .unwrap_or_else(|| "none".to_owned())
        },
        set: |config, text| value::set_option(&mut config.tokens.issuer, text),
    },
    Setting {
        name: "token-leeway",
        environment: "WIDEROOM_TOKEN_LEEWAY",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Tolerated difference between the clocks of the issuer and the server",
        beyond: None,
        get: |config| value::show_duration(config.tokens.leeway),
        set: |config, text| {
            config.tokens.leeway = value::parse_duration(text)?;
            Ok(())
        },
    },
    Setting {
        name: "token-life-max",
        environment: "WIDEROOM_TOKEN_LIFE_MAX",
        scope: Scope::Data,
        value_name: Some("TIME"),
        help: "Longest accepted life of a token, from `iat` to `exp` (from now, without `iat`)",
        beyond: None,
        get: |config| {
            config
                .tokens
                .life_max
                .map_or_else(|| "none".to_owned(), value::show_duration)
        },
        set: |config, text| {
            let mut life = Duration::ZERO;
            config.tokens.life_max = if text == "none" {
                None
            } else {
                value::set_time(&mut life, text).map(|()| Some(life))?
            };
            Ok(())
        },
    },
    Setting {
        name: "service-subjects",
        environment: "WIDEROOM_SERVICE_SUBJECTS",
        scope: Scope::Serve,
        value_name: Some("NAMES"),
        help: "Subjects, with commas between them, that are services when a key of token-keys-file or jwks-url signed their token and it has a scope of services, such as `wideroom:service`",
        beyond: None,
        get: |config| {
            let names = &config.tokens.service_subjects;
            if names.is_empty() {
                return "none".to_owned();
            }
            names
                .iter()
                .map(UserId::as_str)
                .collect::<Vec<_>>()
                .join(",")
        },
        set: |config, text| {
            let names = text.split(',').filter(|_| text != "none");
            config.tokens.service_subjects = names
                .map(|name| UserId::parse(name.trim()))
                .collect::<Result<_, _>>()
                .map_err(|_| "must be usernames with commas between them, or none")?;
            Ok(())
        },
    },
    Setting {
        name: "cors-origins",
        environment: "WIDEROOM_CORS_ORIGINS",
        scope: Scope::Serve,
        value_name: Some("ORIGINS"),
        help: "Origins whose pages may use the API and open sockets, with commas between them, or *; the server's own origin always may",
        beyond: None,
        get: |config| config.server.origins.to_string(),
        set: |config, text| value::set_parsed(&mut config.server.origins, text),
    },
    Setting {
        name: "trusted-proxies",
        environment: "WIDEROOM_TRUSTED_PROXIES",
        scope: Scope::Serve,
        value_name: Some("NETWORKS"),
        help: "Proxies whose X-Forwarded-For the server believes, as 10.0.0.0/8,::1; without it all clients behind a proxy count as one address",
        beyond: None,
        get: |config| config.server.proxies.to_string(),
        set: |config, text| value::set_parsed(&mut config.server.proxies, text),
    },
    Setting {
        name: "introspection",
        environment: "WIDEROOM_INTROSPECTION",
        scope: Scope::Serve,
        value_name: Some("on|off"),
        help: "Whether clients may query the schema",
        beyond: None,
        get: |config| value::show_switch(config.documents.introspection),
        set: |config, text| {
            config.documents.introspection = value::switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "compression",
        environment: "WIDEROOM_COMPRESSION",
        scope: Scope::Serve,
        value_name: Some("on|off"),
        help: "Whether the server compresses answers over 4 KiB with gzip for clients that accept it; their size then tells a little about their text",
        beyond: None,
        get: |config| value::show_switch(config.server.compression),
        set: |config, text| {
            config.server.compression = value::switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "pages",
        environment: "WIDEROOM_PAGES",
        scope: Scope::Serve,
        value_name: Some("on|off|auto"),
        help: "Whether the server serves the pages at / and /demo; auto: only if --listen is a loopback address",
        beyond: None,
        get: |config| match config.pages {
            PageChoice::Auto => "auto".to_owned(),
            PageChoice::On => "on".to_owned(),
            PageChoice::Off => "off".to_owned(),
        },
        set: |config, text| {
            config.pages = match text {
                "auto" => PageChoice::Auto,
                text => match value::switch(text).map_err(|_| "must be on, off or auto")? {
                    true => PageChoice::On,
                    false => PageChoice::Off,
                },
            };
            Ok(())
        },
    },
    Setting {
        name: "search",
        environment: "WIDEROOM_SEARCH",
        scope: Scope::Serve,
        value_name: Some("on|off"),
        help: "Whether messages are indexed for search; without an index searches read history",
        beyond: None,
        get: |config| value::show_switch(config.chat.is_search_indexed),
        set: |config, text| {
            config.chat.is_search_indexed = value::switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "presence-consent",
        environment: "WIDEROOM_PRESENCE_CONSENT",
        scope: Scope::Serve,
        value_name: Some("on|off"),
        help: "Whether a user's presence shows in a conversation only once they sent or read there; off is for closed apps, and shows it in every direct conversation and small group",
        beyond: None,
        get: |config| value::show_switch(config.chat.needs_presence_consent),
        set: |config, text| {
            config.chat.needs_presence_consent = value::switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "rates",
        environment: "WIDEROOM_RATES",
        scope: Scope::Serve,
        value_name: Some("on|off"),
        help: "Whether rates and limits of users and addresses hold; off is for load tests",
        beyond: None,
        get: |config| value::show_switch(config.server.rates.is_on),
        set: |config, text| {
            let is_on = value::switch(text)?;
            (config.server.rates.is_on, config.chat.rates.is_on) = (is_on, is_on);
            Ok(())
        },
    },
];

fn show_path(path: Option<&std::path::Path>) -> String {
    path.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}
