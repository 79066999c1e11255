//! Write timeout of a connection: a write without progress fails, and so does a reader that is too slow over a longer window.
//!
//! It wraps the stream below HTTP, so that it covers every answer: small, large or endless.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Parts of the sliding window.
const PARTS: usize = 6;

/// Slowest accepted reader of waiting bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceBounds {
    pub bytes_per_second: usize,
    /// Window over which the rate is measured, while bytes wait.
    pub window: Duration,
}

impl Default for PaceBounds {
    fn default() -> Self {
        Self {
            bytes_per_second: 16 << 10,
            window: Duration::from_secs(30),
        }
    }
}

pub(crate) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    bounds: PaceBounds,
    /// Runs while a write waits. Most clients read at once and need none.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Runs from a waiting write until everything is written.
    throughput: Option<Box<(ReadThroughput, Pin<Box<Sleep>>)>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, timeout: Duration, bounds: PaceBounds) -> Self {
        Self {
            stream,
            timeout,
            bounds,
            stalled: None,
            throughput: None,
        }
    }

    fn check(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let (Some(throughput), Poll::Ready(Ok(bytes))) = (&mut self.throughput, &written) {
            throughput.0.count(*bytes);
        }
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        if self.poll_too_slow(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client reads too slowly",
            )));
        }
        let timeout = self.timeout;
        ready!(
            self.stalled
                .get_or_insert_with(|| Box::pin(sleep(timeout)))
                .as_mut()
                .poll(cx)
        );
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read",
        )))
    }

    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let bounds = self.bounds;
        let (throughput, alarm) = &mut **self.throughput.get_or_insert_with(|| {
            let throughput = ReadThroughput::new(bounds, Instant::now());
            let alarm = Box::pin(sleep_until(throughput.end));
            Box::new((throughput, alarm))
        });
        loop {
            if throughput.is_too_slow(Instant::now()) {
                return Poll::Ready(());
            }
            if alarm.deadline() != throughput.end {
                alarm.as_mut().reset(throughput.end);
            }
            ready!(alarm.as_mut().poll(cx));
        }
    }
}

/// Sliding window over the bytes that a client read while more waited.
struct ReadThroughput {
    bounds: PaceBounds,
    /// Bytes of the completed parts of the window.
    parts: [usize; PARTS],
    /// Number of completed parts.
    completed: usize,
    /// Bytes and end of the current part.
    bytes: usize,
    end: Instant,
}

impl ReadThroughput {
    fn new(bounds: PaceBounds, now: Instant) -> Self {
        Self {
            bounds,
            parts: [0; PARTS],
            completed: 0,
            bytes: 0,
            end: now + bounds.window / PARTS as u32,
        }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether a full window has fewer bytes than the bound.
    fn is_too_slow(&mut self, now: Instant) -> bool {
        while self.end <= now {
            self.parts[self.completed % PARTS] = std::mem::take(&mut self.bytes);
            self.completed += 1;
            self.end += (self.bounds.window / PARTS as u32).max(Duration::from_millis(1));
            let taken = self
                .parts
                .iter()
                .fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
            if self.completed >= PARTS
                && (taken as f64)
                    < self.bounds.bytes_per_second as f64 * self.bounds.window.as_secs_f64()
            {
                return true;
            }
        }
        false
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes after the last write: no byte waits any more.
        self.throughput = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PACE: PaceBounds = PaceBounds {
        bytes_per_second: 10,
        window: Duration::from_secs(30),
    };

    #[tokio::test]
    async fn each_write_restarts_the_timeout() {
        let (ours, mut theirs) = duplex(1);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(20), PACE);
        let write = async {
            ours.write_all(b"abc").await.unwrap();
            assert!(ours.stalled.is_none());
        };
        let read = async {
            let mut bytes = [0; 3];
            theirs.read_exact(&mut bytes).await.unwrap();
        };
        tokio::join!(write, read);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut() {
        let (ours, _theirs) = duplex(1);
        let mut ours = WriteTimeout::new(ours, Duration::from_millis(10), PACE);
        assert_eq!(
            ours.write_all(b"abc").await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
    }

    #[tokio::test]
    async fn a_slow_reader_is_cut_long_before_the_timeout() {
        let (ours, mut theirs) = duplex(8);
        let throughput = PaceBounds {
            bytes_per_second: 1 << 40,
            window: Duration::from_millis(30),
        };
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(60), throughput);
        let bytes = vec![b'x'; 1 << 24];
        let read = async {
            let mut few = [0; 8];
            while theirs.read_exact(&mut few).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let write = async {
            let written = ours.write_all(&bytes).await;
            drop(ours);
            written
        };
        let (written, ()) = tokio::join!(write, read);
        assert_eq!(
            written.unwrap_err().to_string(),
            "the client reads too slowly"
        );
    }

    #[tokio::test]
    async fn time_without_waiting_bytes_does_not_count() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(10), PACE);
        let write = async {
            ours.write_all(b"0123456789abcdef").await.unwrap();
            assert!(ours.throughput.is_some());
            ours.flush().await.unwrap();
            assert!(ours.throughput.is_none());
        };
        let mut bytes = [0; 16];
        let (_, read) = tokio::join!(write, theirs.read_exact(&mut bytes));
        read.unwrap();
    }

    /// Second in which the server cuts a reader, by the bytes that it reads in each second.
    fn cut_at(bytes_in: impl Fn(u64) -> usize) -> Option<u64> {
        let start = Instant::now();
        let mut throughput = ReadThroughput::new(PACE, start);
        (1..300).find(|second| {
            throughput.count(bytes_in(*second));
            throughput.is_too_slow(start + Duration::from_secs(*second))
        })
    }

    #[test]
    fn a_reader_below_the_rate_over_any_window_is_cut() {
        assert_eq!(cut_at(|_| 9), Some(30));
        assert_eq!(cut_at(|_| 10), None);
        // Bytes before the window do not count.
        assert_eq!(
            cut_at(|second| if second == 1 { 100_000 } else { 9 }),
            Some(35)
        );
        assert_eq!(
            cut_at(|second| if second % 25 == 0 { 300 } else { 0 }),
            None
        );
        assert_eq!(
            cut_at(|second| if second % 50 == 0 { 500 } else { 0 }),
            Some(30)
        );
        assert_eq!(
            cut_at(|second| if second <= 100 { 10 } else { 0 }),
            Some(105)
        );
    }
}
