//! The schema: its build, and its text.

use std::sync::{Arc, LazyLock};

use async_graphql::parser::types::SelectionSet;
use async_graphql::{SDLExportOptions, Schema, ValidationMode, Value};

use super::execution::{SchemaTypes, each_field};
use super::{Mutation, Query, Subscription};

/// First page of the schema's documentation.
const DESCRIPTION: &str = "\
Wideroom is a chat: conversations of two or more users, their messages, and the inbox of each user.

**Start here.** `inbox` lists the viewer's conversations, `conversation` shows one with its `messages`. `sendMessage` writes one; with
an `idempotencyKey` a retry stores it once. `conversationEvents` delivers everything that happens in a conversation, `inboxUpdated` every
change of the inbox.

**Lists** are Relay connections with 20 edges a page, 100 at most. In `messages`, `first` and `after` page from the newest message to
older ones; `orderKey` sorts messages of several pages and streams. `node` finds any object by its `id`.

**Cursors** are opaque, and belong to their list or stream. Read `eventsCursor` or `updatesCursor` together with the list, and subscribe
with it as `after`: no event is missed. Each response holds the next cursor in `extensions.cursor`; after a cut, subscribe with the last.

**Errors** have an `extensions.code`: UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, BAD_USER_INPUT, CONFLICT, RATE_LIMITED (retry after
`retryAfterMs`), CURSOR_EXPIRED (read the list again), UNAVAILABLE (retry; `outcome` says whether a write was done) or INTERNAL.";

/// The schema that the server serves; `schema.graphql` is its text.
pub type ChatSchema = Schema<Query, Mutation, Subscription>;

/// Executes documents that `execution` has validated, and validates nothing. It holds nothing of a server: all of a process share it.
pub(super) static SCHEMA: LazyLock<ChatSchema> = LazyLock::new(|| {
    Schema::build(Query, Mutation::default(), Subscription)
        .disable_suggestions()
        .validation_mode(ValidationMode::Fast)
        .finish()
});

/// Types of the schema.
pub(super) static TYPES: LazyLock<Arc<SchemaTypes>> =
    LazyLock::new(|| Arc::new(SchemaTypes::of(&SCHEMA.sdl())));

/// Text of the schema in GraphQL's schema definition language, without definitions of built-in
/// directives, which every tool knows.
pub fn sdl() -> String {
    let described = format!("\n\"\"\"\n{DESCRIPTION}\n\"\"\"\nschema {{");
    types_sdl().replacen("\nschema {", &described, 1)
}

/// The same without the description of the schema, which the parser of async-graphql does not read.
pub fn types_sdl() -> String {
    let options = SDLExportOptions::new()
        .include_specified_by()
        .use_space_ident()
        .indent_width(2)
        .prefer_single_line_descriptions();
    let text = SCHEMA.sdl_with_options(options);
    without_built_in_directives(&text)
}

/// The description that async-graphql answers for every schema. It cannot hold another one.
const LIBRARY_DESCRIPTION: &str = "A GraphQL Schema defines the capabilities of a GraphQL server.";

/// Puts our description into the answers to `__schema`.
pub(super) fn describe(roots: &SelectionSet, data: &mut Value) {
    let Value::Object(data) = data else { return };
    each_field(roots, &mut |field| {
        if field.name.node != "__schema" {
            return;
        }
        let Some(Value::Object(schema)) = data.get_mut(&field.response_key().node) else {
            return;
        };
        for value in schema.values_mut() {
            if matches!(value, Value::String(text) if text.starts_with(LIBRARY_DESCRIPTION)) {
                *value = DESCRIPTION.into();
            }
        }
    });
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
