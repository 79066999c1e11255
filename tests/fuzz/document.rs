//! Documents made from the schema, with whatever values, and then damaged.

use std::collections::HashMap;

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, InputValueDefinition, Type, TypeKind, TypeSystemDefinition,
};
use serde_json::{Value, json};

use super::server::Target;
use super::tape::{Tape, play};

const DEPTH_MAX: usize = 6;
const FIELDS_MAX: usize = 4;
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "100",
    "101",
    "2147483647",
    "2147483648",
    "-9223372036854775809",
    "1.5",
    "1e400",
];
const TEXTS: &[&str] = &[
    "\"\"",
    "\" \"",
    "\"bob\"",
    "\"\\u0000\"",
    "\"\\ud83d\\ude00\"",
    "\"\"\"block\"\"\"",
    "\"k\"",
    "\"2026-03-15T12:05:00Z\"",
    "\"9999-12-31T23:59:59.9999999Z\"",
    "\"1969-12-31T23:59:59Z\"",
    "\"2026-02-30T00:00:00+99:99\"",
    "\"https://example.org/a.png\"",
    "\"image/png\"",
    "\"👍\"",
];
const OTHERS: &[&str] = &[
    "null", "true", "[]", "{}", "[null]", "{a: 1}", "DIRECT", "$v", "[[[]]]",
];

pub(super) struct Schema {
    types: HashMap<String, TypeKind>,
}

impl Schema {
    pub(super) fn served() -> Self {
        let document = parse_schema(wideroom::graphql::types_sdl()).unwrap();
        let named = document
            .definitions
            .into_iter()
            .filter_map(|definition| match definition {
                TypeSystemDefinition::Type(definition) => {
                    Some((definition.node.name.node.to_string(), definition.node.kind))
                }
                TypeSystemDefinition::Schema(_) | TypeSystemDefinition::Directive(_) => None,
            });
        Self {
            types: named.collect(),
        }
    }

    /// One operation of this root type, its ids and cursors being real ones.
    pub(super) fn operation(&self, tape: &mut Tape, root: &str, named: &[String]) -> String {
        let selection = self.selection(tape, root, named, 0);
        match root {
            "Query" => selection,
            root => format!("{} {selection}", root.to_lowercase()),
        }
    }

    fn selection(&self, tape: &mut Tape, name: &str, named: &[String], depth: usize) -> String {
        let mut parts = Vec::new();
        match &self.types[name] {
            TypeKind::Object(object) => {
                let fields: Vec<_> = object.fields.iter().map(|field| &field.node).collect();
                self.fields(tape, &fields, named, depth, &mut parts);
            }
            TypeKind::Interface(interface) => {
                let fields: Vec<_> = interface.fields.iter().map(|field| &field.node).collect();
                self.fields(tape, &fields, named, depth, &mut parts);
                let on = tape.one_of(&[
                    "Conversation",
                    "Message",
                    "InboxEntry",
                    "Participant",
                    "User",
                ]);
                parts.push(format!(
                    "... on {on} {}",
                    self.selection(tape, on, named, depth + 1)
                ));
            }
            TypeKind::Union(union) => {
                for member in &union.members {
                    parts.push(format!(
                        "... on {0} {1}",
                        member.node,
                        self.selection(tape, &member.node, named, depth + 1)
                    ));
                }
            }
            TypeKind::Scalar | TypeKind::Enum(_) | TypeKind::InputObject(_) => {}
        }
        if parts.is_empty() || tape.once_in(8) {
            parts.push("__typename".to_owned());
        }
        format!("{{ {} }}", parts.join(" "))
    }

    fn fields(
        &self,
        tape: &mut Tape,
        fields: &[&FieldDefinition],
        named: &[String],
        depth: usize,
        parts: &mut Vec<String>,
    ) {
        for number in 0..=tape.number(FIELDS_MAX) {
            let field = fields[tape.number(fields.len())];
            let inner = base(&field.ty.node);
            let is_leaf = matches!(
                self.types.get(inner),
                None | Some(TypeKind::Scalar | TypeKind::Enum(_))
            );
            if !is_leaf && depth >= DEPTH_MAX {
                continue;
            }
            let alias = if tape.once_in(3) {
                format!("f{number}: ")
            } else {
                String::new()
            };
            let arguments = self.arguments(
                tape,
                field.arguments.iter().map(|argument| &argument.node),
                named,
            );
            let arguments = if arguments.is_empty() {
                arguments
            } else {
                format!("({arguments})")
            };
            let selection = if is_leaf {
                String::new()
            } else {
                self.selection(tape, inner, named, depth + 1)
            };
            parts.push(format!("{alias}{}{arguments}{selection}", field.name.node));
        }
    }

