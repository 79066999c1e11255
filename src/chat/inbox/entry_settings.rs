//! Settings of inbox entries: muted, pinned, archived, and the notification level.

use std::sync::Arc;

use super::InboxService;
use crate::chat::error::Result;
use crate::chat::publisher::Origin;
use crate::model::{ChangeId, ConversationId, Flags, InboxRow, NotificationLevel, UserId, Viewer};
use crate::store::{Archive, FlagsChange};

/// Change of an entry. `None` keeps a setting.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntrySettings {
    pub muted: Option<bool>,
    pub pinned: Option<bool>,
    pub archived: Option<bool>,
    /// `Some(None)` sets the default again.
    pub level: Option<Option<NotificationLevel>>,
}

impl InboxService {
    /// Changes the viewer's entry, and returns it after the write. A change without effect is not
    /// published. An agent has no settings: nothing changes.
    pub async fn update_entry(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        settings: EntrySettings,
    ) -> Result<InboxRow> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let (conversation, row) = self.visible_entry(caller, conversation).await?;
        self.access.require_unhidden(viewer, &conversation).await?;
        if viewer.is_agent() {
            return Ok(row);
        }
        let (inbox, viewer) = (Arc::clone(self), viewer.clone());
        self.tasks
            .run_to_completion(async move { inbox.persist_flags(&viewer, row, settings).await })
            .await
    }

    async fn persist_flags(
        &self,
        viewer: &UserId,
        row: InboxRow,
        settings: EntrySettings,
    ) -> Result<InboxRow> {
        // An id allocated after the read of the row is greater than every message in it.
        let lease = self.in_flight.allocate(row.conversation, 1).await?;
        let to = settings.change_of(&row, lease.newest());
        if to.apply(row.flags) == row.flags {
            drop(lease);
            self.notify_repeated(viewer, &row).await?;
            return Ok(row);
        }
        let written = self.store.set_flags(viewer, &to).await;
        let (lease, flags) = lease.if_persisted(written)?;
        match flags {
            Some(flags) => {
                let (publisher, id) = (&self.publisher, row.conversation);
                publisher.publish_to_inboxes([viewer], id, to.change, Origin::Own(&lease));
                let row = InboxRow { flags, ..row };
                self.notify_devices(viewer, &row, lease).await?;
                Ok(row)
            }
            // Another device has made the same change meanwhile, and published it.
            None => Ok(self
                .visible_entry(&viewer.into(), row.conversation)
                .await?
                .1),
        }
    }
}

impl EntrySettings {
    fn change_of(self, row: &InboxRow, change: ChangeId) -> FlagsChange {
        let Self {
            muted,
            pinned,
            archived,
            level,
        } = self;
        let flags = Flags {
            is_muted: muted.unwrap_or(row.flags.is_muted),
            ..row.flags
        };
        // Muting would restore an archive that a message has ended.
        let would_be_archived = InboxRow { flags, ..*row }.is_archived();
        let archive = match (archived, row.flags.archived_at) {
            (Some(true), _) if row.is_archived() && would_be_archived => None,
            // The archive begins at the last message that the row shows: a later one ends it, even if its
            // id was allocated before this change.
            (Some(true), _) => {
                let shown = row.last_message.unwrap_or(change);
                Some(Archive::Begin(shown.moment()))
            }
            (Some(false), Some(_)) => Some(Archive::End),
            (None, Some(ended)) if would_be_archived && !row.is_archived() => {
                Some(Archive::EndOf(ended))
            }
            (Some(false), None) | (None, _) => None,
        };
        FlagsChange {
            conversation: row.conversation,
            muted,
            pinned,
            archive,
            level,
            change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MessageId, OrderKey, ReadMarker, Timestamp};

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    /// Entry with a last message of this time.
    fn row(last_message: i64, is_muted: bool, archived_at: Option<i64>) -> InboxRow {
        InboxRow {
            conversation: ConversationId(uuid::Uuid::nil()),
            last_activity: Timestamp::from_micros(last_message),
            last_message: Some(id(last_message)),
            marker: ReadMarker {
                epoch: 0,
                up_to: OrderKey::MIN,
            },
            sent_up_to: None,
            is_sent_by_service: false,
            flags: Flags {
                is_muted,
                is_pinned: false,
                archived_at: archived_at.map(Timestamp::from_micros),
                level: None,
            },
            floor: crate::model::Floor::NONE,
        }
    }

    fn after(row: InboxRow, settings: EntrySettings) -> InboxRow {
        InboxRow {
            flags: settings.change_of(&row, id(1_000)).apply(row.flags),
            ..row
        }
    }

    #[test]
    fn an_archive_lasts_until_a_newer_message() {
        let archive = EntrySettings {
            archived: Some(true),
            ..EntrySettings::default()
        };
        let archived = after(row(10, false, None), archive);
        assert!(archived.is_archived());
        assert_eq!(after(archived, archive), archived, "again changes nothing");
        let woken = InboxRow {
            last_message: Some(id(1_001)),
            ..archived
        };
        assert!(!woken.is_archived());
        assert!(after(row(20, false, Some(10)), archive).is_archived());
        let back = after(
            archived,
            EntrySettings {
                archived: Some(false),
                ..EntrySettings::default()
            },
        );
        assert_eq!(back.flags, Flags::default());
    }

    #[test]
    fn muting_restores_no_archive() {
        let mute = EntrySettings {
            muted: Some(true),
            ..EntrySettings::default()
        };
        assert!(
            !after(row(20, false, Some(10)), mute).is_archived(),
            "a message has ended it"
        );
        assert!(
            after(row(5, false, Some(10)), mute).is_archived(),
            "it holds"
        );
    }

    #[test]
    fn a_fresh_archive_survives_a_change_of_muting() {
        let unmute = EntrySettings {
            muted: Some(false),
            archived: Some(true),
            ..EntrySettings::default()
        };
        assert!(after(row(20, true, Some(10)), unmute).is_archived());
        let mute = EntrySettings {
            muted: Some(true),
            archived: Some(true),
            ..EntrySettings::default()
        };
        let both = after(row(20, false, Some(10)), mute);
        assert!(both.is_archived());
        assert!(
            InboxRow {
                flags: Flags {
                    is_muted: false,
                    ..both.flags
                },
                ..both
            }
            .is_archived()
        );
    }
}
