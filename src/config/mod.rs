//! Configuration: plain data with defaults, and the table of settings that flags, environment and file share.
//!
//! The program opens nothing before [`Config::validate`], and never prints a value that may be a secret.

mod access;
mod before_send;
mod bounds;
mod file;
mod server;
mod show;
mod value;
mod warnings;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bus::NatsAddress;
use crate::chat::SendHookSettings;
use crate::model::{Body, Unread};
use crate::server::ServerBounds;
use crate::store::cql::Address;
use crate::webhook::WebhookSettings;
use crate::{auth, chat, graphql};

pub use self::access::ACCESS;
pub use self::bounds::BOUNDS;
pub use self::server::{ADMIN_LISTEN, SETTINGS};
pub use self::show::{default_file, in_force};
pub use self::value::{parse_duration, show_duration};
pub use self::warnings::unknown_variables;

/// All settings. `Default` holds every default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub listen: SocketAddr,
    /// Admin address for metrics, health and backups. `None` switches the admin listener off.
    pub admin_listen: Option<SocketAddr>,
    pub data: PathBuf,
    pub store: StoreChoice,
    /// NATS server over which servers of a cluster notify each other of writes.
    pub nats: Option<NatsAddress>,
    pub demo: bool,
    /// List of trusted documents. `None` executes every document.
    pub trusted_documents: Option<PathBuf>,
    pub log: String,
    pub log_format: LogFormat,
    pub accept_loss: bool,
    pub cache_bytes: u64,
    pub free_bytes_min: u64,
    pub pages: PageChoice,
    pub tokens: auth::TokenRules,
    pub chat: chat::Bounds,
    pub documents: graphql::DocumentBounds,
    /// Time from SIGTERM until the server accepts no more connections.
    pub drain_delay: Duration,
    pub server: ServerBounds,
    pub webhooks: Vec<WebhookSettings>,
    /// Hook before a send. `None`: no message is checked.
    pub before_send: Option<SendHookSettings>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))),
            data: PathBuf::from("./wideroom-data"),
            store: StoreChoice::Embedded,
            nats: None,
            demo: false,
            trusted_documents: None,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            accept_loss: false,
            cache_bytes: 64 << 20,
            free_bytes_min: 1 << 30,
            pages: PageChoice::Auto,
            tokens: auth::TokenRules::default(),
            chat: chat::Bounds::default(),
            documents: graphql::DocumentBounds::default(),
            drain_delay: Duration::from_secs(5),
            server: ServerBounds::default(),
            webhooks: Vec::new(),
            before_send: None,
        }
    }
}

/// Choice of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    Embedded,
    Cql(Address),
}

/// Whether the pages are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageChoice {
    /// Only on a loopback address: the playground asks for tokens, which is for developers.
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Commands that accept a setting: each scope includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Commands that use the data folder.
    Data,
    /// Commands that open the store.
    Store,
    /// The server.
    Serve,
}

/// One setting. `set` parses `--name`, `WIDEROOM_NAME` and `name = …` of the file.
pub struct Setting {
    pub name: &'static str,
    pub environment: &'static str,
    pub scope: Scope,
    /// Placeholder of the value in the help. `None` for a switch.
    pub value_name: Option<&'static str>,
    pub help: &'static str,
    /// Result for a client beyond a bound. `None` if the setting is no bound.
    pub beyond: Option<&'static str>,
    /// Value as text that `set` accepts.
    pub get: fn(&Config) -> String,
    /// Parses a value. `Err` names the valid form and never repeats the value, which may be a secret.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
}

