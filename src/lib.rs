//! Wideroom: a chat backend whose conversations are wide rows.
//!
//! One GraphQL server: conversations, messages and inboxes are read through Relay connections whose cursors are the clustering keys of
//! wide rows, mutations send and mark read, subscriptions resume without a gap. It runs alone on an embedded store, or beside others on a
//! cluster of Cassandra or ScyllaDB.
//!
//! # The layers
//!
//! They point one way, and `tests/house.rs` holds them to it:
//!
//! ```text
//! cli  →  server | webhook  →  graphql  →  chat  →  cluster  →  store | bus  →  model
//! ```
//!
//! - [`model`]: the words, as plain data. Ids and their order, markers, pages.
//! - [`store`]: what is kept. [`store::Store`] is the live part, [`store::StoreAdmin`] the operator's; [`store::embedded`] is the engine in this process, [`store::cql`] the one on a cluster.
//! - [`bus`]: publish/subscribe: a broadcast channel per topic in this process, and payloads between servers over NATS.
//! - [`cluster`]: delivery between the servers that share a store: a directory of sessions,
//!   mailboxes, and their poller.
//! - [`chat`]: the rules, in services: access, writes, inbox, history, participants, presence, streams, removal from the disk.
//! - [`graphql`]: the translation between GraphQL and the chat. Documents are prepared (parsed,
//!   guarded, validated, cached) and executed. Equal subscriptions share executions. No rule lives here.
//! - [`server`]: the transports. GraphQL over HTTP (subscriptions as Server-Sent Events or multipart) and over WebSocket
//!   (graphql-transport-ws), the pages, and [`server::admin`] (metrics, health, backups). Admission control and the
//!   bytes below HTTP have folders of their own.
//! - [`webhook`]: the events of the outbox, delivered to receivers that the configuration names.
//! - [`cli`]: the commands; [`transfer`] is the format that import and export read and write; [`load`] is the load generator of `wideroom bench`.
//! - Beside them [`analysis`] (words and queries of search), [`auth`] (tokens), [`signed_post`] (signed requests to the operator's addresses), [`clock`] (time and ids), [`rate`] (rate limits), [`weak_map`], `weighted_cache`, [`metrics`], [`config`] and [`telemetry`] (logs).
//!
//! # Invariants
//!
//! - Invariant: persisted before published. Nothing is published or acknowledged before it is on disk. Only typing and presence
//!   are never persisted.
//! - Invariant: one order. Messages and changes sort by the order key of their timeuuid ([`model::OrderKey`]), in keys, cursors and
//!   markers alike. No two ids of a process share a microsecond.
//! - Invariant: in one conversation, no smaller id becomes visible after a greater one. One task at a time allocates ids,
//!   persists and publishes. On a shared store an id may become visible up to four seconds late, and streams read back
//!   that far. A later one is logged again (`chat::late_rule`).
//! - Invariant: a server whose clock is wrong allocates no ids, and stops nobody else. On a cluster, ids, cursors,
//!   logs and counts go by the cluster's clock ([`cluster::ClusterClock`]).
//! - Invariant: unread is computed from a marker, never counted up and down.
//! - Invariant: markers are maxima; the greater bytes stay, whatever the order of arrival.
//! - Invariant: a cursor is a clustering key behind the name of its list. It holds no state of a server.
//! - Invariant: an object that the viewer may not see is indistinguishable from one that does not exist. Only
//!   `chat::access` decides it.
//! - Invariant: a message at or below the viewer's floor does not exist for them. Only `chat::access::floor` computes it.
//! - Invariant: no text of a store's or a library's error reaches a client: `graphql::error`
//!   chooses a code and a sentence.
//! - Invariant: every queue, page, body, document and socket has a bound, and every wait a deadline.
//! - Invariant: an answer is charged to a byte budget while its text is made, and to its user's quota until its last byte is written.
//!
//! # A mutation, from the socket to the disk
//!
//! `sendMessage` over HTTP:
//!
//! 1. `server::http` identifies the viewer by the bearer token, and `server::admission` takes one token from the viewer's
//!    bucket, whatever the outcome. The server reads the body within its bound and prepares the document:
//!    `graphql::execution` finds it in its cache, or parses, guards and validates it. The admission then takes the rest of the price:
//!    by the size of the payload, and by the root fields.
//! 2. `graphql::mutation::message` decodes the ids and passes the input to
//!    [`chat::Draft::parse`], which validates it.
//! 3. [`chat::WriteService::send`] checks access (`chat::access`) and rate, and enqueues the draft
//!    (`chat::write::conversation_queue`).
//! 4. The only task of that queue takes the waiting sends as a batch, allocates their ids (`chat::in_flight_ids`) and calls
//!    [`store::Store::append_messages`] (`chat::write::send_batch`). On a shared store it repeats a write of unknown
//!    outcome (`chat::write::unknown_outcome`).
//! 5. `store::embedded::write::append` turns that into rows: the messages, the head of the conversation, how far each sender has
//!    sent, idempotency keys, the outbox row, and places in inboxes where they change. The one thread that writes
//!    (`engine::committer`) puts the rows of all conversations that wait into one atomic batch with one fsync, and writes
//!    the caches through. `store::cql::send::append` writes one logged batch, and looks for participants who joined meanwhile.
//! 6. Back in the queue's task, `chat::write::outgoing` publishes the events on the bus (`chat::publisher`), and the senders
//!    receive their outcomes. On a cluster they receive them only after the events are delivered to the servers that have a
//!    stream for them ([`cluster`]); the queue goes on meanwhile.
//! 7. `graphql::types` resolves the payload. It writes synchronous fields straight to JSON and
//!    charges the text to the budget of the answer (`graphql::execution`), which ends an execution
//!    that exceeds it. `server::chunks` cuts the text into chunks of 64 KiB. Each chunk holds the budget, and with it the permit
//!    in the user's quota (`server::admission`), until the connection has written it. The write timeout of
//!    `server::connection` cuts a reader that is too slow.
//!
//! # An event, from the bus to the socket
//!
//! `messageAdded` over a WebSocket, with a cursor:
//!
//! 1. `server::ws` prepares the document of the `subscribe` message and executes it as a stream; `graphql::subscription`
//!    opens [`chat::StreamService::messages`], which checks that the viewer takes part (`chat::access::membership_guard`).
//! 2. The stream subscribes to the conversation's topic first, then reads the store after the cursor
//!    (`chat::stream::replay`), and only then receives the notices that have arrived meanwhile. Duplicates are dropped by
//!    their ids. Streams that resume at the same time share their reads (`chat::single_flight`).
//! 3. Each message becomes a payload in a scope of its own, so that no event shows a value that an
//!    earlier one has read. If no field of the document depends on the viewer, `graphql::fanout`
//!    executes it once for all subscribers with equal documents and variables, and they receive the
//!    same bytes. The subscriber that executes pays from the bucket of its user's queries. Without
//!    tokens it waits ([`rate::Pace`]), and its stream falls behind; it reads the store for notices
//!    that the bus could not hold. An event over the byte bound is delivered as an error with its
//!    cursor, and the stream continues after it.
//! 4. The task of the socket pushes it into a bounded send queue. A subscriber that is too slow for the bus reads the store
//!    from its last message. The server closes a socket that reads nothing for a while with 4290; the client resumes with
//!    its cursor.
//!
//! # Working on it
//!
//! The layers above point one way, and `tests/house.rs` checks them, the size of folders and the openings of comments. Names are the
//! field's standard terms, one word for one idea, the same in GraphQL, Rust, CQL and docs.
//!
//! To add a mutation:
//!
//! 1. Add its input, payload and resolver to the struct of its subject in `graphql::mutation`. It
//!    translates arguments, and holds no rule.
//! 2. Add the rule to a service of [`chat`]: check access first (`chat::access`). If the change is an event, run it in the
//!    conversation's queue (`chat::write`).
//! 3. Persist it through a method of [`store::Store`], then publish.
//! 4. Price it in `graphql::execution::cost` if it reads more than its fields show.
//! 5. Regenerate the schema: `UPDATE_SCHEMA=1 cargo test schema`. Test it through the API in `tests/api`.
//!
//! To add a method of the store:
//!
//! 1. Declare it in [`store::Store`], or in [`store::StoreAdmin`] if only operators call it; its doc comment is its promise.
//!    It returns a [`store::StoreFuture`]. `#[async_trait]` writes the same with bounds on lifetimes, under which the compiler proves of every
//!    method anew that its future is `Send`: that was a quarter of a build.
//! 2. Implement it in [`store::embedded`], in [`store::cql`] and in the oracle (`tests/store/oracle`).
//! 3. Add a case of the contract (`tests/store`): it runs on all three. A decision that both engines take stands once, in `store::rules`.
//! 4. A new CQL table is a step of the migration; a new kind of key is a new tag of the embedded store. Never renumber either.
//!
//! To add a setting:
//!
//! 1. Add the field with its default to the struct of bounds that uses it.
//! 2. Add the row to `config`: flag, environment, help and, for a bound, what a client gets beyond it.
//! 3. Regenerate the file: `UPDATE_CONFIG=1 cargo test committed_configuration`.
//!
//! Tests to run: `cargo test --lib` and `cargo test --test tests -- house schema api::` after every change, the store's contract
//! (`store::`) after a change of a store, `live:: binary::` after a change of the server. `.ci/run` is the gate of a landing.

pub mod analysis;
pub mod auth;
pub mod bus;
pub mod chat;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod graphql;
pub mod load;
pub mod log_quota;
pub mod metrics;
pub mod model;
pub mod rate;
pub mod server;
pub mod signed_post;
pub mod store;
pub mod telemetry;
pub mod transfer;
mod watched_file;
pub mod weak_map;
pub mod webhook;
mod weighted_cache;
