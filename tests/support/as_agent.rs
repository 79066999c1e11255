//! One user of the cases is an agent: `alice` everywhere, under the name `agent:alice`.
//!
//! The name is translated at the border of the API: in documents, variables and imports on their way in, and in answers on their
//! way out. So cases that know nothing of agents hold for one, and the order of names stays.

use std::borrow::Cow;

use serde_json::Value;

/// Set where `alice` is an agent in this process.
pub(crate) const AS_AGENT: &str = "WIDEROOM_TEST_AS_AGENT";

const NAME: &str = "alice";
const AGENT: &str = "agent:alice";

fn is_on() -> bool {
    std::env::var_os(AS_AGENT).is_some()
}

/// Name under which a user of a case acts.
pub(crate) fn name_of(name: &str) -> &str {
    match name == NAME && is_on() {
        true => AGENT,
        false => name,
    }
}

/// A document, or lines of an import, with the name of the agent.
pub(crate) fn translated(text: &str) -> Cow<'_, str> {
    if !is_on() {
        return text.into();
    }
    text.replace(&format!("\"{NAME}\""), &format!("\"{AGENT}\""))
        .into()
}

/// Variables with the name of the agent.
pub(crate) fn variables(values: Value) -> Value {
    each_text(values, NAME, AGENT)
}

/// An answer as the case expects it.
pub(crate) fn answer(values: Value) -> Value {
    each_text(values, AGENT, NAME)
}

fn each_text(values: Value, from: &str, to: &str) -> Value {
    if !is_on() {
        return values;
    }
    let each = |value| each_text(value, from, to);
    match values {
        Value::String(text) if text == from => to.into(),
        Value::Array(values) => values.into_iter().map(each).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, each(value)))
            .collect(),
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}
