//! The committed schema is the one that is served, and it explains itself.

use std::path::Path;
use std::{env, fs};

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{InputValueDefinition, TypeKind, TypeSystemDefinition};
use serde_json::json;

use crate::support::world::{World, text};

#[test]
fn the_committed_schema_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.graphql");
    let served = wideroom::graphql::sdl();
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &served).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == served,
        "schema.graphql is stale: run `UPDATE_SCHEMA=1 cargo test schema` and commit it"
    );
}

#[tokio::test]
async fn the_schema_says_where_to_start_in_its_text_and_when_it_is_asked() {
    let world = World::open().await;
    let alice = world.user("alice");
    let document = "{ __schema { description } a: __schema { ...page } } fragment page on __Schema { text: description queryType { name } }";
    let data = alice.data(document, json!({})).await;
    let description = text(&data["__schema"]["description"]);
    assert!(description.contains("**Start here.**"), "{description}");
    assert_eq!(
        data["a"],
        json!({"text": description, "queryType": {"name": "Query"}})
    );
    assert!((10..=15).contains(&description.lines().count()));
    let printed = format!("\n\"\"\"\n{description}\n\"\"\"\nschema {{\n");
    assert!(wideroom::graphql::sdl().contains(&printed), "{printed}");
}

#[test]
fn the_schema_defines_no_built_in_directive() {
    let sdl = wideroom::graphql::sdl();
    assert!(sdl.contains("@specifiedBy(url:"), "the directive is in use");
    assert!(
        !sdl.contains("directive @"),
        "every tool knows its definition"
    );
}

/// Validation has no rule for the values and the variables of such an input: the first one brings it.
#[test]
fn no_input_is_one_of_several_fields() {
    assert!(!wideroom::graphql::sdl().contains("@oneOf"));
}

#[test]
fn everything_in_the_schema_has_a_description() {
    let document = parse_schema(wideroom::graphql::types_sdl()).unwrap();
    let mut bare = Vec::new();
    for definition in &document.definitions {
        let TypeSystemDefinition::Type(definition) = definition else {
            continue;
        };
        let definition = &definition.node;
        let name = definition.name.node.as_str();
        if definition.description.is_none() {
            bare.push(name.to_owned());
        }
        match &definition.kind {
            TypeKind::Object(object) => {
                for field in &object.fields {
                    let field = &field.node;
                    let path = format!("{name}.{}", field.name.node);
                    bare.extend(inputs_without_description(
                        &path,
                        field.arguments.iter().map(|argument| &argument.node),
                    ));
                    if field.description.is_none() {
                        bare.push(path);
                    }
                }
            }
            TypeKind::InputObject(input) => bare.extend(inputs_without_description(
                name,
                input.fields.iter().map(|field| &field.node),
            )),
            TypeKind::Enum(values) => {
                let values = values
                    .values
                    .iter()
                    .filter(|value| value.node.description.is_none());
                bare.extend(values.map(|value| format!("{name}.{}", value.node.value.node)));
            }
            TypeKind::Interface(interface) => {
                let fields = interface
                    .fields
                    .iter()
                    .filter(|field| field.node.description.is_none());
                bare.extend(fields.map(|field| format!("{name}.{}", field.node.name.node)));
            }
            TypeKind::Scalar | TypeKind::Union(_) => {}
        }
    }
    assert!(
        bare.is_empty(),
        "without a description: {}",
        bare.join(", ")
    );
}

#[test]
fn every_scalar_says_where_it_is_specified() {
    let document = parse_schema(wideroom::graphql::types_sdl()).unwrap();
    let mut scalars = 0;
    for definition in &document.definitions {
        let TypeSystemDefinition::Type(definition) = definition else {
            continue;
        };
        let definition = &definition.node;
        if !matches!(definition.kind, TypeKind::Scalar) {
            continue;
        }
        scalars += 1;
        let directives = &mut definition.directives.iter();
        let specified = directives.find(|directive| directive.node.name.node == "specifiedBy");
        let url = specified
            .and_then(|directive| directive.node.get_argument("url"))
            .map(|url| url.node.to_string());
        assert!(
            url.is_some_and(|url| url.starts_with("\"https://")),
            "{} has no @specifiedBy",
            definition.name.node
        );
    }
    assert!(scalars >= 3, "{scalars}");
}

fn inputs_without_description<'a>(
    owner: &'a str,
    inputs: impl Iterator<Item = &'a InputValueDefinition> + 'a,
) -> impl Iterator<Item = String> + 'a {
    inputs
        .filter(|input| input.description.is_none())
        .map(move |input| format!("{owner}({})", input.name.node))
}
