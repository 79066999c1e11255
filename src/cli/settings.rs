//! Flags of a command, derived from the table of settings.
//!
//! A flag overrides the environment, which overrides the file, which overrides the default. An empty variable counts as unset.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::{self, BOUNDS, Config, Error, Scope, Setting, SettingSource, SettingSources};

pub(super) const DATA: u8 = Scope::Data as u8;
pub(super) const STORE: u8 = Scope::Store as u8;
pub(super) const SERVE: u8 = Scope::Serve as u8;

/// Flags of a command of this scope, as text.
#[derive(Default)]
pub(super) struct SettingFlags<const SCOPE: u8> {
    file: Option<PathBuf>,
    values: Vec<(&'static Setting, SettingSource, String)>,
}

const CONFIG: &str = "config";
/// Heading of the bounds in the help of a command.
pub(super) const BOUNDS_HEADING: &str = "Bounds";

impl<const SCOPE: u8> SettingFlags<SCOPE> {
    /// Merges all sources and validates the result.
    pub(super) fn config(&self) -> Result<Config, Error> {
        Ok(self.resolve()?.0)
    }

    /// Merges all sources, and names the source of each value.
    pub(super) fn resolve(&self) -> Result<(Config, SettingSources), Error> {
        let (mut config, mut sources) = (Config::default(), SettingSources::new());
        if let Some(path) = &self.file {
            let set = config.set_from_file(path)?;
            sources.extend(
                set.into_iter()
                    .map(|setting| (setting.name, SettingSource::File(path.clone()))),
            );
        }
        for (setting, source, text) in &self.values {
            config.set(setting, text, source)?;
            sources.insert(setting.name, source.clone());
        }
        config.validate(
            settings::<SCOPE>()
                .map(|setting| setting.scope)
                .max()
                .unwrap_or(Scope::Data),
        )?;
        Ok((config, sources))
    }
}

fn settings<const SCOPE: u8>() -> impl Iterator<Item = &'static Setting> {
    config::settings().filter(|setting| setting.scope as u8 <= SCOPE)
}

fn argument(setting: &'static Setting) -> Arg {
    let default = (setting.get)(&Config::default());
    let argument = Arg::new(setting.name)
        .long(setting.name)
        .env(setting.environment)
        .hide_env_values(true);
    let is_bound = BOUNDS.iter().any(|bound| bound.name == setting.name);
    let argument = if is_bound {
        argument.help_heading(BOUNDS_HEADING).hide_short_help(true)
    } else {
        argument
    };
    match setting.value_name {
        Some(name) => argument
            .value_name(name)
            .help(format!("{} [default: {default}]", setting.help)),
        None => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("true|false")
            .hide_possible_values(true)
            .help(setting.help),
    }
}

impl<const SCOPE: u8> clap::Args for SettingFlags<SCOPE> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG)
            .long(CONFIG)
            .env("WIDEROOM_CONFIG")
            .hide_env_values(true)
            .value_name("FILE")
            .value_parser(ValueParser::path_buf())
            .action(ArgAction::Set)
            .help(
                "TOML file with a key for each of these flags; flags and environment override it",
            );
        command.args(settings::<SCOPE>().map(argument)).arg(file)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const SCOPE: u8> clap::FromArgMatches for SettingFlags<SCOPE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |setting: &'static Setting| {
            let text = matches.get_one::<String>(setting.name)?.clone();
            let is_environment =
                matches.value_source(setting.name) == Some(ValueSource::EnvVariable);
            let source = if is_environment {
                SettingSource::Environment
            } else {
                SettingSource::Flag
            };
            (!(is_environment && text.is_empty())).then_some((setting, source, text))
        };
        let file = matches
            .get_one::<PathBuf>(CONFIG)
            .filter(|path| !path.as_os_str().is_empty())
            .cloned();
        Ok(Self {
            file,
            values: settings::<SCOPE>().filter_map(value).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
