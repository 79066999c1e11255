//! Reads of one request, gathered into batches: what fifty rows ask for is asked of the store once.
//!
//! The one place that touches the `dataloader` crate, so that another one can take its place.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use dataloader::BatchFn;
use futures_util::future::BoxFuture;

use super::error::Result;
use crate::chat::{self, Chat};
use crate::model::{
    Conversation, ConversationId, InboxRow, Message, MessageId, OrderKey, Participant, Presence,
    Profile, Reaction, Unread, UserId,
};

/// Keys of one batch.
const BATCH_MAX: usize = 100;
/// How often a read lets others go first, so that they can join its batch.
const YIELDS: usize = 2;

type ReadKeys<K, V> = Box<dyn FnMut(Vec<K>) -> BoxFuture<'static, chat::Result<Vec<V>>> + Send>;

struct BatchRead<K, V>(ReadKeys<K, V>);

impl<K: Eq + Hash + Clone + Debug, V: Clone> BatchFn<K, chat::Result<V>> for BatchRead<K, V> {
    /// Fills every key: one that is missing would be an error of the crate's own.
    async fn load(&mut self, keys: &[K]) -> HashMap<K, chat::Result<V>> {
        match (self.0)(keys.to_vec()).await {
            Ok(values) => keys
                .iter()
                .cloned()
                .zip(values.into_iter().map(Ok))
                .collect(),
            Err(error) => keys
                .iter()
                .map(|key| (key.clone(), Err(error.clone())))
                .collect(),
        }
    }
}

type BatchLoader<K, V> = dataloader::cached::Loader<K, chat::Result<V>, BatchRead<K, V>>;

fn batches<K: Eq + Hash + Clone + Debug, V: Clone>(read: ReadKeys<K, V>) -> BatchLoader<K, V> {
    BatchLoader::new(BatchRead(read))
        .with_max_batch_size(BATCH_MAX)
        .with_yield_count(YIELDS)
}

/// Reads what these keys name, for a viewer.
type ReadForViewer<K, V> = fn(Chat, UserId, Vec<K>) -> BoxFuture<'static, chat::Result<Vec<V>>>;

/// One kind of read. What gathers its keys is made with the first of them: most requests ask for few kinds.
pub(super) struct Loader<K: Eq + Hash + Clone + Debug, V: Clone> {
    chat: Chat,
    viewer: UserId,
    read: ReadForViewer<K, V>,
    batches: OnceLock<BatchLoader<K, V>>,
}

impl<K: Eq + Hash + Clone + Debug + Send + 'static, V: Clone + Send + 'static> Loader<K, V> {
    fn new(chat: &Chat, viewer: &UserId, read: ReadForViewer<K, V>) -> Self {
        Self {
            chat: chat.clone(),
            viewer: viewer.clone(),
            read,
            batches: OnceLock::new(),
        }
    }

    fn batches(&self) -> &BatchLoader<K, V> {
        self.batches.get_or_init(|| {
            let (chat, viewer, read) = (self.chat.clone(), self.viewer.clone(), self.read);
            batches(Box::new(move |keys| {
                read(chat.clone(), viewer.clone(), keys)
            }))
        })
    }

    /// What was read otherwise need not be read again.
    pub(super) async fn know(&self, known: Vec<(K, V)>) {
        self.batches()
            .prime_many(known.into_iter().map(|(key, value)| (key, Ok(value))))
            .await;
    }

    pub(super) async fn load(&self, key: K) -> Result<V> {
        loop {
            // `Err` here: the reader whose turn it was went away with the keys of others. They ask again.
            if let Ok(loaded) = self.batches().try_load(key.clone()).await {
                return Ok(loaded?);
            }
        }
    }
}

/// The reads of one request, or of one event of a subscription: what they give is as old as that.
pub(super) struct Loaders {
    pub(super) conversations: Loader<ConversationId, Option<Arc<Conversation>>>,
    /// Also those that the viewer may not see: `InboxEntry::load` asks for the conversation beside it.
    pub(super) entries: Loader<ConversationId, Option<InboxRow>>,
    pub(super) last_messages: Loader<ConversationId, Option<MessageId>>,
    /// Also those that the viewer may not see: `Message::load` asks for the conversation beside it.
    pub(super) messages: Loader<(ConversationId, MessageId), Option<Arc<Message>>>,
    pub(super) messages_at: Loader<(ConversationId, OrderKey), Option<Arc<Message>>>,
    pub(super) message_counts: Loader<ConversationId, u64>,
    pub(super) participants: Loader<ConversationId, Option<Arc<[Participant]>>>,
    pub(super) participant_counts: Loader<ConversationId, u64>,
    pub(super) presences: Loader<UserId, Option<Presence>>,
    pub(super) profiles: Loader<UserId, Option<Profile>>,
    pub(super) reactions: Loader<(ConversationId, MessageId), Arc<[Reaction]>>,
    pub(super) unread: Loader<InboxRow, Unread>,
}

impl Loaders {
    pub(super) fn new(chat: &Chat, viewer: &UserId) -> Self {
        Self {
            conversations: Loader::new(chat, viewer, |chat, viewer, ids| {
                Box::pin(async move { chat.conversations(&viewer, &ids).await })
            }),
            entries: Loader::new(chat, viewer, |chat, viewer, ids| {
                Box::pin(async move { chat.entries(&viewer, &ids).await })
            }),
            last_messages: Loader::new(chat, viewer, |chat, _, ids| {
                Box::pin(async move { chat.last_messages(&ids).await })
            }),
            messages: Loader::new(chat, viewer, |chat, _, keys| {
                Box::pin(async move { chat.messages(&keys).await })
            }),
            messages_at: Loader::new(chat, viewer, |chat, _, places| {
                Box::pin(async move { chat.messages_at(&places).await })
            }),
            message_counts: Loader::new(chat, viewer, |chat, _, ids| {
                Box::pin(async move { chat.message_counts(&ids).await })
            }),
            participants: Loader::new(chat, viewer, |chat, viewer, ids| {
                Box::pin(async move { chat.all_participants(&viewer, &ids).await })
            }),
            participant_counts: Loader::new(chat, viewer, |chat, _, ids| {
                Box::pin(async move { chat.participant_counts(&ids).await })
            }),
            presences: Loader::new(chat, viewer, |chat, viewer, users| {
                Box::pin(async move { chat.presences(&viewer, &users).await })
            }),
            profiles: Loader::new(chat, viewer, |chat, _, users| {
                Box::pin(async move { chat.profiles(&users).await })
            }),
            reactions: Loader::new(chat, viewer, |chat, viewer, keys| {
                Box::pin(async move { chat.reactions(&viewer, &keys).await })
            }),
            unread: Loader::new(chat, viewer, |chat, viewer, rows| {
                Box::pin(async move { chat.unread(&viewer, &rows).await })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn what_fifty_rows_ask_for_is_read_once() {
        let reads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&reads);
        let loader = batches::<u8, u8>(Box::new(move |keys| {
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            noted.lock().push(sorted);
            Box::pin(async move { Ok(keys) })
        }));
        join_all((0..50).map(|row| loader.try_load(row % 2))).await;
        assert!(
            loader
                .try_load(1)
                .await
                .is_ok_and(|value| value.is_ok_and(|value| value == 1))
        );
        assert_eq!(*reads.lock(), [[0, 1]]);
    }
}
