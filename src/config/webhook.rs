//! Webhooks of the configuration file: the only place that names an address which the server calls.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strum::VariantArray as _;

use crate::chat::{NOTIFICATION, OutboxTypes, ReaderName};
use crate::model::OutboxEventKind;
use crate::signed_post::PostTarget;
use crate::webhook::{WEBHOOKS_MAX, WebhookSettings};

/// Name of the tables.
pub(super) const WEBHOOK: &str = "webhook";

/// Example in the default configuration.
pub(super) const EXAMPLE: &str = r#"
# == Webhooks ==

# Each table sends the events of the outbox (`wideroom outbox on`) to one receiver, signed as Standard Webhooks 1.0.0.
# The secret file holds a line `whsec_…`, the base64 of 24 to 64 bytes; two lines while the secret rotates.
# Without `types` all kinds of events are sent but NOTIFICATION, which names the users to notify of a message. `document` is a subscription on `outbox`, whose answer is the payload.
# Plain http:// needs `allow_http = true`. A webhook with another name begins with the next event.
# [[webhook]]
# name = "backend"
# url = "https://backend.example/wideroom"
# secret_file = "/etc/wideroom/backend.secret"
# types = ["MESSAGE_ADDED", "MESSAGE_DELETED"]
# document = "subscription { outbox { id conversation { id } event { ... on MessageAddedEvent { messageEdge { node { id body } } } } } }"
"#;

/// Keys of one table.
#[derive(serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct WebhookTable {
    name: String,
    url: String,
    secret_file: PathBuf,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow_http: bool,
    types: Option<Vec<String>>,
    document: Option<String>,
}

/// Parses the tables of a file. `Err` never repeats an address, whose query may hold a secret.
pub(super) fn parse(value: &toml::Value) -> Result<Vec<WebhookSettings>, String> {
    let Some(tables) = value.as_array() else {
        return Err("webhook: must be tables, each under [[webhook]]".to_owned());
    };
    if tables.len() > WEBHOOKS_MAX {
        return Err(format!("webhook: at most {WEBHOOKS_MAX}"));
    }
    let all: Vec<_> = tables.iter().map(one).collect::<Result<_, _>>()?;
    let names: BTreeSet<_> = all.iter().map(|webhook| &webhook.name).collect();
    if names.len() < all.len() {
        return Err("webhook: each needs a name of its own".to_owned());
    }
    Ok(all)
}

fn one(value: &toml::Value) -> Result<WebhookSettings, String> {
    let table: WebhookTable = value
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| format!("webhook: {}", error.message()))?;
    let wrong = |key: &str, reason: &str| format!("webhook.{key}: {reason}");
    let name = ReaderName::parse(&table.name).ok_or_else(|| {
        wrong(
            "name",
            "must have 1 to 64 ASCII letters, digits, `-` and `_`",
        )
    })?;
    let target =
        PostTarget::parse(&table.url, table.allow_http).map_err(|reason| wrong("url", &reason))?;
    let types = table
        .types
        .map_or(Ok(OutboxTypes::default()), |names| types_of(&names));
    Ok(WebhookSettings {
        name,
        target,
        url: table.url,
        allow_http: table.allow_http,
        secret_file: table.secret_file,
        types: types.map_err(|reason| wrong("types", &reason))?,
        document: table.document,
    })
}

fn types_of(names: &[String]) -> Result<OutboxTypes, String> {
    if names.is_empty() {
        return Err("must not be empty; leave it out for all".to_owned());
    }
    OutboxTypes::parse(names).map_err(|name| {
        let known = OutboxEventKind::VARIANTS.iter();
        let known: Vec<_> = known.map(OutboxEventKind::into_str).collect();
        let known = known.join(", ");
        format!(
            "`{}` is none of {known}, {NOTIFICATION}",
            name.escape_debug()
        )
    })
}

/// The tables, as a file holds them. The query of an address is left out, because it may hold a secret.
pub(super) fn show(all: &[WebhookSettings]) -> String {
    let show = |webhook: &WebhookSettings| {
        let types = webhook.types.names();
        let table = WebhookTable {
            name: webhook.name.as_str().to_owned(),
            url: webhook.target.to_string(),
            secret_file: webhook.secret_file.clone(),
            allow_http: webhook.allow_http,
            types: types.map(|names| names.into_iter().map(str::to_owned).collect()),
            document: webhook.document.clone(),
        };
        let text = toml::to_string(&table).expect("its values were read from TOML");
        format!("\n[[{WEBHOOK}]]\n{text}")
    };
    all.iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<WebhookSettings>, String> {
        let table: toml::Table = text.parse().unwrap();
        parse(&table[WEBHOOK])
    }

    const BACKEND: &str = "[[webhook]]\nname = \"backend\"\nurl = \"https://backend.example/a?key=hunter2\"\nsecret_file = \"s\"\n";

    #[test]
    fn a_table_is_read_and_shown_without_its_secret() {
        let text = format!(
            "{BACKEND}types = [\"MESSAGE_ADDED\", \"ROLE_CHANGED\", \"NOTIFICATION\"]\ndocument = \"a\"\n"
        );
        let all = parsed(&text).unwrap();
        assert_eq!(all[0].types.names().unwrap().len(), 3);
        let shown = show(&all);
        assert!(!shown.contains("hunter2"), "{shown}");
        let again = parsed(&shown).unwrap();
        assert_eq!(
            (&again[0].name, &again[0].types),
            (&all[0].name, &all[0].types)
        );
        assert_eq!(show(&again), shown);
    }

    #[test]
    fn a_wrong_table_is_named_without_its_secret() {
        for (text, part) in [
            ("webhook = 1".to_owned(), "[[webhook]]"),
            (BACKEND.repeat(2), "name of its own"),
            (BACKEND.repeat(WEBHOOKS_MAX + 1), "at most 16"),
            (BACKEND.replace("backend\"", "a b\""), "webhook.name"),
            (BACKEND.replace("https:", "http:"), "allow_http"),
            (
                format!("{BACKEND}types = [\"TYPING\"]"),
                "`TYPING` is none of MESSAGE_ADDED",
            ),
            (format!("{BACKEND}types = []"), "webhook.types"),
            (format!("{BACKEND}secret = \"x\""), "secret"),
            ("[[webhook]]\nname = \"a\"".to_owned(), "url"),
        ] {
            let error = parsed(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
