//! The command line: commands, their flags, and how the program ends.
//!
//! Exit codes: 0; 1 after one clear line on stderr; 2 for wrong usage; 3 if the embedded store is damaged, lacks commits or has
//! another format; 4 if another process uses its folder.

mod admin_client;
mod bench;
mod check_config;
mod client;
mod command;
mod data;
mod default_config;
mod error;
mod health;
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

use clap::{CommandFactory, FromArgMatches, Parser};

use self::command::Command;
use self::error::Error;
use self::settings::SettingFlags;
use crate::config::{Config, unknown_variables};

#[derive(Parser)]
#[command(
    name = "wideroom",
    version,
    about = "A chat backend: a GraphQL API over wide rows",
    after_help = "\
Without a command the program serves. `wideroom serve --help` also lists the limits.

Examples:
  wideroom --demo                        try it: a server with sample data, on http://127.0.0.1:8080
  wideroom token --user alice            print a token that signs in as alice
  wideroom import chats.jsonl            load conversations from a file
  wideroom export chats.jsonl            write the whole store to a file
  wideroom migrate --store cql://…       create the tables on a cluster

`wideroom COMMAND --help` explains each command."
)]
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

/// Advice after an interrupted command that can be resumed.
const RESUMABLE: &str = "the same command resumes from here";
/// Advice after an interrupted command that has done nothing, or all.
const REPEATABLE: &str = "the same command can be repeated";

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
    match line.command.unwrap_or(Command::Serve(line.serve)).run() {
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
