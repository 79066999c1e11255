//! Hook before a send, in the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use super::{parse_duration, show_duration};
use crate::chat::{HookFailureMode, LiveTextMode, SendHookSettings};
use crate::signed_post::PostTarget;

/// Name of the table.
pub(super) const BEFORE_SEND: &str = "before_send";

/// Example in the default configuration.
pub(super) const EXAMPLE: &str = r#"
# == Hook before a send ==

# The service at this address decides about each send and each edit of a user. It receives a JSON object with `type` ("message.sending" or
# "message.editing"), `conversationId`, `messageId` (of an edit), `sender`, `body`, `attachments`, `steps` (their texts), `metadata`, `mentionedUsernames` and
# `mentionsEveryone`, signed as Standard Webhooks 1.0.0. The ids are those of the field `uuid` in the API.
# It answers 200 and {"decision": "allow"}, or {"decision": "reject", "reason": "…"}: then the sender gets FORBIDDEN, with the reason in
# `extensions.reason`, at most 255 bytes. It rewrites nothing. At most 64 questions wait at once.
# Any other answer, or none within `timeout`, is a failure: `on_failure` is "allow" (the default), or "refuse" (UNAVAILABLE, NOT_DONE).
# Others see a live message before the hook does: `live` is "refuse" (the default: FORBIDDEN to users), or "allow". Services always may.
# After 20 failures in a row the server decides by `on_failure` for 5 seconds without asking.
# [before_send]
# url = "https://backend.example/before-send"
# secret_file = "/etc/wideroom/before-send.secret"
# timeout = "1500ms"
# on_failure = "allow"
# live = "refuse"
"#;

/// Keys of the table.
#[derive(serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct BeforeSendTable {
    url: String,
    secret_file: PathBuf,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow_http: bool,
    timeout: Option<String>,
    on_failure: Option<HookFailureMode>,
    live: Option<LiveTextMode>,
}

/// Parses the table. `Err` never repeats the address, whose query may hold a secret.
pub(super) fn parse(value: &toml::Value) -> Result<SendHookSettings, String> {
    let table: BeforeSendTable = value
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| format!("{BEFORE_SEND}: {}", error.message()))?;
    let wrong = |key: &str, reason: &str| format!("{BEFORE_SEND}.{key}: {reason}");
    let target =
        PostTarget::parse(&table.url, table.allow_http).map_err(|reason| wrong("url", &reason))?;
    let timeout = match &table.timeout {
        None => SendHookSettings::TIMEOUT_DEFAULT,
        Some(text) => parse_duration(text).map_err(|reason| wrong("timeout", &reason))?,
    };
    if timeout < Duration::from_millis(1) || timeout > SendHookSettings::TIMEOUT_MAX {
        let reason = format!(
            "must be from 1ms to {}",
            show_duration(SendHookSettings::TIMEOUT_MAX)
        );
        return Err(wrong("timeout", &reason));
    }
    Ok(SendHookSettings {
        target,
        url: table.url,
        allow_http: table.allow_http,
        secret_file: table.secret_file,
        timeout,
        on_failure: table.on_failure.unwrap_or(HookFailureMode::Allow),
        live: table.live.unwrap_or(LiveTextMode::Refuse),
    })
}

/// The table, as a file holds it. The query of the address is left out, because it may hold a secret.
pub(super) fn show(hook: &SendHookSettings) -> String {
    let table = BeforeSendTable {
        url: hook.target.to_string(),
        secret_file: hook.secret_file.clone(),
        allow_http: hook.allow_http,
        timeout: Some(show_duration(hook.timeout)),
        on_failure: Some(hook.on_failure),
        live: Some(hook.live).filter(|live| *live == LiveTextMode::Allow),
    };
    let text = toml::to_string(&table).expect("its values were read from TOML");
    format!("\n[{BEFORE_SEND}]\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<SendHookSettings, String> {
        let table: toml::Table = text.parse().unwrap();
        parse(&table[BEFORE_SEND])
    }

    const HOOK: &str =
        "[before_send]\nurl = \"https://backend.example/a?key=hunter2\"\nsecret_file = \"s\"\n";

    #[test]
    fn a_table_is_read_and_shown_without_its_secret() {
        let hook = parsed(HOOK).unwrap();
        assert_eq!(hook.timeout, Duration::from_millis(1_500));
        assert_eq!(hook.on_failure, HookFailureMode::Allow);
        assert_eq!(hook.live, LiveTextMode::Refuse);
        let text = format!("{HOOK}timeout = \"2s\"\non_failure = \"refuse\"\nlive = \"allow\"\n");
        let hook = parsed(&text).unwrap();
        assert_eq!(hook.live, LiveTextMode::Allow);
        assert_eq!(hook.timeout, Duration::from_secs(2));
        assert_eq!(hook.on_failure, HookFailureMode::Refuse);
        let shown = show(&hook);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(show(&parsed(&shown).unwrap()), shown);
    }

    #[test]
    fn a_wrong_table_is_named_without_its_secret() {
        for (text, part) in [
            (HOOK.replace("https:", "http:"), "allow_http"),
            (format!("{HOOK}timeout = \"6s\""), "before_send.timeout"),
            (format!("{HOOK}timeout = \"0ms\""), "before_send.timeout"),
            (format!("{HOOK}timeout = \"soon\""), "before_send.timeout"),
            (format!("{HOOK}on_failure = \"maybe\""), "before_send"),
            (format!("{HOOK}live = true"), "before_send"),
            (format!("{HOOK}secret = \"x\""), "secret"),
            (
                "[before_send]\nurl = \"https://a.example\"".to_owned(),
                "secret_file",
            ),
            ("before_send = 1".to_owned(), "before_send"),
        ] {
            let error = parsed(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
