//! Cost of an operation on a real store and a busy machine, in statements or in time: the least of several runs.
//!
//! A run may also pay for background tasks of the server, for what an earlier run left to do, or for other processes. None of these makes it
//! cheaper.

use std::time::Duration;

/// Runs that count background tasks: these run beside some of them only.
const RUNS_MIN: usize = 4;
/// Runs go on while none is within the bound. A case may prepare as many inputs.
pub(crate) const RUNS_MAX: usize = 10;
/// Pauses before the further runs grow by this, so that what an earlier run left is done at last.
const PAUSE: Duration = Duration::from_millis(250);

/// The least advance of a counter in several runs of an operation, which gets the number of the run.
pub(crate) async fn least_cost(
    counter: impl Fn() -> u64,
    most: u64,
    mut operation: impl AsyncFnMut(usize),
) -> u64 {
    let measure = async |number| {
        let before = counter();
        operation(number).await;
        counter() - before
    };
    least(RUNS_MIN, most, measure).await
}

/// The least measure of one run, or of several where the first one is not within the bound.
pub(crate) async fn least_time(
    most: Duration,
    measure: impl AsyncFnMut(usize) -> Duration,
) -> Duration {
    least(1, most, measure).await
}

async fn least<T: Ord>(runs_min: usize, most: T, mut measure: impl AsyncFnMut(usize) -> T) -> T {
    let mut least = measure(0).await;
    for number in 1..RUNS_MAX {
        if number >= runs_min {
            if least <= most {
                break;
            }
            let pauses = u32::try_from(number - runs_min + 1).unwrap();
            tokio::time::sleep(PAUSE * pauses).await;
        }
        least = least.min(measure(number).await);
    }
    least
}
