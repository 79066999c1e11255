//! An import around a store: order, resumption, refusals.

use std::fmt::Write as _;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::clock::SystemClock;
use crate::model::{ConversationId, MessageId, Timestamp};
use crate::store::embedded::{Embedded, Options};
use crate::store::{InterceptedStore, StoreFuture, StoreInterceptor, StoreOperation};

const CONVERSATION: &str = "550e8400-e29b-41d4-a716-446655440001";

/// Interceptor of an import: it lets so many batches through, and counts the counts of messages.
struct Faults {
    batches_left: AtomicUsize,
    counted: AtomicUsize,
}

impl StoreInterceptor for Faults {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let is_full = operation.name() == "import"
            && self
                .batches_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_err();
        if is_full {
            let error = store::Error::Unavailable("the disk is full".into());
            return Box::pin(async { Err(error) });
        }
        if operation.name() == "count_imported" {
            self.counted.fetch_add(1, Ordering::SeqCst);
        }
        answer
    }
}

struct World {
    store: Arc<InterceptedStore<Arc<Faults>>>,
    faults: Arc<Faults>,
    /// Folder in which an import leaves what waits.
    dir: tempfile::TempDir,
    #[expect(dead_code, reason = "its drop removes the folder")]
    data: tempfile::TempDir,
    heard: Vec<String>,
    stop: CancellationToken,
    /// Cancels `stop` once so many progresses were told.
    stop_after: usize,
}

impl World {
    async fn new() -> Self {
        let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(data.path())
        };
        let embedded = Embedded::open(options, Arc::new(SystemClock))
            .await
            .unwrap();
        let faults = Arc::new(Faults {
            batches_left: AtomicUsize::new(usize::MAX),
            counted: AtomicUsize::new(0),
        });
        let store = InterceptedStore::before(Arc::new(embedded), Arc::clone(&faults));
        Self {
            store: Arc::new(store),
            faults,
            dir,
            data,
            heard: Vec::new(),
            stop: CancellationToken::new(),
            stop_after: usize::MAX,
        }
    }

    async fn file(&mut self, text: &str) -> Result<ImportOutcome, Error> {
        self.heard.clear();
        let path = self.dir.path().join("input");
        std::fs::write(&path, text).unwrap();
        let dir = self.dir.path().to_owned();
        let import = Import {
            store: self.store.clone(),
            clock: Arc::new(SystemClock),
            dir,
            is_lossy: false,
            stop: self.stop.clone(),
        };
        let (heard, mut left) = (&mut self.heard, self.stop_after);
        let stop = self.stop.clone();
        let mut tell = |told: ImportReport<'_>| match told {
            ImportReport::Resumed(progress) => {
                heard.push(format!("resumed after {}", progress.lines))
            }
            ImportReport::Broken(fault) => {
                heard.push(format!("line {}: {}", fault.line, fault.reason))
            }
            ImportReport::Counting { .. } => {}
            ImportReport::Progress(_) => {
                left -= 1;
                if left == 0 {
                    stop.cancel();
                }
            }
        };
        import.file(File::open(path).unwrap(), &mut tell).await
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.dir.path()).unwrap().count()
    }

    /// Number of messages in the store.
    async fn messages(&self) -> usize {
        let conversation = ConversationId(CONVERSATION.parse().unwrap());
        let all = self.store.all_messages(conversation, None, 10_000).await;
        all.unwrap().len()
    }

    /// Forgets the time of the last import. Returns whether there was one.
    async fn forget_time(&self) -> bool {
        let time = self.store.note(store::NOTE_IMPORTED_AT).await.unwrap();
        self.store
            .set_note(store::NOTE_IMPORTED_AT, None)
            .await
            .unwrap();
        time.is_some()
    }
}

fn conversation() -> String {
    format!(
        "{{\"type\":\"conversation\",\"id\":\"{CONVERSATION}\",\"participants\":[{{\"username\":\"alice\"}}]}}\n"
    )
}

fn messages(count: i64) -> String {
    let mut lines = String::new();
    for number in 0..count {
        let id = MessageId::new(
            Timestamp::from_micros(1_700_000_000_000_000 + number),
            [0; 8],
        );
        let fields = format!(
            r#""conversationId":"{CONVERSATION}","id":"{id}","sender":"alice","body":"{number}""#
        );
        writeln!(lines, "{{\"type\":\"message\",{fields}}}").unwrap();
    }
    lines
}

fn count(added: u64, unchanged: u64) -> Count {
    Count { added, unchanged }
}

#[tokio::test]
async fn importing_twice_changes_nothing() {
    let mut world = World::new().await;
    let text = include_str!("../cli/demo.jsonl");
    let first = world.file(text).await.unwrap().counts;
    assert_eq!(
        (first.users, first.conversations),
        (count(4, 0), count(2, 0))
    );
    assert_eq!(
        (first.participants, first.messages, first.broken_lines),
        (count(6, 0), count(15, 0), 0)
    );
    assert!(
        world.forget_time().await,
        "positions from before an import are none any more"
    );
    let second = world.file(text).await.unwrap().counts;
    assert_eq!(
        (second.users, second.conversations),
        (count(0, 4), count(0, 2))
    );
    assert_eq!(
        (second.participants, second.messages, second.broken_lines),
        (count(0, 6), count(0, 15), 0)
    );
    assert_eq!(world.files(), 1, "nothing waits in the folder any more");
    assert!(
        !world.forget_time().await,
        "where nothing is new, positions stay"
    );
}

