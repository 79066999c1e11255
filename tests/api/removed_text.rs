//! Files of the embedded store: removed text leaves them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clocked_server::{ClockedServer, pass};

/// Seconds of the store's maintenance between two looks at the files, and looks until the test gives up.
const SECONDS: usize = 61;
const LOOKS_MAX: usize = 200;
const HOUR: i64 = 3_600;

async fn erase(server: &ClockedServer, user: &str) {
    let service = server.door.service();
    let document = "mutation($u: String!) { eraseUser(input: {username: $u}) { job { id } } }";
    let begun = server.data(&service, document, json!({ "u": user })).await;
    let id = begun["eraseUser"]["job"]["id"].clone();
    let document = "query($i: ID!) { node(id: $i) { ... on Job { state } } }";
    loop {
        let job = server.data(&service, document, json!({ "i": id })).await;
        match job["node"]["state"].as_str() {
            Some("RUNNING") => tokio::task::yield_now().await,
            state => return assert_eq!(state, Some("DONE")),
        }
    }
}

/// A text that no file has by chance, and no four bytes of it: the engine does not compress it.
fn secret() -> String {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let chars = bytes.chunks(2).map(|pair| {
        let number = u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        char::from_u32(0x4e00 + number % 0x5000)
    });
    chars.map(Option::unwrap).collect()
}

#[tokio::test]
async fn two_hours_after_its_removal_no_file_holds_a_text() {
    let server = ClockedServer::new().await;
    let [alice, erin] = ["alice", "erin"].map(|name| server.door.user(name));
    let [erased, truncated, expired, living] = std::array::from_fn(|_| secret());
    let removed = [&erased, &truncated, &expired];
    let [common, cut, short]: [Value; 3] = [
        server.group(&alice, &["erin"]).await,
        server.group(&alice, &["bob"]).await,
        server.group(&alice, &["bob"]).await,
    ];
    server.send(&erin, &common, &erased).await;
    let last = server.send(&alice, &cut, &truncated).await;
    server.send(&alice, &cut, &living).await;
    let expire = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, messageTtlSeconds: 60}) { conversation { id } } }";
    server.data(&alice, expire, json!({ "c": short })).await;
    server.send(&alice, &short, &expired).await;
    let truncate = "mutation($c: ID!, $m: ID!) { truncateConversation(input: {conversationId: $c, upToMessageId: $m}) { conversation { id } } }";
    server
        .data(&alice, truncate, json!({"c": cut, "m": last}))
        .await;

    server.set_ahead(3 * HOUR);
    erase(&server, "erin").await;
    server.chat.removals.worker().pass().await.unwrap();
    for text in [&erased, &truncated, &expired, &living] {
        assert!(server.has_on_disk(text), "the store overwrites nothing");
    }
    // A restart forgets no rewrite.
    let server = server.restarted().await;
    server.set_ahead(2 * HOUR);
    let mut looks = 0;
    while removed.iter().any(|text| server.has_on_disk(text)) {
        assert!(looks < LOOKS_MAX, "the files are not rewritten");
        looks += 1;
        for _ in 0..SECONDS {
            pass(Duration::from_secs(1)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(server.has_on_disk(&living));
}
