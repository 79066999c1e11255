//! Several servers on one cluster: each in this process, with a store, a bus and a clock of its own. What one wrote, the others see.
//!
//! They need Cassandra: where it cannot be had, a line says so and they return. (The storm is of one server, on the embedded store.)

mod agent;
mod app_key;
mod block;
mod clocks;
mod cost;
mod damage;
mod early_version;
mod ended;
mod floor;
mod keyspace;
mod large;
mod live;
mod moderation;
mod nats;
mod outbox;
mod outcome;
mod pair;
mod queue;
mod random;
mod removal;
mod restriction;
mod seam;
mod search;
mod settler;
mod slow;
mod storm;
mod updates;
mod upgrade;
mod versions;
mod watcher;
