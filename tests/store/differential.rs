//! Random operations, played on an engine and on the naive one: every answer must be the same, before and after the store was opened again.

mod compare;

use proptest::prelude::*;
use wideroom::model::{
    Change, ChangeKind, Conversation, ConversationId, ConversationKind, Cut, DirectIds, Emoji,
    GroupName, IdempotencyKey, Membership, MembershipState, Message, MessageId, MessageKind,
    PageRequest, Profile, ReadMarker, Role, UserId,
};
use wideroom::store::{
    Archive, Audience, FlagsChange, ImportPositions, ImportRow, MarkerMove, MembershipChange,
    MembershipTransition, NewConversation, NewMessage, ProfileChange, Renaming, Result, StoreAdmin,
    TransitionKind,
};

use self::compare::{any_questions, compare};
use super::Stage;
use super::ask::{assert_sound, only, runner, try_row};
use crate::support::words::{
    START, change, change_of, conversation, conversation_id, crowd, deleted, direct, group,
    id_with, key, message_row, new, participant_row, system, text, user,
};

/// The last two of them are large.
const CONVERSATIONS: u8 = 8;
const LARGE: u8 = 2;
/// Large once all who have names are in it.
const NEARLY_LARGE: u8 = 1;
/// Direct conversations of an import: some with ids of their own, then some with oneself.
const DIRECTS: u8 = 6;
const GIVEN_DIRECTS: u8 = 3;
/// One of them is an agent.
const NAMES: [&str; 5] = ["ann", "anna", "agent:ben", "Ben", "é"];
const KEYS: [&str; 3] = ["k", "kk", "K"];

/// One random step. Numbers select among the existing users and messages, and wrap around.
#[derive(Debug, Clone)]
enum Step {
    Make {
        conversation: u8,
        people: u8,
        created: i64,
    },
    MakeDirect {
        one: u8,
        other: u8,
    },
    Append {
        conversation: u8,
        sends: Vec<Send>,
    },
    Mark {
        conversation: u8,
        user: u8,
        position: u8,
        how: Mark,
    },
    Set {
        conversation: u8,
        user: u8,
        muted: Option<bool>,
        pinned: Option<bool>,
        archive: Option<u8>,
    },
    Deliver {
        conversation: u8,
        user: u8,
        micros: i64,
    },
    Tell {
        user: u8,
        display_name: Option<Option<bool>>,
        avatar_url: Option<Option<bool>>,
    },
    React {
        conversation: u8,
        user: u8,
        position: u8,
        emoji: u8,
        is_on: bool,
    },
    Pin {
        conversation: u8,
        user: u8,
        position: u8,
        is_on: bool,
    },
    See {
        user: u8,
        micros: i64,
    },
    Transition {
        conversation: u8,
        transitions: Vec<(u8, u8)>,
        is_stale: bool,
    },
    Rename {
        conversation: u8,
        name: u8,
    },
    Import(Vec<Line>),
}