    fn arguments<'a>(
        &self,
        tape: &mut Tape,
        inputs: impl Iterator<Item = &'a InputValueDefinition>,
        named: &[String],
    ) -> String {
        let mut given = Vec::new();
        for input in inputs {
            if !input.ty.node.nullable || tape.once_in(3) {
                given.push(format!(
                    "{}: {}",
                    input.name.node,
                    self.value(tape, &input.ty.node, named)
                ));
            }
        }
        given.join(", ")
    }

    fn value(&self, tape: &mut Tape, kind: &Type, named: &[String]) -> String {
        if tape.once_in(12) {
            return tape.one_of(OTHERS).to_owned();
        }
        let name = match &kind.base {
            BaseType::Named(name) => name.as_str(),
            BaseType::List(inner) => {
                let items: Vec<_> = (0..tape.number(3))
                    .map(|_| self.value(tape, inner, named))
                    .collect();
                return format!("[{}]", items.join(", "));
            }
        };
        match self.types.get(name) {
            Some(TypeKind::InputObject(input)) => {
                format!(
                    "{{{}}}",
                    self.arguments(tape, input.fields.iter().map(|field| &field.node), named)
                )
            }
            Some(TypeKind::Enum(values)) => values.values[tape.number(values.values.len())]
                .node
                .value
                .node
                .to_string(),
            _ if matches!(name, "Int" | "Float") => tape.one_of(NUMBERS).to_owned(),
            _ if name == "Boolean" => tape.one_of(&["true", "false"]).to_owned(),
            _ if name == "JSON" => tape
                .one_of(&["{a: [1, 2.5, null]}", "7", "\"x\"", "null", "[]", "{é: 1}"])
                .to_owned(),
            _ if tape.once_in(3) => tape.one_of(TEXTS).to_owned(),
            _ => format!("\"{}\"", named[tape.number(named.len())]),
        }
    }
}

fn base(kind: &Type) -> &str {
    match &kind.base {
        BaseType::Named(name) => name,
        BaseType::List(inner) => base(inner),
    }
}

#[test]
fn any_document_is_answered_or_refused() {
    let (schema, target) = (Schema::served(), Target::start());
    let mut caller = target.caller();
    let (mut answered, mut refused) = (0, 0);
    let make = |tape: &mut Tape| {
        let root = tape.one_of(&["Query", "Mutation", "Query"]);
        let text = schema.operation(tape, root, &target.named);
        let text = if tape.once_in(3) {
            tape.damage(&text)
        } else {
            text
        };
        (
            text,
            tape.one_of(&["null", "{}", "{\"v\": 1}", "{\"v\": {\"a\": [null]}}"]),
        )
    };
    play(make, |(document, variables)| {
        let variables: Value = serde_json::from_str(variables).unwrap();
        let reply = target.ask(&mut caller, &document, &variables);
        *if reply.body.get("data").is_some() {
            &mut answered
        } else {
            &mut refused
        } += 1;
    });
    // A share of the generated documents must be valid, or the fuzz would cover little.
    assert!(
        answered > refused / 4,
        "{answered} answered, {refused} refused"
    );
    target.ends_well();
}

#[test]
fn any_body_is_answered() {
    let target = Target::start();
    let mut caller = target.caller();
    let good = json!({ "query": "query A($a: Int) { inbox(first: $a) { updatesCursor } }", "variables": { "a": 1 }, "operationName": "A",
        "extensions": { "persistedQuery": { "version": 1, "sha256Hash": "00" } }, "documentId": "x" })
    .to_string();
    play(
        |tape| tape.damage(&good),
        |body| {
            let reply = target
                .wait(caller.post(body.as_bytes()))
                .expect("the connection stays");
            super::server::assert_sound(&reply.body);
        },
    );
    target.ends_well();
}
