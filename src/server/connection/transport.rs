//! The bytes of one connection, below HTTP: the deadline of a head, the lingering close, and the budget of a WebSocket before its init.
//!
//! hyper has one timer for the wait between two requests and for the head itself. They differ here: a client may be idle for a minute, but a
//! head that has begun ends within seconds. And hyper closes a connection whose request body was not read; the kernel then answers the rest
//! with a reset, which takes the answer away from a client that still writes. So the rest is read and dropped first (lingering close).

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::state::ConnectionState;

/// Bytes that are dropped with one read.
const DROP_BYTES: usize = 8 * 1024;

/// The bytes and the time that a connection has before a request and after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadBounds {
    /// The request line and the headers.
    pub bytes: usize,
    pub headers: usize,
    /// From the first byte of a head to its end.
    pub wait: Duration,
    /// From a connection's opening, or the end of an answer, to the first byte of a head.
    pub idle: Duration,
    /// After a refusal so much is read and dropped, for so long, before the connection is closed.
    pub linger_bytes: usize,
    pub linger: Duration,
}

impl Default for HeadBounds {
    fn default() -> Self {
        Self {
            bytes: 48 * 1024,
            headers: 64,
            wait: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            linger_bytes: 1024 * 1024,
            linger: Duration::from_secs(2),
        }
    }
}

pub(crate) struct Transport<S> {
    stream: S,
    phase: Arc<ConnectionState>,
    bounds: HeadBounds,
    /// Runs while a head is incomplete. Most arrive whole, and have none.
    head_deadline: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

/// The rest of a lingering close.
struct Lingering {
    bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Transport<S> {
    pub(crate) fn new(stream: S, phase: Arc<ConnectionState>, bounds: HeadBounds) -> Self {
        Self {
            stream,
            phase,
            bounds,
            head_deadline: None,
            lingering: None,
        }
    }

    /// Nothing came. An incomplete head has a deadline.
    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.phase.is_in_head() {
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

    fn note_write(&self, written: &Poll<io::Result<usize>>) {
        self.phase.stalled(written.is_pending());
    }
}

impl<S: AsyncRead + Unpin> Transport<S> {
    /// Reads and drops until the client closes, or its time or its bytes are over.
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

    /// A WebSocket has sent more than its budget: what follows is dropped, so that its client gets to read why it is closed.
    fn poll_beyond_budget(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}

/// The count of bytes that were dropped, 0 at the end.
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
        if self.phase.is_over_budget() {
            return self.poll_beyond_budget(cx);
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len() - before;
                if count > 0 && self.phase.received(count) {
                    self.head_deadline = None;
                }
                if self.phase.is_over_budget() {
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
        self.note_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.note_write(&written);
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
            if !self.phase.begin_close() {
                return Poll::Ready(Ok(()));
            }
        }
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}
