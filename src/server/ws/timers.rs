//! Deadlines of one socket: `connection_init`, the viewer, pings and pongs, a message that has begun, the end of the token,
//! the drain.

use std::time::Duration;

use tokio::time::Instant;

use super::protocol::Close;
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::server::bounds::SocketBounds;
use crate::server::token_expiry::TokenExpiry;

#[derive(Default)]
pub(super) struct Timers {
    init_by: Option<Instant>,
    /// Deadline of a socket whose `connection_init` showed no token.
    viewer_by: Option<Instant>,
    ping_at: Option<Instant>,
    pong_by: Option<Instant>,
    /// Deadline of a message that has begun.
    message_by: Option<Instant>,
    expiry: Option<TokenExpiry>,
    drain_by: Option<Instant>,
}

/// Action that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ping,
    Close(Close),
}

impl Timers {
    pub(super) fn new(bounds: &SocketBounds, now: Instant) -> Self {
        Self {
            init_by: Some(now + bounds.init),
            ..Self::default()
        }
    }

    /// Starts pings and the check of the token, after `connection_init`.
    pub(super) fn open(
        &mut self,
        bounds: &SocketBounds,
        has_viewer: bool,
        expires_at: Option<Timestamp>,
        clock: &dyn Clock,
        now: Instant,
    ) {
        self.viewer_by = self.init_by.take().filter(|_| !has_viewer);
        self.ping_at = Some(now + bounds.ping);
        self.expiry = expires_at.map(|expires_at| TokenExpiry::new(expires_at, clock, now));
    }

    /// Any byte of the client shows that it is alive.
    pub(super) fn received(&mut self) {
        self.pong_by = None;
    }

    pub(super) fn awaits_pong(&self) -> bool {
        self.pong_by.is_some()
    }

    /// Starts the time of a message whose first bytes have arrived, or ends it.
    pub(super) fn await_message(&mut self, is_awaited: bool, within: Duration, now: Instant) {
        if is_awaited {
            self.message_by.get_or_insert(now + within);
        } else {
            self.message_by = None;
        }
    }

    pub(super) fn drain(&mut self, by: Instant) {
        self.drain_by.get_or_insert(by);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drain_by.is_some()
    }

    /// Time of the next action.
    pub(super) fn next(&self) -> Option<Instant> {
        let expiry = self.expiry.as_ref().map(TokenExpiry::check_at);
        [
            self.init_by,
            self.viewer_by,
            self.ping_at,
            self.pong_by,
            self.message_by,
            expiry,
            self.drain_by,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn due(&mut self, bounds: &SocketBounds, clock: &dyn Clock, now: Instant) -> Due {
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_over(self.init_by) {
            return Due::Close(Close::INIT_TIMEOUT);
        }
        if is_over(self.viewer_by) {
            return Due::Close(Close::NO_VIEWER);
        }
        if is_over(self.drain_by) {
            return Due::Close(Close::DRAINING);
        }
        if self
            .expiry
            .as_mut()
            .is_some_and(|expiry| expiry.is_over(clock, now))
        {
            return Due::Close(Close::EXPIRED);
        }
        if is_over(self.pong_by) {
            return Due::Close(Close::PONG_TIMEOUT);
        }
        if is_over(self.message_by) {
            return Due::Close(Close::MESSAGE_TIMEOUT);
        }
        if is_over(self.ping_at) {
            self.ping_at = Some(now + bounds.ping);
            self.pong_by.get_or_insert(now + bounds.pong);
            return Due::Ping;
        }
        Due::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_token_ends_by_the_wall_clock_and_not_before() {
        let (bounds, now) = (
            SocketBounds {
                ping: Duration::from_secs(1 << 30),
                ..SocketBounds::default()
            },
            Instant::now(),
        );
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let expires_at = Timestamp::from_micros(10_000_000);
        let mut timers = Timers::new(&bounds, now);
        timers.open(&bounds, true, Some(expires_at), &clock, now);
        let check = timers.next().unwrap();
        assert!(check > now + Duration::from_secs(10) && check < now + Duration::from_secs(11));
        assert_eq!(timers.due(&bounds, &clock, check), Due::Nothing);
        clock.set(expires_at);
        let check = timers.next().unwrap();
        assert_eq!(
            timers.due(&bounds, &clock, check),
            Due::Close(Close::EXPIRED)
        );
    }

    #[test]
    fn a_ping_wants_an_answer() {
        let (bounds, now, clock) = (
            SocketBounds::default(),
            Instant::now(),
            ManualClock::at(Timestamp::ZERO),
        );
        let mut timers = Timers::new(&bounds, now);
        timers.open(&bounds, true, None, &clock, now);
        let ping = timers.next().unwrap();
        assert_eq!(ping, now + bounds.ping);
        assert_eq!(timers.due(&bounds, &clock, ping), Due::Ping);
        assert_eq!(timers.next(), Some(ping + bounds.pong));
        timers.received();
        assert_eq!(timers.next(), Some(ping + bounds.ping));
        assert_eq!(timers.due(&bounds, &clock, ping + bounds.ping), Due::Ping);
        let late = timers.next().unwrap();
        assert_eq!(
            timers.due(&bounds, &clock, late),
            Due::Close(Close::PONG_TIMEOUT)
        );
    }
}
