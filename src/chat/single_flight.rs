//! Reads that many streams ask for at once, each done once for all of them.
//!
//! When a crowd comes back, its streams want the same pages of the same conversation. A stream may rest on the read of another one that
//! began no earlier than what the stream hears by itself: then nothing falls between the two. A read from an earlier place does as well,
//! as far as it goes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::bus::Sequence;
use crate::chat::{Error, Result};
use crate::model::{ConversationId, OrderKey};

/// Reads that are remembered, and for how long.
const READS_MAX: usize = 256;
const LIFETIME: Duration = Duration::from_secs(5);
/// How long a stream waits for the read of another one, which goes on only as far as its reader does.
const OTHERS_MAX: Duration = Duration::from_secs(1);

/// Reads of one kind, the oldest first.
pub(crate) struct SingleFlight<T>(Mutex<VecDeque<Arc<Read<T>>>>);

struct Read<T> {
    conversation: ConversationId,
    from: OrderKey,
    began: Sequence,
    at: Instant,
    outcome: OnceCell<Result<Arc<T>>>,
}

/// What a stream wants to know.
#[derive(Clone, Copy)]
pub(crate) struct ReadKey {
    pub(crate) conversation: ConversationId,
    /// All after this place.
    pub(crate) from: OrderKey,
    /// The read must not have begun earlier.
    pub(crate) since: Sequence,
    /// The time of the bus.
    pub(crate) now: Sequence,
}

/// What was read from a place on.
pub(crate) trait Piece {
    /// Whether it says what follows this place.
    fn covers(&self, place: OrderKey) -> bool;
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Piece> SingleFlight<T> {
    /// The answer of a read that is under way, or was just done; else `read` reads, from the place that it is given. It runs to its end
    /// as long as anybody waits for it.
    pub(crate) async fn read<F>(
        &self,
        question: ReadKey,
        read: impl Fn(OrderKey) -> F,
    ) -> Result<Arc<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let mut found = self.find(&question);
        loop {
            let (joined, is_own) = match found {
                Some(joined) => (joined, false),
                None => (self.begin(&question), true),
            };
            let reading = joined
                .outcome
                .get_or_init(|| async { read(joined.from).await.map(Arc::new) });
            let outcome = if is_own {
                Ok(reading.await)
            } else {
                timeout(OTHERS_MAX, reading).await
            };
            match outcome {
                // It ends before this stream's place, or somebody else stood in line for too long: one of those who wait reads for the others.
                Ok(Ok(piece)) if !is_own && !piece.covers(question.from) => {
                    found = self.find(&question)
                }
                Ok(Err(Error::TooFast { .. })) if !is_own => found = self.find(&question),
                Ok(Ok(piece)) => return Ok(Arc::clone(piece)),
                Ok(Err(error)) => return Err(error.clone()),
                // Whoever reads it does not get on, and nobody else must wait for that.
                Err(_) => found = None,
            }
        }
    }

    /// The one that begins nearest before the place. Failures are shared by those who waited for them, and by nobody else.
    fn find(&self, question: &ReadKey) -> Option<Arc<Read<T>>> {
        let reads = self.0.lock();
        let is_wanted = |read: &&Arc<Read<T>>| {
            let is_near = read.conversation == question.conversation
                && read.from <= question.from
                && read.began >= question.since;
            is_near
                && read.at.elapsed() < LIFETIME
                && read
                    .outcome
                    .get()
                    .is_none_or(|done| done.as_ref().is_ok_and(|piece| piece.covers(question.from)))
        };
        reads
            .iter()
            .filter(is_wanted)
            .max_by_key(|read| read.from)
            .cloned()
    }

    fn begin(&self, question: &ReadKey) -> Arc<Read<T>> {
        let ReadKey {
            conversation,
            from,
            now: began,
            ..
        } = *question;
        let read = Arc::new(Read {
            conversation,
            from,
            began,
            at: Instant::now(),
            outcome: OnceCell::new(),
        });
        let mut reads = self.0.lock();
        while reads.len() >= READS_MAX
            || reads
                .front()
                .is_some_and(|first| first.at.elapsed() >= LIFETIME)
        {
            reads.pop_front();
        }
        reads.push_back(Arc::clone(&read));
        read
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;
    use crate::bus::Bus;
    use crate::model::{Timestamp, Topic};

    /// Ends at a place; `None`: at the end of all.
    struct Until(Option<OrderKey>);

    impl Piece for Until {
        fn covers(&self, place: OrderKey) -> bool {
            self.0.is_none_or(|end| end > place)
        }
    }

    fn place(micros: i64) -> OrderKey {
        OrderKey::first_at(Timestamp::from_micros(micros))
    }

    struct Desk {
        bus: Bus,
        conversation: ConversationId,
        joined: SingleFlight<Until>,
        reads: AtomicUsize,
    }

    impl Desk {
        fn open() -> Self {
            Self {
                bus: Bus::default(),
                conversation: ConversationId::random(),
                joined: SingleFlight::default(),
                reads: AtomicUsize::new(0),
            }
        }

        async fn ask(&self, from: i64, since: Sequence, end: Option<i64>) {
            let question = ReadKey {
                conversation: self.conversation,
                from: place(from),
                since,
                now: self.bus.sequence(),
            };
            let read = |_| async {
                self.reads.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok(Until(end.map(place)))
            };
            self.joined.read(question, read).await.unwrap();
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_crowd_reads_once_and_who_is_further_on_reads_with_it() {
        let desk = Desk::open();
        let heard = desk.bus.subscribe(Topic::Conversation(desk.conversation));
        join_all((0..100).map(|number| desk.ask(number % 3, heard.since(), None))).await;
        // One of each that came before the one with the earliest place, at most.
        assert!(desk.reads() <= 1, "{} reads", desk.reads());
        desk.ask(7, heard.since(), None).await;
        assert_eq!(desk.reads(), 1);
    }

    #[tokio::test]
    async fn nobody_rests_on_a_read_from_before_something_was_told_that_they_did_not_hear() {
        let desk = Desk::open();
        let topic = Topic::Conversation(desk.conversation);
        let first = desk.bus.subscribe(topic.clone());
        desk.ask(0, first.since(), None).await;
        desk.bus.invalidate(&topic);
        let second = desk.bus.subscribe(topic.clone());
        desk.ask(0, second.since(), None).await;
        assert_eq!(desk.reads(), 2);
        // Nor where nobody listened for a while.
        drop((first, second));
        let third = desk.bus.subscribe(topic);
        desk.ask(0, third.since(), None).await;
        assert_eq!(desk.reads(), 3);
    }

    #[tokio::test]
    async fn what_ends_before_ones_place_is_read_anew() {
        let desk = Desk::open();
        let heard = desk.bus.subscribe(Topic::Conversation(desk.conversation));
        tokio::join!(
            desk.ask(0, heard.since(), Some(5)),
            desk.ask(6, heard.since(), None)
        );
        assert_eq!(desk.reads(), 2);
        desk.ask(4, heard.since(), Some(9)).await;
        assert_eq!(desk.reads(), 2);
    }
}
