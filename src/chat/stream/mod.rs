//! Streams: subscriptions to a conversation, an inbox, typing and presence, resumed from a cursor.

pub(crate) mod conversation_updates;
pub(crate) mod delivered_ids;
pub(crate) mod inbox_updates;
pub(crate) mod message_updates;
pub(crate) mod presence_updates;
pub(crate) mod replay;
pub(crate) mod typing_updates;
pub(crate) mod update_key;
