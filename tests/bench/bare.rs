//! The engine's own group commit, without us: one thread gathers what waits, writes one batch, syncs, and acknowledges.
//!
//! It writes rows of the number and the sizes that a send of ours writes in a conversation of two, and reads nothing.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::world::{body, client_key};

const QUEUE_MAX: usize = 512;
const GROUP_MAX: usize = 512;

/// In which keyspace, the key, and the value or that the key is to go.
type Row = (usize, Vec<u8>, Option<Vec<u8>>);

const KEYSPACES: [&str; 5] = ["messages", "heads", "inbox", "activity", "rows"];
const MESSAGES: usize = 0;
const HEADS: usize = 1;
const INBOX: usize = 2;
const ACTIVITY: usize = 3;
const ROWS: usize = 4;

struct Request {
    rows: Vec<Row>,
    done: oneshot::Sender<()>,
}

pub struct Bare {
    queue: mpsc::Sender<Request>,
    _folder: TempDir,
}

impl Bare {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::builder(folder.path())
            .cache_size(64 << 20)
            .max_journaling_size(128 << 20)
            .open()
            .unwrap();
        let options = || KeyspaceCreateOptions::default().max_memtable_size(16 << 20);
        let keyspaces = KEYSPACES.map(|name| database.keyspace(name, options).unwrap());
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        std::thread::spawn(move || commit(&database, &keyspaces, requests));
        Self {
            queue,
            _folder: folder,
        }
    }

    /// Returns when it is on disk.
    pub async fn send(&self, rows: Vec<Row>) {
        let (done, answer) = oneshot::channel();
        assert!(
            self.queue.send(Request { rows, done }).await.is_ok(),
            "the writer lives as long as this"
        );
        answer.await.unwrap();
    }
}

fn commit(
    database: &Database,
    keyspaces: &[Keyspace; KEYSPACES.len()],
    mut requests: mpsc::Receiver<Request>,
) {
    let mut number = 0_u64;
    while let Some(first) = requests.blocking_recv() {
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(Request { rows, done }) = next {
            for (keyspace, key, value) in rows {
                match value {
                    Some(value) => batch.insert(&keyspaces[keyspace], key, value),
                    None => batch.remove(&keyspaces[keyspace], key),
                }
            }
            waiting.push(done);
            next = if waiting.len() < GROUP_MAX {
                requests.try_recv().ok()
            } else {
                None
            };
        }
        number += 1;
        batch.insert(
            &keyspaces[ROWS],
            "\0commit",
            [number.to_be_bytes(), [0; 8], [0; 8]].concat(),
        );
        batch.commit().unwrap();
        for done in waiting {
            let _ = done.send(());
        }
    }
}

/// One sender in one conversation of two.
pub struct Sender {
    conversation: Uuid,
    sender: String,
    peer: String,
}

impl Sender {
    pub fn new(number: usize) -> Self {
        Self {
            conversation: Uuid::new_v4(),
            sender: format!("user{number}"),
            peer: "hub".to_owned(),
        }
    }

    /// Rows that the send of this number writes.
    pub fn rows(&self, number: u64) -> Vec<Row> {
        let conversation = self.conversation.as_bytes().as_slice();
        let place = (u128::from(number) << 64 | 7).to_be_bytes();
        // The newest first, as ours lie.
        let turned = place.map(|byte| !byte);
        let [sender, peer] =
            [&self.sender, &self.peer].map(|name| [name.as_bytes(), &[0]].concat());
        let (client_key, body) = (client_key(number), body(number));
        let message = [
            &[1, 5],
            sender.as_slice(),
            &[0, 0, 1, 36],
            client_key.as_bytes(),
            &[1, 60],
            body.as_bytes(),
            &[0; 3],
        ]
        .concat();
        let retry = [&[4], conversation, sender.as_slice(), client_key.as_bytes()].concat();
        let expiry = [&[6; 10], retry.as_slice()].concat();
        let activity = |name: &[u8], number: u64| {
            [name, (!number).to_be_bytes().as_slice(), conversation].concat()
        };
        vec![
            (MESSAGES, [conversation, &turned].concat(), Some(message)),
            (ROWS, retry, Some(vec![1; 58])),
            (ROWS, expiry, Some(Vec::new())),
            (
                INBOX,
                [sender.as_slice(), conversation, &[1]].concat(),
                Some([&[1], place.as_slice()].concat()),
            ),
            (ACTIVITY, activity(&sender, number.wrapping_sub(1)), None),
            (ACTIVITY, activity(&sender, number), Some(Vec::new())),
            (ACTIVITY, activity(&peer, number.wrapping_sub(1)), None),
            (ACTIVITY, activity(&peer, number), Some(Vec::new())),
            (HEADS, conversation.to_vec(), Some(vec![1; 46])),
        ]
    }
}
