//! The worst documents that we could think of: each tries to cost much more than its text does.

/// Each document with the name of its attack.
pub fn documents() -> Vec<(&'static str, String)> {
    let repeat = |text: &str, count: usize| text.repeat(count);
    let numbered =
        |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<String>();
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        [&open.repeat(depth), inner, &close.repeat(depth)].concat()
    };
    vec![
        ("fragments that double, 20 times", bomb(20)),
        ("fragments that double, 180 times", bomb(180)),
        (
            "ten operations, each with fragments that double",
            numbered(10, &|n| format!("query q{n} {{...a0}}")) + &bomb(100)["{...a0}".len()..],
        ),
        ("a chain of fragments", chain(150, "viewer{id}")),
        ("a ring of fragments", chain(150, "...a0")),
        ("fragments inside fragments, each used 14 times", web(14)),
        (
            "aliases",
            format!(
                "{{ viewer {{ {} }} }}",
                numbered(600, &|n| format!("a{n}: id "))
            ),
        ),
        (
            "one field, 1,900 times",
            format!("{{ viewer {{ {} }} }}", repeat("id ", 1_900)),
        ),
        (
            "one field with arguments, 490 times",
            format!("{{ {} }}", repeat("inbox { updatesCursor } ", 490)),
        ),
        (
            "unknown fields",
            format!(
                "{{ viewer {{ {} }} }}",
                numbered(490, &|n| format!("x{n} "))
            ),
        ),
        (
            "unknown fields inside unknown fields",
            format!("{{ {} }}", nested("x { ", "y", " }", 11)),
        ),
        (
            "unknown directives",
            format!(
                "{{ viewer {{ id {} }} }}",
                numbered(1_800, &|n| format!("@d{n} "))
            ),
        ),
        (
            "known directives",
            format!(
                "{{ viewer {{ id {} }} }}",
                repeat("@include(if: true) ", 49)
            ),
        ),
        (
            "one argument, 600 times",
            format!(
                "{{ inbox({}) {{ updatesCursor }} }}",
                repeat("first: 1 ", 600)
            ),
        ),
        (
            "unknown arguments",
            format!(
                "{{ inbox({}) {{ updatesCursor }} }}",
                numbered(600, &|n| format!("a{n}: 1 "))
            ),
        ),
        (
            "variables that nobody uses",
            format!(
                "query({}) {{ viewer {{ id }} }}",
                numbered(480, &|n| format!("$v{n}: Int "))
            ),
        ),
        (
            "variables that nobody defines",
            format!(
                "{{ nodes(ids: [{}]) {{ id }} }}",
                numbered(980, &|n| format!("$v{n} "))
            ),
        ),
        (
            "types inside one another",
            format!(
                "query($a: {}) {{ viewer {{ id }} }}",
                nested("[", "Int", "]", 60)
            ),
        ),
        (
            "objects inside one another",
            format!(
                "{{ inbox(filter: {}) {{ updatesCursor }} }}",
                nested("{a: ", "1", "}", 59)
            ),
        ),
        (
            "lists inside one another",
            format!("{{ nodes(ids: {}) {{ id }} }}", nested("[", "1", "]", 60)),
        ),
        ("brackets without an end", repeat("{", 8_000)),
        ("brackets of every kind", repeat("{a(b:[{c:", 1_600)),
        (
            "fields inside one another",
            nested("{ viewer ", "{ id }", "}", 1_000),
        ),
        (
            "inline fragments inside one another",
            format!("{{ {} }}", nested("... { ", "viewer { id }", " }", 60)),
        ),
        ("a long name", format!("{{ {} }}", repeat("x", 16_000))),
        (
            "a long number",
            format!(
                "{{ inbox(first: {}) {{ updatesCursor }} }}",
                repeat("9", 16_000)
            ),
        ),
        (
            "a long fraction",
            format!(
                "{{ inbox(first: 1.{}e99) {{ updatesCursor }} }}",
                repeat("9", 16_000)
            ),
        ),
        (
            "a long text of escapes",
            format!("{{ node(id: \"{}\") {{ id }} }}", repeat("\\u00e4", 2_600)),
        ),
        (
            "a block text of quotes",
            format!(
                "{{ node(id: \"\"\"{}\"\"\") {{ id }} }}",
                repeat("\\\"\"\"", 3_900)
            ),
        ),
        (
            "a block text of lines",
            format!(
                "{{ node(id: \"\"\"{}\"\"\") {{ id }} }}",
                repeat(" \n", 8_000)
            ),
        ),
        (
            "a text without an end",
            format!("{{ node(id: \"{}", repeat("x", 16_000)),
        ),
        (
            "commas",
            format!("{{ viewer {{ id }} }}{}", repeat(",", 16_000)),
        ),
        (
            "comments",
            format!("{{ viewer {{ id }} }}{}", repeat("#\n", 8_000)),
        ),
        (
            "one field of two long arguments, 200 times",
            format!(
                "{{ {} }} {}{}",
                repeat("...a ...b ", 100),
                wide("a", 440),
                wide("b", 440)
            ),
        ),
        (
            "ten operations that share a fragment of 450 fields",
            numbered(10, &|n| format!("query q{n} {{ ...a }} "))
                + &format!(
                    "fragment a on Query {{ viewer {{ {} }} }}",
                    repeat("id ", 450)
                ),
        ),
        (
            "ten operations that share 400 uses of a variable",
            numbered(10, &|n| format!("query q{n}($v: ID!) {{ ...a }} "))
                + &format!(
                    "fragment a on Query {{ nodes(ids: [{}]) {{ id }} }}",
                    repeat("$v ", 400)
                ),
        ),
        (
            "fragments on two types, inside one another",
            format!(
                "{{ node(id: 1) {} }} {}",
                "{ ...a0 }",
                numbered(7, &|n| {
                    let next = n + 1;
                    format!(
                        "fragment a{n} on Node {{ ... on Conversation {{ id ...a{next} }} ... on Message {{ id ...a{next} }} }}"
                    )
                }) + "fragment a7 on Node { id }"
            ),
        ),
        (
            "conditions on every field",
            format!(
                "query($v: Boolean = true) {{ viewer {{ {} }} }}",
                repeat("id @include(if: $v) ", 49)
            ),
        ),
        ("lists inside lists", LISTS.to_owned()),
        (
            "lists inside lists, each with an alias",
            format!(
                "{{ {} }}",
                numbered(5, &|n| format!("a{n}: {}", &LISTS[1..LISTS.len() - 1]))
            ),
        ),
        ("introspection inside introspection", TYPES.to_owned()),
        (
            "introspection, 166 times",
            format!(
                "{{ __schema {{ types {{ {} }} }} }}",
                repeat("fields { name } ", 166)
            ),
        ),
    ]
}