/// All settings, in the order of the help.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(ACCESS).chain(BOUNDS)
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    Flag,
    Environment,
    File(PathBuf),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment => f.write_str("environment"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Source of each explicit value, by the name of its setting.
pub type SettingSources = BTreeMap<&'static str, SettingSource>;

/// Reason for a refused configuration: one line, never with a value that may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{place}: {reason}")]
    Value {
        place: String,
        is_usage: bool,
        reason: String,
    },
    #[error("{path}: {reason}")]
    File { path: PathBuf, reason: String },
    #[error("{path}: unknown key `{key}`{}", nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    UnknownKey {
        path: PathBuf,
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("--unread-cap: {} at most", Unread::CAP_MAX)]
    UnreadCap,
    #[error(
        "--message-body-max: a message must have room in --variables-max, --http-body-max and --socket-message-max"
    )]
    MessageBody,
    #[error("--message-body-max: {} at most, which fits into one batch of a cluster", value::show_size(Body::BYTES_MAX as u64))]
    MessageBodyMax,
    #[error(
        "--message-body-max: above {} it needs three times as much in --variables-max, --http-body-max and --socket-message-max, \
         and 200 times as much in --answer-max",
        value::show_size(Body::BYTES_DEFAULT as u64)
    )]
    LongMessageBody,
    #[error("--nats connects servers of a cluster: it needs --store cql://…")]
    NatsAlone,
    #[error(
        "--admin-listen and --listen have one port: write another one for --admin-listen, as 127.0.0.1:9090, or `off`"
    )]
    OneAddress,
    #[error("--demo is only for this machine: {0} is not a loopback address")]
    DemoIsPublic(SocketAddr),
    #[error(
        "--demo signs its people in with the key of the data folder: leave --token-keys-file, --jwks-url and --token-secret-file out"
    )]
    DemoKeys,
}

impl Config {
    /// Sets one value. The last call wins: file, then environment, then flags.
    pub fn set(
        &mut self,
        setting: &Setting,
        text: &str,
        source_of: &SettingSource,
    ) -> Result<(), Error> {
        (setting.set)(self, text).map_err(|reason| {
            let place = match source_of {
                SettingSource::Flag => format!("--{}", setting.name),
                SettingSource::Environment => setting.environment.to_owned(),
                SettingSource::File(path) => format!("{}: {}", path.display(), setting.name),
            };
            Error::Value {
                place,
                is_usage: *source_of == SettingSource::Flag,
                reason,
            }
        })
    }

    /// Sets the values of a file and returns their settings. Refuses an unknown key and suggests the nearest one.
    pub fn set_from_file(&mut self, path: &Path) -> Result<Vec<&'static Setting>, Error> {
        let source = SettingSource::File(path.to_owned());
        let content = file::read(path)?;
        if let Some(webhooks) = content.webhooks {
            self.webhooks = webhooks;
        }
        if content.before_send.is_some() {
            self.before_send = content.before_send;
        }
        content
            .settings
            .into_iter()
            .map(|(setting, text)| self.set(setting, &text, &source).map(|()| setting))
            .collect()
    }

    /// Whether the server serves its pages on its address.
    pub fn has_pages(&self) -> bool {
        match self.pages {
            PageChoice::Auto => self.listen.ip().is_loopback(),
            PageChoice::On => true,
            PageChoice::Off => false,
        }
    }

    /// Whether both listeners would take the same address.
    fn has_one_address(&self) -> bool {
        self.admin_listen.is_some_and(|admin| {
            let (one, other) = (admin.ip(), self.listen.ip());
            let is_same = one == other || one.is_unspecified() || other.is_unspecified();
            admin.port() != 0 && admin.port() == self.listen.port() && is_same
        })
    }

    /// Checks the values against each other, before the program opens anything.
    pub fn validate(&self, scope: Scope) -> Result<(), Error> {
        let room = self
            .server
            .variables_bytes
            .min(self.server.body_bytes)
            .min(self.server.sockets.message_bytes);
        if self.chat.body_bytes_max >= room {
            return Err(Error::MessageBody);
        }
        let body = self.chat.body_bytes_max;
        if body > Body::BYTES_MAX {
            return Err(Error::MessageBodyMax);
        }
        // A client may escape each letter, and a page has 100 messages.
        let has_room = 3 * body <= room && 200 * body <= self.server.answer_bytes;
        if body > Body::BYTES_DEFAULT && !has_room {
            return Err(Error::LongMessageBody);
        }
        if self.chat.unread_cap > Unread::CAP_MAX {
            return Err(Error::UnreadCap);
        }
        if scope >= Scope::Serve && self.nats.is_some() && self.store == StoreChoice::Embedded {
            return Err(Error::NatsAlone);
        }
        if scope >= Scope::Serve && self.has_one_address() {
            return Err(Error::OneAddress);
        }
        if scope >= Scope::Serve && self.demo && !self.listen.ip().is_loopback() {
            return Err(Error::DemoIsPublic(self.listen));
        }
        if scope >= Scope::Serve && self.demo && self.tokens.has_keys_of_its_own() {
            return Err(Error::DemoKeys);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
