//! Transient faults: a lack of descriptors or of disk space, after which the engine can be opened anew.
//!
//! Any other fault is not: after EIO nobody knows which bytes the disk has. The engine refuses all writes after the failure of
//! one of its background threads, and tells the cause to its log alone. So this module reads that log.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::io::Errno;

use crate::store::Cause;

/// Error number of the last background thread or sync that failed since the engine was opened. 0 for any other fault.
static WORKER_ERROR: AtomicI32 = AtomicI32::new(0);

/// Parts of the engine's log lines about them, and the error number in it.
const FAILED: [&str; 2] = [" crashed: ", "persist failed, "];
const NUMBER: &str = "Os { code: ";

struct EngineLog;

impl Log for EngineLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() == Level::Error && metadata.target().starts_with("fjall")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        if let Some(error) = failure_in(&text) {
            WORKER_ERROR.store(error_number(error), Ordering::SeqCst);
            tracing::warn!(
                error,
                "a background thread or a sync of the storage engine failed"
            );
        }
    }

    fn flush(&self) {}
}

/// Error of a background thread or a sync, in a line of the engine's log.
fn failure_in(line: &str) -> Option<&str> {
    let parts = FAILED.iter().find_map(|begin| line.split_once(begin));
    parts.map(|(_, error)| error)
}

fn error_number(error: &str) -> i32 {
    let number = error.split_once(NUMBER).and_then(|(_, rest)| {
        let end = rest.find(|char: char| !char.is_ascii_digit())?;
        rest[..end].parse().ok()
    });
    number.unwrap_or_default()
}

/// Reads the engine's log from now on, and forgets what it said of an engine that was closed.
pub(super) fn listen() {
    WORKER_ERROR.store(0, Ordering::SeqCst);
    // Another store of this process has done it.
    if log::set_logger(&EngineLog).is_ok() {
        log::set_max_level(LevelFilter::Error);
    }
}

/// Whether a commit failed for want of descriptors or space.
pub(crate) fn is_transient(cause: &Cause) -> bool {
    match cause.downcast_ref::<fjall::Error>() {
        Some(fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error))) => {
            is_shortage(error)
        }
        Some(fjall::Error::Poisoned) => is_shortage(&io::Error::from_raw_os_error(
            WORKER_ERROR.load(Ordering::SeqCst),
        )),
        _ => false,
    }
}

/// Whether a commit was refused before it wrote anything.
pub(crate) fn is_not_done(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(fjall::Error::Poisoned))
}

/// Whether the system lacks descriptors or disk space.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    number.is_some_and(|number| {
        [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::DQUOT].contains(&number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_from_damage() {
        let cause = |number| -> Cause {
            let error = io::Error::from_raw_os_error(number);
            Box::new(fjall::Error::Storage(fjall::LsmError::Io(error)))
        };
        for (errno, is_shortage) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::IO, false),
            (Errno::ROFS, false),
        ] {
            assert_eq!(is_transient(&cause(errno.raw_os_error())), is_shortage);
        }
        let other: Cause = Box::new(fjall::Error::Unrecoverable);
        assert!(!is_transient(&other));
    }

    #[test]
    fn the_engine_names_the_error_of_a_background_thread() {
        let error = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        for error in [
            fjall::Error::Io(io::Error::from_raw_os_error(24)),
            fjall::Error::Storage(fjall::LsmError::Io(error)),
        ] {
            // As the engine writes it.
            for line in [
                format!("Worker #1 crashed: {error:?}"),
                format!(
                    "persist failed, which is a FATAL, and possibly hardware-related, failure: {error:?}"
                ),
            ] {
                assert_eq!(failure_in(&line).map(error_number), Some(24), "{line}");
            }
        }
        assert_eq!(
            error_number(&format!("{:?}", fjall::Error::Unrecoverable)),
            0
        );
    }
}
