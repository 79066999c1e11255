//! Screen of a viewer: the live messages that a client makes up of its stream, whatever server the stream is on. Its
//! waits pass in virtual time (`start_paused`).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wideroom::chat::{LiveUpdate, LiveView, Result};
use wideroom::model::{ConversationId, LiveCursor, LiveMessageId, UserId, WriterNumber};

use super::world::{QuietServer, pass};

/// Updates that wait for the screen.
const UPDATES_MAX: usize = 100_000;

/// Live message on the screen.
#[derive(Debug, Clone)]
pub(super) struct Bubble {
    pub(super) writer: WriterNumber,
    pub(super) text: String,
    pub(super) view: LiveView,
}

/// Received updates, as a viewer counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) updates: usize,
    pub(super) bytes: usize,
    pub(super) wholes: usize,
}

pub(super) struct Screen {
    user: UserId,
    on: ConversationId,
    stream: Option<OpenStream>,
    pub(super) cursor: Option<LiveCursor>,
    pub(super) bubbles: BTreeMap<LiveMessageId, Bubble>,
    /// Last states of the live messages that have ended.
    pub(super) ended: Vec<LiveView>,
    pub(super) received: Received,
    pub(super) has_ended: bool,
}

struct OpenStream {
    updates: mpsc::Receiver<Result<LiveUpdate>>,
    reader: JoinHandle<()>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Screen {
    /// A screen without a stream.
    pub(super) fn dark(user: &str, on: ConversationId) -> Self {
        Self {
            user: UserId::parse(user).unwrap(),
            on,
            stream: None,
            cursor: None,
            bubbles: BTreeMap::new(),
            ended: Vec::new(),
            received: Received::default(),
            has_ended: false,
        }
    }

    pub(super) async fn open(server: &QuietServer, user: &str, on: ConversationId) -> Self {
        let mut screen = Self::dark(user, on);
        screen.resume(server).await.unwrap();
        screen
    }

    /// Ends the stream, and opens another one from the last cursor, on this server. The first payload is the position alone.
    pub(super) async fn resume(&mut self, server: &QuietServer) -> Result<()> {
        self.stream = None;
        let streams = &server.chat.streams;
        let after = self.cursor.clone();
        let mut opened = streams
            .lives(self.user.clone(), self.on, after.clone())
            .await?;
        let first = opened.next().await?.unwrap();
        assert!(first.change.is_none(), "the first payload is a position");
        if let Some(after) = after {
            assert_eq!(first.cursor, after);
        }
        self.cursor = Some(first.cursor);
        let (sender, updates) = mpsc::channel(UPDATES_MAX);
        let reader = tokio::spawn(async move {
            while let Some(update) = opened.next().await.transpose() {
                sender.send(update).await.unwrap();
            }
        });
        self.stream = Some(OpenStream { updates, reader });
        Ok(())
    }

    pub(super) fn cut(&mut self) {
        self.stream = None;
    }

    /// The next update within a time.
    pub(super) async fn next(&mut self, within: Duration) -> Option<LiveUpdate> {
        let stream = self.stream.as_mut()?;
        match timeout(within, stream.updates.recv()).await {
            Ok(Some(update)) => {
                let update = update.unwrap();
                self.take(&update);
                Some(update)
            }
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(_) => None,
        }
    }

    /// Takes all that comes in a time.
    pub(super) async fn watch(&mut self, time: Duration) {
        pass(time).await;
        while self.next(Duration::from_millis(1)).await.is_some() {}
    }

    fn take(&mut self, update: &LiveUpdate) {
        self.cursor = Some(update.cursor.clone());
        // A quiet stream repeats its position.
        let Some(change) = &update.change else { return };
        let (view, text) = (&change.step.view, change.text());
        let (id, writer) = (view.message.key.id, view.message.writers.shown().unwrap());
        self.received.updates += 1;
        self.received.bytes += text.len();
        self.received.wholes += usize::from(change.is_whole);
        if view.is_over() {
            assert!(self.bubbles.remove(&id).is_some(), "it was never shown");
            self.ended.push(view.clone());
            return;
        }
        if change.is_whole {
            let bubble = Bubble {
                writer,
                text: text.to_owned(),
                view: view.clone(),
            };
            let before = self.bubbles.insert(id, bubble);
            assert!(before.is_none_or(|before| before.writer < writer));
            return;
        }
        let bubble = self
            .bubbles
            .get_mut(&id)
            .expect("the first text of it is whole");
        assert_eq!(bubble.writer, writer, "text of another writer is whole");
        bubble.text.push_str(text);
        bubble.view = view.clone();
        let part = update.cursor.lives.iter().find(|part| part.id == id);
        let part = part.expect("the cursor has what is shown");
        assert_eq!(
            (part.writer, part.position as usize),
            (writer, bubble.text.len())
        );
    }

    /// Text of the only live message.
    pub(super) fn text(&self) -> &str {
        assert!(self.bubbles.len() <= 1);
        let mut texts = self.bubbles.values().map(|bubble| bubble.text.as_str());
        texts.next().unwrap_or_default()
    }
}
