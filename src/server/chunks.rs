//! Output buffer of one answer: chunks of bounded size, up to a bound of the whole text.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};

use crate::graphql::AnswerBudget;

/// Bytes of one chunk of an HTTP body. A large answer needs no contiguous memory, and frees each chunk once it is written.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// First allocation of a text of unknown size.
const FIRST_BYTES: usize = 256;

/// Position in a text.
pub(super) struct ChunkMark {
    whole: usize,
    last: usize,
    bytes: usize,
}

pub(super) struct ChunkedText {
    whole: Vec<Vec<u8>>,
    last: Vec<u8>,
    chunk_bytes: usize,
    bytes: usize,
    bytes_max: usize,
}

impl ChunkedText {
    /// Empty text. `hint` is its expected size.
    pub(super) fn new(chunk_bytes: usize, bytes_max: usize, hint: usize) -> Self {
        let last = Vec::with_capacity(
            (hint + FIRST_BYTES)
                .min(chunk_bytes)
                .min(bytes_max.saturating_add(FIRST_BYTES)),
        );
        Self {
            whole: Vec::new(),
            last,
            chunk_bytes,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Position for a later [`ChunkedText::rewind`].
    pub(super) fn mark(&self) -> ChunkMark {
        ChunkMark {
            whole: self.whole.len(),
            last: self.last.len(),
            bytes: self.bytes,
        }
    }

    /// Drops the text after a position.
    pub(super) fn rewind(&mut self, mark: &ChunkMark) {
        if let Some(chunk) = self.whole.drain(mark.whole..).next() {
            self.last = chunk;
        }
        self.last.truncate(mark.last);
        self.bytes = mark.bytes;
    }

    /// Adds framing around the answer, which does not count towards the bound.
    pub(super) fn push_framing(&mut self, text: &str) {
        self.last.extend_from_slice(text.as_bytes());
    }

    /// Joins the chunks, for a WebSocket message.
    pub(super) fn into_text(self) -> String {
        let Self {
            mut whole, last, ..
        } = self;
        let bytes = if whole.is_empty() {
            last
        } else {
            whole.push(last);
            whole.concat()
        };
        String::from_utf8(bytes).expect("JSON is text")
    }

    /// The chunks in order: at least one.
    pub(super) fn into_chunks(self) -> Vec<Vec<u8>> {
        let Self {
            mut whole, last, ..
        } = self;
        whole.push(last);
        whole
    }

    /// HTTP body of known length. Each chunk holds the budget until it is written.
    pub(super) fn into_body(self, budget: Option<Arc<AnswerBudget>>) -> Body {
        if self.whole.is_empty() {
            return Body::from(held(self.last, budget));
        }
        let chunks = self.into_chunks();
        let left = chunks.iter().map(Vec::len).sum::<usize>() as u64;
        Body::new(ChunkedBody {
            chunks: chunks
                .into_iter()
                .map(|chunk| held(chunk, budget.clone()))
                .collect(),
            left,
        })
    }
}

impl io::Write for ChunkedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.saturating_add(bytes.len()) > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes += bytes.len();
        let mut rest = bytes;
        loop {
            let room = self.chunk_bytes.saturating_sub(self.last.len());
            if rest.len() <= room {
                self.last.extend_from_slice(rest);
                return Ok(bytes.len());
            }
            let (now, later) = rest.split_at(room);
            self.last.extend_from_slice(now);
            rest = later;
            let next = Vec::with_capacity(self.chunk_bytes);
            self.whole.push(std::mem::replace(&mut self.last, next));
        }
    }

    /// Fast path: most writes are a few bytes that fit the last chunk.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let after = self.bytes.saturating_add(bytes.len());
        if after > self.bytes_max || self.last.len() + bytes.len() > self.chunk_bytes {
            return self.write(bytes).map(drop);
        }
        self.bytes = after;
        self.last.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that hold the budget of their answer until they are written.
pub(super) fn held(chunk: Vec<u8>, budget: Option<Arc<AnswerBudget>>) -> Bytes {
    Bytes::from_owner(HeldChunk {
        chunk,
        _budget: budget,
    })
}

/// Chunk that holds its budget until it is written.
struct HeldChunk {
    chunk: Vec<u8>,
    _budget: Option<Arc<AnswerBudget>>,
}

impl AsRef<[u8]> for HeldChunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

struct ChunkedBody {
    chunks: VecDeque<Bytes>,
    left: u64,
}

impl hyper::body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.chunks.pop_front();
        Poll::Ready(chunk.map(|chunk| {
            self.left -= chunk.len() as u64;
            Ok(Frame::data(chunk))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn a_text_is_cut_into_pieces_and_loses_nothing() {
        let mut chunks = ChunkedText::new(4, 20, 0);
        for part in ["ab", "cdefghij", "", "klm"] {
            chunks.write_all(part.as_bytes()).unwrap();
        }
        assert_eq!((chunks.bytes(), chunks.whole.len()), (13, 3));
        assert!(chunks.whole.iter().all(|chunk| chunk.len() == 4));
        let budget = Arc::new(AnswerBudget::default());
        let body = chunks.into_body(Some(Arc::clone(&budget)));
        assert_eq!(body.size_hint().exact(), Some(13));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdefghijklm");
        assert_eq!(Arc::strong_count(&budget), 1);
    }

    #[test]
    fn a_text_over_its_bound_is_not_written() {
        let mut chunks = ChunkedText::new(4, 5, 0);
        chunks.write_all(b"abcde").unwrap();
        chunks.write_all(b"f").unwrap_err();
        chunks.push_framing("fg");
        assert_eq!(chunks.into_text(), "abcdefg");
    }

    #[test]
    fn the_text_after_a_mark_can_be_dropped() {
        let mut chunks = ChunkedText::new(4, 20, 0);
        chunks.write_all(b"abcdef").unwrap();
        let mark = chunks.mark();
        chunks.write_all(b"ghijklmno").unwrap();
        chunks.rewind(&mark);
        chunks.write_all(b"G").unwrap();
        assert_eq!(chunks.bytes(), 7);
        assert_eq!(chunks.into_text(), "abcdefG");
    }
}
