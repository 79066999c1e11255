//! Starting conversations, and who is in them.

use std::sync::Arc;

use crate::bus::Signal;
use crate::chat::write::draft::parse_key;
use crate::chat::write::introduction::Fee;
use crate::chat::{Chat, Error, Result};
use crate::model::{
    Conversation, ConversationId, ConversationKind, DirectIds, GroupName, InputHash, Page,
    PageRequest, Participant, Profile, Role, UserId, UserIdError,
};
use crate::store::{Created, NewConversation};

impl Chat {
    /// The one direct conversation of the viewer and this user; the same one whoever starts it, however often, also with oneself.
    pub async fn start_direct(&self, viewer: &UserId, username: &str) -> Result<Arc<Conversation>> {
        let peer = UserId::parse(username)
            .map_err(|error| Error::bad_input(&["input", "username"], error))?;
        // Looked up first: an import may have brought one with an id of its own.
        let known = self.0.store.direct_conversation(viewer, &peer).await?;
        if let Some(id) = known
            && let Some(there) = self.conversation(viewer, id).await?
        {
            return Ok(there);
        }
        // Where the pair has one that is not there, its maker died between, and it is made now.
        let mut users = vec![viewer.clone()];
        if peer != *viewer {
            users.push(peer.clone());
        }
        let id = match known {
            Some(id) => id,
            None => self.direct_ids().await?.id(viewer, &peer),
        };
        self.check_room_for_one_more(viewer, &users, &["input", "username"])
            .await?;
        let fee = self.pay_for_strangers(viewer, &users).await?;
        let participants = users.into_iter().map(|user| (user, Role::Member)).collect();
        match self
            .create(
                id,
                ConversationKind::Direct,
                None,
                viewer,
                participants,
                None,
            )
            .await?
        {
            Ok(made) => Ok(made),
            Err(existing) => {
                self.give_back(viewer, fee);
                self.conversation_of(viewer, existing.id).await
            }
        }
    }

    /// A new group of the viewer, who is its OWNER, and these users. With an idempotency key it is made once.
    pub async fn create_group(
        &self,
        viewer: &UserId,
        name: &str,
        usernames: &[String],
        key: Option<&str>,
    ) -> Result<Arc<Conversation>> {
        let name = GroupName::parse(name)
            .map_err(|error| Error::bad_input(&["input", "name"], format!("the name {error}")))?;
        let others = parse_usernames(usernames)?;
        let key = key.map(parse_key).transpose()?;
        let mut users: Vec<_> = others.into_iter().filter(|user| user != viewer).collect();
        users.push(viewer.clone());
        let hash = InputHash::of_group(name.as_str(), &users);
        let key_is_given = key.is_some();
        let id = key.map_or_else(ConversationId::random, |key| {
            ConversationId::group(viewer, key.as_str())
        });
        // A retry finds the group of the first try, whether or not there is room for another, and brings nobody in.
        let is_there = key_is_given
            && self
                .0
                .store
                .participations(viewer, &[id])
                .await?
                .iter()
                .any(Option::is_some);
        let mut fee = Fee::default();
        if !is_there {
            self.check_room_for_one_more(viewer, &users, &["input", "usernames"])
                .await?;
            if users.len() > Conversation::FAN_OUT_MAX {
                self.check_room_for_a_large_one(None, Some(viewer), &users)
                    .await?;
            }
            fee = self.pay_for_strangers(viewer, &users).await?;
        }
        let role = |user: &UserId| {
            if user == viewer {
                Role::Owner
            } else {
                Role::Member
            }
        };
        let participants = users
            .into_iter()
            .map(|user| (user.clone(), role(&user)))
            .collect();
        let existing = match self
            .create(
                id,
                ConversationKind::Group,
                Some(name),
                viewer,
                participants,
                Some(hash),
            )
            .await?
        {
            Ok(made) => return Ok(made),
            Err(existing) => existing,
        };
        self.give_back(viewer, fee);
        if existing.input_hash == Some(hash) {
            self.conversation_of(viewer, existing.id).await
        } else {
            Err(Error::Conflict)
        }
    }

