//! A conversation under import: its head and its lists, written once at the end of a commit.

use std::collections::BTreeSet;

use super::import::ImportDraft;
use crate::model::{Conversation, Timestamp, UserId};
use crate::store::Result;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::key::{self, Listing};
use crate::store::embedded::engine::record::{self, ConversationRecord, HeadRecord, RosterRecord};
use crate::store::embedded::inbox;

/// A conversation under import.
pub(super) struct ConversationImport {
    pub(super) conversation: Conversation,
    pub(super) head: HeadRecord,
    pub(super) roster: RosterRecord,
    /// Current participants. For a conversation that was large before: only newly imported ones.
    pub(super) joined: BTreeSet<UserId>,
    /// Every present and former participant, unless it is large.
    pub(super) people: BTreeSet<UserId>,
    /// `None` for a new conversation.
    pub(super) before: Option<StoredConversation>,
    pub(super) is_changed: bool,
}

/// State of a conversation on disk.
pub(super) struct StoredConversation {
    pub(super) head_bytes: Vec<u8>,
    pub(super) is_large: bool,
    pub(super) listing: Listing,
    pub(super) joined: BTreeSet<UserId>,
}

impl ConversationImport {
    pub(super) fn new(conversation: Conversation, given_activity: Option<Timestamp>) -> Self {
        let head = HeadRecord::new(conversation.created_at, given_activity);
        let (joined, people) = Default::default();
        Self {
            conversation,
            head,
            roster: RosterRecord::default(),
            joined,
            people,
            before: None,
            is_changed: true,
        }
    }

    /// `people` are those of the field.
    pub(super) fn of(state: ConversationState, people: BTreeSet<UserId>) -> Self {
        let joined: BTreeSet<UserId> = state
            .people
            .iter()
            .flat_map(|people| people.joined.iter().cloned())
            .collect();
        let before = StoredConversation {
            head_bytes: state.head_bytes,
            is_large: state.conversation.is_large,
            listing: state.head.listing(state.conversation.is_large),
            joined: joined.clone(),
        };
        Self {
            conversation: (*state.conversation).clone(),
            head: state.head,
            roster: state.roster,
            joined: if before.is_large {
                BTreeSet::new()
            } else {
                joined
            },
            people,
            before: Some(before),
            is_changed: false,
        }
    }
}

impl ImportDraft<'_> {
    /// Marks a conversation with several commits busy, so that no commit moves its entries.
    pub(super) fn keep_busy(&mut self, working: &mut ConversationImport) {
        let Some(StoredConversation {
            listing: Listing::Active(before),
            ..
        }) = working.before
        else {
            return;
        };
        if working.head.last_activity > before && !working.conversation.is_large {
            working.head.is_busy = true;
            self.put(
                inbox::look_again(working.conversation.id, working.head.last_activity),
                Vec::new(),
            );
        }
    }

    pub(super) fn finish_conversation(&mut self, working: &ConversationImport) -> Result<()> {
        let id = working.conversation.id;
        if working
            .before
            .as_ref()
            .is_none_or(|before| before.is_large != working.conversation.is_large)
        {
            self.put(
                key::conversation(id),
                ConversationRecord::encode(&working.conversation),
            );
        }
        self.put(key::head(id), record::encode(&working.head));
        self.put(key::roster(id), record::encode(&working.roster));
        self.move_entries(working);
        Ok(())
    }

    /// Moves the entries of all participants to the position of the head.
    fn move_entries(&mut self, working: &ConversationImport) {
        let id = working.conversation.id;
        let listing = working.head.listing(working.conversation.is_large);
        // Participants already listed in the right place. For a large conversation `joined` holds
        // new participants only.
        let mut in_place = None;
        if let Some(before) = working
            .before
            .as_ref()
            .filter(|before| before.listing != Listing::Large)
        {
            if before.listing == listing {
                in_place = Some(&before.joined);
            } else {
                before.joined.iter().for_each(|user| {
                    drop(
                        self.rows
                            .insert(key::listed(user, id, before.listing), None),
                    )
                });
            }
        }
        for user in working
            .joined
            .iter()
            .filter(|user| in_place.is_none_or(|users| !users.contains(*user)))
            .filter(|user| !user.is_agent())
        {
            self.put(key::listed(user, id, listing), Vec::new());
        }
    }
}
