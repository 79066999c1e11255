//! The command line: what each command is called, what it takes, and how the program ends.
//!
//! Exit codes: 0; 1 after one clear line on stderr; 2 for wrong usage.

mod backup;
mod bench;
mod check_config;
mod default_config;
mod export;
mod import;
mod migrate;
mod open;
mod operate;
mod process;
mod progress;
mod schema;
mod serve;
mod settings;
mod stop;
mod token;
mod verify;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::backup::BackupError;
use self::bench::{BENCH, BENCH_EXAMPLES, BenchFlags};
use self::settings::{DATA, Given, STORE};
use crate::bus::NatsError;
use crate::model::{UserId, UserIdError};
use crate::server::TrustedError;
use crate::store::{self, cql, embedded};
use crate::{auth, config, load, telemetry, transfer};

#[derive(Parser)]
#[command(name = "wideroom", version, about = "A chat backend: a GraphQL API over wide rows", after_help = EXAMPLES)]
#[command(
    args_conflicts_with_subcommands = true,
    max_term_width = 120,
    disable_help_subcommand = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Given<{ settings::SERVE }>,
}

const EXAMPLES: &str = "\
Without a command it serves, as `wideroom serve`, whose help has the bounds too.

Examples:
  wideroom --demo                        try it: a server with a sample to look at, on http://127.0.0.1:8080
  wideroom token --user alice            print a token that signs in as alice
  wideroom import chats.jsonl            bring in conversations from elsewhere
  wideroom export chats.jsonl            write everything to a file, for another store
  wideroom migrate --store cql://…       make the tables on a cluster

`wideroom COMMAND --help` says more about each.";

#[derive(Subcommand)]
enum Command {
    #[command(about = "Run the server", long_about = SERVE, after_help = SERVE_EXAMPLES)]
    Serve(Given<{ settings::SERVE }>),
    #[command(about = "Print a signed token that names a user", long_about = TOKEN, after_help = TOKEN_EXAMPLES)]
    Token(TokenFlags),
    #[command(about = "Bring conversations and their history into the store", long_about = IMPORT, after_help = IMPORT_EXAMPLES)]
    Import(ImportFlags),
    #[command(about = "Write everything of the store to a file", long_about = EXPORT, after_help = EXPORT_EXAMPLES)]
    Export(ExportFlags),
    #[command(about = "Say whether the store agrees with itself", long_about = VERIFY, after_help = VERIFY_EXAMPLES)]
    Verify(VerifyFlags),
    #[command(about = "Make the tables on a cluster of Cassandra or ScyllaDB", long_about = MIGRATE, after_help = MIGRATE_EXAMPLES)]
    Migrate(MigrateFlags),
    #[command(about = "Copy the store of a running server", long_about = BACKUP, after_help = BACKUP_EXAMPLES)]
    Backup(BackupFlags),
    #[command(about = "Measure a running server under a load", long_about = BENCH, after_help = BENCH_EXAMPLES)]
    Bench(BenchFlags),
    #[command(about = "Say which settings would be in force, and from where", long_about = CHECK_CONFIG, after_help = CHECK_CONFIG_EXAMPLES)]
    CheckConfig(Given<{ settings::SERVE }>),
    #[command(about = "Print a configuration file with every setting and its default", long_about = DEFAULT_CONFIG, after_help = DEFAULT_CONFIG_EXAMPLES)]
    DefaultConfig,
    #[command(about = "Print the schema of the API", long_about = SCHEMA, after_help = SCHEMA_EXAMPLES)]
    Schema,
}

const BACKUP: &str = "\
Copy the store of a running server into a folder, which another server can then be started on.

The copy holds what was acknowledged before it began, all as it was at one moment, and the key of the data folder, or a new one with \
--new-key: take that for a copy that is tried out elsewhere. Only your own user can read the copy. The server goes on meanwhile. It is asked at its --admin-listen, and gives a copy to whoever can read the key in its data folder. The folder must be empty, or \
not be there yet. A copy that was not finished is refused by every server. Only an embedded store is copied; a cluster has its own tools.";

