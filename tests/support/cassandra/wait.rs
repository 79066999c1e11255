//! Waiting for something that takes seconds: with a deadline, and a line where it takes long.

use std::time::{Duration, Instant};

use super::say;

/// Many tests, and other things, may run on the machine meanwhile.
const DEADLINE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SILENT_FOR: Duration = Duration::from_secs(2);
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Why there is nothing.
pub(super) enum Not {
    Yet(String),
    Ever(String),
}

/// Waits until there is something, or will never be, or the deadline has come.
pub(super) async fn until<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, Not>,
) -> Result<T, String> {
    let begun = Instant::now();
    let mut says_at = SILENT_FOR;
    let mut last = "nothing was heard".to_owned();
    loop {
        // The deadline also ends an attempt that hangs.
        let left = DEADLINE.saturating_sub(begun.elapsed());
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(there)) => return Ok(there),
            Ok(Err(Not::Yet(reason))) => last = reason,
            Ok(Err(Not::Ever(reason))) => return Err(reason),
            Err(_) => return Err(format!("{what}: not in {DEADLINE:?}: {last}")),
        }
        if begun.elapsed() >= says_at {
            say(&format!("{what} ({} s)", begun.elapsed().as_secs()));
            says_at += if says_at == SILENT_FOR {
                SAY_EVERY - SILENT_FOR
            } else {
                SAY_EVERY
            };
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
