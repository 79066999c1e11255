//! Subscriptions over HTTP: one streamed response body that lasts until the client, the server or the subscription ends it.
//!
//! hyper polls the body when it has room, so the subscription follows its reader (backpressure). A slow reader costs one
//! buffer; the write timeout cuts a reader that takes nothing. A client that disconnects drops the stream at once.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::stream_format::StreamFormat;
use crate::graphql::{CoercedVariables, OnlineGuard, Prepared, Refusal, RestrictionWatch};
use crate::model::{UserId, Viewer};
use crate::server::admission::{Caller, ConcurrencyPermit};
use crate::server::answer::{Code, Delivery, Problem};
use crate::server::context::Server;
use crate::server::identification::{TokenTimes, refused};
use crate::server::operation::{LogLine, SubscriptionDeliveries};
use crate::server::token_expiry::TokenExpiry;

pub(super) struct SubscriptionResponse {
    server: Arc<Server>,
    pub(super) format: StreamFormat,
    deliveries: SubscriptionDeliveries,
    expiry: Option<TokenExpiry>,
    viewer: Option<Viewer>,
    token: TokenTimes,
    restrictions: RestrictionWatch,
    _server_permit: OwnedSemaphorePermit,
    _user_permit: Option<ConcurrencyPermit<UserId>>,
    _here: Option<OnlineGuard>,
}

impl SubscriptionResponse {
    /// Acquires the permits of a stream and opens its subscription.
    pub(super) fn open(
        server: &Arc<Server>,
        format: StreamFormat,
        prepared: Prepared,
        ready: CoercedVariables,
        caller: &Caller,
        token: TokenTimes,
    ) -> Result<Self, Problem> {
        if server.stop.is_cancelled() {
            return Err(stopping());
        }
        let Ok(server_permit) = Arc::clone(&server.stream_permits).try_acquire_owned() else {
            server
                .metrics
                .refusals
                .with_label_values(&["streams"])
                .inc();
            let sentence = "There are too many open streams here; try again later.";
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Code::Unavailable,
                sentence,
            ));
        };
        let viewer = &caller.viewer;
        let user_permit = viewer
            .as_ref()
            .map(|viewer| server.admission.stream_of(viewer))
            .transpose()?
            .flatten();
        // Watched before the check, so that no change falls between the two.
        let restrictions = server.executor.watch_restrictions();
        if let Some(viewer) = viewer {
            server.check(viewer, token).map_err(refused)?;
        }
        let expiry = token
            .expires_at
            .map(|expires_at| TokenExpiry::new(expires_at, server.clock.as_ref(), Instant::now()));
        let here = viewer
            .as_ref()
            .and_then(|viewer| server.executor.arrive(viewer));
        let deliveries = server.subscribe(prepared, ready, caller);
        Ok(Self {
            server: Arc::clone(server),
            format,
            deliveries,
            expiry,
            viewer: viewer.clone(),
            token,
            restrictions,
            _server_permit: server_permit,
            _user_permit: user_permit,
            _here: here,
        })
    }

    /// Whether the viewer is still allowed in.
    fn check(&self) -> Result<(), Refusal> {
        match &self.viewer {
            Some(viewer) => self.server.check(viewer, self.token),
            None => Ok(()),
        }
    }

    pub(super) fn body(self, mut line: LogLine) -> Body {
        line.transport(self.format.transport());
        let stream = RunningStream {
            response: self,
            phase: StreamPhase::Starting,
            last_write: Instant::now(),
            line,
            code: "OK".to_owned(),
        };
        let chunks = stream::unfold(stream, async |mut stream| {
            stream
                .next()
                .await
                .map(|bytes| (Ok::<_, Infallible>(bytes), stream))
        });
        Body::from_stream(chunks)
    }
}

/// Running subscription. A client ends it by disconnecting, which drops it.
struct RunningStream {
    response: SubscriptionResponse,
    phase: StreamPhase,
    /// Time of the last event or heartbeat.
    last_write: Instant,
    line: LogLine,
    /// Code for the log line.
    code: String,
}

#[derive(Clone, Copy)]
enum StreamPhase {
    Starting,
    Running,
    Over,
}

enum StreamEvent {
    Stopping,
    RestrictionsChanged,
    Alarm,
    Delivered(Option<Delivery>),
}

impl RunningStream {
    async fn next(&mut self) -> Option<Bytes> {
        let bytes = match self.phase {
            StreamPhase::Over => return None,
            StreamPhase::Starting => {
                self.phase = StreamPhase::Running;
                self.response.format.start().into()
            }
            StreamPhase::Running => self.wait().await,
        };
        self.last_write = Instant::now();
        Some(bytes)
    }

    async fn wait(&mut self) -> Bytes {
        let heartbeat_at = self.last_write + self.response.server.bounds.streams.heartbeat;
        loop {
            let check_at = self.response.expiry.as_ref().map(TokenExpiry::check_at);
            let alarm_at = check_at.map_or(heartbeat_at, |check_at| check_at.min(heartbeat_at));
            let event = tokio::select! {
                biased;
                () = self.response.server.stop.cancelled() => StreamEvent::Stopping,
                () = self.response.restrictions.changed() => StreamEvent::RestrictionsChanged,
                () = sleep_until(alarm_at) => StreamEvent::Alarm,
                delivery = self.response.deliveries.next() => StreamEvent::Delivered(delivery),
            };
            match event {
                StreamEvent::Stopping => return self.cut(stopping()),
                StreamEvent::RestrictionsChanged => {
                    if let Err(refusal) = self.response.check() {
                        return self.cut(refused(refusal));
                    }
                }
                StreamEvent::Delivered(delivery) => return self.deliver(delivery),
                StreamEvent::Alarm => {
                    let now = Instant::now();
                    let clock = self.response.server.clock.as_ref();
                    if self
                        .response
                        .expiry
                        .as_mut()
                        .is_some_and(|expiry| expiry.is_over(clock, now))
                    {
                        let sentence = "The token has expired; connect again with a new one.";
                        return self.cut(Problem::new(
                            StatusCode::UNAUTHORIZED,
                            Code::Unauthenticated,
                            sentence,
                        ));
                    }
                    if heartbeat_at <= now {
                        return self.response.format.heartbeat().into();
                    }
                }
            }
        }
    }

    fn deliver(&mut self, delivery: Option<Delivery>) -> Bytes {
        let format = self.response.format;
        match delivery {
            Some(Delivery::Event { text, .. }) => {
                let held = self.response.deliveries.hold(text.as_str().len());
                format.deliver(&text, held)
            }
            Some(Delivery::Refused(answer)) => {
                self.phase = StreamPhase::Over;
                answer.code().clone_into(&mut self.code);
                (format.next(&answer) + format.complete()).into()
            }
            None => {
                self.phase = StreamPhase::Over;
                format.complete().into()
            }
        }
    }

    fn cut(&mut self, problem: Problem) -> Bytes {
        self.phase = StreamPhase::Over;
        problem.code.as_str().clone_into(&mut self.code);
        self.response.format.cut(problem)
    }
}

impl Drop for RunningStream {
    fn drop(&mut self) {
        self.line.end(&self.code);
    }
}

fn stopping() -> Problem {
    let sentence = "This server is stopping; connect again.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, sentence)
}
