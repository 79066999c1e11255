//! Configuration: plain data with defaults, and the table of settings that flags, environment and file share.
//!
//! The program opens nothing before [`Config::validate`], and never prints a value that may be a secret.

mod access;
mod bounds;
mod file;
mod server;
mod show;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::bus::NatsAddress;
use crate::model::Unread;
use crate::server::ServerBounds;
use crate::store::cql::Address;
use crate::{auth, chat, graphql};

pub use self::access::ACCESS;
pub use self::bounds::BOUNDS;
pub use self::server::{ADMIN_LISTEN, SETTINGS};
pub use self::show::{default_file, in_force};
pub use self::value::{parse_duration, show_duration};

/// Everything that can be set. `Default` is the one place of the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub listen: SocketAddr,
    /// Admin address for metrics, health and backups. `None` switches the admin listener off.
    pub admin_listen: Option<SocketAddr>,
    pub data: PathBuf,
    pub store: StoreChoice,
    /// Over which servers that share a store tell each other where they write.
    pub nats: Option<NatsAddress>,
    pub demo: bool,
    /// The list of the only documents that are run. `None`: any document is.
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
    pub server: ServerBounds,
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
            server: ServerBounds::default(),
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
    /// Only on a loopback address: the playground asks people for their tokens, which is for developers.
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// The commands that take a setting: each scope includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Commands that use the data folder.
    Data,
    /// Commands that open the store.
    Store,
    /// The server.
    Serve,
}

/// One thing that can be set: `--name`, `WIDEROOM_NAME` and `name = …` in the file are all read by `set`.
pub struct Setting {
    pub name: &'static str,
    pub environment: &'static str,
    pub scope: Scope,
    /// Placeholder of the value in the help. `None` for a switch.
    pub value_name: Option<&'static str>,
    pub help: &'static str,
    /// Result for a client beyond a bound. `None` if the setting is no bound.
    pub beyond: Option<&'static str>,
    /// The value as text that `set` takes.
    pub get: fn(&Config) -> String,
    /// `Err` says in a few words what the value must be, and never repeats it.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Everything that can be set.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(ACCESS).chain(BOUNDS)
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment => f.write_str("environment"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Source of each explicit value, by the name of its setting.
pub type Sources = BTreeMap<&'static str, Source>;

/// Why there is no configuration: one line, and never a value that may be a secret.
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
    #[error("--nats is for servers that share a cluster: it goes with --store cql://…")]
    NatsAlone,
    #[error("--demo is only for this machine: {0} is not a loopback address")]
    DemoIsPublic(SocketAddr),
    #[error(
        "--demo signs its people in with the key of the data folder: leave --token-keys-file and --token-secret-file out"
    )]
    DemoKeys,
}

impl Config {
    /// Sets one value. Whoever is called last wins: file, then environment, then flags.
    pub fn set(&mut self, setting: &Setting, text: &str, source_of: &Source) -> Result<(), Error> {
        (setting.set)(self, text).map_err(|reason| {
            let place = match source_of {
                Source::Flag => format!("--{}", setting.name),
                Source::Environment => setting.environment.to_owned(),
                Source::File(path) => format!("{}: {}", path.display(), setting.name),
            };
            Error::Value {
                place,
                is_usage: *source_of == Source::Flag,
                reason,
            }
        })
    }

