//! Tests of the committer over a scripted engine.

use std::collections::HashMap;
use std::sync::mpsc::Sender;

use super::*;
use crate::model::Timestamp;
use crate::store::embedded::engine::{key, record};

/// Content of the engine, shared with the test.
type Rowset = Arc<Mutex<HashMap<Key, Vec<u8>>>>;

/// An engine in memory. Its commits can wait for a signal, and can fail.
#[derive(Default)]
struct Fake {
    rows: Rowset,
    commits: Arc<AtomicUsize>,
    gate: Option<Gate>,
    is_broken: bool,
}

struct Gate {
    entered: Sender<()>,
    go: Receiver<()>,
}

impl Engine for Fake {
    fn get(&self, key: &Key) -> Result<Option<Slice>> {
        Ok(self
            .rows
            .lock()
            .get(key)
            .map(|value| Slice::from(value.as_slice())))
    }

    fn commit(&mut self, rows: Rows) -> Result<(), Cause> {
        if let Some(gate) = &self.gate {
            gate.entered.send(()).unwrap();
            gate.go.recv().unwrap();
        }
        if self.is_broken {
            return Err("the disk is gone".into());
        }
        let mut held = self.rows.lock();
        for (key, value) in rows {
            match value {
                Some(value) => drop(held.insert(key, value)),
                None => drop(held.remove(&key)),
            }
        }
        self.commits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn note(&mut self, _number: u64) {}

    fn sync(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}

fn start(fake: Fake) -> Committer {
    Committer::start(fake, CommitRecord::default()).unwrap()
}

/// Starts a committer whose first commit waits for a signal: writes submitted meanwhile form one group.
fn start_gated(
    fake: Fake,
) -> (
    Committer,
    oneshot::Receiver<Result<CommitOutcome>>,
    Sender<()>,
) {
    let (entered, has_entered) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let committer = start(Fake {
        gate: Some(Gate {
            entered,
            go: may_go,
        }),
        ..fake
    });
    let first = committer.submit(put("first", "1")).unwrap();
    has_entered.recv_timeout(Duration::from_secs(10)).unwrap();
    // Later commits do not wait.
    std::thread::spawn(move || while has_entered.recv().is_ok() {});
    (committer, first, go)
}

fn key(name: &str) -> Key {
    key::note(name)
}

fn put(name: &str, value: &str) -> Write {
    Write {
        ops: vec![Op::Put(key(name), value.into())],
        ..Write::default()
    }
}

fn put_if(condition: Condition, name: &str, value: &str) -> Write {
    Write {
        conditions: vec![condition],
        ..put(name, value)
    }
}

async fn answer_of(answer: oneshot::Receiver<Result<CommitOutcome>>) -> Result<CommitOutcome> {
    tokio::time::timeout(Duration::from_secs(10), answer)
        .await
        .expect("an answer in time")
        .expect("an answer")
}

#[tokio::test]
async fn a_group_is_one_commit_and_its_conditions_see_what_it_writes() {
    let fake = Fake::default();
    let (rows, commits) = (fake.rows.clone(), fake.commits.clone());
    let (committer, first, go) = start_gated(fake);
    let made = committer
        .submit(put_if(Condition::Absent(key("a")), "a", "1"))
        .unwrap();
    let taken = committer
        .submit(put_if(Condition::Absent(key("a")), "a", "2"))
        .unwrap();
    let moved = committer
        .submit(put_if(Condition::Is(key("a"), b"1".to_vec()), "a", "3"))
        .unwrap();
    let deleted = committer
        .submit(Write {
            ops: vec![Op::Delete(key("first"))],
            ..Write::default()
        })
        .unwrap();
    let stale = committer
        .submit(put_if(Condition::Is(key("first"), b"1".to_vec()), "b", "1"))
        .unwrap();
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(answer_of(first).await.unwrap(), CommitOutcome::Done);
    assert_eq!(answer_of(made).await.unwrap(), CommitOutcome::Done);
    assert_eq!(answer_of(taken).await.unwrap(), CommitOutcome::Refused);
    assert_eq!(answer_of(moved).await.unwrap(), CommitOutcome::Done);
    assert_eq!(answer_of(deleted).await.unwrap(), CommitOutcome::Done);
    assert_eq!(answer_of(stale).await.unwrap(), CommitOutcome::Refused);
    let rows = rows.lock();
    assert_eq!(rows.get(&key("a")).unwrap(), b"3");
    assert!(!rows.contains_key(&key("first")) && !rows.contains_key(&key("b")));
    assert_eq!(commits.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn who_is_refused_finds_what_was_in_the_way() {
    let fake = Fake::default();
    let rows = fake.rows.clone();
    let (committer, first, go) = start_gated(fake);
    let _made = committer
        .submit(put_if(Condition::Absent(key("a")), "a", "1"))
        .unwrap();
    let mut refused = committer
        .submit(put_if(Condition::Absent(key("a")), "a", "2"))
        .unwrap();
    go.send(()).unwrap();
    answer_of(first).await.unwrap();
    // The group of the two waits for its signal.
    assert!(refused.try_recv().is_err());
    go.send(()).unwrap();
    assert_eq!(answer_of(refused).await.unwrap(), CommitOutcome::Refused);
    assert!(rows.lock().contains_key(&key("a")));
}

#[tokio::test]
async fn a_maximum_never_goes_back() {
    let fake = Fake::default();
    let rows = fake.rows.clone();
    let committer = start(fake);
    for value in ["b", "c", "a"] {
        let write = Write {
            ops: vec![
                Op::Max(key("m"), value.into()),
                Op::Put(key("last"), value.into()),
            ],
            ..Write::default()
        };
        assert_eq!(committer.commit(write).await.unwrap(), CommitOutcome::Done);
    }
    assert_eq!(rows.lock().get(&key("m")).unwrap(), b"c");
    assert_eq!(rows.lock().get(&key("last")).unwrap(), b"a");
}

#[tokio::test]
async fn what_follows_a_commit_is_done_before_its_acknowledgement_and_in_order() {
    let (committer, first, go) = start_gated(Fake::default());
    let order = Arc::new(Mutex::new(Vec::new()));
    let answers: Vec<_> = (0..20)
        .map(|n| {
            let order = order.clone();
            let applied: Box<dyn FnOnce() + Send> = Box::new(move || order.lock().push(n));
            committer
                .submit(Write {
                    applied: Some(applied),
                    ..put("x", "1")
                })
                .unwrap()
        })
        .collect();
    go.send(()).unwrap();
    go.send(()).unwrap();
    answer_of(first).await.unwrap();
    for (n, answer) in answers.into_iter().enumerate() {
        answer_of(answer).await.unwrap();
        assert!(order.lock().contains(&n));
    }
    assert!(order.lock().is_sorted());
}

#[tokio::test]
async fn a_commit_that_fails_ends_all_writing() {
    let (committer, first, go) = start_gated(Fake {
        is_broken: true,
        ..Fake::default()
    });
    let waiting = committer.submit(put("a", "1")).unwrap();
    go.send(()).unwrap();
    assert!(matches!(
        answer_of(first).await,
        Err(Error::OutcomeUnknown(_))
    ));
    // The write did not begin, so its outcome is known.
    assert!(matches!(
        answer_of(waiting).await,
        Err(Error::Unavailable(_))
    ));
    assert!(matches!(
        committer.commit(put("a", "1")).await,
        Err(Error::Unavailable(_))
    ));
    assert!(committer.health().unwrap_err().contains("the disk is gone"));
    assert!(committer.close().is_err());
}

#[tokio::test]
async fn a_full_queue_refuses_by_number_and_by_bytes() {
    let (committer, first, go) = start_gated(Fake::default());
    let waiting: Vec<_> = (0..QUEUE_MAX)
        .map(|_| committer.submit(put("a", "1")).unwrap())
        .collect();
    assert!(matches!(
        committer.submit(put("a", "1")),
        Err(Error::Unavailable(_))
    ));
    (0..=waiting.len()).for_each(|_| go.send(()).unwrap());
    answer_of(first).await.unwrap();
    for answer in waiting {
        assert_eq!(answer_of(answer).await.unwrap(), CommitOutcome::Done);
    }

    let (committer, _first, go) = start_gated(Fake::default());
    let big = "x".repeat(QUEUE_BYTES_MAX - 10_000);
    let _waiting = committer.submit(put("a", &big)).unwrap();
    assert!(matches!(
        committer.submit(put("b", &big)),
        Err(Error::Unavailable(_))
    ));
    committer.submit(put("c", "1")).unwrap();
    (0..3).for_each(|_| go.send(()).unwrap());
}

#[tokio::test]
async fn closing_writes_what_waits_and_then_takes_nothing() {
    let fake = Fake::default();
    let rows = fake.rows.clone();
    let (committer, first, go) = start_gated(fake);
    let waiting = committer.submit(put("a", "1")).unwrap();
    go.send(()).unwrap();
    go.send(()).unwrap();
    committer.close().unwrap();
    answer_of(first).await.unwrap();
    answer_of(waiting).await.unwrap();
    assert!(rows.lock().contains_key(&key("a")));
    assert!(matches!(
        committer.submit(put("b", "1")),
        Err(Error::Unavailable(_))
    ));
    assert!(committer.health().is_err());
}

#[tokio::test]
async fn the_newest_id_and_the_number_go_with_the_commit() {
    let fake = Fake::default();
    let rows = fake.rows.clone();
    let committer = start(fake);
    let id = |micros| TimeUuid::new(Timestamp::from_micros(micros), [0; 8]);
    for micros in [7, 5] {
        let write = Write {
            newest_id: Some(id(micros)),
            ..put("a", "1")
        };
        committer.commit(write).await.unwrap();
    }
    assert_eq!(committer.newest_id(), Some(id(7)));
    let commit: CommitRecord =
        record::decode(rows.lock().get(&key::meta(COMMIT)).unwrap()).unwrap();
    assert_eq!(
        commit,
        CommitRecord {
            number: 2,
            newest_id: Some(id(7))
        }
    );
}
