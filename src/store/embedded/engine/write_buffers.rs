//! Write buffers (memtables) of the engine, freed outside its locks.
//!
//! The engine frees a flushed buffer while it holds the lock that each insert takes. 8 MiB in small
//! pieces take 50 to 100 ms, in which nothing is committed. So the committer holds each buffer until
//! the engine has let go of it, and a thread frees it.

use std::any::Any;
use std::mem::replace;
use std::sync::Arc;

use super::db::Db;

/// Buffer of a keyspace. The engine does not name its type.
pub(super) type WriteBuffer = Arc<dyn Any + Send + Sync>;

pub(crate) struct WriteBuffers {
    /// The buffers that take writes, one for each keyspace.
    active: Vec<WriteBuffer>,
    /// Those before them that the engine flushes, or that a snapshot reads.
    full: Vec<WriteBuffer>,
}

impl WriteBuffers {
    pub(crate) fn of(db: &Db) -> Self {
        Self {
            active: db.write_buffers(),
            full: Vec::new(),
        }
    }

    /// Takes hold of new buffers, and frees those that nobody else holds. Call it after each commit.
    pub(crate) fn follow(&mut self, db: &Db) {
        for (active, now) in self.active.iter_mut().zip(db.write_buffers()) {
            if !Arc::ptr_eq(active, &now) {
                self.full.push(replace(active, now));
            }
        }
        let is_flushed = |buffer: &mut WriteBuffer| Arc::strong_count(buffer) == 1;
        let flushed: Vec<_> = self.full.extract_if(.., is_flushed).collect();
        if !flushed.is_empty() {
            let thread = std::thread::Builder::new().name("wideroom-free".to_owned());
            // An error drops the closure, and frees the buffers on this thread.
            drop(thread.spawn(move || drop(flushed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::store::embedded::engine::key;

    #[test]
    fn a_full_buffer_outlives_its_flush_and_is_freed_by_a_thread() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path(), 1 << 20).unwrap();
        let mut buffers = WriteBuffers::of(&db);
        let row = key::meta("row");
        let index = row.table as usize;
        let commit = || db.commit([(row.clone(), Some(vec![1]))]).unwrap();
        commit();
        buffers.follow(&db);
        let first = Arc::downgrade(&buffers.active[index]);

        db.flush_all().unwrap();
        assert!(first.strong_count() > 0, "it outlives its flush");
        let began = Instant::now();
        while first.strong_count() > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "it is kept");
            commit();
            // A rotation lets the engine forget buffers that it has flushed.
            db.flush_all().unwrap();
            buffers.follow(&db);
        }
    }
}