#[derive(Debug, Clone)]
struct Send {
    sender: u8,
    gap: i64,
    is_system: bool,
    key: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Mark {
    Read,
    Unread,
    /// Marker with an older epoch or a smaller position.
    Late,
}

#[derive(Debug, Clone)]
enum Line {
    Conversation {
        conversation: u8,
        activity: Option<i64>,
        created: i64,
    },
    Participant {
        conversation: u8,
        user: u8,
        read: Option<u8>,
        has_left: bool,
        since: Option<i64>,
    },
    Message {
        conversation: u8,
        back: i64,
        rest: u8,
        is_deleted: bool,
    },
    User(u8),
    /// A direct conversation, and some participants of it: too few, enough or too many.
    Direct {
        direct: u8,
        users: Vec<u8>,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let send = (
        any::<u8>(),
        0..3_i64,
        prop::bool::weighted(0.15),
        proptest::option::weighted(0.3, 0..3_u8),
    )
        .prop_map(|(sender, gap, is_system, key)| Send {
            sender,
            gap,
            is_system,
            key,
        });
    let how = prop::sample::select(vec![Mark::Read, Mark::Read, Mark::Unread, Mark::Late]);
    let line = prop_oneof![
        2 => (0..CONVERSATIONS, proptest::option::of(0..60_i64), 0..9_i64)
            .prop_map(|(conversation, activity, created)| Line::Conversation { conversation, activity, created }),
        3 => (0..CONVERSATIONS, 0..5_u8, proptest::option::of(any::<u8>()), prop::bool::weighted(0.2), proptest::option::of(0..90_i64))
            .prop_map(|(conversation, user, read, has_left, since)| Line::Participant { conversation, user, read, has_left, since }),
        3 => (0..CONVERSATIONS, 0..40_i64, any::<u8>(), prop::bool::weighted(0.3))
            .prop_map(|(conversation, back, rest, is_deleted)| Line::Message { conversation, back, rest, is_deleted }),
        1 => (0..5_u8).prop_map(Line::User),
        3 => (0..DIRECTS, prop::collection::vec(0..5_u8, 0..4)).prop_map(|(direct, users)| Line::Direct { direct, users }),
    ];
    prop_oneof![
        3 => (0..CONVERSATIONS, 1..32_u8, 0..9_i64).prop_map(|(conversation, people, created)| Step::Make { conversation, people, created }),
        1 => (0..5_u8, 0..5_u8).prop_map(|(one, other)| Step::MakeDirect { one, other }),
        8 => (0..CONVERSATIONS, prop::collection::vec(send, 1..5)).prop_map(|(conversation, sends)| Step::Append { conversation, sends }),
        4 => (0..CONVERSATIONS, any::<u8>(), any::<u8>(), how).prop_map(|(conversation, user, position, how)| Step::Mark { conversation, user, position, how }),
        2 => (0..CONVERSATIONS, any::<u8>(), any::<Option<bool>>(), any::<Option<bool>>(), proptest::option::of(0..6_u8))
            .prop_map(|(conversation, user, muted, pinned, archive)| Step::Set { conversation, user, muted, pinned, archive }),
        2 => (0..CONVERSATIONS, any::<u8>(), 0..120_i64).prop_map(|(conversation, user, micros)| Step::Deliver { conversation, user, micros }),
        1 => (0..5_u8, any::<Option<Option<bool>>>(), any::<Option<Option<bool>>>())
            .prop_map(|(user, display_name, avatar_url)| Step::Tell { user, display_name, avatar_url }),
        4 => (0..CONVERSATIONS, any::<u8>(), any::<u8>(), 0..3_u8, any::<bool>())
            .prop_map(|(conversation, user, position, emoji, is_on)| Step::React { conversation, user, position, emoji, is_on }),
        2 => (0..CONVERSATIONS, any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(conversation, user, position, is_on)| Step::Pin { conversation, user, position, is_on }),
        1 => (0..5_u8, 0..99_i64).prop_map(|(user, micros)| Step::See { user, micros }),
        4 => (0..CONVERSATIONS, prop::collection::vec((any::<u8>(), any::<u8>()), 1..4), prop::bool::weighted(0.1))
            .prop_map(|(conversation, transitions, is_stale)| Step::Transition { conversation, transitions, is_stale }),
        1 => (0..CONVERSATIONS, 0..3_u8).prop_map(|(conversation, name)| Step::Rename { conversation, name }),
        2 => prop::collection::vec(line, 1..8).prop_map(Step::Import),
    ]
}

fn id_at(micros: i64, rest: u8) -> MessageId {
    id_with(micros, [rest, rest, 1, 0, 0, 0, 0, rest])
}

/// Plays steps on a store. Two players of the same steps do the same, as long as their stores answer alike.
struct Player<'a> {
    store: &'a dyn StoreAdmin,
    micros: i64,
    /// A resume is not promised across an import.
    is_imported: bool,
}

impl Player<'_> {
    async fn play(&mut self, step: &Step) -> String {
        self.micros += 1;
        match step {
            Step::Make {
                conversation,
                people,
                created,
            } => {
                format!(
                    "{:?}",
                    self.store
                        .create_conversation(&self.group(*conversation, *people, *created))
                        .await
                )
            }
            Step::MakeDirect { one, other } => {
                let new = NewConversation {
                    change: change(self.micros),
                    ..direct(&name(*one), &name(*other))
                };
                format!("{:?}", self.store.create_conversation(&new).await)
            }
            Step::Append {
                conversation: number,
                sends,
            } => self.append(conversation_id(*number), sends).await,
            Step::Mark {
                conversation: number,
                user,
                position,
                how,
            } => {
                self.mark(conversation_id(*number), *user, *position, *how)
                    .await
            }
            Step::Set {
                conversation: number,
                user,
                muted,
                pinned,
                archive,
            } => {
                let people = self.people(conversation_id(*number)).await;
                let Some(user) = people.get(usize::from(*user) % people.len().max(1)) else {
                    return "nobody is there".to_owned();
                };
                let archive = archive.map(any_archive);
                let to = FlagsChange {
                    conversation: conversation_id(*number),
                    muted: *muted,
                    pinned: *pinned,
                    archive,
                    level: None,
                    change: change(self.micros),
                };
                format!("{:?}", self.store.set_flags(user, &to).await)
            }
            Step::Deliver {
                conversation: number,
                user,
                micros,
            } => {
                let people = self.people(conversation_id(*number)).await;
                let Some(user) = people.get(usize::from(*user) % people.len().max(1)) else {
                    return "nobody is there".to_owned();
                };
                format!(
                    "{:?}",
                    self.store
                        .mark_delivered(
                            user,
                            conversation_id(*number),
                            id_at(*micros, 0x80).order_key()
                        )
                        .await
                )
            }
            Step::Tell {
                user,
                display_name,
                avatar_url,
            } => {
                // One of two texts, so that it may be the same again.
                let text = |given: Option<Option<bool>>| {
                    given.map(|text| text.map(|text| text.to_string()))
                };
                let to = ProfileChange {
                    display_name: text(*display_name),
                    avatar_url: text(*avatar_url),
                    ..ProfileChange::default()
                };
                format!("{:?}", self.store.change_profile(&name(*user), &to).await)
            }
            Step::React {
                conversation: number,
                user,
                position,
                emoji,
                is_on,
            } => {
                self.react(conversation_id(*number), *user, *position, *emoji, *is_on)
                    .await
            }
            Step::Pin {
                conversation: number,
                user,
                position,
                is_on,
            } => {
                self.pin(conversation_id(*number), *user, *position, *is_on)
                    .await
            }
            Step::See { user, micros } => format!(
                "{:?}",
                self.store
                    .mark_seen(&name(*user), START.plus_micros(*micros))
                    .await
            ),
            Step::Transition {
                conversation: number,
                transitions,
                is_stale,
            } => {
                self.transition(conversation_id(*number), transitions, *is_stale)
                    .await
            }
            Step::Rename {
                conversation: number,
                name,
            } => {
                let Some(message) = self.system(conversation_id(*number), 1).await else {
                    return "nobody is there".to_owned();
                };
                let (kind, user) = (ChangeKind::ConversationRenamed, message.sender.clone());
                let change = change_of(self.before(&message, 1), kind, message.id, &user);
                let name = GroupName::parse(&format!("name {name}")).unwrap();
                let to = Renaming {
                    name,
                    change,
                    message: message.into(),
                };
                self.told(
                    self.store
                        .rename_conversation(conversation_id(*number), &to)
                        .await
                        .map(Some),
                )
            }
            Step::Import(lines) => {
                self.is_imported = true;
                let rows: Vec<_> = lines.iter().flat_map(|line| self.rows(line)).collect();
                format!("{:?}", self.store.import(&rows).await)
            }
        }
    }