const BACKUP_EXAMPLES: &str = "\
Examples:
  wideroom backup /backup/2026-11-21 --data /var/lib/wideroom
  wideroom backup /srv/staging --new-key --data /var/lib/wideroom      a copy that today's tokens do not open
  wideroom serve --data /backup/2026-11-21 --listen 127.0.0.1:8081 --admin-listen off    look at it";

const CHECK_CONFIG: &str = "\
Say which settings `wideroom serve` would have with the same flags, environment and file, and where each is from.

It reads the files that the settings name (keys, trusted documents), so that a mistake in them shows, and opens and makes nothing. What is \
printed is a configuration file itself. User and password of a cluster are left out.";

const CHECK_CONFIG_EXAMPLES: &str = "\
Examples:
  wideroom check-config --config wideroom.toml
  wideroom check-config --config wideroom.toml | grep -v '# default'";

const DEFAULT_CONFIG: &str = "\
Print a configuration file with every setting, what it does, and its default. Nothing is set in it until the # before a key is taken away.";

const DEFAULT_CONFIG_EXAMPLES: &str = "\
Examples:
  wideroom default-config > wideroom.toml";

const SCHEMA: &str = "\
Print the schema of the API in GraphQL's schema language, as it is committed in schema.graphql. Nothing is opened.";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  wideroom schema > schema.graphql";

const SERVE: &str = "\
Run the server until SIGTERM or SIGINT.

It needs no configuration: messages are kept in the data folder, and it listens to this machine only. After a signal it takes nothing \
new, lets what is under way finish, and closes the store; after a second signal it leaves at once. One server at a time has a data folder.";

const SERVE_EXAMPLES: &str = "\
Examples:
  wideroom serve --demo
  wideroom serve --listen 0.0.0.0:8080 --data /var/lib/wideroom --log-format json
  WIDEROOM_LISTEN=127.0.0.1:9000 wideroom serve --config wideroom.toml";

const TOKEN: &str = "\
Print a signed token that names a user, and nothing else.

Any name will do: a user exists by being named. The token is signed with the key in the data folder, which is made where there is none. \
The store is not opened, so that this works beside a running server. Whoever has the token is that user until it expires: keep it as you \
would a password.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  wideroom token --user alice
  wideroom token --user alice@example.org --ttl 15m --data /var/lib/wideroom
  curl -H \"Authorization: Bearer $(wideroom token --user alice)\" …";

const IMPORT: &str = "\
Bring conversations and their history into the store, from JSON lines.

Each line is one JSON object, one fact, with `type` first. Lines may come in any order. Ids and times are kept as they are. \
What the store has already stays as it is, so that importing twice changes nothing, and an import of a file that was interrupted goes on \
where it was. A broken line is named by its number and left out; the rest goes on, and the exit code is 1. The store must not be served \
meanwhile.";

const IMPORT_EXAMPLES: &str = "\
Lines, with all their fields; only those before the bar are needed:
  user          username | displayName avatarUrl lastSeenAt
  conversation  id | kind name createdAt createdBy lastActivityAt inputHash participants
  participant   conversationId username | state role joinedAt leftAt readUpTo unreadFrom deliveredUpTo
                muted pinned archivedAt
  message       conversationId id sender | kind body attachments metadata replyTo clientKey editedAt deletedAt
  reaction      conversationId messageId emoji username
  header, end   first and last line of an export: format exportedAt; lines (how many stand before it)
`participants` is a list of {username, role, readUpTo, …}. Message ids are timeuuids, and hold the time. `unreadFrom` says from where on
all is unread, where that is not just behind `readUpTo`.

Examples:
  wideroom import chats.jsonl
  zcat chats.jsonl.gz | wideroom import - --data /var/lib/wideroom";

const EXPORT: &str = "\
Write everything of the store as JSON lines, which `wideroom import` reads into this store or any other: users, conversations, \
participants with their roles, markers and flags, messages with edits, deletions and replies, and reactions. A message that cannot be \
read is named on standard error and left out; the exit code is 1 then.

