//! Relationships between users: the consent that shows presence, and that makes an invitation free.
//!
//! They rest on consent, as anybody may put anybody into a conversation: the other side must have acted in it since joining, with a TEXT
//! message or a `markRead`, or a third user must have made it. Large groups are none.
//!
//! Cost on a cluster, in statements: 5 to 9 for each user, and where strangers are left, the newest 200 entries of the viewer: 2 each for the
//! viewer's own place, 1 for the participants of each small group, 2 for each stranger who is in some of them.

use std::collections::HashMap;

use futures_util::future::try_join_all;

use crate::chat::{Chat, Result};
use crate::model::{
    Conversation, ConversationId, ConversationKind, InboxRow, PageRequest, Participant, UserId,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relationship {
    Oneself,
    /// Their direct conversation, or a group of both that is not large.
    Shared(ConversationId),
}

/// The relationship with one user, or the conversations in which one begins when that user acts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acquaintance {
    pub(crate) relationship: Option<Relationship>,
    /// Shared ones in which the user has not acted yet: the direct one, and groups of the newest.
    pub(crate) candidates: Vec<ConversationId>,
}

/// Entries of the viewer in which a group is looked for, the last active first.
const ENTRIES_MAX: usize = 200;
const READS_AT_ONCE: usize = 16;
/// Shared groups of one user in which it is looked for a message of theirs.
const CANDIDATES_MAX: usize = 16;

impl Chat {
    /// Relationships of the viewer with these users. `None` for strangers.
    pub(crate) async fn relationships(
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

    /// The same, with what may become a relationship.
    pub(crate) async fn acquaintances(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Acquaintance>> {
        let mut found: HashMap<&UserId, Acquaintance> = HashMap::new();
        for users in users.chunks(READS_AT_ONCE) {
            let directs = try_join_all(
                users
                    .iter()
                    .map(|user| self.direct_acquaintance(viewer, user)),
            )
            .await?;
            found.extend(users.iter().zip(directs));
        }
        let mut request = PageRequest::first(PageRequest::<()>::COUNT_MAX);
        let mut looked_at = 0;
        while looked_at < ENTRIES_MAX && found.values().any(|one| one.relationship.is_none()) {
            let page = self.0.store.inbox(viewer, &request).await?;
            looked_at += page.items.len();
            let ids: Vec<_> = page.items.iter().map(|row| row.conversation).collect();
            self.look_into_groups(viewer, &ids, &mut found).await?;
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

    /// Looks for those who have no relationship yet among the participants of these groups.
    async fn look_into_groups(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
        found: &mut HashMap<&UserId, Acquaintance>,
    ) -> Result<()> {
        let groups: Vec<_> = self
            .conversations(viewer, ids)
            .await?
            .into_iter()
            .flatten()
            .filter(|one| is_small_group(one))
            .collect();
        let mut shared: HashMap<UserId, Vec<Participant>> = HashMap::new();
        for groups in groups.chunks(READS_AT_ONCE) {
            let pages = groups.iter().map(|group| self.participants_of(group.id));
            for (group, participants) in groups.iter().zip(try_join_all(pages).await?) {
                for one in participants {
                    let Some(known) = found
                        .get_mut(&one.user)
                        .filter(|known| known.relationship.is_none())
                    else {
                        continue;
                    };
                    if was_read_or_made_by_another(group, viewer, &one) {
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
        for (user, places) in shared {
            let ids: Vec<_> = places.iter().map(|place| place.conversation).collect();
            let rows = self.0.store.inbox_rows(&user, &ids).await?;
            let sent = places
                .iter()
                .zip(&rows)
                .find(|(place, row)| row.is_some_and(|row| has_sent(&row, place)));
            if let (Some((place, _)), Some(known)) = (sent, found.get_mut(&user)) {
                known.relationship = Some(Relationship::Shared(place.conversation));
            }
        }
        Ok(())
    }

    /// Whether the relationship is still there.
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

    /// Whether a conversation of both makes a relationship: `Some(false)` where the user has yet to act in it.
    pub(crate) async fn shares(
        &self,
        viewer: &UserId,
        user: &UserId,
        id: ConversationId,
    ) -> Result<Option<bool>> {
        let Some(conversation) = self.conversation(viewer, id).await? else {
            return Ok(None);
        };
        if conversation.kind != ConversationKind::Direct && !is_small_group(&conversation) {
            return Ok(None);
        }
        let found = self
            .0
            .store
            .participants_by_name(&[(id, user.clone())])
            .await?
            .pop()
            .flatten();
        let Some(participant) = found.filter(|participant| participant.membership.is_joined())
        else {
            return Ok(None);
        };
        if was_read_or_made_by_another(&conversation, viewer, &participant) {
            return Ok(Some(true));
        }
        let row = self.0.store.inbox_rows(user, &[id]).await?.pop().flatten();
        Ok(Some(row.is_some_and(|row| has_sent(&row, &participant))))
    }

    async fn direct_acquaintance(&self, viewer: &UserId, user: &UserId) -> Result<Acquaintance> {
        if user == viewer {
            return Ok(Acquaintance {
                relationship: Some(Relationship::Oneself),
                candidates: Vec::new(),
            });
        }
        let Some(id) = self.0.store.direct_conversation(viewer, user).await? else {
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

    /// Those who are in a conversation that is not large.
    pub(crate) async fn participants_of(&self, group: ConversationId) -> Result<Vec<Participant>> {
        Ok(self
            .0
            .store
            .participants(group, &PageRequest::first(Conversation::FAN_OUT_MAX))
            .await?
            .items)
    }
}

/// Decides without a read of the inbox row, which holds what the participant sent.
fn was_read_or_made_by_another(
    conversation: &Conversation,
    viewer: &UserId,
    participant: &Participant,
) -> bool {
    // A group without a creator was imported: neither of the two made it.
    let maker = conversation.created_by.as_ref();
    let is_third = maker != Some(viewer) && maker != Some(&participant.user);
    let has_read = match participant.membership.since {
        Some(joined) => participant.read_up_to.moment() > joined,
        None => participant.read_up_to > crate::model::OrderKey::MIN,
    };
    has_read || (is_third && is_small_group(conversation))
}

/// Since joining: what was sent before the user left and came back counts no more.
fn has_sent(row: &InboxRow, participant: &Participant) -> bool {
    row.sent_up_to.is_some_and(|sent| {
        participant
            .membership
            .since
            .is_none_or(|joined| sent.moment() > joined)
    })
}

fn is_small_group(conversation: &Conversation) -> bool {
    conversation.kind == ConversationKind::Group && !conversation.is_large
}
