//! The translation between GraphQL and the chat. No rule lives here.

mod connection;
mod cursor;
mod error;
mod id;
mod loader;
mod mutation;
mod query;
mod scalar;
mod scope;
mod subscription;
mod types;

pub use error::Code;
pub use mutation::Mutation;
pub use query::Query;
pub use subscription::Subscription;

use async_graphql::{SDLExportOptions, Schema};

/// The schema that is served, and committed as `schema.graphql`.
pub type ChatSchema = Schema<Query, Mutation, Subscription>;

fn schema() -> ChatSchema {
    Schema::build(Query, Mutation, Subscription).disable_suggestions().finish()
}

/// The schema in its text form.
pub fn sdl() -> String {
    schema().sdl_with_options(
        SDLExportOptions::new().include_specified_by().use_space_ident().indent_width(2).prefer_single_line_descriptions(),
    )
}
