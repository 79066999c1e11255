//! Configuration as text: the file with every default, and the settings in force with their sources. Neither holds a secret.

use super::{
    ACCESS, BOUNDS, Config, SETTINGS, Setting, SettingSources, before_send, settings, webhook,
};

/// Configuration file with every key commented out at its default. A bound names the result beyond it.
pub fn default_file() -> String {
    let groups = [
        ("The server", SETTINGS),
        ("Tokens and access", ACCESS),
        ("Bounds", BOUNDS),
    ];
    let mut text = "# Wideroom: every setting with its default. Every setting is commented out; uncomment one to override its default.\n\
                    # A flag (--listen) and a variable of the environment (WIDEROOM_LISTEN) override this file.\n"
        .to_owned();
    for (title, settings) in groups {
        text += &format!("\n# == {title} ==\n");
        for setting in settings {
            let beyond = setting
                .beyond
                .map(|beyond| format!("# Beyond it: {beyond}.\n"))
                .unwrap_or_default();
            text += &format!(
                "\n# {}.\n{beyond}#{}\n",
                setting.help,
                line(setting, &Config::default())
            );
        }
    }
    text + webhook::EXAMPLE + before_send::EXAMPLE
}

/// Every setting with its value and the source of the value.
pub fn in_force(config: &Config, sources: &SettingSources) -> String {
    let lines: Vec<_> = settings()
        .map(|setting| (line(setting, config), sources.get(setting.name)))
        .collect();
    let width = lines
        .iter()
        .map(|(line, _)| line.chars().count())
        .filter(|width| *width <= 48)
        .max()
        .unwrap_or(0);
    let show = |(line, source): &(String, Option<_>)| match source {
        Some(source) => format!("{line:width$}  # {source}\n"),
        None => format!("{line:width$}  # default\n"),
    };
    let shown: String = lines.iter().map(show).collect();
    let hook = config.before_send.as_ref().map(before_send::show);
    shown + &webhook::show(&config.webhooks) + &hook.unwrap_or_default()
}

/// Value in the syntax of TOML.
fn line(setting: &Setting, config: &Config) -> String {
    let text = (setting.get)(config);
    let is_plain = text.parse::<bool>().is_ok() || text.parse::<i64>().is_ok();
    let value = if is_plain {
        text
    } else {
        toml::Value::String(text).to_string()
    };
    format!("{} = {value}", setting.name)
}

#[cfg(test)]
mod tests {
    use super::super::{SettingSource, StoreChoice};
    use super::*;

    fn read(text: &str) -> (Config, usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wideroom.toml");
        std::fs::write(&path, text).unwrap();
        let mut config = Config {
            demo: true,
            ..Config::default()
        };
        let set = config.set_from_file(&path).unwrap().len();
        (config, set)
    }

    #[test]
    fn the_default_file_sets_nothing() {
        assert_eq!(read(&default_file()).1, 0);
    }

    #[test]
    fn the_default_file_names_every_setting_with_its_default() {
        let is_key = |line: &&str| {
            line.strip_prefix('#')
                .is_some_and(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        };
        let keys: String = default_file()
            .lines()
            .filter(is_key)
            .map(|line| format!("{}\n", &line[1..]))
            .collect();
        let (config, set) = read(&keys);
        assert_eq!((config, set), (Config::default(), settings().count()));
    }

    #[test]
    fn what_is_in_force_reads_back_as_itself() {
        let mut config = Config {
            data: "/with \"quotes\" and \\".into(),
            ..Config::default()
        };
        config.store = StoreChoice::Cql("cql://host/chat".parse().unwrap());
        let text = in_force(
            &config,
            &SettingSources::from([
                ("data", SettingSource::Environment),
                ("store", SettingSource::File("w.toml".into())),
            ]),
        );
        assert_eq!(read(&text), (config, settings().count()), "{text}");
        assert!(
            text.lines()
                .any(|line| line.starts_with("data = ") && line.ends_with("  # environment")),
            "{text}"
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("store = ") && line.ends_with("  # w.toml")),
            "{text}"
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("listen = ") && line.ends_with("  # default")),
            "{text}"
        );
    }
}
