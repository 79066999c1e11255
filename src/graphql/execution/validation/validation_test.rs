//! Tests of validation: each rule with the sentence of its refusal. `tests/clients` compares the verdicts with those of graphql-js.

use crate::graphql::execution::{DocumentBounds, DocumentCache, SchemaTypes};

const SDL: &str = "schema { query: Q subscription: S }
    type Q { find(by: By!, n: [Int!]): Q node: Node! any: U id(of: Role = A): ID! name: String at(any: Any): At }
    interface Node { id(of: Role = A): ID! peers: [Node!] } union U = One | Two
    type One implements Node { id(of: Role = A): ID! peers: [Node!] a: Int name: String! other: One n: Int! }
    type Two implements Node { id(of: Role = A): ID! peers: [Node!] a(x: Int = 1): Int name: ID! other: Two n: Int }
    type S { told(x: Int): One heard: One } type At { x: Any }
    enum Role { A B } scalar Any input By { name: String!, role: Role, or: By, n: Int! = 3, any: Any }";

fn refusal(text: &str) -> Option<String> {
    let documents = DocumentCache::new(DocumentBounds::default(), SchemaTypes::of(SDL).into());
    documents
        .prepare(text, None)
        .err()
        .map(|error| error.message)
}

#[test]
fn valid_documents_are_accepted() {
    for text in [
        "{ find(by: {name: \"x\", role: B, or: {name: \"y\"}}, n: 1) { node { id(of: A) } } }",
        "query($a: String!, $b: By!, $c: Role = A) { a: find(by: {name: $a, or: $b}, n: [1, 2]) { node { id(of: $c) } } b: find(by: $b) { id } }",
        "{ ...F } fragment F on Q { find(by: {name: \"x\"}) { ... { node { ... on One { id(of: B) } } } } }",
        "{ any { __typename ... on One { a name } ... on Two { a(x: 2) other { a(x: 2) } } ... on Node { id } } }",
        "{ node { ...A ...A peers { id } } } fragment A on Node { peers { id ... on One { a } } }",
        "query($x: Any, $n: Int = 4) { at(any: [{a: $x}]) { x } find(by: {name: \"\", n: $n}) { id } }",
        "subscription { ...R told { n } } fragment R on S { told { a } }",
    ] {
        assert_eq!(refusal(text), None, "{text}");
    }
}