    /// Sets what a file says, and tells what that is. A key that is no setting is refused with the nearest one that is.
    pub fn set_from_file(&mut self, path: &Path) -> Result<Vec<&'static Setting>, Error> {
        let source = Source::File(path.to_owned());
        file::read(path)?
            .into_iter()
            .map(|(setting, text)| self.set(setting, &text, &source).map(|()| setting))
            .collect()
    }

    /// Whether the pages are served at the address that the server listens on.
    pub fn has_pages(&self) -> bool {
        match self.pages {
            PageChoice::Auto => self.listen.ip().is_loopback(),
            PageChoice::On => true,
            PageChoice::Off => false,
        }
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
        if self.chat.unread_cap > Unread::CAP_MAX {
            return Err(Error::UnreadCap);
        }
        if scope >= Scope::Serve && self.nats.is_some() && self.store == StoreChoice::Embedded {
            return Err(Error::NatsAlone);
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
mod tests {
    use super::*;

    #[test]
    fn every_default_reads_back_as_itself() {
        for setting in settings() {
            let mut config = Config::default();
            config
                .set(setting, &(setting.get)(&Config::default()), &Source::Flag)
                .unwrap();
            assert_eq!(config, Config::default(), "{}", setting.name);
        }
    }

    #[test]
    fn settings_have_one_name_each_in_all_places() {
        let mut names: Vec<_> = settings().map(|setting| setting.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), settings().count());
        for setting in settings() {
            assert_eq!(
                setting.environment,
                format!("WIDEROOM_{}", setting.name.to_uppercase().replace('-', "_"))
            );
        }
    }

    #[test]
    fn a_bad_value_is_named_by_where_it_was_given_and_not_repeated() {
        let store = SETTINGS
            .iter()
            .find(|setting| setting.name == "store")
            .unwrap();
        let error = |source| {
            Config::default()
                .set(store, "mysql://user:hunter2@host", &source)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(Source::Flag),
            "--store: must be `embedded` or begin with cql://"
        );
        assert_eq!(
            error(Source::Environment),
            "WIDEROOM_STORE: must be `embedded` or begin with cql://"
        );
        assert_eq!(
            error(Source::File("w.toml".into())),
            "w.toml: store: must be `embedded` or begin with cql://"
        );
    }

    #[test]
    fn a_cluster_is_answered_and_its_password_forgotten() {
        let mut config = Config::default();
        let store = SETTINGS
            .iter()
            .find(|setting| setting.name == "store")
            .unwrap();
        config
            .set(store, "cql://user:hunter2@host/chat", &Source::Flag)
            .unwrap();
        assert!(!format!("{config:?}{}", (store.get)(&config)).contains("hunter2"));
        assert!(config.validate(Scope::Data).is_ok());
    }

    #[test]
    fn bounds_that_do_not_fit_together_are_refused() {
        let mut config = Config::default();
        config.chat.body_bytes_max = 64 * 1024;
        assert!(matches!(
            config.validate(Scope::Serve),
            Err(Error::MessageBody)
        ));
        let mut config = Config::default();
        config.chat.unread_cap = 1_000;
        assert!(matches!(
            config.validate(Scope::Serve),
            Err(Error::UnreadCap)
        ));
    }

    #[test]
    fn the_demo_has_the_key_of_its_folder() {
        for name in ["token-keys-file", "token-secret-file"] {
            let mut config = Config {
                demo: true,
                ..Config::default()
            };
            let setting = settings().find(|setting| setting.name == name).unwrap();
            config.set(setting, "keys.json", &Source::Flag).unwrap();
            assert!(matches!(
                config.validate(Scope::Serve),
                Err(Error::DemoKeys)
            ));
            assert!(config.validate(Scope::Data).is_ok());
        }
    }

    #[test]
    fn rates_are_switched_off_all_together() {
        let mut config = Config::default();
        let rates = settings().find(|setting| setting.name == "rates").unwrap();
        config.set(rates, "off", &Source::Flag).unwrap();
        assert!(!config.chat.rates.is_on && !config.server.rates.is_on);
        assert_eq!((rates.get)(&config), "off");
    }

    #[test]
    fn pages_are_served_by_themselves_on_a_loopback_address_only() {
        let pages = settings().find(|setting| setting.name == "pages").unwrap();
        for (choice, listen, is_served) in [
            ("auto", "127.0.0.1:80", true),
            ("auto", "[::1]:80", true),
            ("auto", "0.0.0.0:80", false),
            ("auto", "192.168.1.4:80", false),
            ("on", "0.0.0.0:80", true),
            ("true", "0.0.0.0:80", true),
            ("off", "127.0.0.1:80", false),
        ] {
            let mut config = Config {
                listen: listen.parse().unwrap(),
                ..Config::default()
            };
            config.set(pages, choice, &Source::Flag).unwrap();
            assert_eq!(config.has_pages(), is_served, "{choice} {listen}");
        }
        let refused = Config::default()
            .set(pages, "some", &Source::Flag)
            .unwrap_err()
            .to_string();
        assert_eq!(refused, "--pages: must be on, off or auto");
    }

    #[test]
    fn audiences_of_the_server_are_no_audience_of_users() {
        let audience = settings()
            .find(|setting| setting.name == "token-audience")
            .unwrap();
        for name in [auth::BACKUP_AUDIENCE, auth::DEMO_AUDIENCE] {
            let refused = Config::default()
                .set(audience, name, &Source::Flag)
                .unwrap_err()
                .to_string();
            assert_eq!(
                refused,
                "--token-audience: must be another name: the server gives its own tokens this one"
            );
        }
    }

    #[test]
    fn the_demo_stays_on_this_machine() {
        let config = |listen: &str| Config {
            demo: true,
            listen: listen.parse().unwrap(),
            ..Config::default()
        };
        assert!(config("127.0.0.9:80").validate(Scope::Serve).is_ok());
        assert!(config("[::1]:80").validate(Scope::Serve).is_ok());
        for public in ["0.0.0.0:80", "[::]:80", "192.168.1.4:80"] {
            assert!(matches!(
                config(public).validate(Scope::Serve),
                Err(Error::DemoIsPublic(_))
            ));
        }
    }
}