    fn group(&self, number: u8, people: u8, created: i64) -> NewConversation {
        let mut users: Vec<_> = (0..5).filter(|n| people >> n & 1 == 1).map(name).collect();
        if number >= CONVERSATIONS - LARGE {
            users.extend(crowd(Conversation::FAN_OUT_MAX + 1));
        }
        if number == NEARLY_LARGE {
            users.extend(crowd(Conversation::FAN_OUT_MAX - 3));
        }
        let mut new = group(conversation_id(number), &users);
        // Never after the first message, but at the same moment as others.
        new.conversation.created_at = START.plus_micros(created - 10);
        NewConversation {
            change: change(self.micros),
            ..new
        }
    }

    /// Sends as a chat does: from participants, with ids after all that is there.
    async fn append(&mut self, conversation: ConversationId, sends: &[Send]) -> String {
        let people: Vec<_> = self.people(conversation).await;
        if people.is_empty() {
            return "nobody is there".to_owned();
        }
        let mut last = only(self.store.last_messages(&[conversation]).await.unwrap());
        let mut messages: Vec<NewMessage> = Vec::new();
        for send in sends {
            let rest = conversation.0.as_bytes()[0].wrapping_mul(0x1f);
            let mut id = id_at(self.micros + send.gap, rest);
            if last.is_some_and(|last| id <= last) {
                id = id_at(last.unwrap().moment().micros() - START.micros() + 1, rest);
            }
            self.micros = id.moment().micros() - START.micros();
            last = Some(id);
            let kind = if send.is_system {
                MessageKind::System
            } else {
                MessageKind::Text
            };
            let sender = &people[usize::from(send.sender) % people.len()];
            let is_used = |key: &IdempotencyKey| {
                messages.iter().any(|new| {
                    new.message.sender == *sender && new.message.client_key.as_ref() == Some(key)
                })
            };
            let client_key = send.key.map(any_key).filter(|key| !is_used(key));
            messages.push(new(Message {
                kind,
                client_key,
                ..text(conversation, id, sender)
            }));
        }
        let appended = self
            .store
            .append_messages(conversation, &messages)
            .await
            .unwrap();
        let mut users = appended.audience.users.map(|users| users.to_vec());
        users.iter_mut().for_each(|users| users.sort());
        format!("{users:?} {:?}", appended.taken)
    }

