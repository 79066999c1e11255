//! Compression of answers with gzip, for clients that accept it.
//!
//! A large answer is compressed chunk by chunk while it is written, so that no task computes for
//! long.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use flate2::{Compress, Compression, FlushCompress, Status};
use hyper::body::Frame;

use crate::graphql::AnswerBudget;
use crate::server::chunks::{ChunkedText, held};

/// Smaller answers fit a few packets and gain nothing.
pub(super) const BYTES_MIN: usize = 4 << 10;

/// The fastest level: a page of 50 messages shrinks to a quarter in 20 to 30 µs. Level 6 takes
/// three times as long, for a fifth.
const LEVEL: Compression = Compression::new(1);
/// The usual window of 32 KiB.
const WINDOW_BITS: u8 = 15;

/// Body of a compressed answer. It holds the budget of the whole text until its last byte is
/// written.
pub(super) fn gzip(text: ChunkedText, budget: Option<Arc<AnswerBudget>>) -> Body {
    let mut chunks = VecDeque::from(text.into_chunks());
    let mut encoder = Compress::new_gzip(LEVEL, WINDOW_BITS);
    if chunks.len() > 1 {
        return Body::new(GzipBody {
            chunks,
            encoder,
            budget,
        });
    }
    let chunk = chunks.pop_front().unwrap_or_default();
    let compressed = compress(&mut encoder, &chunk, FlushCompress::Finish);
    Body::from(held(compressed, budget))
}

/// Compresses a chunk. Without `Finish` the encoder may keep its end for the next chunk.
fn compress(encoder: &mut Compress, chunk: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut compressed = Vec::with_capacity(chunk.len() / 3 + 64);
    let before = encoder.total_in();
    loop {
        let read = (encoder.total_in() - before) as usize;
        let status = encoder
            .compress_vec(&chunk[read..], &mut compressed, flush)
            .expect("a buffer in memory takes every byte");
        let is_read = (encoder.total_in() - before) as usize == chunk.len();
        let has_room = compressed.len() < compressed.capacity();
        let is_done = match status {
            Status::StreamEnd => true,
            Status::Ok | Status::BufError => {
                !matches!(flush, FlushCompress::Finish) && is_read && has_room
            }
        };
        if is_done {
            return compressed;
        }
        compressed.reserve(chunk.len() / 4 + 64);
    }
}

struct GzipBody {
    chunks: VecDeque<Vec<u8>>,
    encoder: Compress,
    budget: Option<Arc<AnswerBudget>>,
}

impl hyper::body::Body for GzipBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while let Some(chunk) = self.chunks.pop_front() {
            let flush = if self.chunks.is_empty() {
                FlushCompress::Finish
            } else {
                FlushCompress::None
            };
            let compressed = compress(&mut self.encoder, &chunk, flush);
            if !compressed.is_empty() {
                let frame = Frame::data(held(compressed, self.budget.clone()));
                return Poll::Ready(Some(Ok(frame)));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }
}
