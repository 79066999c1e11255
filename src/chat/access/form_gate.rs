//! Gate of a rolling upgrade: new forms are written only once every server can read them.
//!
//! The version only grows, so an open gate reads nothing. A closed one reads the store at most every two
//! seconds, whatever the number of callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::chat::error::{Error, Result};
use crate::store::{FormVersion, Store};

const READ_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct FormGate {
    store: Arc<dyn Store>,
    last_read: Mutex<Option<FormRead>>,
}

#[derive(Debug, Clone, Copy)]
struct FormRead {
    version: FormVersion,
    at: Instant,
}

impl FormRead {
    /// Whether forms of a version may be written. `None` if only another read can tell.
    fn decide(&self, needed: FormVersion) -> Option<bool> {
        let is_open = self.version >= needed;
        (is_open || self.at.elapsed() < READ_EVERY).then_some(is_open)
    }
}

impl FormGate {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            last_read: Mutex::new(None),
        }
    }

    /// The rule of every mutation that writes a form of this version.
    pub(crate) async fn require(&self, needed: FormVersion) -> Result<()> {
        if self.is_open(needed).await? {
            Ok(())
        } else {
            Err(Error::UpgradeNotFinished)
        }
    }

    /// Whether forms of this version may be written.
    pub(crate) async fn is_open(&self, needed: FormVersion) -> Result<bool> {
        let mut last = self.last_read.lock().await;
        let decided = last.as_ref().and_then(|read| read.decide(needed));
        if let Some(is_open) = decided {
            return Ok(is_open);
        }
        let at = Instant::now();
        let version = self.store.form_version().await?;
        *last = Some(FormRead { version, at });
        Ok(version >= needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_is_read_again_after_a_while_and_an_open_one_never() {
        let read = FormRead {
            version: FormVersion(8),
            at: Instant::now(),
        };
        assert_eq!(read.decide(FormVersion(8)), Some(true));
        assert_eq!(read.decide(FormVersion(9)), Some(false));
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(read.decide(FormVersion(8)), Some(true));
        assert_eq!(read.decide(FormVersion(9)), None);
    }
}