    /// A SYSTEM message of somebody there, with space before it for the ids of so many changes.
    async fn system(&mut self, conversation: ConversationId, changes: i64) -> Option<Message> {
        let sender = self.people(conversation).await.into_iter().next()?;
        let last = only(self.store.newest_events(&[conversation]).await.unwrap())
            .map_or(0, |last| last.moment().micros() - START.micros());
        self.micros = self.micros.max(last + 1) + changes;
        Some(system(conversation, id_at(self.micros, 0x80), &sender))
    }

    fn before(&self, message: &Message, micros: i64) -> MessageId {
        id_at(message.id.moment().micros() - START.micros() - micros, 0x80)
    }

    fn told(&self, kept: Result<Option<Audience>>) -> String {
        let mut users = kept
            .unwrap()
            .map(|audience| audience.users.map(|users| users.to_vec()));
        users.iter_mut().flatten().for_each(|users| users.sort());
        format!("{users:?}")
    }

    /// Adds, removes and gives roles as a chat does: to those who are there or not.
    async fn transition(
        &mut self,
        conversation: ConversationId,
        transitions: &[(u8, u8)],
        is_stale: bool,
    ) -> String {
        let mut transitions: Vec<_> = transitions
            .iter()
            .map(|(user, what)| (name(*user), *what))
            .collect();
        transitions.sort();
        transitions.dedup_by(|one, other| one.0 == other.0);
        let count = i64::try_from(transitions.len()).unwrap();
        let Some(message) = self.system(conversation, count).await else {
            return "nobody is there".to_owned();
        };
        let users: Vec<_> = transitions.iter().map(|(user, _)| user.clone()).collect();
        let members = self
            .store
            .membership_snapshot(conversation, &users)
            .await
            .unwrap()
            .unwrap();
        let (since, role) = (Some(message.id.moment()), |n: u8| {
            [Role::Owner, Role::Admin, Role::Member][usize::from(n) % 3]
        });
        let transition =
            |((user, what), present): ((UserId, u8), &Option<Membership>)| match present {
                Some(present) if present.is_joined() && what % 2 == 0 => MembershipTransition {
                    user,
                    kind: TransitionKind::Leaves,
                    membership: Membership {
                        state: MembershipState::Left,
                        since,
                        ..*present
                    },
                },
                Some(present) if present.is_joined() => MembershipTransition {
                    user,
                    kind: TransitionKind::Stays,
                    membership: Membership {
                        role: role(what / 2),
                        ..*present
                    },
                },
                _ => MembershipTransition {
                    user,
                    kind: TransitionKind::Joins,
                    membership: Membership {
                        since,
                        ..Membership::joined(role(what))
                    },
                },
            };
        let transitions: Vec<_> = transitions
            .into_iter()
            .zip(&members.memberships)
            .map(transition)
            .collect();
        let change = |(back, transition): (i64, &MembershipTransition)| {
            let kind = if transition.kind == TransitionKind::Joins {
                ChangeKind::ParticipantAdded
            } else {
                ChangeKind::RoleChanged
            };
            change_of(
                self.before(&message, count - back),
                kind,
                message.id,
                &transition.user,
            )
        };
        let changes = (0..).zip(&transitions).map(change).collect();
        let seen = if is_stale {
            Some(change_id_of_nothing())
        } else {
            members.version
        };
        let change = MembershipChange::announced(seen, transitions, changes, message.into());
        self.told(self.store.change_membership(conversation, &change).await)
    }