const LISTS: &str = "{ inbox(first: 100) { edges { node { conversation { messages(first: 100) { edges { node { receipts(first: 100) { edges { node { status } } } } } } } } } } }";
const TYPES: &str =
    "{ __schema { types { fields { type { fields { type { fields { type { name } } } } } } } } }";

/// A fragment with one field, whose argument is a list of this length.
fn wide(name: &str, length: usize) -> String {
    format!(
        "fragment {name} on Query {{ nodes(ids: [{}]) {{ id }} }} ",
        "1 ".repeat(length)
    )
}

/// Each fragment spreads the next one twice: 2^count fields.
fn bomb(count: usize) -> String {
    let fragments: String = (0..count)
        .map(|number| {
            format!(
                "fragment a{number} on Query{{...a{next} ...a{next}}}",
                next = number + 1
            )
        })
        .collect();
    format!("{{...a0}}{fragments}fragment a{count} on Query{{viewer{{id}}}}")
}

fn chain(count: usize, end: &str) -> String {
    let fragments: String = (0..count)
        .map(|number| format!("fragment a{number} on Query{{...a{}}}", number + 1))
        .collect();
    format!("{{...a0}}{fragments}fragment a{count} on Query{{{end}}}")
}

/// Every fragment spreads all the later ones, many times.
fn web(count: usize) -> String {
    let spreads = |from: usize| {
        (from..count)
            .map(|to| format!("...a{to} "))
            .collect::<String>()
            .repeat(3)
    };
    let fragments: String = (0..count)
        .map(|number| {
            format!(
                "fragment a{number} on Query{{viewer{{id}} {}}}",
                spreads(number + 1)
            )
        })
        .collect();
    format!("{{...a0}}{fragments}")
}
