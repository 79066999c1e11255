//! One conversation in the naive engine, with its participants, messages and changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use wideroom::model::id::pair_key;
use wideroom::model::{
    Ban, Change, ChangeId, Conversation, ConversationKind, ConversationProfile, Emoji, Flags,
    Floor, IgnoredSenders, InboxRow, Membership, Message, MessageId, OrderKey, Participant, Pin,
    Reaction, ReadMarker, Revision, Role, TimeUuid, Timestamp, Unread, UserId,
};
use wideroom::store::{ImportPositions, Imported, MembershipTransition, TransitionKind};

/// The users whom a message mentions besides its sender, and whether it mentions everyone.
fn mentioned(message: &Message) -> (Vec<UserId>, bool) {
    let Some(mentions) = message.mentions() else {
        return (Vec::new(), false);
    };
    let users = mentions.users().iter().cloned();
    let users = users.filter(|user| *user != message.sender);
    (users.collect(), mentions.everyone)
}

/// A conversation with all that is known of it.
pub(super) struct OracleConversation {
    pub(super) record: Conversation,
    pub(super) profile: ConversationProfile,
    pub(super) given_activity: Option<Timestamp>,
    pub(super) people: BTreeMap<UserId, OracleParticipant>,
    pub(super) messages: BTreeMap<MessageId, Arc<Message>>,
    /// The newest that was sent, and not imported: an import is no event.
    pub(super) newest_send: Option<MessageId>,
    pub(super) changes: Vec<Change>,
    pub(super) reactions: BTreeMap<MessageId, BTreeMap<(String, UserId), bool>>,
    /// Under which it was made, where it was not imported.
    pub(super) made: Option<ChangeId>,
    /// Id of the last membership change, or of the creation.
    pub(super) version: Option<TimeUuid>,
    /// Those that have ended included.
    pub(super) bans: BTreeMap<UserId, Ban>,
    /// Messages up to here were removed.
    pub(super) removed_up_to: OrderKey,
    /// The newest of those.
    pub(super) removed_last: Option<MessageId>,
    /// Users who were erased, and when: earlier mentions count no more.
    pub(super) erased: BTreeMap<UserId, ChangeId>,
}

/// A user's part in a conversation.
pub(super) struct OracleParticipant {
    pub(super) membership: Membership,
    pub(super) read_up_to: OrderKey,
    pub(super) is_read_by_service: bool,
    pub(super) delivered_up_to: OrderKey,
    pub(super) marker: ReadMarker,
    pub(super) sent_up_to: Option<MessageId>,
    pub(super) is_sent_by_service: bool,
    pub(super) flags: Flags,
    pub(super) newest_change: Option<TimeUuid>,
}

impl OracleParticipant {
    pub(super) fn new(membership: Membership) -> Self {
        Self {
            membership,
            read_up_to: OrderKey::MIN,
            is_read_by_service: false,
            delivered_up_to: OrderKey::MIN,
            marker: ReadMarker::default(),
            sent_up_to: None,
            is_sent_by_service: false,
            flags: Flags::default(),
            newest_change: None,
        }
    }

    pub(super) fn imported(membership: Membership, positions: &ImportPositions) -> Self {
        let read_up_to = positions
            .read_up_to
            .map_or(OrderKey::MIN, MessageId::order_key);
        let marker = match positions.unread_from {
            Some(from) => ReadMarker {
                epoch: 1,
                up_to: from.order_key().before(),
            },
            None => ReadMarker {
                epoch: 0,
                up_to: read_up_to,
            },
        };
        let delivered_up_to = positions
            .delivered_up_to
            .map_or(OrderKey::MIN, MessageId::order_key);
        Self {
            read_up_to,
            delivered_up_to,
            marker,
            flags: positions.flags,
            ..Self::new(membership)
        }
    }
}

impl OracleConversation {
    pub(super) fn new(conversation: Conversation, given_activity: Option<Timestamp>) -> Self {
        Self {
            record: conversation,
            profile: ConversationProfile::default(),
            given_activity,
            people: BTreeMap::new(),
            messages: BTreeMap::new(),
            newest_send: None,
            changes: Vec::new(),
            reactions: BTreeMap::new(),
            made: None,
            version: None,
            bans: BTreeMap::new(),
            removed_up_to: OrderKey::MIN,
            removed_last: None,
            erased: BTreeMap::new(),
        }
    }

