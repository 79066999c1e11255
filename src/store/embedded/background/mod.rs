//! Background work in the embedded store: erasures of users, and the search index.

mod erasure;
mod search;
