//! A subscription over HTTP: one answer that goes on until somebody ends it.
//!
//! It is asked for its next words when there is room for them, and so the subscription waits for its reader: whoever reads slowly costs a
//! buffer, whoever does not read at all is cut off by the deadline of writes. Whoever goes away takes the stream along, at once.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::wire::Wire;
use crate::graphql::{Here, Prepared, Ready};
use crate::model::{Timestamp, UserId};
use crate::server::Doors;
use crate::server::answer::{Code, Delivery, Problem};
use crate::server::expiry::Expiry;
use crate::server::gate::{Caller, Counted};
use crate::server::operation::{Deliveries, LogLine};

pub(super) struct Feed {
    doors: Arc<Doors>,
    pub(super) wire: Wire,
    deliveries: Deliveries,
    expiry: Option<Expiry>,
    _place: OwnedSemaphorePermit,
    _own: Option<Counted<UserId>>,
    _here: Option<Here>,
}

impl Feed {
    /// Where there is still a place for it.
    pub(super) fn open(
        doors: &Arc<Doors>,
        wire: Wire,
        prepared: Prepared,
        ready: Ready,
        caller: &Caller,
        expires_at: Option<Timestamp>,
    ) -> Result<Self, Problem> {
        if doors.stop.is_cancelled() {
            return Err(stopping());
        }
        let Ok(place) = Arc::clone(&doors.stream_places).try_acquire_owned() else {
            doors.meter.refusals.with_label_values(&["streams"]).inc();
            let sentence = "There are too many open streams here; try again later.";
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Code::Unavailable,
                sentence,
            ));
        };
        let viewer = &caller.viewer;
        let own = viewer
            .as_ref()
            .map(|viewer| doors.gate.stream_of(viewer))
            .transpose()?
            .flatten();
        let expiry = expires_at
            .map(|expires_at| Expiry::new(expires_at, doors.clock.as_ref(), Instant::now()));
        let here = viewer.as_ref().map(|viewer| doors.executor.arrive(viewer));
        let deliveries = doors.subscribe(prepared, ready, caller);
        Ok(Self {
            doors: Arc::clone(doors),
            wire,
            deliveries,
            expiry,
            _place: place,
            _own: own,
            _here: here,
        })
    }

    pub(super) fn body(self, mut line: LogLine) -> Body {
        line.door(self.wire.door());
        let telling = Telling {
            feed: self,
            phase: Phase::Starting,
            said: Instant::now(),
            line,
            code: "OK".to_owned(),
        };
        let words = stream::unfold(telling, async |mut telling| {
            telling
                .next()
                .await
                .map(|words| (Ok::<_, Infallible>(words), telling))
        });
        Body::from_stream(words)
    }
}

/// A stream that is being told. Dropped, which is how clients end it, it is over.
struct Telling {
    feed: Feed,
    phase: Phase,
    /// When it last said something.
    said: Instant,
    line: LogLine,
    /// What the log will say of it.
    code: String,
}

#[derive(Clone, Copy)]
enum Phase {
    Starting,
    Running,
    Over,
}

enum Woken {
    Stopping,
    Alarm,
    Told(Option<Delivery>),
}

impl Telling {
    async fn next(&mut self) -> Option<Bytes> {
        let words = match self.phase {
            Phase::Over => return None,
            Phase::Starting => {
                self.phase = Phase::Running;
                self.feed.wire.start().into()
            }
            Phase::Running => self.wait().await,
        };
        self.said = Instant::now();
        Some(words)
    }

    async fn wait(&mut self) -> Bytes {
        let heartbeat_at = self.said + self.feed.doors.bounds.streams.heartbeat;
        loop {
            let look_at = self.feed.expiry.as_ref().map(Expiry::look_at);
            let alarm_at = look_at.map_or(heartbeat_at, |look_at| look_at.min(heartbeat_at));
            let woken = tokio::select! {
                biased;
                () = self.feed.doors.stop.cancelled() => Woken::Stopping,
                () = sleep_until(alarm_at) => Woken::Alarm,
                delivery = self.feed.deliveries.next() => Woken::Told(delivery),
            };
            match woken {
                Woken::Stopping => return self.cut(stopping()),
                Woken::Told(delivery) => return self.told(delivery),
                Woken::Alarm => {
                    let now = Instant::now();
                    let clock = self.feed.doors.clock.as_ref();
                    if self
                        .feed
                        .expiry
                        .as_mut()
                        .is_some_and(|expiry| expiry.is_over(clock, now))
                    {
                        let sentence = "The token has expired; come back with another one.";
                        return self.cut(Problem::new(
                            StatusCode::UNAUTHORIZED,
                            Code::Unauthenticated,
                            sentence,
                        ));
                    }
                    if heartbeat_at <= now {
                        return self.feed.wire.heartbeat().into();
                    }
                }
            }
        }
    }

    fn told(&mut self, delivery: Option<Delivery>) -> Bytes {
        let wire = self.feed.wire;
        match delivery {
            Some(Delivery::Event(text, held)) => wire.deliver(&text, held),
            Some(Delivery::Refused(answer)) => {
                self.phase = Phase::Over;
                answer.code().clone_into(&mut self.code);
                (wire.next(&answer) + wire.complete()).into()
            }
            None => {
                self.phase = Phase::Over;
                wire.complete().into()
            }
        }
    }

    fn cut(&mut self, problem: Problem) -> Bytes {
        self.phase = Phase::Over;
        problem.code.as_str().clone_into(&mut self.code);
        self.feed.wire.cut(problem)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.line.end(&self.code);
    }
}

fn stopping() -> Problem {
    let sentence = "This server is stopping; connect again.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, sentence)
}