    /// The generator of ids for new direct conversations, which is read from the store once.
    async fn direct_ids(&self) -> Result<&DirectIds> {
        let made = async || Ok(self.0.store.direct_ids().await?);
        self.0.direct_ids.get_or_try_init(made).await
    }

    /// `Err` inside: it was there already.
    async fn create(
        &self,
        id: ConversationId,
        kind: ConversationKind,
        name: Option<GroupName>,
        viewer: &UserId,
        participants: Vec<(UserId, Role)>,
        input_hash: Option<InputHash>,
    ) -> Result<Result<Arc<Conversation>, Arc<Conversation>>> {
        let (chat, created_by) = (self.clone(), Some(viewer.clone()));
        let is_large = participants.len() > Conversation::FAN_OUT_MAX;
        self.to_the_end(async move {
            let ids = chat.0.in_flight.begin(1);
            let change = ids.newest();
            let conversation = Conversation {
                id,
                kind,
                name,
                created_at: change.moment(),
                created_by,
                input_hash,
                is_large,
            };
            let new = NewConversation {
                conversation,
                participants,
                change,
            };
            let (ids, created) = ids.if_kept(chat.0.store.create_conversation(&new).await)?;
            match created {
                Created::New => {
                    chat.joined_one_more(new.participants.iter().map(|(user, _)| user));
                    chat.tell_inboxes(
                        new.participants.iter().map(|(user, _)| user),
                        id,
                        (change, ids.settled()),
                        Signal::Inbox,
                    );
                    Ok(Ok(Arc::new(new.conversation)))
                }
                Created::Existing(existing) => Ok(Err(existing)),
            }
        })
        .await
    }

    /// A page of those who are in the conversation, by username bytes. The viewer's access was checked.
    pub async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        Ok(self.0.store.participants(conversation, page).await?)
    }

    /// A participant as the viewer may see them. `None` for a stranger, to a stranger, and for one who has left.
    pub async fn participant(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        user: &UserId,
    ) -> Result<Option<Participant>> {
        if self.conversation(viewer, conversation).await?.is_none() {
            return Ok(None);
        }
        let found = self
            .0
            .store
            .participants_by_name(&[(conversation, user.clone())])
            .await?
            .pop()
            .flatten();
        Ok(found.filter(|participant| participant.membership.is_joined()))
    }

    pub async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        Ok(self.0.store.participant_counts(conversations).await?)
    }

    /// The other one of a direct conversation, or the viewer who talks to themselves. The viewer's access was checked.
    pub async fn direct_peer(
        &self,
        viewer: &UserId,
        conversation: &Conversation,
    ) -> Result<Option<UserId>> {
        if conversation.kind != ConversationKind::Direct {
            return Ok(None);
        }
        let both = self
            .0
            .store
            .participants(conversation.id, &PageRequest::first(2))
            .await?;
        let other = both
            .items
            .into_iter()
            .map(|participant| participant.user)
            .find(|user| user != viewer);
        Ok(Some(other.unwrap_or_else(|| viewer.clone())))
    }

    pub async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        Ok(self.0.store.profiles(users).await?)
    }
}

pub(crate) fn parse_usernames(usernames: &[String]) -> Result<Vec<UserId>> {
    const PATH: &[&str] = &["input", "usernames"];
    if usernames.len() > Conversation::USERNAMES_MAX {
        return Err(Error::bad_input(
            PATH,
            format!(
                "at most {} usernames in one call",
                Conversation::USERNAMES_MAX
            ),
        ));
    }
    let mut users = usernames
        .iter()
        .map(|name| UserId::parse(name))
        .collect::<Result<Vec<_>, UserIdError>>();
    if let Ok(users) = &mut users {
        users.sort_unstable();
        users.dedup();
    }
    users.map_err(|error| Error::bad_input(PATH, error))
}
