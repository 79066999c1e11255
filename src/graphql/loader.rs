//! Batch loaders of one request (DataLoader pattern): the reads of many rows become one read of the
//! store.
//!
//! No other module uses the `dataloader` crate.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use dataloader::BatchFn;
use futures_util::future::BoxFuture;

use super::error::Result;
use crate::chat::{self, Chat, VisibleConversation};
use crate::model::{
    ConversationId, ConversationProfile, InboxRow, Message, MessageId, OrderKey, Participant,
    Presence, Profile, Reaction, Unread, UserId, Viewer,
};

/// Maximum number of keys of one batch.
const BATCH_MAX: usize = 100;
/// Yields of the task before a batch is read, so that other fields can add their keys.
const YIELDS: usize = 2;

type ReadKeys<K, V> = Box<dyn FnMut(Vec<K>) -> BoxFuture<'static, chat::Result<Vec<V>>> + Send>;

struct BatchRead<K, V>(ReadKeys<K, V>);

impl<K: Eq + Hash + Clone + Debug, V: Clone> BatchFn<K, chat::Result<V>> for BatchRead<K, V> {
    /// Returns a value for every key. The crate reports a missing key as an error of its own.
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

/// Reads the values of these keys, for a viewer.
type ReadForViewer<K, V> = fn(Chat, Viewer, Vec<K>) -> BoxFuture<'static, chat::Result<Vec<V>>>;

/// Chat and viewer of the loaders. They share it, as a copy for each would count every reference to the
/// chat fifteen times for each request, on all processors at once.
struct LoaderContext {
    chat: Chat,
    viewer: Viewer,
}

/// Loader of one kind of value. It starts with its first key, as most requests use few kinds.
pub(super) struct Loader<K: Eq + Hash + Clone + Debug, V: Clone> {
    context: Arc<LoaderContext>,
    read: ReadForViewer<K, V>,
    batches: OnceLock<BatchLoader<K, V>>,
}

impl<K: Eq + Hash + Clone + Debug + Send + 'static, V: Clone + Send + 'static> Loader<K, V> {
    fn new(context: &Arc<LoaderContext>, read: ReadForViewer<K, V>) -> Self {
        Self {
            context: Arc::clone(context),
            read,
            batches: OnceLock::new(),
        }
    }

    fn batches(&self) -> &BatchLoader<K, V> {
        self.batches.get_or_init(|| {
            let (context, read) = (Arc::clone(&self.context), self.read);
            batches(Box::new(move |keys| {
                read(context.chat.clone(), context.viewer.clone(), keys)
            }))
        })
    }

    /// Adds values that were read elsewhere to the cache.
    pub(super) async fn prime(&self, known: Vec<(K, V)>) {
        self.batches()
            .prime_many(known.into_iter().map(|(key, value)| (key, Ok(value))))
            .await;
    }

