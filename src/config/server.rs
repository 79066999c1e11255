//! Settings of the server itself: addresses, data, store and log.

use std::path::PathBuf;
use std::time::Duration;

use super::{LogFormat, Scope, Setting, StoreChoice, parse_duration, value};
use crate::bus::NatsAddressError;
use crate::server::RequestLines;
use crate::store::OUTBOX_KEEP_MAX;
use crate::store::cql::AddressError;

/// Name of the setting whose default address may be in use by another server.
pub const ADMIN_LISTEN: &str = "admin-listen";

/// Bytes that the store may write between two looks at the disk: the largest buffer, and commits meanwhile.
const FREE_DISK_MIN: u64 = 16 << 20;
const RETENTION_MIN: Duration = Duration::from_secs(60);
/// Ten years.
const RETENTION_MAX: Duration = Duration::from_secs(3_652 * 86_400);
const NOTIFY_AFTER_MAX: Duration = Duration::from_secs(600);
const OUTBOX_KEEP_MIN: Duration = Duration::from_secs(3_600);

/// All settings except access and bounds, in the order of the help.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "listen",
        environment: "WIDEROOM_LISTEN",
        scope: Scope::Serve,
        value_name: Some("ADDRESS"),
        help: "Address and port to listen on; port 0 takes a free port",
        beyond: None,
        get: |config| config.listen.to_string(),
        set: |config, text| {
            config.listen = text
                .parse()
                .map_err(|_| "must be an IP address with a port, as 127.0.0.1:8080")?;
            Ok(())
        },
    },
    Setting {
        name: ADMIN_LISTEN,
        environment: "WIDEROOM_ADMIN_LISTEN",
        scope: Scope::Serve,
        value_name: Some("ADDRESS"),
        help: "Address of /metrics, /healthz, /readyz and backups, for this machine or a private network; `off` disables them",
        beyond: None,
        get: |config| {
            config
                .admin_listen
                .map_or_else(|| "off".to_owned(), |address| address.to_string())
        },
        set: |config, text| {
            let address = || {
                text.parse()
                    .map_err(|_| "must be an IP address with a port, as 127.0.0.1:9090, or `off`")
            };
            config.admin_listen = if text == "off" {
                None
            } else {
                Some(address()?)
            };
            Ok(())
        },
    },
    Setting {
        name: "data",
        environment: "WIDEROOM_DATA",
        scope: Scope::Data,
        value_name: Some("DIR"),
        help: "Data folder, created if it is missing: the signing key and the embedded store",
        beyond: None,
        get: |config| config.data.display().to_string(),
        set: |config, text| {
            if text.is_empty() {
                return Err("must name a folder".to_owned());
            }
            config.data = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "store",
        environment: "WIDEROOM_STORE",
        scope: Scope::Store,
        value_name: Some("STORE"),
        help: "Store of the messages: `embedded`, in the data folder, or `cql://[user:password@]host[:port][,host2…]/keyspace[?dc=…&tls=…&timeout=…]`, on Cassandra or ScyllaDB",
        beyond: None,
        // Without user and password.
        get: |config| match &config.store {
            StoreChoice::Embedded => "embedded".to_owned(),
            StoreChoice::Cql(address) => address.to_setting(),
        },
        set: |config, text| {
            config.store = match text {
                "embedded" => StoreChoice::Embedded,
                url if url.starts_with("cql:") => StoreChoice::Cql(
                    url.parse()
                        .map_err(|error: AddressError| error.to_string())?,
                ),
                _ => return Err("must be `embedded` or begin with cql://".to_owned()),
            };
            Ok(())
        },
    },
    Setting {
        name: "nats",
        environment: "WIDEROOM_NATS",
        scope: Scope::Serve,
        value_name: Some("URL"),
        help: "NATS server over which servers of a cluster notify each other of writes: `nats://[user:password@]host[:port]` or `tls://…`; without it they poll every second",
        beyond: None,
        // Without user and password.
        get: |config| {
            config
                .nats
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default()
        },
        set: |config, text| {
            let address = |text: &str| {
                text.parse()
                    .map_err(|error: NatsAddressError| error.to_string())
            };
            config.nats = (!text.is_empty()).then(|| address(text)).transpose()?;
            Ok(())
        },
    },
    Setting {
        name: "demo",
        environment: "WIDEROOM_DEMO",
        scope: Scope::Serve,
        value_name: None,
        help: "Load the sample into an empty store and issue tokens for its users; only on a loopback address",
        beyond: None,
        get: |config| config.demo.to_string(),
        set: |config, text| value::set_bool(&mut config.demo, text),
    },
    Setting {
        name: "trusted-documents",
        environment: "WIDEROOM_TRUSTED_DOCUMENTS",
        scope: Scope::Serve,
        value_name: Some("FILE"),
        help: "Execute only the documents of this list: a JSON object of documents by id, as client compilers write it; `any` executes every document",
        beyond: None,
        get: |config| {
            config
                .trusted_documents
                .as_ref()
                .map_or_else(|| "any".to_owned(), |path| path.display().to_string())
        },
        set: |config, text| {
            if text.is_empty() {
                return Err("must name a file, or be `any`".to_owned());
            }
            config.trusted_documents = (text != "any").then(|| PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "drain-delay",
        environment: "WIDEROOM_DRAIN_DELAY",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Time after SIGTERM in which /readyz answers 503 and the server still accepts connections, so that a balancer notices; SIGINT skips it",
        beyond: None,
        get: |config| value::show_duration(config.drain_delay),
        set: |config, text| {
            config.drain_delay = parse_duration(text)?;
            Ok(())
        },
    },
    Setting {
        name: "drain",
        environment: "WIDEROOM_DRAIN",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Time for running requests to finish after SIGTERM and --drain-delay",
        beyond: None,
        get: |config| value::show_duration(config.server.drain),
        set: |config, text| {
            config.server.drain = parse_duration(text)?;
            Ok(())
        },
    },
    Setting {
        name: "retention",
        environment: "WIDEROOM_RETENTION",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Time after which every message expires, as 400d. A conversation may set a shorter one. none: only conversations that say so lose messages",
        beyond: None,
        get: |config| {
            let retention = config.chat.retention;
            retention.map_or_else(|| "none".to_owned(), value::show_duration)
        },
        set: |config, text| {
            config.chat.retention = if text == "none" {
                None
            } else {
                let time = parse_duration(text)?;
                if !(RETENTION_MIN..=RETENTION_MAX).contains(&time) {
                    return Err("must be none, or between 60s and 3652d".to_owned());
                }
                Some(time)
            };
            Ok(())
        },
    },
    Setting {
        name: "notify-after",
        environment: "WIDEROOM_NOTIFY_AFTER",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Time from a message to its NOTIFICATION in the outbox and in webhooks: a user who reads it meanwhile is not notified",
        beyond: None,
        get: |config| value::show_duration(config.chat.notify_after),
        set: |config, text| {
            let time = parse_duration(text)?;
            if time > NOTIFY_AFTER_MAX {
                return Err("must be at most 10m".to_owned());
            }
            config.chat.notify_after = time;
            Ok(())
        },
    },
    Setting {
        name: "outbox-keep",
        environment: "WIDEROOM_OUTBOX_KEEP",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Time for which the outbox keeps events, the same on each server: a webhook or a reader that is away longer misses some",
        beyond: None,
        get: |config| value::show_duration(config.chat.outbox_keep),
        set: |config, text| {
            let time = parse_duration(text)?;
            if !(OUTBOX_KEEP_MIN..=OUTBOX_KEEP_MAX).contains(&time) {
                return Err("must be from 1h to 35d".to_owned());
            }
            config.chat.outbox_keep = time;
            Ok(())
        },
    },
    Setting {
        name: "log",
        environment: "WIDEROOM_LOG",
        scope: Scope::Serve,
        value_name: Some("FILTER"),
        help: "Level of the log on stderr: error, warn, info, debug or trace, also by module, as info,wideroom::store=debug",
        beyond: None,
        get: |config| config.log.clone(),
        set: |config, text| {
            config.log = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "log-format",
        environment: "WIDEROOM_LOG_FORMAT",
        scope: Scope::Serve,
        value_name: Some("FORMAT"),
        help: "Format of the log: text or json",
        beyond: None,
        get: |config| match config.log_format {
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        },
        set: |config, text| {
            config.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("must be text or json".to_owned()),
            };
            Ok(())
        },
    },
    Setting {
        name: "slow-request",
        environment: "WIDEROOM_SLOW_REQUEST",
        scope: Scope::Serve,
        value_name: Some("TIME"),
        help: "Time from which a query or a mutation is logged as a warning, with its cost and its store time, or `none`",
        beyond: None,
        get: |config| {
            config
                .server
                .slow_request
                .map_or_else(|| "none".to_owned(), value::show_duration)
        },
        set: |config, text| {
            config.server.slow_request = match text {
                "none" => None,
                text => Some(parse_duration(text)?),
            };
            Ok(())
        },
    },
    Setting {
        name: "log-requests",
        environment: "WIDEROOM_LOG_REQUESTS",
        scope: Scope::Serve,
        value_name: Some("WHICH"),
        help: "Operations that have a line in the log: all, slow or off. A minute has at most 60,000 lines of those that succeed and 60 of each code of refusals; further ones are counted",
        beyond: None,
        get: |config| {
            let which = match config.server.log_requests {
                RequestLines::All => "all",
                RequestLines::Slow => "slow",
                RequestLines::Off => "off",
            };
            which.to_owned()
        },
        set: |config, text| {
            config.server.log_requests = match text {
                "all" => RequestLines::All,
                "slow" => RequestLines::Slow,
                "off" => RequestLines::Off,
                _ => return Err("must be all, slow or off".to_owned()),
            };
            Ok(())
        },
    },
    Setting {
        name: "cache-size",
        environment: "WIDEROOM_CACHE_SIZE",
        scope: Scope::Store,
        value_name: Some("SIZE"),
        help: "Memory of the block cache of the embedded store",
        beyond: None,
        get: |config| value::show_size(config.cache_bytes),
        set: |config, text| value::set_size(&mut config.cache_bytes, text),
    },
    Setting {
        name: "free-disk-min",
        environment: "WIDEROOM_FREE_DISK_MIN",
        scope: Scope::Store,
        value_name: Some("SIZE"),
        help: "Free disk space below which the server refuses writes; reads continue. From 16MiB on; 0B checks nothing",
        beyond: None,
        get: |config| value::show_size(config.free_bytes_min),
        set: |config, text| {
            value::set_size(&mut config.free_bytes_min, text)?;
            if (1..FREE_DISK_MIN).contains(&config.free_bytes_min) {
                return Err(
                    "must be at least 16MiB, which the store may write before it notices, or 0B"
                        .to_owned(),
                );
            }
            Ok(())
        },
    },
    Setting {
        name: "accept-loss",
        environment: "WIDEROOM_ACCEPT_LOSS",
        scope: Scope::Store,
        value_name: None,
        help: "Open an embedded store that lost acknowledged writes, as after a restored disk; the lost writes stay lost",
        beyond: None,
        get: |config| config.accept_loss.to_string(),
        set: |config, text| value::set_bool(&mut config.accept_loss, text),
    },
];