    /// Reacts as a chat does, to any message there: with an id after all that is there.
    async fn react(
        &mut self,
        conversation: ConversationId,
        user: u8,
        position: u8,
        emoji: u8,
        is_on: bool,
    ) -> String {
        let kind = ChangeKind::ReactionsChanged;
        match self.change(conversation, user, position, kind).await {
            Ok(change) => {
                let emoji = any_emoji(emoji);
                let reacted = self.store.react(conversation, &emoji, is_on, &change).await;
                format!("{reacted:?}")
            }
            Err(why) => why.to_owned(),
        }
    }

    /// Pins or unpins any message there.
    async fn pin(
        &mut self,
        conversation: ConversationId,
        user: u8,
        position: u8,
        is_on: bool,
    ) -> String {
        let kind = ChangeKind::PinsChanged;
        match self.change(conversation, user, position, kind).await {
            Ok(change) => {
                let pinned = self.store.pin_message(conversation, is_on, &change).await;
                format!("{pinned:?}")
            }
            Err(why) => why.to_owned(),
        }
    }

    /// A change of a message there, with an id after all that is there.
    async fn change(
        &mut self,
        conversation: ConversationId,
        user: u8,
        position: u8,
        kind: ChangeKind,
    ) -> Result<Change, &'static str> {
        let people = self.people(conversation).await;
        let Some(user) = people.get(usize::from(user) % people.len().max(1)) else {
            return Err("nobody is there");
        };
        let page = self
            .store
            .history(conversation, &Cut::default(), &PageRequest::first(100))
            .await
            .unwrap();
        let Some(message) = page
            .items
            .get(usize::from(position) % page.items.len().max(1))
        else {
            return Err("nothing is there");
        };
        let last = only(self.store.newest_events(&[conversation]).await.unwrap())
            .map_or(0, |last| last.moment().micros() - START.micros());
        self.micros = self.micros.max(last + 1);
        Ok(change_of(change(self.micros), kind, message.id, user))
    }

    async fn people(&self, conversation: ConversationId) -> Vec<UserId> {
        let page = self
            .store
            .participants(conversation, &PageRequest::first(100))
            .await
            .unwrap();
        page.items
            .into_iter()
            .map(|participant| participant.user)
            .collect()
    }

    /// Marks as a chat does, from the row it sees.
    async fn mark(
        &self,
        conversation: ConversationId,
        user: u8,
        position: u8,
        how: Mark,
    ) -> String {
        let people = self.people(conversation).await;
        let Some(user) = people.get(usize::from(user) % people.len().max(1)) else {
            return "nobody is there".to_owned();
        };
        let row = try_row(self.store, user, conversation)
            .await
            .expect("participants have entries");
        let page = self
            .store
            .history(conversation, &Cut::default(), &PageRequest::first(100))
            .await
            .unwrap();
        let Some(message) = page
            .items
            .get(usize::from(position) % page.items.len().max(1))
        else {
            return "nothing is there".to_owned();
        };
        let up_to = message.id.order_key();
        let now = START.plus_micros(self.micros).micros().cast_unsigned();
        let (marker, read_up_to) = match how {
            Mark::Read => (
                ReadMarker {
                    up_to,
                    ..row.marker
                },
                Some(up_to),
            ),
            Mark::Unread => {
                let epoch = now.max(row.marker.epoch + 1);
                (
                    ReadMarker {
                        epoch,
                        up_to: row.read_up_to().min(up_to.before()),
                    },
                    None,
                )
            }
            Mark::Late => (
                ReadMarker {
                    epoch: row.marker.epoch / 2,
                    up_to,
                },
                Some(up_to),
            ),
        };
        // Whether a mark that moves nothing is a change is not promised: such a one has an id that can be the newest of nothing.
        let micros = if marker > row.marker {
            self.micros
        } else {
            -100
        };
        let to = MarkerMove {
            conversation,
            marker,
            read_up_to,
            is_by_service: false,
            change: change(micros),
        };
        format!(
            "{:?} {:?}",
            to,
            self.store.move_read_marker(user, &to).await
        )
    }

    fn rows(&self, line: &Line) -> Vec<ImportRow> {
        let Line::Direct { direct, users } = line else {
            return vec![self.row(line)];
        };
        let id = direct_id(*direct);
        let made = ImportRow::Conversation {
            conversation: conversation(id, ConversationKind::Direct, START),
            last_activity: None,
            profile: Default::default(),
        };
        let participants = users.iter().map(|user| participant_row(id, &name(*user)));
        std::iter::once(made).chain(participants).collect()
    }

    fn row(&self, line: &Line) -> ImportRow {
        match *line {
            Line::Direct { .. } => unreachable!("it is several rows"),
            Line::Conversation {
                conversation: number,
                activity,
                created,
            } => {
                let made = conversation(
                    conversation_id(number),
                    ConversationKind::Group,
                    START.plus_micros(created),
                );
                ImportRow::Conversation {
                    conversation: made,
                    last_activity: activity.map(|micros| START.plus_micros(micros)),
                    profile: Default::default(),
                }
            }
            Line::Participant {
                conversation: number,
                user,
                read,
                has_left,
                since,
            } => {
                let mut membership =
                    wideroom::model::Membership::joined(wideroom::model::Role::Member);
                membership.since = since.map(|micros| START.plus_micros(micros));
                if has_left {
                    membership.state = wideroom::model::MembershipState::Left;
                }
                let read_up_to = read.map(|position| id_at(position.into(), position));
                let positions = ImportPositions {
                    read_up_to,
                    delivered_up_to: read_up_to,
                    ..ImportPositions::default()
                };
                ImportRow::Participant {
                    conversation: conversation_id(number),
                    user: name(user),
                    membership,
                    positions,
                    ban: None,
                }
            }
            Line::Message {
                conversation: number,
                back,
                rest,
                is_deleted,
            } => {
                let id = id_at((self.micros - back).max(0), rest);
                let sender = name(rest % 5);
                message_row(if is_deleted {
                    deleted(conversation_id(number), id, &sender)
                } else {
                    text(conversation_id(number), id, &sender)
                })
            }
            Line::User(n) => {
                let profile = Profile {
                    display_name: Some(format!("at {}", self.micros)),
                    ..Profile::default()
                };
                ImportRow::User {
                    user: name(n),
                    profile,
                    restriction: Default::default(),
                }
            }
        }
    }
}

