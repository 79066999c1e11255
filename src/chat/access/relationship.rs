//! Relationships between users: the consent that shows presence, and that makes an invitation free.
//!
//! Anybody may add anybody to a conversation, so membership alone is no consent. The other user
//! must have acted there since joining, with a TEXT message or a `markRead`, or a third user must
//! have created the group. Large groups are no relationships. An act of a service in the user's name is
//! no consent. A closed app may show presence without consent (`presence-consent`); invitations need it
//! always.
//!
//! Cost on a cluster, in statements: 4 to 8 for each user. If strangers remain, the newest 200
//! entries of the viewer: 1 for each 16 of the viewer's own participations, 1 for the participants
//! of each small group, 2 for each stranger who shares some of them.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::try_join_all;

use super::Access;
use crate::chat::error::Result;
use crate::model::{
    Conversation, ConversationId, ConversationKind, InboxRow, OrderKey, PageRequest, Participant,
    UserId,
};
use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relationship {
    Oneself,
    /// The direct conversation of both users, or a small group with both.
    Shared(ConversationId),
}

/// The relationship with one user, or the conversations in which one would begin with an act of
/// that user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acquaintance {
    pub(crate) relationship: Option<Relationship>,
    /// Shared conversations in which the user has not acted yet: the direct one, and the newest
    /// groups.
    pub(crate) candidates: Vec<ConversationId>,
}

/// Inbox entries of the viewer that are searched for shared groups, the last active first.
const ENTRIES_MAX: usize = 200;
const CONCURRENCY: usize = 16;
/// Shared groups of one user that are searched for a message of that user.
const CANDIDATES_MAX: usize = 16;

pub(crate) struct Relationships {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    /// Whether a common conversation needs the other user's consent.
    needs_consent: bool,
}

impl Relationships {
    pub(crate) fn new(store: Arc<dyn Store>, access: Arc<Access>, needs_consent: bool) -> Self {
        Self {
            store,
            access,
            needs_consent,
        }
    }

