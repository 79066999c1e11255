//! Settings that would pass in silence: variables that nobody reads, and bounds that another bound makes useless.

use super::file::nearest;
use super::{Config, settings};

const PREFIX: &str = "WIDEROOM_";
const CONFIG_FILE: &str = "WIDEROOM_CONFIG";
/// Parts of the variables that Kubernetes sets for a service named `wideroom`.
const KUBERNETES: [&str; 3] = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];

/// One sentence for each variable of the environment that is no setting.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_known =
        |name: &str| name == CONFIG_FILE || settings().any(|setting| setting.environment == name);
    let is_ours = |name: &String| {
        name.starts_with(PREFIX)
            && !is_known(name)
            && !KUBERNETES.iter().any(|part| name.contains(part))
    };
    let sentence = |name: String| {
        let setting = nearest(&name[PREFIX.len()..])
            .and_then(|key| settings().find(|setting| setting.name == key));
        let guess = setting.map(|setting| format!("; did you mean {}?", setting.environment));
        format!("{name} is no setting{}", guess.unwrap_or_default())
    };
    let mut names: Vec<_> = names.filter(is_ours).collect();
    names.sort_unstable();
    names.into_iter().map(sentence).collect()
}

impl Config {
    /// One sentence for each bound that another bound makes useless, with the bound to change.
    pub fn contradictions(&self) -> Vec<String> {
        let (server, rates) = (&self.server, &self.server.rates);
        let is_quota = rates.is_on && server.answer_bytes > rates.user_answer_bytes;
        [
            (
                server.streams.total >= server.connections,
                "subscriptions over HTTP may take every connection: write a --streams-max below --connections-max",
            ),
            (
                is_quota,
                "an answer of --answer-max exceeds the quota of its user: raise --user-answer-bytes-max to it",
            ),
            (
                rates.is_on && rates.user_sockets > server.sockets.total,
                "one user may take every socket: write a --user-sockets-max below --sockets-max",
            ),
            (
                server.variables_bytes > server.body_bytes,
                "variables may be larger than any body: lower --variables-max to --http-body-max",
            ),
            (
                self.chat.user_replays_max > self.chat.replays_max,
                "one user may take every replay: write a --user-replays-max below --replays-max",
            ),
            (
                self.chat.rates.is_on && self.chat.rates.typing_interval >= self.chat.typing_lifetime,
                "a typing signal ends before its user may send the next one: write a --typing-every below --typing-lasts",
            ),
            (
                self.before_send
                    .as_ref()
                    .is_some_and(|hook| hook.timeout >= server.request),
                "a send times out before its hook does: write a timeout of [before_send] below --request-deadline",
            ),
            (
                server.sockets.init_bytes > server.sockets.message_bytes,
                "a connection_init may be larger than any message: lower --socket-init-max to --socket-message-max",
            ),
        ]
        .into_iter()
        .filter(|(is_contradiction, _)| *is_contradiction)
        .map(|(_, sentence)| sentence.to_owned())
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_named_with_the_setting_that_is_meant() {
        let names = [
            "WIDEROOM_LSTEN",
            "WIDEROOM_LISTEN",
            "WIDEROOM_CONFIG",
            "WIDEROOM_SERVICE_HOST",
            "WIDEROOM_PORT_8080_TCP_ADDR",
            "WIDEROOM_ZZZ",
            "OTHER",
        ];
        assert_eq!(
            unknown_variables(names.into_iter().map(str::to_owned)),
            [
                "WIDEROOM_LSTEN is no setting; did you mean WIDEROOM_LISTEN?",
                "WIDEROOM_ZZZ is no setting"
            ]
        );
    }

    #[test]
    fn the_defaults_contradict_nothing() {
        let mut config = Config::default();
        assert_eq!(config.contradictions(), Vec::<String>::new());
        config.server.connections = config.server.streams.total;
        config.server.sockets.init_bytes = usize::MAX;
        config.chat.rates.typing_interval = config.chat.typing_lifetime;
        assert_eq!(config.contradictions().len(), 3);
    }
}
