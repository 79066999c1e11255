//! The command line: what each command is called, what it takes, and how the program ends.
//!
//! Exit codes: 0; 1 after one clear line on stderr; 2 for wrong usage.

mod settings;
mod token;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::settings::{DATA, Given};
use crate::model::{UserId, UserIdError};
use crate::{auth, config, telemetry};

#[derive(Parser)]
#[command(name = "wideroom", version, about = "A chat backend: a GraphQL API over wide rows", after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, max_term_width = 120, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Given<{ settings::SERVE }>,
}

const EXAMPLES: &str = "\
Without a command it serves, as `wideroom serve`.

Examples:
  wideroom --demo                        try it: a server with a sample to look at, on http://127.0.0.1:8080
  wideroom token --user alice            print a token that signs in as alice
  wideroom import chats.jsonl            bring in conversations from elsewhere

`wideroom COMMAND --help` says more about each.";

#[derive(Subcommand)]
enum Command {
    #[command(about = "Print a signed token that names a user", long_about = TOKEN, after_help = TOKEN_EXAMPLES)]
    Token(TokenFlags),
}

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

#[derive(clap::Args)]
struct TokenFlags {
    /// Who the token names: 1 to 128 bytes of text without control characters
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

/// Why a command failed: one line.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Key(#[from] auth::KeyError),
    #[error(transparent)]
    Log(#[from] telemetry::Error),
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

impl Error {
    fn exit_code(&self) -> ExitCode {
        let is_usage = matches!(self, Self::Config(config::Error::Value { is_usage: true, .. }));
        ExitCode::from(if is_usage { 2 } else { 1 })
    }
}

/// The whole program.
pub fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
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

/// What comes from a library may have several lines.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn run(line: &CommandLine) -> Result<(), Error> {
    match &line.command {
        Some(Command::Token(flags)) => token::run(flags),
        None => line.serve.config().map(drop).map_err(Error::from),
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
