//! Settings of the server itself: addresses, data, store and log.

use std::path::PathBuf;
use std::time::Duration;

use super::value::{self, setting};
use super::{LogFormat, Scope, Setting, StoreChoice};
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
    setting!(Serve "listen" "WIDEROOM_LISTEN" "ADDRESS" listen "Address and port to listen on; port 0 takes a free port";
        |address| address.to_string(),
        |text| text.parse().map_err(|_| "must be an IP address with a port, as 127.0.0.1:8080")?),
    setting!(Serve ADMIN_LISTEN "WIDEROOM_ADMIN_LISTEN" "ADDRESS" admin_listen "Address of /metrics, /healthz, /readyz and backups, for this machine or a private network; `off` disables them";
        |address| value::show_option(*address, "off", |address| address.to_string()),
        |text| value::parse_option(text, "off", |text| {
            let address = text.parse();
            address.map_err(|_| "must be an IP address with a port, as 127.0.0.1:9090, or `off`".to_owned())
        })?),
    setting!(Data "data" "WIDEROOM_DATA" "DIR" data "Data folder, created if it is missing: the signing key and the embedded store";
    |path| path.display().to_string(),
    |text| match text {
        "" => return Err("must name a folder".to_owned()),
        text => PathBuf::from(text),
    }),
    setting!(Store "store" "WIDEROOM_STORE" "STORE" store "Store of the messages: `embedded`, in the data folder, or `cql://[user:password@]host[:port][,host2…]/keyspace[?dc=…&tls=…&timeout=…]`, on Cassandra or ScyllaDB";
    // Without user and password.
    |store| match store {
        StoreChoice::Embedded => "embedded".to_owned(),
        StoreChoice::Cql(address) => address.to_setting(),
    },
    |text| match text {
        "embedded" => StoreChoice::Embedded,
        url if url.starts_with("cql:") => {
            StoreChoice::Cql(url.parse().map_err(|error: AddressError| error.to_string())?)
        }
        _ => return Err("must be `embedded` or begin with cql://".to_owned()),
    }),
    setting!(Serve "nats" "WIDEROOM_NATS" "URL" nats "NATS server over which servers of a cluster notify each other of writes: `nats://[user:password@]host[:port]` or `tls://…`; without it they poll every second";
        // Without user and password.
        |address| value::show_option(address.as_ref(), "", ToString::to_string),
        |text| value::parse_option(text, "", |text| {
            text.parse().map_err(|error: NatsAddressError| error.to_string())
        })?),
    setting!(flag Serve "demo" "WIDEROOM_DEMO" demo "Load the sample into an empty store and issue tokens for its users; only on a loopback address"),
    setting!(Serve "trusted-documents" "WIDEROOM_TRUSTED_DOCUMENTS" "FILE" trusted_documents "Execute only the documents of this list: a JSON object of documents by id, as client compilers write it; `any` executes every document";
    |path| value::show_option(path.as_ref(), "any", |path| path.display().to_string()),
    |text| match text {
        "" => return Err("must name a file, or be `any`".to_owned()),
        text => (text != "any").then(|| PathBuf::from(text)),
    }),
    setting!(delay Serve "drain-delay" "WIDEROOM_DRAIN_DELAY" drain_delay "Time after SIGTERM in which /readyz answers 503 and the server still accepts connections, so that a balancer notices; SIGINT skips it"),
    setting!(delay Serve "drain" "WIDEROOM_DRAIN" server.drain "Time for running requests to finish after SIGTERM and --drain-delay"),
    setting!(Serve "retention" "WIDEROOM_RETENTION" "TIME" chat.retention "Time after which every message expires, as 400d. A conversation may set a shorter one. none: only conversations that say so lose messages";
        |time| value::show_option(*time, "none", value::show_duration),
        |text| value::parse_option(text, "none", |text| {
            value::parse_time_within(text, RETENTION_MIN..=RETENTION_MAX, "must be none, or between 60s and 3652d")
        })?),
    setting!(Serve "notify-after" "WIDEROOM_NOTIFY_AFTER" "TIME" chat.notify_after "Time from a message to its NOTIFICATION in the outbox and in webhooks: a user who reads it meanwhile is not notified";
        |time| value::show_duration(*time),
        |text| value::parse_time_within(text, Duration::ZERO..=NOTIFY_AFTER_MAX, "must be at most 10m")?),
    setting!(Serve "outbox-keep" "WIDEROOM_OUTBOX_KEEP" "TIME" chat.outbox_keep "Time for which the outbox keeps events, the same on each server: a webhook or a reader that is away longer misses some";
        |time| value::show_duration(*time),
        |text| value::parse_time_within(text, OUTBOX_KEEP_MIN..=OUTBOX_KEEP_MAX, "must be from 1h to 35d")?),
    setting!(Serve "log" "WIDEROOM_LOG" "FILTER" log "Level of the log on stderr: error, warn, info, debug or trace, also by module, as info,wideroom::store=debug";
        |filter| filter.clone(),
        |text| text.to_owned()),
    setting!(choice "FORMAT" ["text" LogFormat::Text, "json" LogFormat::Json] "must be text or json",
        Serve "log-format" "WIDEROOM_LOG_FORMAT" log_format "Format of the log: text or json"),
    setting!(Serve "slow-request" "WIDEROOM_SLOW_REQUEST" "TIME" server.slow_request "Time from which a query or a mutation is logged as a warning, with its cost and its store time, or `none`";
        |time| value::show_option(*time, "none", value::show_duration),
        |text| value::parse_option(text, "none", value::parse_duration)?),
    setting!(choice "WHICH" ["all" RequestLines::All, "slow" RequestLines::Slow, "off" RequestLines::Off] "must be all, slow or off",
        Serve "log-requests" "WIDEROOM_LOG_REQUESTS" server.log_requests "Operations that have a line in the log: all, slow or off. A minute has at most 60,000 lines of those that succeed and 60 of each code of refusals; further ones are counted"),
    setting!(size Store "cache-size" "WIDEROOM_CACHE_SIZE" cache_bytes "Memory of the block cache of the embedded store"),
    setting!(Store "free-disk-min" "WIDEROOM_FREE_DISK_MIN" "SIZE" free_bytes_min "Free disk space below which the server refuses writes; reads continue. From 16MiB on; 0B checks nothing";
    |bytes| value::show_size(*bytes),
    |text| match value::parse_size(text)? {
        1..FREE_DISK_MIN => return Err("must be at least 16MiB, which the store may write before it notices, or 0B".to_owned()),
        bytes => bytes,
    }),
    setting!(flag Store "accept-loss" "WIDEROOM_ACCEPT_LOSS" accept_loss "Open an embedded store that lost acknowledged writes, as after a restored disk; the lost writes stay lost"),
];
