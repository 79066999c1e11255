//! Tests of the guard: accepted and refused documents, and the time it takes.

use std::time::{Duration, Instant};

use super::*;
use crate::graphql::execution::{RequestError, syntax};

fn guard(text: &str) -> Result<(), RequestError> {
    guard_within(text, &DocumentBounds::default())
}

fn guard_within(text: &str, bounds: &DocumentBounds) -> Result<(), RequestError> {
    Ok(check(&syntax::parse(text, bounds)?, bounds)?)
}

/// The limit that the document exceeds.
fn excess(text: &str) -> String {
    let message = guard(text).unwrap_err().message;
    let limit = message
        .strip_prefix("The document has more than ")
        .unwrap_or(&message);
    limit
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')
        .trim_end_matches('.')
        .to_owned()
}

/// Each fragment spreads the next one twice.
fn bomb(fragments: usize) -> String {
    let mut text = "query{...a0}".to_owned();
    for number in 0..fragments {
        text += &format!(
            "fragment a{number} on Query{{...a{next} ...a{next}}}",
            next = number + 1
        );
    }
    text + &format!("fragment a{fragments} on Query{{b}}")
}

#[test]
fn an_ordinary_document_passes() {
    guard("query Q($id: ID!, $n: Int = 20) { conversation(id: $id) { ...C messages(first: $n) { edges { node { id body sender { username } } } } } } fragment C on Conversation { id name }").unwrap();
}