#[test]
fn each_refusal_says_what_is_wrong() {
    for (text, said) in [
        (
            "{ find(by: {name: 1}) { id } }",
            "The argument `by.name` must be of the type `String`.",
        ),
        (
            "query($r: Role) { find(by: {role: $r}) { id } }",
            "The argument `by.name` is missing; it is of the type `String!`.",
        ),
        (
            "query($a: String!) { find(by: {name: $a, nmae: 1}) { id } }",
            "The argument `by` has a field `nmae` that `By` does not have.",
        ),
        (
            "{ node { id(of: C) } }",
            "The argument `of` must be one of A, B.",
        ),
        (
            "{ node { id(of: \"A\") } }",
            "The argument `of` must be one of A, B.",
        ),
        (
            "{ find(by: null) { id } }",
            "The argument `by` must not be null; it is of the type `By!`.",
        ),
        (
            "{ find(by: {name: \"\", name: \"\"}) { id } }",
            "The name `name` belongs to more than one input field.",
        ),
        (
            "{ find { id } }",
            "The argument `by` is missing; it is of the type `By!`.",
        ),
        (
            "{ id(of: A, of: A) }",
            "The argument `of` stands here twice.",
        ),
        ("{ id(off: A) }", "`id` has no argument `off`."),
        ("{ nothing }", "The type `Q` has no field `nothing`."),
        ("{ any { id } }", "The type `U` has no field `id`."),
        (
            "{ node }",
            "The field `node` of the type `Node!` needs a selection of its fields.",
        ),
        (
            "{ name { x } }",
            "The field `name` of the type `String` has no fields to select.",
        ),
        ("{ ... on One { a } }", "A `Q` is never a `One`."),
        (
            "{ ... on Role { a } }",
            "The schema has no object, interface or union `Role`.",
        ),
        ("{ ...F }", "The document has no fragment `F`."),
        (
            "{ id } fragment F on Q { id }",
            "No operation uses the fragment `F`.",
        ),
        ("mutation { id }", "The schema has no mutation."),
        (
            "{ id @include(if: \"yes\") }",
            "The argument `if` must be of the type `Boolean`.",
        ),
        (
            "{ id @skip(if: true) @skip(if: true) }",
            "The directive `@skip` stands here twice.",
        ),
        (
            "query @skip(if: true) { id }",
            "The directive `@skip` does not belong here.",
        ),
        (
            "query($a: [Nowhere] = [1]) { id }",
            "The type `[Nowhere]` of the variable `$a` is none of the schema's inputs.",
        ),
        (
            "query($a: Q) { id }",
            "The type `Q` of the variable `$a` is none of the schema's inputs.",
        ),
        (
            "query($a: Int = 1.0) { id }",
            "The variable `$a` must be of the type `Int`.",
        ),
        (
            "query($a: Role, $a: Role) { id(of: $a) }",
            "The operation defines the variable `$a` twice.",
        ),
        (
            "query($a: Role) { id }",
            "The operation does not use the variable `$a`.",
        ),
        (
            "{ id(of: $a) }",
            "The operation does not define the variable `$a`.",
        ),
        (
            "query($a: String) { id(of: $a) }",
            "The variable `$a` is of the type `String`, where `Role` is expected.",
        ),
        (
            "query($a: String) { find(by: {name: $a}) { id } }",
            "The variable `$a` is of the type `String`, where `String!` is expected.",
        ),
        (
            "query($a: [Int]) { find(by: {name: \"\"}, n: $a) { id } }",
            "The variable `$a` is of the type `[Int]`, where `[Int!]` is expected.",
        ),
        (
            "subscription { told { a } heard { a } }",
            "A subscription has exactly one root field.",
        ),
        (
            "subscription { ...F } fragment F on S { __typename }",
            "The root field of a subscription must not be `__typename` or introspection.",
        ),
        (
            "subscription { told @include(if: true) { a } }",
            "`@skip` and `@include` do not go with the root of a subscription.",
        ),
    ] {
        assert_eq!(refusal(text).as_deref(), Some(said), "{text}");
    }
}

#[test]
fn fields_of_one_name_merge_only_where_they_are_the_same() {
    for text in [
        "{ x: name x: id }",
        "{ id(of: A) id(of: B) }",
        "{ id id(of: A) }",
        "query($r: Role) { id(of: $r) id(of: A) }",
        "{ x: node { id } x: any { __typename } }",
        "{ find(by: {name: \"\"}, n: [1]) { id } find(by: {name: \"\"}, n: [1, 2]) { id } }",
        "{ node { ... on One { n } ... on Two { n } } }",
        "{ node { ... on One { x: a } ... on Two { x: name } } }",
        "{ node { id ... on One { id(of: B) } } }",
        "{ node { ... on One { other { x: a } } ... on Two { other { x: id } } } }",
        "{ node { peers { x: id } ... on One { peers { ... on One { x: name } } } } }",
        "{ ...A ...B } fragment A on Q { node { id } } fragment B on Q { node { ...C } } fragment C on Node { id(of: B) }",
    ] {
        let said = refusal(text).unwrap_or_default();
        assert!(
            said.contains("Give one of them an alias."),
            "{text}: {said}"
        );
    }
}

/// Chains that leave the interface at one level each: the groups of fields double with each level.
#[test]
fn comparisons_of_fields_have_an_end() {
    let chain = |at: usize, ty: &str| {
        let step = |level| {
            if level == at {
                format!("... on {ty} {{ peers {{ ")
            } else {
                "peers { ".to_owned()
            }
        };
        let steps: String = (0..10).map(step).collect();
        format!("{steps} id {} ", "}".repeat(11))
    };
    let chains = (0..10).flat_map(|at| [chain(at, "One"), chain(at, "Two")]);
    let text = format!("{{ node {{ {} }} }}", chains.collect::<String>());
    let said = "The document has more than 5000 comparisons of fields of one name.";
    assert_eq!(refusal(&text).as_deref(), Some(said));
}
