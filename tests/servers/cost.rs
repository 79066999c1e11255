//! Cost of polling for the writes of other servers.

use std::time::Duration;

use super::pair::{people, two};

/// Slots of ten seconds that meet what a look reads: a minute back at most, as a rule two or three.
const SLOTS_MAX: u64 = 4;
const SHARDS: u64 = 16;

/// However many listen, a look reads the wakes and nothing else while nobody writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_with_a_thousand_listeners_reads_wakes_only() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let mut streams = Vec::new();
    for number in 0..1_000 {
        let [user] = people([format!("idle{number}").as_str()]);
        streams.push(one.chat.streams.inbox(&user, None).await.unwrap());
    }
    const SECONDS: u64 = 10;
    let before = one.cql.statements_sent();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let statements = one.cql.statements_sent() - before;
    println!("idle, 1,000 topics: {statements} statements in {SECONDS} s");
    // One look more, and a few looks at the clock.
    assert!(
        statements <= (SECONDS + 1) * SHARDS * SLOTS_MAX + 5,
        "{statements} statements"
    );
    drop(streams);
}
