//! Transport of one connection, below HTTP: deadline of a head, lingering close, and byte budget of a WebSocket before its init.
//!
//! hyper has one timer for the wait between two requests and for the head. Here they differ: a client may be idle for a
//! minute, but must complete a head within seconds.
//!
//! hyper also closes a connection with an unread request body. The kernel then resets it, and a client that still writes
//! loses the answer. The transport therefore reads and drops the rest first (lingering close).

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::state::ConnectionState;

/// Bytes dropped by one read.
const DROP_BYTES: usize = 8 * 1024;

/// Limits of a request head, and of the lingering close after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadBounds {
    /// Bytes of the request line and the headers.
    pub bytes: usize,
    pub headers: usize,
    /// Time from the first byte of a head to its end.
    pub wait: Duration,
    /// Time from the opening of a connection, or the end of an answer, to the first byte of a head.
    pub idle: Duration,
    /// Bytes and time of the lingering close.
    pub linger_bytes: usize,
    pub linger: Duration,
}

impl Default for HeadBounds {
    fn default() -> Self {
        Self {
            bytes: 48 * 1024,
            headers: 64,
            wait: Duration::from_secs(10),
            // Longer than the 60 s of common balancers: the side that keeps a connection in its pool must be the one that
            // closes it. Otherwise the balancer sends a request into a connection that is closing, and answers 502.
            idle: Duration::from_secs(75),
            linger_bytes: 16 * 1024 * 1024,
            linger: Duration::from_secs(2),
        }
    }
}

pub(crate) struct Transport<S> {
    stream: S,
    state: Arc<ConnectionState>,
    bounds: HeadBounds,
    /// The last write waits for the network.
    is_stalled: bool,
    /// Runs while a head is incomplete. Most heads arrive complete and need none.
    head_deadline: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

/// Remaining bytes and time of a lingering close.
struct Lingering {
    bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Transport<S> {
    pub(crate) fn new(stream: S, state: Arc<ConnectionState>, bounds: HeadBounds) -> Self {
        Self {
            stream,
            state,
            bounds,
            is_stalled: false,
            head_deadline: None,
            lingering: None,
        }
    }

    /// Checks the deadline of an incomplete head.
    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.state.is_in_head() {
            self.head_deadline = None;
            return Poll::Pending;
        }
        let wait = self.bounds.wait;
        ready!(
            self.head_deadline
                .get_or_insert_with(|| Box::pin(sleep(wait)))
                .as_mut()
                .poll(cx)
        );
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the head of a request took too long",
        )))
    }

    /// Tells the state of changes only: a delivery to an idle socket reads and writes nothing of it.
    fn record_write(&mut self, written: &Poll<io::Result<usize>>) {
        if self.is_stalled != written.is_pending() {
            self.is_stalled = written.is_pending();
            self.state.set_stalled(self.is_stalled);
        }
    }
}

impl<S: AsyncRead + Unpin> Transport<S> {
    /// Reads and drops bytes until the client closes, or the time or the bytes are exhausted.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let HeadBounds {
            linger,
            linger_bytes,
            ..
        } = self.bounds;
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            bytes: linger_bytes,
            deadline: Box::pin(sleep(linger)),
        });
        if lingering.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while lingering.bytes > 0 {
            let count = ready!(poll_drop(&mut self.stream, cx));
            if count == 0 {
                break;
            }
            lingering.bytes = lingering.bytes.saturating_sub(count);
        }
        Poll::Ready(())
    }

    /// Drops further bytes of a WebSocket over its budget, so that the client reads the close code.
    fn poll_beyond_budget(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_linger(cx).map(Ok)
    }
}

/// Number of dropped bytes; 0 at the end of the stream.
fn poll_drop(stream: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<usize> {
    let mut bytes = [0; DROP_BYTES];
    let mut buffer = ReadBuf::new(&mut bytes);
    let read = ready!(Pin::new(stream).poll_read(cx, &mut buffer));
    Poll::Ready(read.map_or(0, |()| buffer.filled().len()))
}

impl<S: AsyncRead + Unpin> AsyncRead for Transport<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.is_over_budget() {
            return self.poll_beyond_budget(cx);
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len() - before;
                if count > 0 && self.state.received(count) {
                    self.head_deadline = None;
                }
                if self.state.is_over_budget() {
                    buffer.set_filled(before);
                    return self.poll_beyond_budget(cx);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_head_deadline(cx),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.record_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.state.begin_close() {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(cx).map(Ok)
    }
}
