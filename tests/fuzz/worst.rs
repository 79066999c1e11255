//! The worst documents cost little more than their text does. `cargo bench -- documents` prints the figures.

use std::time::{Duration, Instant};

use async_graphql::Variables;
use wideroom::graphql::OperationExecutor as _;
use wideroom::model::UserId;

use crate::support::world::World;
use crate::support::worst::documents;

/// The best of so many tries: the machine may be busy.
const TRIES: usize = 5;
/// Without optimisation, and beside other tests, all of it is far slower.
const MOST: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(3)
} else {
    Duration::from_millis(50)
};
const ERRORS_MAX: usize = 1_000;

#[tokio::test]
async fn the_worst_documents_are_refused_in_no_time() {
    let world = World::with_sample().await;
    let alice = UserId::parse("alice").unwrap();
    for (what, text) in documents() {
        let mut best = Duration::MAX;
        for attempt in 0..TRIES {
            // Another text each time, which no cache knows.
            let text = format!("{text}#{attempt}");
            let start = Instant::now();
            if let Ok(prepared) = world.api.prepare(&text, None) {
                let response = world
                    .api
                    .execute(
                        &prepared,
                        Variables::default(),
                        Some(alice.clone().into()),
                        Default::default(),
                    )
                    .await;
                best = best.min(start.elapsed());
                let answer = serde_json::to_string(&response).unwrap();
                assert!(!answer.contains("INTERNAL"), "{what}: {answer}");
                assert!(
                    response.errors.len() < ERRORS_MAX,
                    "{what}: {} errors",
                    response.errors.len()
                );
            }
            best = best.min(start.elapsed());
        }
        assert!(best < MOST, "{what}: {best:?} for {} bytes", text.len());
    }
}
