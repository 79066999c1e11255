//! Clients that ask a server at the same time, and what that costs it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::body::Bytes;
use futures_util::future::join_all;
use serde_json::json;
use wideroom::load::{HttpClient, OperationStats};

use crate::measure::{Spread, idle_by};
use crate::operations::SEND;
use crate::server::{Server, body};
use crate::world::client_key;

pub struct Asker<'a> {
    server: &'a Server,
    clients: Vec<HttpClient>,
    /// The next request of this client.
    next: Box<dyn FnMut(usize) -> Bytes + 'a>,
    pub cost: Spread,
    pub latencies: OperationStats,
    /// Whether the cost includes what the server does after the answers.
    has_background: bool,
}

impl<'a> Asker<'a> {
    pub fn new(
        server: &'a Server,
        clients: Vec<HttpClient>,
        next: impl FnMut(usize) -> Bytes + 'a,
    ) -> Self {
        Self {
            server,
            clients,
            next: Box::new(next),
            cost: Spread::default(),
            latencies: OperationStats::default(),
            has_background: false,
        }
    }

    pub fn with_background(self) -> Self {
        Self {
            has_background: true,
            ..self
        }
    }

    /// The first client alone, without its measurements.
    pub fn alone(mut self) -> Self {
        self.clients.truncate(1);
        Self::new(self.server, self.clients, self.next)
    }

    /// All clients at once, each so often and one after the other.
    pub async fn round(&mut self, times: usize, is_counted: bool) {
        let requests: Vec<Vec<Bytes>> = (0..self.clients.len())
            .map(|who| (0..times).map(|_| (self.next)(who)).collect())
            .collect();
        let meter = self.server.meter();
        let asked = self.clients.iter_mut().zip(requests);
        let latencies = join_all(asked.map(async |(client, requests)| {
            let mut latencies = Vec::with_capacity(times);
            for request in requests {
                let start = Instant::now();
                // A refused request is cheap and would falsify the figure.
                client.post(request).await.unwrap();
                latencies.push(start.elapsed());
            }
            latencies
        }))
        .await;
        let spent = || meter.usage().cpu_micros.unwrap();
        if self.has_background {
            idle_by(spent).await;
        }
        if is_counted {
            self.cost
                .push(spent() / (times * self.clients.len()) as f64);
            let latencies = latencies.into_iter().flatten();
            latencies.for_each(|time| self.latencies.record(time));
        }
    }
}

/// Measures all of them in turns, so that what else the machine does falls on each.
pub async fn in_turns(askers: &mut [&mut Asker<'_>], rounds: usize, times: usize) {
    for round in 0..=rounds {
        for asker in &mut *askers {
            // The first round warms up.
            asker.round(times, round > 0).await;
        }
    }
}

/// Sends of clients, each to its own conversation.
pub fn sends<'a>(
    conversations: &'a [String],
    serial: &'a AtomicU64,
) -> impl Fn(usize) -> Bytes + Copy + 'a {
    move |who| {
        let serial = serial.fetch_add(1, Ordering::Relaxed);
        let (text, key) = (crate::world::body(serial), client_key(serial));
        body(SEND, json!({"c": conversations[who], "b": text, "k": key}))
    }
}
