//! What users set on their entries: muted, pinned, archived.

use crate::bus::Signal;
use crate::chat::{Chat, Result};
use crate::model::{ChangeId, ConversationId, Flags, InboxRow, UserId};
use crate::store::{Archive, FlagsChange};

/// What is to be set. What is `None` stays as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntrySettings {
    pub muted: Option<bool>,
    pub pinned: Option<bool>,
    pub archived: Option<bool>,
}

impl Chat {
    /// Sets these on the viewer's entry, and answers with it as it is then. What changes nothing is told to nobody.
    pub async fn update_entry(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        settings: EntrySettings,
    ) -> Result<InboxRow> {
        let row = self.entry_of(viewer, conversation).await?;
        let (chat, viewer) = (self.clone(), viewer.clone());
        self.to_the_end(async move { chat.keep_flags(&viewer, row, settings).await })
            .await
    }

    async fn keep_flags(
        &self,
        viewer: &UserId,
        row: InboxRow,
        settings: EntrySettings,
    ) -> Result<InboxRow> {
        // An id that is given after the row was read lies after every message in it.
        let ids = self.0.in_flight.begin(1);
        let to = settings.change_of(&row, ids.newest());
        if to.apply(row.flags) == row.flags {
            return Ok(row);
        }
        let (ids, flags) = ids.if_kept(self.0.store.set_flags(viewer, &to).await)?;
        match flags {
            Some(flags) => {
                self.tell_inboxes(
                    [viewer],
                    row.conversation,
                    (to.change, ids.settled()),
                    Signal::Inbox,
                );
                Ok(InboxRow { flags, ..row })
            }
            // Another device has done the same meanwhile, and it was told.
            None => self.entry_of(viewer, row.conversation).await,
        }
    }
}

impl EntrySettings {
    fn change_of(self, row: &InboxRow, change: ChangeId) -> FlagsChange {
        let Self {
            muted,
            pinned,
            archived,
        } = self;
        let flags = Flags {
            is_muted: muted.unwrap_or(row.flags.is_muted),
            ..row.flags
        };
        // An archive that a message has ended would hold again where the entry is muted.
        let would_be_archived = InboxRow { flags, ..*row }.is_archived();
        let archive = match (archived, row.flags.archived_at) {
            (Some(true), _) if row.is_archived() && would_be_archived => None,
            (Some(true), _) => Some(Archive::Begin(change.moment())),
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

    /// An entry whose last message is of that time.
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
            flags: Flags {
                is_muted,
                is_pinned: false,
                archived_at: archived_at.map(Timestamp::from_micros),
            },
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
    fn muting_brings_no_archive_back() {
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
    fn what_is_archived_now_stays_so_until_a_message_that_comes_now() {
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
