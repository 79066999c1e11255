//! A server of an embedded store whose clock a test sets, and which may start again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat};
use wideroom::clock::{Clock as _, ManualClock, SystemClock};
use wideroom::store::StoreAdmin;
use wideroom::store::embedded::Options;

use super::door::{Badge, Door};
use super::ground::opened;

const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id } } } }";

pub(crate) struct ClockedServer {
    folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn StoreAdmin>,
    pub(crate) chat: Chat,
    pub(crate) door: Door,
}

impl ClockedServer {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(SystemClock.now()));
        Self::open(tempfile::tempdir().unwrap(), clock).await
    }

    async fn open(folder: TempDir, clock: Arc<ManualClock>) -> Self {
        let options = Options {
            path: folder.path().to_owned(),
            cache_bytes: 16 << 20,
            free_bytes_min: 0,
            accept_loss: false,
        };
        let store = opened(options, clock.clone()).await;
        let store: Arc<dyn StoreAdmin> = Arc::new(store);
        let bounds = Bounds::default();
        let opened = Chat::open(store.clone(), Bus::default(), clock.clone(), bounds);
        let chat = opened.await.unwrap();
        let door = Door::of(&chat);
        Self {
            folder,
            clock,
            store,
            chat,
            door,
        }
    }

    pub(crate) async fn restarted(self) -> Self {
        let Self {
            folder,
            clock,
            store,
            chat,
            door,
        } = self;
        chat.finish().await;
        drop((chat, door));
        store.close().await.unwrap();
        drop(store);
        Self::open(folder, clock).await
    }

    /// Sets the clock ahead, or back.
    pub(crate) fn set_ahead(&self, seconds: i64) {
        let to = self.clock.now().plus_micros(seconds * 1_000_000);
        self.clock.set(to);
    }

    pub(crate) async fn data(&self, badge: &Badge, document: &str, variables: Value) -> Value {
        let said = self.door.ask(badge, document, &variables).await;
        assert!(said.json().get("errors").is_none(), "{said:?}");
        said.json()["data"].clone()
    }

    /// A group of a user and others.
    pub(crate) async fn group(&self, owner: &Badge, others: &[&str]) -> Value {
        let document = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"g\", usernames: $u}) { conversation { id } } }";
        let created = self.data(owner, document, json!({ "u": others })).await;
        created["createGroupConversation"]["conversation"]["id"].clone()
    }

    pub(crate) async fn try_send(
        &self,
        badge: &Badge,
        conversation: &Value,
        body: &str,
    ) -> Result<Value, Value> {
        let variables = json!({"c": conversation, "b": body});
        let said = self.door.ask(badge, SEND, &variables).await.json();
        match said.get("errors") {
            Some(errors) => Err(errors[0].clone()),
            None => Ok(said["data"]["sendMessage"]["messageEdge"]["node"]["id"].clone()),
        }
    }

    pub(crate) async fn send(&self, badge: &Badge, conversation: &Value, body: &str) -> Value {
        let sent = self.try_send(badge, conversation, body).await;
        sent.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whether a file of the data folder holds a text.
    pub(crate) fn has_on_disk(&self, text: &str) -> bool {
        let mut files = Vec::new();
        list(self.folder.path(), &mut files);
        // The engine deletes files meanwhile.
        let mut read = files.iter().filter_map(|file| std::fs::read(file).ok());
        read.any(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Lets time pass by the monotonic clock alone.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