Only your own user can read FILE; run `chmod` afterwards for another one, or write to a pipe. What is written so far lies beside FILE in one that ends in `.partial`; it takes the place of FILE once it is whole. An export that was \
interrupted goes on there when the same command is given again; remove the partial file to begin anew. On an embedded store the server \
must be stopped meanwhile. On a cluster servers may go on: what they write meanwhile may be missing from the file, so stop them for a move.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  wideroom export chats.jsonl --data /var/lib/wideroom
  wideroom export - --store cql://10.0.0.1/wideroom | gzip > chats.jsonl.gz
  wideroom export - | wideroom import - --store cql://10.0.0.1/wideroom";

const VERIFY: &str = "\
Read the whole store and say whether what follows from messages and participants agrees with them: the heads of conversations, counts, \
the lists of inboxes, pairs and, on a cluster, the index of buckets. Each kind of disagreement is counted, with an example.

A message that cannot be read is damaged: each is named on standard error, and nothing repairs it; once deleted it is gone. \
What was written is the truth, and is never changed. `--repair` makes the rest agree with them. The exit code is 0 where all agrees or was \
repaired, and 1 where not. On an embedded store the server must be stopped meanwhile; on a cluster too, or what is just being written \
may be found.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  wideroom verify --data /var/lib/wideroom
  wideroom verify --repair --store cql://10.0.0.1/wideroom";

const MIGRATE: &str = "\
Make the keyspace and its tables on a cluster of Cassandra or ScyllaDB, or bring them to the version of this program.

Run it before the first server starts on a cluster, and again with each new version, before the servers. It is harmless when repeated, \
and when two run at once. A keyspace that is there already keeps its replication. Servers refuse a keyspace of another version.";

const MIGRATE_EXAMPLES: &str = "\
Examples:
  wideroom migrate --store cql://10.0.0.1,10.0.0.2/wideroom
  wideroom migrate --store 'cql://wideroom:secret@db.internal/wideroom?dc=north&tls=on' --replication 3";

#[derive(clap::Args)]
struct MigrateFlags {
    /// How many nodes keep each row, where the keyspace is made [default: 3, or the number of nodes where there are fewer]
    #[arg(long, env = "WIDEROOM_REPLICATION", hide_env_values = true, value_name = "COUNT", value_parser = parse_replication)]
    replication: Option<usize>,
    #[command(flatten)]
    given: Given<STORE>,
}

fn parse_replication(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=9).contains(count))
        .ok_or_else(|| "must be a number from 1 to 9".to_owned())
}

#[derive(clap::Args)]
struct ImportFlags {
    /// The file, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    given: Given<STORE>,
}

#[derive(clap::Args)]
struct ExportFlags {
    /// The file, or `-` for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    given: Given<STORE>,
}

#[derive(clap::Args)]
struct VerifyFlags {
    /// Make agree what does not
    #[arg(long, env = "WIDEROOM_REPAIR", hide_env_values = true)]
    repair: bool,
    #[command(flatten)]
    given: Given<STORE>,
}

#[derive(clap::Args)]
struct BackupFlags {
    /// The folder to make the copy in
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Make a new key for the copy: tokens of the original do not open the copy, nor tokens of the copy the original
    #[arg(long, env = "WIDEROOM_NEW_KEY", hide_env_values = true)]
    new_key: bool,
    /// Admin address of the server, for metrics, health and backups [default: 127.0.0.1:9090]
    #[arg(
        long,
        env = "WIDEROOM_ADMIN_LISTEN",
        hide_env_values = true,
        value_name = "ADDRESS"
    )]
    admin_listen: Option<String>,
    #[command(flatten)]
    given: Given<DATA>,
}

#[derive(clap::Args)]
struct TokenFlags {
    /// Username in the token: 1 to 128 bytes of text without control characters
    #[arg(long, env = "WIDEROOM_USER", hide_env_values = true, value_name = "NAME", value_parser = parse_user)]
    user: UserId,
    /// How long the token is good for
    #[arg(long, env = "WIDEROOM_TTL", hide_env_values = true, value_name = "TIME", default_value = "24h", value_parser = config::parse_duration)]
    ttl: Duration,
    #[command(flatten)]
    given: Given<DATA>,
}