    pub(super) fn joined(&self) -> impl Iterator<Item = (&UserId, &OracleParticipant)> {
        self.people
            .iter()
            .filter(|(_, participant)| participant.membership.is_joined())
    }

    pub(super) fn last_message(&self) -> Option<MessageId> {
        let last = self.messages.keys().next_back().copied();
        last.max(self.removed_last)
    }

    pub(super) fn newest_event(&self) -> Option<TimeUuid> {
        self.last_message()
            .max(self.changes.iter().map(|change| change.id).max())
            .max(self.made)
    }

    /// The message as it is after a revision, and whose entry that alters.
    pub(super) fn revise(
        &mut self,
        revision: &Revision,
        change: &Change,
    ) -> Option<(Arc<Message>, Vec<UserId>)> {
        let last = self.last_message();
        let message = self.messages.get_mut(&change.message)?;
        if message.deleted_at.is_some() {
            return Some((message.clone(), Vec::new()));
        }
        let before = mentioned(message);
        let (content, deleted_at) = match revision {
            Revision::Edit { content, .. } => (Some(content.clone()), None),
            Revision::Deletion => (None, Some(change.id.moment())),
        };
        *message = Arc::new(Message {
            content,
            deleted_at,
            pin: message.pin.clone().filter(|_| deleted_at.is_none()),
            ..message.as_ref().clone()
        });
        let message = message.clone();
        self.changes.push(change.clone());
        let is_shown =
            deleted_at.is_some() || last == Some(change.message) || mentioned(&message) != before;
        let is_told = is_shown && !self.record.is_large;
        let users: Vec<_> = self
            .joined()
            .filter(|_| is_told)
            .map(|(user, _)| user.clone())
            .collect();
        for user in &users {
            let participant = self.people.get_mut(user).expect("it was just listed");
            participant.newest_change = participant.newest_change.max(Some(change.id));
        }
        Some((message, users))
    }

    /// The message as it is after a pin.
    pub(super) fn pin(&mut self, is_on: bool, change: &Change) -> Option<Arc<Message>> {
        let message = self.messages.get_mut(&change.message)?;
        if message.deleted_at.is_none() && self.changes.iter().all(|logged| logged.id != change.id)
        {
            let pin = Pin {
                change: change.id,
                by: change.user.clone(),
                is_on,
            };
            *message = Arc::new(Message {
                pin: Some(Box::new(pin)),
                ..message.as_ref().clone()
            });
            self.changes.push(change.clone());
        }
        Some(message.clone())
    }

    pub(super) fn pins(&self) -> Vec<(MessageId, Pin)> {
        let messages = self.messages.values();
        messages
            .filter_map(|message| Some((message.id, message.current_pin()?.clone())))
            .collect()
    }

    pub(super) fn import_pin(&mut self, message: MessageId, pin: Pin) -> Imported {
        let Some(present) = self.messages.get_mut(&message) else {
            return Imported::MessageMissing;
        };
        if present.pin.is_some() || present.deleted_at.is_some() {
            return Imported::Unchanged;
        }
        *present = Arc::new(Message {
            pin: Some(Box::new(pin)),
            ..present.as_ref().clone()
        });
        Imported::Added
    }

