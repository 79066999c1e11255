//! Errors of the commands: each is one line on stderr.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::data::BackupError;
use super::health::HealthError;
use crate::bus::NatsError;
use crate::chat::{self, SendHookError};
use crate::server::TrustedError;
use crate::store::{self, cql, embedded};
use crate::webhook::WebhookError;
use crate::{auth, config, load, telemetry, transfer};

/// Reason for the failure of a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    BeforeSend(#[from] SendHookError),
    #[error(transparent)]
    Key(#[from] auth::KeyFileError),
    #[error(transparent)]
    Log(#[from] telemetry::Error),
    #[error("{0}{hint}", hint = if matches!(.0, embedded::OpenError::Lost { .. }) { " (--accept-loss)" } else { "" })]
    Open(#[from] embedded::OpenError),
    #[error(transparent)]
    Cluster(#[from] cql::ClusterOpenError),
    #[error("--nats: {0}")]
    Nats(#[from] NatsError),
    #[error("migrate needs a cluster: name it, as in --store cql://127.0.0.1/wideroom")]
    NothingToMigrate,
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}; imported data stays, and the same command can be repeated")]
    Import(#[from] transfer::import::Error),
    #[error(transparent)]
    Export(#[from] transfer::export::Error),
    #[error("servers run on this cluster ({servers} of them): {advice}")]
    Served {
        servers: usize,
        advice: &'static str,
    },
    #[error("the user is not erased yet: {0}; the same command resumes from here")]
    Erasure(String),
    #[error("the search index cannot be read or built: {0}; searches read history meanwhile")]
    Index(String),
    #[error("there is no store in {}", .0.display())]
    NoStore(PathBuf),
    #[error("--ttl: the server accepts tokens with a life of at most {} (--token-life-max)", config::show_duration(*.0))]
    LongLife(Duration),
    #[error(
        "the server accepts tokens of the identity provider whose keys {0} holds (--token-keys-file, --jwks-url), and no token of this command: get a token from the provider, or name a secret beside the keys (--token-secret-file)"
    )]
    OtherIssuer(String),
    #[error("inconsistencies: {0}; `wideroom verify --repair` repairs them")]
    NotSound(u64),
    #[error("inconsistencies that could not be repaired: {0}")]
    NotRepaired(u64),
    #[error("{} cannot be written: {source}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("{} holds other files: name a new folder", .0.display())]
    OtherFiles(PathBuf),
    #[error("{} cannot be read: {source}", path.display())]
    Input { path: PathBuf, source: io::Error },
    #[error("the data folder {} cannot be created: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("broken lines skipped: {0}; the rest is imported")]
    BrokenLines(u64),
    #[error("damaged messages left out: {0}; the rest is exported")]
    LeftOut(u64),
    #[error("interrupted; {0}")]
    Interrupted(&'static str),
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("--admin-listen: cannot listen on {address}: {source}; name another address, or `off`")]
    AdminListen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error("{} holds no key of a server: name the server's data folder with --data, or its token secret with --token-secret-file", .0.display())]
    NoKey(PathBuf),
    #[error("{} holds no key of a server: name the server's data folder with --data", .0.display())]
    NoServerKey(PathBuf),
    #[error(transparent)]
    Health(#[from] HealthError),
    #[error(transparent)]
    Load(#[from] load::Error),
    #[error("--trusted-documents: {}: {source}", path.display())]
    Trusted { path: PathBuf, source: TrustedError },
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error("{0}")]
    WebhookCommand(String),
    #[error("the server failed: {0}")]
    Serve(#[source] io::Error),
    #[error("the runtime cannot be started: {0}")]
    Runtime(#[source] io::Error),
    #[error("stopped at once by a second signal")]
    Left,
    #[error("the program cannot write its output: {0}")]
    Write(#[source] io::Error),
}

/// Exit code of a store that only an operator can mend: damage, lost commits, another format. A supervisor need not restart.
const STORE_NEEDS_OPERATOR: u8 = 3;
/// Exit code of a store whose folder another process holds.
const STORE_IN_USE: u8 = 4;

impl Error {
    /// Whether the cause of a start that fails at its store may end without the operator, after a wait so far.
    pub(super) fn is_transient(&self, waited: Duration) -> bool {
        if let Self::Open(error) = self {
            return error.may_pass(waited);
        }
        if let Self::Cluster(error) = self {
            return error.is_transient();
        }
        let error = if let Self::Webhook(WebhookError::Store(chat::Error::Store(failure))) = self {
            &failure.cause
        } else if let Self::Store(error) | Self::Import(transfer::import::Error::Store(error)) =
            self
        {
            error
        } else {
            return false;
        };
        matches!(
            error,
            store::Error::Unavailable(_) | store::Error::OutcomeUnknown(_)
        )
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(
            if let Self::Config(config::Error::Value { is_usage: true, .. }) = self {
                2
            } else if let Self::Open(embedded::OpenError::InUse(_)) = self {
                STORE_IN_USE
            } else if let Self::Open(error) = self
                && error.needs_operator()
            {
                STORE_NEEDS_OPERATOR
            } else {
                1
            },
        )
    }
}