fn parse_user(text: &str) -> Result<UserId, UserIdError> {
    UserId::parse(text)
}

/// Advice after an interrupted command that can be resumed.
const GOES_ON: &str = "the same command goes on from here";

/// Why a command failed: one line.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Key(#[from] auth::KeyError),
    #[error(transparent)]
    Log(#[from] telemetry::Error),
    #[error("{0}{hint}", hint = if matches!(.0, embedded::OpenError::Lost { .. }) { " (--accept-loss)" } else { "" })]
    Open(#[from] embedded::OpenError),
    #[error(transparent)]
    Cluster(#[from] cql::OpenError),
    #[error("--nats: {0}")]
    Nats(#[from] NatsError),
    #[error("only a cluster has tables to make: say which, as in --store cql://127.0.0.1/wideroom")]
    NothingToMigrate,
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}; what was imported stays, and the same command may be given again")]
    Import(#[from] transfer::import::Error),
    #[error(transparent)]
    Export(#[from] transfer::export::Error),
    #[error("there is no store in {}", .0.display())]
    NoStore(PathBuf),
    #[error("--ttl: the server takes tokens that live {} at most (--token-life-max)", config::show_duration(*.0))]
    LongLife(Duration),
    #[error("what does not agree: {0}; `wideroom verify --repair` repairs it")]
    NotSound(u64),
    #[error("what does not agree and could not be repaired: {0}")]
    NotRepaired(u64),
    #[error("{} cannot be written: {source}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("{} cannot be read: {source}", path.display())]
    Input { path: PathBuf, source: io::Error },
    #[error("the data folder {} cannot be made: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("broken lines left out: {0}; the rest is imported")]
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
    #[error(transparent)]
    Load(#[from] load::Error),
    #[error("--trusted-documents: {}: {source}", path.display())]
    Trusted { path: PathBuf, source: TrustedError },
    #[error("the server failed: {0}")]
    Serve(#[source] io::Error),
    #[error("the runtime cannot be started: {0}")]
    Runtime(#[source] io::Error),
    #[error("left at once, by a second signal")]
    Left,
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

impl Error {
    fn exit_code(&self) -> ExitCode {
        let is_usage = matches!(
            self,
            Self::Config(config::Error::Value { is_usage: true, .. })
        );
        ExitCode::from(if is_usage { 2 } else { 1 })
    }
}

/// The bounds are flags of `wideroom` too, but there they would drown what a newcomer looks for.
fn parse() -> Result<CommandLine, clap::Error> {
    let is_bound =
        |argument: &clap::Arg| argument.get_help_heading() == Some(settings::BOUNDS_HEADING);
    let command = CommandLine::command().mut_args(|argument| {
        if is_bound(&argument) {
            argument.hide(true)
        } else {
            argument
        }
    });
    CommandLine::from_arg_matches(&command.try_get_matches()?)
}

/// The whole program.
pub fn main() -> ExitCode {
    process::make_private_files();
    let line = match parse() {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "wideroom: {}", one_line(&error.to_string()));
            error.exit_code()
        }
    }
}

/// Joins the lines of a library's error message into one.
fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

fn run(line: &CommandLine) -> Result<(), Error> {
    match &line.command {
        Some(Command::Token(flags)) => token::run(flags),
        Some(Command::Import(flags)) => import::run(flags),
        Some(Command::Export(flags)) => export::run(flags),
        Some(Command::Verify(flags)) => verify::run(flags),
        Some(Command::Migrate(flags)) => migrate::run(flags),
        Some(Command::Backup(flags)) => backup::run(flags),
        Some(Command::Bench(flags)) => bench::run(flags),
        Some(Command::CheckConfig(given)) => check_config::run(given),
        Some(Command::DefaultConfig) => default_config::run(),
        Some(Command::Schema) => schema::run(),
        Some(Command::Serve(given)) => serve::run(given),
        None => serve::run(&line.serve),
    }
}

/// Prints to stdout. That nobody reads on, as in `wideroom schema | head`, is no failure.
fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Write(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
