//! A connection whose other side must read: a write that makes no headway for too long fails, and one that makes too little over a longer time.
//! Either takes what is behind it along.
//!
//! It stands below HTTP, so that every answer has this deadline, a large one as well as an endless one.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The window of a throughput is measured in so many parts.
const PARTS: usize = 6;

/// How fast what waits for a reader must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceBounds {
    pub bytes_per_second: usize,
    /// Over any so long a time in which bytes wait.
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
    patience: Duration,
    bounds: PaceBounds,
    /// Runs while a write waits. There is none for those who read, which are nearly all.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Begins when a write waits, and ends when nothing is left to write.
    throughput: Option<Box<(ReadThroughput, Pin<Box<Sleep>>)>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, patience: Duration, bounds: PaceBounds) -> Self {
        Self {
            stream,
            patience,
            bounds,
            stalled: None,
            throughput: None,
        }
    }

    fn judge(
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
                "the other side reads too slowly",
            )));
        }
        let patience = self.patience;
        ready!(
            self.stalled
                .get_or_insert_with(|| Box::pin(sleep(patience)))
                .as_mut()
                .poll(cx)
        );
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the other side does not read",
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

/// Sliding window over the bytes that a reader took while others waited.
struct ReadThroughput {
    bounds: PaceBounds,
    /// Bytes of the parts of the window that are over.
    parts: [usize; PARTS],
    /// Parts that are over since bytes wait.
    over: usize,
    /// Bytes of the part that runs, and when it ends.
    bytes: usize,
    end: Instant,
}

impl ReadThroughput {
    fn new(bounds: PaceBounds, now: Instant) -> Self {
        Self {
            bounds,
            parts: [0; PARTS],
            over: 0,
            bytes: 0,
            end: now + bounds.window / PARTS as u32,
        }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether a whole window took fewer bytes than it must.
    fn is_too_slow(&mut self, now: Instant) -> bool {
        while self.end <= now {
            self.parts[self.over % PARTS] = std::mem::take(&mut self.bytes);
            self.over += 1;
            self.end += (self.bounds.window / PARTS as u32).max(Duration::from_millis(1));
            let taken = self
                .parts
                .iter()
                .fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
            if self.over >= PARTS
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
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whoever writes flushes once all is written: nothing waits any more.
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
    async fn who_reads_slowly_has_time_again_after_each_write() {
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
    async fn who_does_not_read_is_given_up() {
        let (ours, _theirs) = duplex(1);
        let mut ours = WriteTimeout::new(ours, Duration::from_millis(10), PACE);
        assert_eq!(
            ours.write_all(b"abc").await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
    }

    #[tokio::test]
    async fn a_write_that_waits_is_given_up_by_its_pace_long_before_its_deadline() {
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
            "the other side reads too slowly"
        );
    }

    #[tokio::test]
    async fn time_in_which_nothing_waits_does_not_count() {
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

    /// The second in which a reader is given up who takes so many bytes in each.
    fn given_up(bytes_in: impl Fn(u64) -> usize) -> Option<u64> {
        let start = Instant::now();
        let mut throughput = ReadThroughput::new(PACE, start);
        (1..300).find(|second| {
            throughput.count(bytes_in(*second));
            throughput.is_too_slow(start + Duration::from_secs(*second))
        })
    }

    #[test]
    fn who_reads_too_little_over_any_window_is_given_up() {
        assert_eq!(given_up(|_| 9), Some(30));
        assert_eq!(given_up(|_| 10), None);
        // What was taken long ago does not help.
        assert_eq!(
            given_up(|second| if second == 1 { 100_000 } else { 9 }),
            Some(35)
        );
        assert_eq!(
            given_up(|second| if second % 25 == 0 { 300 } else { 0 }),
            None
        );
        assert_eq!(
            given_up(|second| if second % 50 == 0 { 500 } else { 0 }),
            Some(30)
        );
        assert_eq!(
            given_up(|second| if second <= 100 { 10 } else { 0 }),
            Some(105)
        );
    }
}