    /// The message as it is after a reaction.
    pub(super) fn react(
        &mut self,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Option<Arc<Message>> {
        let message = self.messages.get_mut(&change.message)?;
        if message.deleted_at.is_none() && self.changes.iter().all(|logged| logged.id != change.id)
        {
            *message = Arc::new(Message {
                has_reactions: true,
                ..message.as_ref().clone()
            });
            self.changes.push(change.clone());
            let users = self.reactions.entry(change.message).or_default();
            users.insert((emoji.as_str().to_owned(), change.user.clone()), is_on);
        }
        Some(message.clone())
    }

    pub(super) fn reactions(&self, viewer: &UserId, message: MessageId) -> Vec<Reaction> {
        let mut found: Vec<Reaction> = Vec::new();
        let mut looked_at = 0;
        for ((emoji, user), is_on) in self.reactions.get(&message).into_iter().flatten() {
            if found.last().is_none_or(|last| last.emoji.as_str() != emoji) {
                found.push(Reaction {
                    emoji: Emoji::kept(emoji),
                    count: 0,
                    is_capped: false,
                    has_viewer: false,
                    users: Vec::new(),
                });
                looked_at = 0;
            }
            let reaction = found.last_mut().unwrap();
            looked_at += 1;
            reaction.has_viewer |= *is_on && user == viewer;
            if *is_on && !reaction.is_capped {
                reaction.count += 1;
                reaction
                    .users
                    .extend((reaction.users.len() < Reaction::USERS_MAX).then(|| user.clone()));
            }
            reaction.is_capped |=
                reaction.count == Reaction::COUNT_MAX || looked_at == Reaction::ROWS_MAX;
        }
        found
    }

    pub(super) fn import_reaction(
        &mut self,
        message: MessageId,
        emoji: &Emoji,
        user: &UserId,
    ) -> Imported {
        let Some(present) = self.messages.get_mut(&message) else {
            return Imported::MessageMissing;
        };
        let reactions = self.reactions.entry(message).or_default();
        let key = (emoji.as_str().to_owned(), user.clone());
        if reactions.contains_key(&key) {
            return Imported::Unchanged;
        }
        reactions.insert(key, true);
        *present = Arc::new(Message {
            has_reactions: true,
            ..present.as_ref().clone()
        });
        Imported::Added
    }

    /// The number of kinds that a user took back.
    pub(super) fn ended_reactions(&self, user: &UserId, message: MessageId) -> usize {
        let all = self.reactions.get(&message).into_iter().flatten();
        all.filter(|((_, by), is_on)| by == user && !**is_on)
            .count()
    }

    pub(super) fn reactions_on(&self, message: MessageId) -> Vec<(Emoji, UserId)> {
        let on = self
            .reactions
            .get(&message)
            .into_iter()
            .flatten()
            .filter(|(_, is_on)| **is_on);
        on.map(|((emoji, user), _)| (Emoji::kept(emoji), user.clone()))
            .collect()
    }

    /// Everybody as an import brings them: what is read, as the receipts and as the entry have it.
    pub(super) fn as_imported(&self) -> Vec<(UserId, Membership, ImportPositions)> {
        let each = |(user, participant): (&UserId, &OracleParticipant)| {
            let read = match user.is_agent() {
                true => participant.read_up_to,
                false => participant.marker.with_sent(participant.sent_up_to),
            };
            // The first id behind it, which is one more but where the bits between say that it is no id.
            let next = OrderKey((u128::from_be_bytes(read.0) + 1).to_be_bytes());
            let positions = ImportPositions {
                read_up_to: TimeUuid::from_order_key(participant.read_up_to),
                unread_from: (read != participant.read_up_to)
                    .then(|| TimeUuid::from_order_key(next).unwrap_or(TimeUuid::first_after(read))),
                delivered_up_to: TimeUuid::from_order_key(participant.delivered_up_to),
                flags: participant.flags,
            };
            (user.clone(), participant.membership, positions)
        };
        self.people.iter().map(each).collect()
    }

    pub(super) fn last_activity(&self) -> Timestamp {
        let last = self.last_message().map(MessageId::moment);
        last.max(self.given_activity)
            .unwrap_or(self.record.created_at)
    }

    pub(super) fn row(&self, user: &UserId) -> Option<InboxRow> {
        let participant = self
            .people
            .get(user)
            .filter(|participant| participant.membership.is_joined())?;
        if user.is_agent() {
            let (activity, last) = (self.last_activity(), self.last_message());
            return Some(InboxRow::of_agent(self.record.id, activity, last));
        }
        Some(InboxRow {
            conversation: self.record.id,
            last_activity: self.last_activity(),
            last_message: self.last_message(),
            marker: participant.marker,
            sent_up_to: participant.sent_up_to,
            is_sent_by_service: participant.is_sent_by_service,
            flags: participant.flags,
            floor: Floor::NONE,
        })
    }

    pub(super) fn participant(&self, user: &UserId) -> Option<Participant> {
        self.people.get(user).map(|participant| Participant {
            conversation: self.record.id,
            user: user.clone(),
            membership: self.counting(user, participant),
            read_up_to: participant.read_up_to,
            is_read_by_service: participant.is_read_by_service,
            delivered_up_to: participant.delivered_up_to,
        })
    }

    /// A membership with the role that counts.
    pub(super) fn counting(&self, user: &UserId, participant: &OracleParticipant) -> Membership {
        let is_next = self.next_owner(&[]).is_some_and(|(next, _)| next == *user);
        Membership {
            role: if is_next {
                Role::Owner
            } else {
                participant.membership.role
            },
            ..participant.membership
        }
    }

    /// Successor of the OWNER without these users, if no other participant is OWNER.
    pub(super) fn next_owner(&self, without: &[UserId]) -> Option<(UserId, Membership)> {
        let mut others: Vec<_> = self
            .joined()
            .filter(|(user, _)| !without.contains(user))
            .collect();
        if self.record.kind != ConversationKind::Group
            || others
                .iter()
                .any(|(_, participant)| participant.membership.role == Role::Owner)
        {
            return None;
        }
        let is_admin = |participant: &OracleParticipant| participant.membership.role == Role::Admin;
        if others.iter().any(|(_, participant)| is_admin(participant)) {
            others.retain(|(_, participant)| is_admin(participant));
        }
        others.sort_by_key(|(user, participant)| {
            (
                participant.membership.since.unwrap_or(Timestamp::ZERO),
                user.as_str().to_owned(),
            )
        });
        others
            .first()
            .map(|(user, participant)| ((*user).clone(), participant.membership))
    }

    /// Shows a change in the inboxes of all participants.
    pub(super) fn show(&mut self, change: TimeUuid) {
        for user in self.joined_users() {
            let participant = self.people.get_mut(&user).expect("it was just listed");
            participant.newest_change = participant.newest_change.max(Some(change));
        }
    }

    /// Persists the SYSTEM message of a change of membership or name, which counts as a send.
    pub(super) fn tell(&mut self, message: &Arc<Message>, changes: &[Change]) {
        self.messages.insert(message.id, message.clone());
        self.newest_send = self.newest_send.max(Some(message.id));
        self.changes.extend(changes.iter().cloned());
    }

    pub(super) fn transition(&mut self, transition: &MembershipTransition, version: TimeUuid) {
        let participant = self
            .people
            .entry(transition.user.clone())
            .or_insert_with(|| OracleParticipant::new(transition.membership));
        participant.membership = transition.membership;
        if transition.kind == TransitionKind::Joins {
            let marker = ReadMarker {
                epoch: version.moment().micros().cast_unsigned(),
                up_to: version.order_key(),
            };
            participant.marker = participant.marker.max(marker);
        }
        if transition.kind != TransitionKind::Stays {
            participant.newest_change = participant.newest_change.max(Some(version));
        }
    }

    pub(super) fn joined_users(&self) -> Vec<UserId> {
        self.joined().map(|(user, _)| user.clone()).collect()
    }

    pub(super) fn pair(&self) -> Option<Vec<u8>> {
        let people: Vec<_> = self.people.keys().collect();
        match (self.record.kind, people.as_slice()) {
            (ConversationKind::Direct, [one, other]) => Some(pair_key(one, other)),
            (ConversationKind::Direct, [one]) if self.record.id.is_with_oneself(one) => {
                Some(pair_key(one, one))
            }
            (ConversationKind::Direct | ConversationKind::Group, _) => None,
        }
    }

    pub(super) fn grow(&mut self) {
        self.record.is_large |= self.joined().count() > Conversation::FAN_OUT_MAX;
    }

    pub(super) fn mentions(
        &self,
        user: &UserId,
        (after, up_to): (OrderKey, OrderKey),
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Unread {
        let mut unread = Unread::default();
        let messages = self.messages.values();
        let mentions = messages.filter(|message| {
            let position = message.id.order_key();
            let is_in = position > after && position <= up_to;
            let is_erased = self.erased.get(user).is_some_and(|at| message.id < *at);
            is_in
                && !is_erased
                && message.counts_as_mention_for(user)
                && (!user.is_agent() || message.mentions().is_some_and(|all| all.everyone))
                && !ignored.contains(message.sender.as_str())
        });
        for message in mentions {
            if !unread.add(message.id, cap) {
                break;
            }
        }
        unread
    }

    pub(super) fn unread(
        &self,
        user: &UserId,
        (after, up_to): (OrderKey, OrderKey),
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Unread {
        let mut unread = Unread::default();
        for message in self
            .messages
            .values()
            .filter(|message| message.id.order_key() > after && message.id.order_key() <= up_to)
        {
            let is_ignored = ignored.contains(message.sender.as_str());
            if message.counts_as_unread_for(user) && !is_ignored {
                unread.first = unread.first.or(Some(message.id));
                if unread.count == cap {
                    return Unread {
                        is_capped: true,
                        ..unread
                    };
                }
                unread.count += 1;
            }
        }
        unread
    }
}