    pub(super) async fn load(&self, key: K) -> Result<V> {
        loop {
            // `Err` means that the future which read the batch was dropped. The other fields load
            // their keys again.
            if let Ok(loaded) = self.batches().try_load(key.clone()).await {
                return Ok(loaded?);
            }
        }
    }
}

/// Loaders of one request, or of one event of a subscription. They cache for as long as that.
pub(super) struct Loaders {
    /// With the floors of the viewer.
    pub(super) conversations: Loader<ConversationId, Option<VisibleConversation>>,
    /// Not checked against the viewer: fields of a conversation load them, which is.
    pub(super) conversation_profiles: Loader<ConversationId, Arc<ConversationProfile>>,
    /// The other participants of direct conversations that the viewer may see.
    pub(super) direct_peers: Loader<ConversationId, Option<UserId>>,
    /// Not checked against the viewer, and without floors: `InboxEntry::load` also loads the
    /// conversation, which is.
    pub(super) entries: Loader<ConversationId, Option<InboxRow>>,
    /// Not checked against floors: `Message::load` does that.
    pub(super) last_messages: Loader<ConversationId, Option<MessageId>>,
    /// Not checked against the viewer: `Message::load` also loads the conversation, which is.
    pub(super) messages: Loader<(ConversationId, MessageId), Option<Arc<Message>>>,
    /// Not checked against floors: `Message::at` does that.
    pub(super) messages_at: Loader<(ConversationId, OrderKey), Option<Arc<Message>>>,
    /// Counts by conversation and floor.
    pub(super) message_counts: Loader<(ConversationId, OrderKey), u64>,
    pub(super) participants: Loader<ConversationId, Option<Arc<[Participant]>>>,
    pub(super) participant_counts: Loader<ConversationId, u64>,
    pub(super) presences: Loader<UserId, Option<Presence>>,
    pub(super) profiles: Loader<UserId, Option<Profile>>,
    pub(super) reactions: Loader<(ConversationId, MessageId), Arc<[Reaction]>>,
    pub(super) mentions: Loader<InboxRow, Unread>,
    pub(super) unread: Loader<InboxRow, Unread>,
    /// The same, up to the last message of the row.
    pub(super) unread_up_to_last: Loader<InboxRow, Unread>,
}

impl Loaders {
    /// The loaders of a viewer, or of the plain viewer of an execution whose payload others share.
    pub(super) fn new(chat: &Chat, viewer: &Viewer, is_plain: bool) -> Self {
        let visible: ReadForViewer<ConversationId, Option<VisibleConversation>> = if is_plain {
            |chat, viewer, ids| {
                Box::pin(async move { chat.access.plainly_visible_to(&viewer.user, &ids).await })
            }
        } else {
            |chat, viewer, ids| Box::pin(async move { chat.access.visible_to(&viewer, &ids).await })
        };
        let context = &Arc::new(LoaderContext {
            chat: chat.clone(),
            viewer: viewer.clone(),
        });
        Self {
            conversations: Loader::new(context, visible),
            conversation_profiles: Loader::new(context, |chat, _, ids| {
                Box::pin(async move { chat.participants.conversation_profiles(&ids).await })
            }),
            direct_peers: Loader::new(context, |chat, viewer, ids| {
                Box::pin(async move { chat.participants.direct_peers(&viewer.user, &ids).await })
            }),
            entries: Loader::new(context, |chat, viewer, ids| {
                Box::pin(async move { chat.inbox.shown_entries(&viewer.user, &ids).await })
            }),
            last_messages: Loader::new(context, |chat, _, ids| {
                Box::pin(async move { chat.history.last_messages(&ids).await })
            }),
            messages: Loader::new(context, |chat, _, keys| {
                Box::pin(async move { chat.history.messages(&keys).await })
            }),
            messages_at: Loader::new(context, |chat, _, positions| {
                Box::pin(async move { chat.history.messages_at(&positions).await })
            }),
            message_counts: Loader::new(context, |chat, _, floors| {
                Box::pin(async move { chat.history.counts(&floors).await })
            }),
            participants: Loader::new(context, |chat, viewer, ids| {
                Box::pin(async move { chat.participants.all(&viewer, &ids).await })
            }),
            participant_counts: Loader::new(context, |chat, _, ids| {
                Box::pin(async move { chat.participants.counts(&ids).await })
            }),
            presences: Loader::new(context, |chat, viewer, users| {
                Box::pin(async move { chat.presence.presences(&viewer.user, &users).await })
            }),
            profiles: Loader::new(context, |chat, _, users| {
                Box::pin(async move { chat.participants.profiles(&users).await })
            }),
            reactions: Loader::new(context, |chat, viewer, keys| {
                Box::pin(async move { chat.history.reactions(&viewer.user, &keys).await })
            }),
            mentions: Loader::new(context, |chat, viewer, rows| {
                Box::pin(async move { chat.inbox.mentions(&viewer.user, &rows).await })
            }),
            unread: Loader::new(context, |chat, viewer, rows| {
                Box::pin(async move { chat.inbox.unread(&viewer.user, &rows).await })
            }),
            unread_up_to_last: Loader::new(context, |chat, viewer, rows| {
                Box::pin(async move { chat.inbox.unread_up_to_last(&viewer.user, &rows).await })
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
    async fn fifty_rows_share_one_read() {
        let reads = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&reads);
        let loader = batches::<u8, u8>(Box::new(move |keys| {
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            recorded.lock().push(sorted);
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