/// No id of [`Step::MakeDirect`]: an import of half a conversation must not be in its way.
fn direct_id(n: u8) -> ConversationId {
    if n < GIVEN_DIRECTS {
        return conversation_id(20 + n);
    }
    let user = name(n - GIVEN_DIRECTS);
    DirectIds::new([7; DirectIds::SECRET_BYTES]).id(&user, &user)
}

fn change_id_of_nothing() -> MessageId {
    change(-500)
}

fn name(n: u8) -> UserId {
    user(NAMES[usize::from(n) % NAMES.len()])
}

/// Archive times are few, so that equal ones occur.
fn any_archive(n: u8) -> Archive {
    let moment = START.plus_micros((n / 3).into());
    match n % 3 {
        0 => Archive::Begin(moment),
        1 => Archive::EndOf(moment),
        _ => Archive::End,
    }
}

fn any_emoji(n: u8) -> Emoji {
    Emoji::parse(["👍", "❤", "👍🏽"][usize::from(n) % 3]).unwrap()
}

fn any_key(n: u8) -> IdempotencyKey {
    key(KEYS[usize::from(n) % KEYS.len()])
}

fn all_conversations() -> Vec<ConversationId> {
    let users = NAMES.map(user);
    let mut conversations: Vec<_> = (0..CONVERSATIONS + 1).map(conversation_id).collect();
    conversations.extend(
        users
            .iter()
            .flat_map(|one| users.iter().map(|other| ConversationId::direct(one, other))),
    );
    conversations.extend((0..DIRECTS).map(direct_id));
    conversations.sort_unstable();
    conversations.dedup();
    conversations
}