#[tokio::test]
async fn lines_may_come_in_any_order() {
    let mut world = World::new().await;
    let outcome = world
        .file(&format!("{}{}", messages(2_500), conversation()))
        .await
        .unwrap();
    assert_eq!(
        (
            outcome.counts.messages,
            outcome.counts.conversations,
            outcome.counts.broken_lines
        ),
        (count(2_500, 0), count(1, 0), 0)
    );
    assert_eq!(world.files(), 1);
    assert_eq!(world.faults.counted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_line_whose_conversation_never_comes_is_named_by_its_number() {
    let mut world = World::new().await;
    let text = format!(
        "{{\"type\":\"user\",\"username\":\"a\"}}\n\n{}",
        messages(2)
    );
    let sentence = format!("conversation {CONVERSATION} is not in the file or in the store");
    // The first run is finished: the second one begins anew.
    for _ in 0..2 {
        let outcome = world.file(&text).await.unwrap();
        assert_eq!(
            world.heard,
            [format!("line 3: {sentence}"), format!("line 4: {sentence}")]
        );
        assert_eq!(outcome.counts.broken_lines, 2);
    }
}

#[tokio::test]
async fn what_the_store_refuses_is_a_broken_line() {
    let mut world = World::new().await;
    let direct = |id: &str| {
        let people = r#"[{"username":"alice"},{"username":"bob"}]"#;
        format!(
            "{{\"type\":\"conversation\",\"kind\":\"DIRECT\",\"id\":\"{id}\",\"participants\":{people}}}\n"
        )
    };
    let other = CONVERSATION.replace("0001", "0002");
    let text = format!("{}{}", direct(CONVERSATION), direct(&other));
    assert_eq!(world.file(&text).await.unwrap().counts.broken_lines, 1);
    assert_eq!(
        world.heard,
        [format!(
            "line 2: these users have another direct conversation already: {CONVERSATION}"
        )]
    );
}

#[tokio::test]
async fn an_import_that_was_stopped_goes_on_where_it_was() {
    let mut world = World::new().await;
    let text = format!("nonsense\n{}{}", messages(3_000), conversation());
    world.stop_after = 2;
    assert!(world.file(&text).await.unwrap().is_interrupted);
    assert_eq!(world.messages().await, 0, "all that was read waits");
    (world.stop, world.stop_after) = (CancellationToken::new(), usize::MAX);
    let outcome = world.file(&text).await.unwrap();
    assert_eq!(
        world.heard,
        ["resumed after 2001"],
        "the broken line was named by the first run"
    );
    assert_eq!(
        (outcome.counts.messages, outcome.counts.broken_lines),
        (count(3_000, 0), 1)
    );
    assert_eq!(world.files(), 1);
}

#[tokio::test]
async fn an_import_that_failed_goes_on_where_it_was() {
    let mut world = World::new().await;
    let text = format!("{}{}", conversation(), messages(3_000));
    world.faults.batches_left.store(2, Ordering::SeqCst);
    assert!(matches!(world.file(&text).await, Err(Error::Store(_))));
    world
        .faults
        .batches_left
        .store(usize::MAX, Ordering::SeqCst);
    let outcome = world.file(&text).await.unwrap();
    assert_eq!(world.heard.len(), 1);
    assert_eq!(outcome.counts.messages, count(3_000, 0));
}

#[tokio::test]
async fn lines_that_waited_and_are_gone_are_read_again() {
    let mut world = World::new().await;
    let text = format!("{}{}", messages(1_500), conversation());
    world.stop_after = 1;
    assert!(world.file(&text).await.unwrap().is_interrupted);
    for entry in std::fs::read_dir(world.dir.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    (world.stop, world.stop_after) = (CancellationToken::new(), usize::MAX);
    assert_eq!(
        world.file(&text).await.unwrap().counts.messages,
        count(1_500, 0)
    );
    assert!(world.heard.is_empty(), "it began anew: {:?}", world.heard);
}

#[tokio::test]
async fn names_that_look_like_others_come_with_an_export_of_ours_alone() {
    let mut world = World::new().await;
    let lines = [
        r#"{"type":"user","username":"bob "}"#,
        r#"{"type":"block","username":"alice","blocked":"\u202ebob","since":"2026-03-15T09:00:00Z"}"#,
        r#"{"type":"participant","conversationId":"550e8400-e29b-41d4-a716-446655440001","username":"\u200b"}"#,
    ]
    .join("\n");
    let text = format!("{}{lines}\n", conversation());
    let outcome = world.file(&text).await.unwrap();
    assert_eq!(outcome.counts.broken_lines, 3, "{:?}", world.heard);
    assert!(world.heard[0].starts_with("line 2: a username must not begin or end with a blank"));
    let (header, end) = (
        r#"{"type":"header","format":2}"#,
        r#"{"type":"end","lines":5}"#,
    );
    let outcome = world
        .file(&format!("{header}\n{text}{end}\n"))
        .await
        .unwrap();
    assert_eq!(outcome.counts.broken_lines, 0, "{:?}", world.heard);
}
