//! The command line: commands, their flags, and how the program ends.
//!
//! Exit codes: 0; 1 after one clear line on stderr; 2 for wrong usage; 3 if the embedded store is damaged, lacks commits or has
//! another format; 4 if another process uses its folder.

mod admin_client;
mod bench;
mod check_config;
mod client;
mod data;
mod default_config;
mod error;
mod health;
mod help;
mod process;
mod progress;
mod schema;
mod serve;
mod settings;
mod signals;
mod storage;
mod token;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::bench::{BENCH, BENCH_EXAMPLES, BenchFlags};
use self::client::{CLIENT, CLIENT_EXAMPLES, ClientFlags};
use self::data::{
    BackupFlags, EraseFlags, ExportFlags, ImportFlags, MigrateFlags, OutboxFlags, ReindexFlags,
    RestoredFlags, VerifyFlags, WebhookFlags,
};
use self::error::Error;
use self::health::HealthFlags;
use self::help::{
    BACKUP, BACKUP_EXAMPLES, CHECK_CONFIG, CHECK_CONFIG_EXAMPLES, DEFAULT_CONFIG,
    DEFAULT_CONFIG_EXAMPLES, ERASE, ERASE_EXAMPLES, EXAMPLES, EXPORT, EXPORT_EXAMPLES, HEALTH,
    HEALTH_EXAMPLES, IMPORT, IMPORT_EXAMPLES, MIGRATE, MIGRATE_EXAMPLES, OUTBOX, OUTBOX_EXAMPLES,
    REINDEX, REINDEX_EXAMPLES, RESTORED, RESTORED_EXAMPLES, SCHEMA, SCHEMA_EXAMPLES, SERVE,
    SERVE_EXAMPLES, TOKEN, TOKEN_EXAMPLES, VERIFY, VERIFY_EXAMPLES, WEBHOOK, WEBHOOK_EXAMPLES,
};
use self::settings::SettingFlags;
use self::token::TokenFlags;
use crate::config::{Config, unknown_variables};

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
    serve: SettingFlags<{ settings::SERVE }>,
}

#[derive(Subcommand)]
enum Command {
    #[command(about = "Run the server", long_about = SERVE, after_help = SERVE_EXAMPLES)]
    Serve(SettingFlags<{ settings::SERVE }>),
    #[command(about = "Print a signed token for a user", long_about = TOKEN, after_help = TOKEN_EXAMPLES)]
    Token(TokenFlags),
    #[command(about = "Load conversations and their history into the store", long_about = IMPORT, after_help = IMPORT_EXAMPLES)]
    Import(ImportFlags),
    #[command(about = "Write the whole store to a file", long_about = EXPORT, after_help = EXPORT_EXAMPLES)]
    Export(ExportFlags),
    #[command(about = "Erase a user from the store", long_about = ERASE, after_help = ERASE_EXAMPLES)]
    Erase(EraseFlags),
    #[command(about = "Check the consistency of the store", long_about = VERIFY, after_help = VERIFY_EXAMPLES)]
    Verify(VerifyFlags),
    #[command(about = "Build the search index again", long_about = REINDEX, after_help = REINDEX_EXAMPLES)]
    Reindex(ReindexFlags),
    #[command(about = "Create the tables on a cluster of Cassandra or ScyllaDB", long_about = MIGRATE, after_help = MIGRATE_EXAMPLES)]
    Migrate(MigrateFlags),
    #[command(about = "Keep every event for services, or stop it", long_about = OUTBOX, after_help = OUTBOX_EXAMPLES)]
    Outbox(OutboxFlags),
    #[command(about = "List webhooks, and redeliver what their receivers refused", long_about = WEBHOOK, after_help = WEBHOOK_EXAMPLES)]
    Webhook(WebhookFlags),
    #[command(about = "Copy the store of a running server", long_about = BACKUP, after_help = BACKUP_EXAMPLES)]
    Backup(BackupFlags),
    #[command(about = "Note that the store was restored from copied files", long_about = RESTORED, after_help = RESTORED_EXAMPLES)]
    Restored(RestoredFlags),
    #[command(about = "Ask whether the server of a data folder is alive", long_about = HEALTH, after_help = HEALTH_EXAMPLES)]
    Health(HealthFlags),
    #[command(about = "Measure a running server under a load", long_about = BENCH, after_help = BENCH_EXAMPLES)]
    Bench(BenchFlags),
    #[command(about = "Write the JavaScript client as a package of npm", long_about = CLIENT, after_help = CLIENT_EXAMPLES)]
    Client(ClientFlags),
    #[command(about = "Print the settings in force and the source of each", long_about = CHECK_CONFIG, after_help = CHECK_CONFIG_EXAMPLES)]
    CheckConfig(SettingFlags<{ settings::SERVE }>),
    #[command(about = "Print a configuration file with every setting and its default", long_about = DEFAULT_CONFIG, after_help = DEFAULT_CONFIG_EXAMPLES)]
    DefaultConfig,
    #[command(about = "Print the schema of the API", long_about = SCHEMA, after_help = SCHEMA_EXAMPLES)]
    Schema,
}

/// Advice after an interrupted command that can be resumed.
const RESUMABLE: &str = "the same command resumes from here";

/// Parses the command line. `wideroom --help` hides the limits, which are flags of it too.
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

/// Entry point of the program.
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
        Some(Command::Import(flags)) => data::import(flags),
        Some(Command::Export(flags)) => data::export(flags),
        Some(Command::Erase(flags)) => data::erase(flags),
        Some(Command::Verify(flags)) => data::verify(flags),
        Some(Command::Reindex(flags)) => data::reindex(flags),
        Some(Command::Migrate(flags)) => data::migrate(flags),
        Some(Command::Outbox(flags)) => data::outbox(flags),
        Some(Command::Webhook(flags)) => data::webhook(flags),
        Some(Command::Backup(flags)) => data::backup(flags),
        Some(Command::Restored(flags)) => data::restored(flags),
        Some(Command::Health(flags)) => health::run(flags),
        Some(Command::Bench(flags)) => bench::run(flags),
        Some(Command::Client(flags)) => client::run(flags),
        Some(Command::CheckConfig(given)) => check_config::run(given),
        Some(Command::DefaultConfig) => default_config::run(),
        Some(Command::Schema) => schema::run(),
        Some(Command::Serve(given)) => serve::run(given),
        None => serve::run(&line.serve),
    }
}

/// Sentences about settings that would pass in silence.
fn warnings(config: &Config) -> Vec<String> {
    // A name that is not text is none of ours.
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut warnings = unknown_variables(names);
    warnings.extend(config.contradictions());
    warnings
}

/// Prints to stdout. A closed pipe, as in `wideroom schema | head`, is no failure.
fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Write(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