pub fn an_engine_answers_like_the_oracle(open: impl AsyncFn() -> Option<Stage>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Most conversations are made at the start, so that later steps find something.
    let made = prop::collection::vec((1..32_u8, 0..9_i64), 0..usize::from(CONVERSATIONS));
    let make = |(conversation, (people, created))| Step::Make {
        conversation,
        people,
        created,
    };
    // Changes after a position are compared only without imports, so half of the cases import nothing.
    let steps = (
        made,
        prop::collection::vec(any_step(), 1..60),
        any::<bool>(),
    )
        .prop_map(move |(made, steps, may_import)| {
            let steps = steps
                .into_iter()
                .filter(|step| may_import || !matches!(step, Step::Import(_)));
            (1..).zip(made).map(make).chain(steps).collect::<Vec<_>>()
        });
    let outcome = runner(16).run(
        &(steps, any_questions(), any_questions()),
        |(steps, questions, later_questions)| {
            runtime.block_on(async {
                let Some(stage) = open().await else { return };
                let oracle = Stage::oracle();
                let mut engine = Player {
                    store: stage.store(),
                    micros: 0,
                    is_imported: false,
                };
                let mut naive = Player {
                    store: oracle.store(),
                    micros: 0,
                    is_imported: false,
                };
                for store in [engine.store, naive.store] {
                    store.set_outbox(Some(START)).await.unwrap();
                }
                for (n, step) in steps.iter().enumerate() {
                    assert_eq!(
                        engine.play(step).await,
                        naive.play(step).await,
                        "step {n}: {step:?}"
                    );
                    if n == steps.len() / 2 {
                        compare(engine.store, naive.store, &questions, naive.is_imported).await;
                    }
                }
                let is_imported = naive.is_imported;
                compare(stage.store(), oracle.store(), &later_questions, is_imported).await;
                assert_sound(stage.store()).await;
                let stage = stage.reopened().await;
                if stage.is_on_disk() {
                    compare(stage.store(), oracle.store(), &questions, is_imported).await;
                }
                stage.close().await;
            });
            Ok(())
        },
    );
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}