#[test]
fn each_bound_holds_at_its_value_and_not_beyond() {
    let fields = |count: usize| format!("{{ a {{ {} }} }}", "b ".repeat(count - 1));
    let nested = |depth: usize| "{a".repeat(depth) + &"}".repeat(depth);
    let aliases = |count: usize| {
        format!(
            "{{ a {{ {} }} }}",
            (0..count).map(|n| format!("x{n}: b ")).collect::<String>()
        )
    };
    let directives = |count: usize| format!("{{ a {{ {} }} }}", "b @x ".repeat(count));
    let roots = |count: usize| format!("{{ __typename {} }}", "b ".repeat(count));
    let spreads = |count: usize| {
        format!(
            "{{ a {{ {} }} }} fragment F on T {{ b }}",
            "...F ".repeat(count)
        )
    };
    let operations = |count: usize| {
        (0..count)
            .map(|n| format!("query q{n} {{ a }} "))
            .collect::<String>()
    };
    let tokens = |count: usize| format!("{{ a(b: [{}]) }}", "1 ".repeat(count - 9));
    let bytes = |count: usize| format!("{{ a }}#{}", "x".repeat(count - 6));
    let introspection =
        |count: usize| format!("{{ __schema {{ {} }} }}", "description ".repeat(count));
    let deep = |depth: usize| {
        format!(
            "{{ __type(name: \"T\") {} {}",
            "{ ofType ".repeat(depth - 1),
            "}".repeat(depth)
        )
    };
    type Make<'a> = &'a dyn Fn(usize) -> String;
    for (what, make, most) in [
        ("fields, fragments expanded", &fields as Make<'_>, 500),
        ("fields inside one another", &nested, 12),
        ("aliases, fragments expanded", &aliases, 30),
        ("directives, fragments expanded", &directives, 50),
        ("root fields in one operation", &roots, 20),
        ("fragment spreads, fragments expanded", &spreads, 200),
        ("operations", &operations, 10),
        ("tokens", &tokens, 2_000),
        ("bytes", &bytes, 16 * 1024),
        ("fields of introspection", &introspection, 500),
        ("fields of introspection inside one another", &deep, 20),
    ] {
        assert_eq!(guard(&make(most)), Ok(()), "{what}");
        assert_eq!(excess(&make(most + 1)), what);
    }
}

#[test]
fn the_parser_stops_at_too_many_open_brackets() {
    let text = format!("{{ a(b: {}{}) }}", "[".repeat(1_000), "]".repeat(900));
    assert_eq!(excess(&text), "brackets inside one another");
}

#[test]
fn a_bomb_of_fragments_is_refused_within_a_millisecond() {
    let text = bomb(20);
    assert!(text.len() > 600 && text.len() < 900, "{}", text.len());
    let refuse = || {
        let start = Instant::now();
        assert!(guard(&text).is_err());
        start.elapsed()
    };
    // The best of several runs, as the machine may be busy. Builds without optimization are slower.
    let best = (0..50).map(|_| refuse()).min().unwrap();
    let most = if cfg!(debug_assertions) {
        Duration::from_millis(20)
    } else {
        Duration::from_millis(1)
    };
    assert!(best < most, "{best:?}");
}

#[test]
fn the_guard_costs_twice_as_much_for_twice_as_many_fragments_and_no_more() {
    // A measurement of 2^n steps would never end.
    assert!(guard(&bomb(100)).is_err());
    assert!(guard(&bomb(180)).is_err());
}

#[test]
fn a_fragment_that_spreads_itself_is_refused_used_or_not() {
    for text in [
        "{ ...A } fragment A on Q { ...A }",
        "{ ...A } fragment A on Q { b { ...B } } fragment B on Q { ...A }",
        "{ a } fragment A on Q { ...B } fragment B on Q { ... on Q { ...A } }",
    ] {
        assert!(
            guard(text).unwrap_err().message.contains("spreads itself"),
            "{text}"
        );
    }
}

#[test]
fn a_chain_of_fragments_has_an_end() {
    let chain: String = (0..300)
        .map(|n| format!("fragment a{n} on Q{{...a{}}}", n + 1))
        .collect();
    assert_eq!(excess(&format!("{{...a0}}{chain}")), "tokens");
    let chain: String = (0..100)
        .map(|n| format!("fragment a{n} on Q{{...a{}}}", n + 1))
        .collect();
    assert_eq!(
        excess(&format!("{{...a0}}{chain}fragment a100 on Q{{b}}")),
        "fields and fragments inside one another"
    );
}

#[test]
fn introspection_does_not_multiply_itself() {
    assert_eq!(
        guard("{ __schema { types { fields { type { fields { name } } } } } }"),
        Ok(())
    );
    let text = "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }";
    assert_eq!(excess(text), "lists of introspection inside one another");
    let hidden = "{ __type(name: \"T\") { ...A } } fragment A on __Type { fields { type { ...B } } } fragment B on __Type { fields { type { interfaces { name } } } }";
    assert_eq!(excess(hidden), "lists of introspection inside one another");
}

#[test]
fn the_introspection_of_graphiql_and_graphql_js_passes() {
    guard(INTROSPECTION).unwrap();
}

/// `getIntrospectionQuery()` of graphql-js with every option on, which GraphiQL sends with fewer.
const INTROSPECTION: &str = "query IntrospectionQuery { __schema { description queryType { name kind } mutationType { name kind } subscriptionType { name kind }
    types { ...FullType } directives { name description isRepeatable locations args(includeDeprecated: true) { ...InputValue } } } }
    fragment FullType on __Type { kind name description specifiedByURL isOneOf
      fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue } type { ...TypeRef } isDeprecated deprecationReason }
      inputFields(includeDeprecated: true) { ...InputValue } interfaces { ...TypeRef }
      enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...TypeRef } }
    fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated deprecationReason }
    fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
      ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } } }";

#[test]
fn introspection_can_be_switched_off() {
    let bounds = DocumentBounds {
        introspection: false,
        ..DocumentBounds::default()
    };
    let asked = |text: &str| guard_within(text, &bounds);
    for text in [
        "{ __schema { types { name } } }",
        "{ viewer { username } __type(name: \"User\") { name } }",
        "{ ...more } fragment more on Query { a: __schema { description } }",
        "mutation { __schema { description } }",
    ] {
        let refused = asked(text).unwrap_err();
        assert_eq!(
            refused.message, "Introspection is switched off here.",
            "{text}"
        );
    }
    assert_eq!(asked("{ __typename viewer { __typename } }"), Ok(()));
}
