//! Over real sockets: the server with a small schema of their own behind them.

mod answer_bounds;
mod batch;
mod clients;
mod connection_bounds;
mod drain;
mod http;
mod origins;
mod prices;
mod rates;
mod refusals;
mod schema;
mod stream_bounds;
mod streams;
mod trusted;
mod world;
mod ws;
mod ws_admission;
mod ws_bounds;
