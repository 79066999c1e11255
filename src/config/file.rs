//! The configuration file: TOML with a key for each setting, and tables of webhooks and of the hook before a send.

use std::path::Path;

use super::before_send::{self, BEFORE_SEND};
use super::webhook::{self, WEBHOOK};
use super::{Error, Setting, settings};
use crate::chat::SendHookSettings;
use crate::model::without_byte_order_mark;
use crate::webhook::WebhookSettings;

/// Longest configuration file; a longer file is something else.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Largest edit distance of a suggested key.
const LIKENESS_MIN: f64 = 0.6;

/// Content of a configuration file.
pub(super) struct FileContent {
    /// Each setting as the text of its flag.
    pub(super) settings: Vec<(&'static Setting, String)>,
    /// `None` if the file names none.
    pub(super) webhooks: Option<Vec<WebhookSettings>>,
    pub(super) before_send: Option<SendHookSettings>,
}

/// Reads a configuration file.
pub(super) fn read(path: &Path) -> Result<FileContent, Error> {
    let broken = |reason: String| Error::File {
        path: path.to_owned(),
        reason,
    };
    let is_long = std::fs::metadata(path)
        .map_err(|error| broken(error.to_string()))?
        .len()
        > FILE_BYTES_MAX;
    if is_long {
        return Err(broken(format!(
            "a configuration has at most {FILE_BYTES_MAX} bytes"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| broken(error.to_string()))?;
    let text = without_byte_order_mark(&text);
    let table: toml::Table = text.parse().map_err(|error| broken(syntax(text, &error)))?;
    let mut content = FileContent {
        settings: Vec::new(),
        webhooks: None,
        before_send: None,
    };
    for (key, value) in &table {
        if key == WEBHOOK {
            content.webhooks = Some(webhook::parse(value).map_err(broken)?);
        } else if key == BEFORE_SEND {
            content.before_send = Some(before_send::parse(value).map_err(broken)?);
        } else {
            let setting = setting(path, key)?;
            let text = plain(path, key, value)?;
            content.settings.push((setting, text));
        }
    }
    Ok(content)
}

/// Error with the position alone: the library's text would show the line, whose value may be a secret.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let before = error
        .span()
        .and_then(|span| text.get(..span.start))
        .unwrap_or_default();
    format!(
        "line {}: {}",
        before.matches('\n').count() + 1,
        error.message().lines().next().unwrap_or("is not TOML")
    )
}

fn setting(path: &Path, key: &str) -> Result<&'static Setting, Error> {
    settings()
        .find(|setting| setting.name == key)
        .ok_or_else(|| Error::UnknownKey {
            path: path.to_owned(),
            key: key.escape_debug().take(64).collect(),
            nearest: nearest(key),
        })
}

/// Names of earlier versions, each with the present one.
const RENAMED: [(&str, &str); 1] = [("direct-rate", "stranger-rate")];

/// The setting that is meant by a wrong name: the one that had it, or the most similar one.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('_', "-").to_lowercase();
    if let Some((_, name)) = RENAMED.iter().find(|(before, _)| *before == key) {
        return Some(name);
    }
    let likeness = |setting: &Setting| strsim::jaro_winkler(setting.name, &key);
    let best = settings().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))?;
    (likeness(best) >= LIKENESS_MIN).then_some(best.name)
}

fn plain(path: &Path, key: &str, value: &toml::Value) -> Result<String, Error> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Boolean(is_on) => Ok(is_on.to_string()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(_)
        | toml::Value::Datetime(_)
        | toml::Value::Array(_)
        | toml::Value::Table(_) => Err(Error::File {
            path: path.to_owned(),
            reason: format!("{key}: must be a text, a number, or true or false"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, LogFormat};
    use super::*;

    fn read_text(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wideroom.toml");
        std::fs::write(&path, text).unwrap();
        let mut config = Config::default();
        let outcome = config
            .set_from_file(&path)
            .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"));
        outcome.map(|_| config)
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let config = read_text(
            "\u{feff}listen = \"[::1]:9\"\ndemo = true\nlog-format = \"json\" # for machines\n",
        )
        .unwrap();
        let expected = Config {
            listen: "[::1]:9".parse().unwrap(),
            demo: true,
            log_format: LogFormat::Json,
            ..Config::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        assert_eq!(
            read_text("lsten = \"x\"").unwrap_err(),
            "FILE: unknown key `lsten`; did you mean `listen`?"
        );
        assert_eq!(
            read_text("log_format = \"json\"").unwrap_err(),
            "FILE: unknown key `log_format`; did you mean `log-format`?"
        );
        // Another setting is more similar than the one that replaces it.
        assert_eq!(
            read_text("direct-rate = 9").unwrap_err(),
            "FILE: unknown key `direct-rate`; did you mean `stranger-rate`?"
        );
        for (before, name) in RENAMED {
            let is_setting = |name| settings().any(|setting| setting.name == name);
            assert!(is_setting(name) && !is_setting(before), "{before}");
        }
        assert_eq!(read_text("zzz = 1").unwrap_err(), "FILE: unknown key `zzz`");
    }

    #[test]
    fn what_is_no_toml_is_named_by_its_line_without_showing_it() {
        let error = read_text("demo = true\nstore = \"cql://user:hunter2@host\n").unwrap_err();
        assert!(error.starts_with("FILE: line 2: "), "{error}");
        assert!(!error.contains("hunter2"));
    }

    #[test]
    fn a_value_is_one_plain_thing() {
        assert_eq!(
            read_text("drain = [1]").unwrap_err(),
            "FILE: drain: must be a text, a number, or true or false"
        );
        assert_eq!(
            read_text("[store]\nurl = 1").unwrap_err(),
            "FILE: store: must be a text, a number, or true or false"
        );
        assert!(
            read_text("drain = 10")
                .unwrap_err()
                .starts_with("FILE: drain: must be a time with its unit")
        );
    }
}