    /// Relationships of the viewer with these users. `None` for strangers.
    pub(crate) async fn of(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Option<Relationship>>> {
        Ok(self
            .acquaintances(viewer, users)
            .await?
            .into_iter()
            .map(|found| found.relationship)
            .collect())
    }

    /// The same, with the conversations in which a relationship may begin.
    pub(crate) async fn acquaintances(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Acquaintance>> {
        let mut found: HashMap<&UserId, Acquaintance> = HashMap::new();
        for users in users.chunks(CONCURRENCY) {
            let directs = try_join_all(
                users
                    .iter()
                    .map(|user| self.direct_acquaintance(viewer, user)),
            )
            .await?;
            found.extend(users.iter().zip(directs));
        }
        let mut request = PageRequest::first(PageRequest::<()>::COUNT_MAX);
        let mut searched = 0;
        while searched < ENTRIES_MAX && found.values().any(|one| one.relationship.is_none()) {
            let page = self.store.inbox(viewer, &request).await?;
            searched += page.items.len();
            let ids: Vec<_> = page.items.iter().map(|row| row.conversation).collect();
            self.search_groups(viewer, &ids, &mut found).await?;
            match page.items.last().filter(|_| page.has_next) {
                Some(last) => request = request.after(InboxRow::key(last)),
                None => break,
            }
        }
        Ok(users
            .iter()
            .map(|user| found.get(user).cloned().unwrap_or_default())
            .collect())
    }

    /// Searches these groups for users who have no relationship yet.
    async fn search_groups(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
        found: &mut HashMap<&UserId, Acquaintance>,
    ) -> Result<()> {
        let groups: Vec<_> = self
            .access
            .conversations(viewer, ids)
            .await?
            .into_iter()
            .flatten()
            .filter(|one| is_small_group(one))
            .collect();
        let mut shared: HashMap<UserId, Vec<Participant>> = HashMap::new();
        for groups in groups.chunks(CONCURRENCY) {
            let pages = groups.iter().map(|group| self.participants_of(group.id));
            for (group, participants) in groups.iter().zip(try_join_all(pages).await?) {
                for one in participants {
                    let Some(known) = found
                        .get_mut(&one.user)
                        .filter(|known| known.relationship.is_none())
                    else {
                        continue;
                    };
                    if self.suffices(group, viewer, &one)
                        && !self
                            .access
                            .hidden_groups()
                            .hides(&one.user, group.id)
                            .await?
                    {
                        known.relationship = Some(Relationship::Shared(group.id));
                    } else if known.candidates.len() < CANDIDATES_MAX {
                        known.candidates.push(group.id);
                        shared.entry(one.user.clone()).or_default().push(one);
                    }
                }
            }
            if found.values().all(|known| known.relationship.is_some()) {
                return Ok(());
            }
        }
        shared.retain(|user, _| {
            found
                .get(user)
                .is_some_and(|known| known.relationship.is_none())
        });
        for (user, participations) in shared {
            let ids: Vec<_> = participations
                .iter()
                .map(|participant| participant.conversation)
                .collect();
            let rows = self.store.inbox_rows(&user, &ids).await?;
            let sent = participations
                .iter()
                .zip(&rows)
                .find(|(participant, row)| row.is_some_and(|row| has_sent(&row, participant)));
            if let (Some((participant, _)), Some(known)) = (sent, found.get_mut(&user)) {
                known.relationship = Some(Relationship::Shared(participant.conversation));
            }
        }
        Ok(())
    }

    /// Whether the relationship still exists.
    pub(crate) async fn still_holds(
        &self,
        viewer: &UserId,
        user: &UserId,
        relationship: Relationship,
    ) -> Result<bool> {
        let Relationship::Shared(id) = relationship else {
            return Ok(true);
        };
        Ok(self.shares(viewer, user, id).await? == Some(true))
    }

    /// Whether a conversation of both users makes a relationship. `Some(false)` if the user has yet
    /// to act in it.
    pub(crate) async fn shares(
        &self,
        viewer: &UserId,
        user: &UserId,
        id: ConversationId,
    ) -> Result<Option<bool>> {
        let Some(conversation) = self.access.conversation(viewer, id).await? else {
            return Ok(None);
        };
        if conversation.kind != ConversationKind::Direct && !is_small_group(&conversation) {
            return Ok(None);
        }
        let found = self
            .store
            .participants_by_name(&[(id, user.clone())])
            .await?
            .pop()
            .flatten();
        let Some(participant) = found.filter(|participant| participant.membership.is_joined())
        else {
            return Ok(None);
        };
        if self.suffices(&conversation, viewer, &participant) {
            let hidden = self.access.hidden_groups();
            return Ok(Some(!hidden.hides(user, id).await?));
        }
        let row = self.store.inbox_rows(user, &[id]).await?.pop().flatten();
        Ok(Some(row.is_some_and(|row| has_sent(&row, &participant))))
    }

    /// Whether a common conversation makes a relationship without a read of the participant's inbox row.
    fn suffices(
        &self,
        conversation: &Conversation,
        viewer: &UserId,
        participant: &Participant,
    ) -> bool {
        !self.needs_consent || was_read_or_created_by_another(conversation, viewer, participant)
    }

    /// Whether a participant has acted in the conversation since joining: a consent that a service's act
    /// must not hide.
    pub(crate) async fn has_acted(&self, user: &UserId, id: ConversationId) -> Result<bool> {
        has_acted(&*self.store, user, id).await
    }

    async fn direct_acquaintance(&self, viewer: &UserId, user: &UserId) -> Result<Acquaintance> {
        if user == viewer {
            return Ok(Acquaintance {
                relationship: Some(Relationship::Oneself),
                candidates: Vec::new(),
            });
        }
        let Some(id) = self.store.direct_conversation(viewer, user).await? else {
            return Ok(Acquaintance::default());
        };
        Ok(match self.shares(viewer, user, id).await? {
            Some(true) => Acquaintance {
                relationship: Some(Relationship::Shared(id)),
                candidates: Vec::new(),
            },
            Some(false) => Acquaintance {
                relationship: None,
                candidates: vec![id],
            },
            None => Acquaintance::default(),
        })
    }

    /// Participants of a conversation that is not large.
    pub(crate) async fn participants_of(&self, group: ConversationId) -> Result<Vec<Participant>> {
        Ok(self
            .store
            .participants(group, &PageRequest::first(Conversation::FAN_OUT_MAX))
            .await?
            .items)
    }
}

/// Whether a participant has acted in a conversation since joining it.
pub(super) async fn has_acted(
    store: &dyn Store,
    user: &UserId,
    id: ConversationId,
) -> Result<bool> {
    let key = (id, user.clone());
    let found = store.participants_by_name(&[key]).await?.pop();
    let Some(participant) = found.flatten() else {
        return Ok(false);
    };
    if has_read(&participant) {
        return Ok(true);
    }
    let row = store.inbox_rows(user, &[id]).await?.pop().flatten();
    Ok(row.is_some_and(|row| has_sent(&row, &participant)))
}

/// Whether a participant has answered in a conversation, so that each message there may notify them: by the
/// consent to presence, or because they began it.
pub(crate) fn has_answered(
    conversation: &Conversation,
    sender: &UserId,
    participant: &Participant,
    row: &InboxRow,
) -> bool {
    conversation.created_by.as_ref() == Some(&participant.user)
        || was_read_or_created_by_another(conversation, sender, participant)
        || has_sent(row, participant)
}

/// Part of the decision that needs no read of the participant's inbox row.
fn was_read_or_created_by_another(
    conversation: &Conversation,
    viewer: &UserId,
    participant: &Participant,
) -> bool {
    // A group without a creator was imported, so neither of the two created it.
    let creator = conversation.created_by.as_ref();
    let is_third = creator != Some(viewer) && creator != Some(&participant.user);
    has_read(participant) || (is_third && is_small_group(conversation))
}

/// Whether the participant has read something since joining.
fn has_read(participant: &Participant) -> bool {
    !participant.is_read_by_service
        && match participant.membership.since {
            Some(joined) => participant.read_up_to.moment() > joined,
            None => participant.read_up_to > OrderKey::MIN,
        }
}

/// Whether the participant has sent a message since joining. Messages from before a departure do
/// not count.
fn has_sent(row: &InboxRow, participant: &Participant) -> bool {
    let own = row.sent_up_to.filter(|_| !row.is_sent_by_service);
    own.is_some_and(|sent| {
        participant
            .membership
            .since
            .is_none_or(|joined| sent.moment() > joined)
    })
}

fn is_small_group(conversation: &Conversation) -> bool {
    conversation.kind == ConversationKind::Group && !conversation.is_large
}
