//! Promises of a store on disk: its data survives reopening, and it refuses to open with a clear error.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{OrderKey, PageRequest};
use wideroom::store::embedded::{Embedded, OpenError, Options};
use wideroom::store::{Error, NOTE_EARLIER_STATE, Store, StoreAdmin};

use super::ask::{history, inbox, make, send};
use crate::support::words::{NOW, conversation_id, crowd, id, new, text, users};

fn options(folder: &tempfile::TempDir) -> Options {
    Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    }
}

async fn open(options: Options) -> Result<Embedded, OpenError> {
    Embedded::open(options, Arc::new(ManualClock::at(NOW))).await
}

/// The error, in its words.
async fn refusal(options: Options) -> String {
    open(options)
        .await
        .err()
        .expect("it is refused")
        .to_string()
}

#[tokio::test]
async fn acknowledged_writes_survive_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let people = users(["ann", "ben"]);
    let store = open(options(&folder)).await.unwrap();
    let group = conversation_id(1);
    make(&store, group, &people).await;
    send(&store, group, 1, &people[0]).await;
    let was_closed = [true, false];
    let mut store = store;
    for (n, is_closed) in (2..).zip(was_closed) {
        let before = (
            inbox(&store, &people[1]).await,
            store.newest_id().await.unwrap(),
            store.message_counts(&[group]).await.unwrap(),
        );
        if is_closed {
            store.close().await.unwrap();
        }
        drop(store);
        store = open(options(&folder)).await.unwrap();
        let after = (
            inbox(&store, &people[1]).await,
            store.newest_id().await.unwrap(),
            store.message_counts(&[group]).await.unwrap(),
        );
        assert_eq!(before, after);
        send(&store, group, n, &people[1]).await;
    }
    let kept = history(&store, group).await;
    assert_eq!(kept, [id(3), id(2), id(1)]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_open_is_opened_by_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(options(&folder)).await.unwrap();
    let refusal = refusal(options(&folder)).await;
    assert!(refusal.contains("in use by another wideroom"), "{refusal}");
    assert!(!refusal.contains('\n'));
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_store_that_ends_before_what_it_acknowledged_is_refused_unless_that_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let people = users(["ann", "ben"]);
    let store = open(options(&folder)).await.unwrap();
    let group = conversation_id(1);
    make(&store, group, &people).await;
    store.close().await.unwrap();
    drop(store);
    is_left(&folder).await;

    // As if an older copy of the engine's folder were put back.
    let saved = tempfile::tempdir().unwrap();
    copy(&folder.path().join("db"), &saved.path().join("db"));
    let store = open(options(&folder)).await.unwrap();
    send(&store, group, 1, &people[0]).await;
    store.close().await.unwrap();
    drop(store);
    is_left(&folder).await;
    std::fs::remove_dir_all(folder.path().join("db")).unwrap();
    copy(&saved.path().join("db"), &folder.path().join("db"));

    let refusal = refusal(options(&folder)).await;
    assert!(
        refusal.contains("ends at commit 1, but commit 2 was acknowledged"),
        "{refusal}"
    );
    let store = open(Options {
        accept_loss: true,
        ..options(&folder)
    })
    .await
    .unwrap();
    assert_eq!(store.message_counts(&[group]).await.unwrap(), [0]);
    // The server that starts on it tells clients whose cursors stand after what is lost.
    let note = store.note(NOTE_EARLIER_STATE).await.unwrap();
    assert!(note.is_some());
    store.close().await.unwrap();
    drop(store);
    open(options(&folder)).await.unwrap().close().await.unwrap();
}

/// Waits until the threads of the engine have ended: until then they rename files of its folder.
async fn is_left(folder: &tempfile::TempDir) {
    let lock = std::fs::File::open(folder.path().join("db/lock")).unwrap();
    while lock.try_lock().is_err() {
        tokio::task::yield_now().await;
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let refusal = refusal(Options {
        path: file.join("store"),
        ..options(&folder)
    })
    .await;
    assert!(
        refusal.contains("a-file") && refusal.contains("check the folder"),
        "{refusal}"
    );
}

#[tokio::test]
async fn on_a_full_disk_reads_go_on_and_writes_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let people = users(["ann", "ben"]);
    let store = open(options(&folder)).await.unwrap();
    let group = conversation_id(1);
    make(&store, group, &people).await;
    send(&store, group, 1, &people[0]).await;
    store.close().await.unwrap();
    drop(store);

    let store = open(Options {
        free_bytes_min: u64::MAX,
        ..options(&folder)
    })
    .await
    .unwrap();
    let refused = store
        .append_messages(group, &[new(text(group, id(2), &people[0]))])
        .await;
    assert!(matches!(refused, Err(Error::Unavailable(_))));
    assert!(store.health().unwrap_err().contains("disk"));
    assert_eq!(store.message_counts(&[group]).await.unwrap(), [1]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_closed_store_takes_nothing_more_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(options(&folder)).await.unwrap();
    assert_eq!(store.health(), Ok(()));
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(
        store.set_note("a", Some("b")).await,
        Err(Error::Unavailable(_))
    ));
    assert!(store.health().is_err());
}

#[tokio::test]
async fn the_same_append_again_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(options(&folder)).await.unwrap();
    let people = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(&store, group, &people).await;
    let messages = [1, 2, 3].map(|micros| new(text(group, id(micros), &people[0])));
    store.append_messages(group, &messages[..2]).await.unwrap();
    // As who was not told the outcome does: the same ones, and what came since.
    let audience = store
        .append_messages(group, &messages)
        .await
        .unwrap()
        .audience;
    assert_eq!(audience.users.unwrap().len(), 2);
    assert_eq!(store.message_counts(&[group]).await.unwrap(), [3]);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn caches_agree_with_the_disk_under_many_writers_and_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(options(&folder)).await.unwrap());
    let people = crowd(3);
    let conversations: Vec<_> = (1..=8).map(conversation_id).collect();
    for conversation in &conversations {
        make(&*store, *conversation, &people).await;
        send(&*store, *conversation, 1, &people[0]).await;
    }
    // Without states in memory: the first ones are loaded while others write.
    store.close().await.unwrap();
    drop(store);
    let store = Arc::new(open(options(&folder)).await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for conversation in conversations.clone() {
        let (store, people) = (store.clone(), people.clone());
        tasks.spawn(async move {
            for micros in 2..=60 {
                let sender = &people[usize::try_from(micros % 3).unwrap()];
                send(&*store, conversation, micros, sender).await;
                assert_eq!(
                    store.message_counts(&[conversation]).await.unwrap(),
                    [micros.cast_unsigned()]
                );
                assert_eq!(
                    store.last_messages(&[conversation]).await.unwrap(),
                    [Some(id(micros))]
                );
            }
        });
    }
    for _ in 0..4 {
        let (store, people, conversations) = (store.clone(), people.clone(), conversations.clone());
        tasks.spawn(async move {
            for _ in 0..40 {
                let page = store
                    .inbox(&people[0], &PageRequest::first(8))
                    .await
                    .unwrap();
                assert_eq!(
                    page.items.len(),
                    conversations.len(),
                    "each conversation stands once, whatever moves meanwhile"
                );
                assert!(page.items.is_sorted_by_key(|row| row.key()));
                let changed = store
                    .inbox_changes(&people[1], OrderKey::MIN, 100)
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(changed.len(), conversations.len());
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let store = open(options(&folder)).await.unwrap();
    assert_eq!(store.message_counts(&conversations).await.unwrap(), [60; 8]);
    store.close().await.unwrap();
}
