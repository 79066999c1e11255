//! The server over real sockets, with a small schema of its own or with the whole chat.

mod answer_bounds;
mod batch;
mod chat_server;
mod clients;
mod connection_bounds;
mod document_cache;
mod drain;
mod event_bounds;
mod event_pace;
mod http;
mod origins;
mod library_answers;
mod library_faults;
mod prices;
mod rates;
mod read_shares;
mod refusals;
mod schema;
mod services;
mod stream_bounds;
mod streams;
mod trusted;
mod world;
mod ws;
mod ws_admission;
mod ws_bounds;
