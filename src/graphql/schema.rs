//! The schema: its build, and its text.

use async_graphql::{SDLExportOptions, Schema, ValidationMode};

use super::{Mutation, Query, Subscription};

/// The schema that the server serves; `schema.graphql` is its text.
pub type ChatSchema = Schema<Query, Mutation, Subscription>;

/// Builds the schema. It executes documents that `execution` has validated, and validates nothing.
pub(super) fn build() -> ChatSchema {
    Schema::build(Query, Mutation::default(), Subscription)
        .disable_suggestions()
        .validation_mode(ValidationMode::Fast)
        .finish()
}

/// Text of the schema in GraphQL's schema definition language, without definitions of built-in
/// directives, which every tool knows.
pub fn sdl() -> String {
    let options = SDLExportOptions::new()
        .include_specified_by()
        .use_space_ident()
        .indent_width(2)
        .prefer_single_line_descriptions();
    let text = build().sdl_with_options(options);
    without_built_in_directives(&text)
}

/// Directives that the GraphQL specification defines. A schema need not repeat them.
const BUILT_IN_DIRECTIVES: [&str; 5] = ["deprecated", "include", "oneOf", "skip", "specifiedBy"];

/// Drops each definition of a built-in directive with the line of its description.
fn without_built_in_directives(sdl: &str) -> String {
    let is_built_in = |line: &str| {
        let name = line
            .strip_prefix("directive @")
            .and_then(|rest| rest.split('(').next());
        name.is_some_and(|name| BUILT_IN_DIRECTIVES.contains(&name.trim()))
    };
    let mut kept: Vec<&str> = Vec::new();
    for line in sdl.lines() {
        if !is_built_in(line) {
            kept.push(line);
        } else if kept.last().is_some_and(|line| line.starts_with('"')) {
            kept.pop();
        }
    }
    kept.join("\n") + "\n"
}
