//! Waiting for something that takes seconds: with a deadline, and a line where it takes long.

use std::time::{Duration, Instant};

use super::say;

/// Many tests, and other things, may run on the machine meanwhile.
const DEADLINE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SILENT_FOR: Duration = Duration::from_secs(2);
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Waits until there is something. An error ends the waiting, as does the deadline.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let begun = Instant::now();
    let mut says_at = SILENT_FOR;
    loop {
        // What hangs must not outlive the deadline either.
        let left = DEADLINE.saturating_sub(begun.elapsed());
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(Some(there))) => return Ok(there),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(format!("{what}: not in {DEADLINE:?}")),
        }
        if begun.elapsed() >= says_at {
            say(&format!("{what} ({} s)", begun.elapsed().as_secs()));
            says_at += if says_at == SILENT_FOR { SAY_EVERY - SILENT_FOR } else { SAY_EVERY };
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
