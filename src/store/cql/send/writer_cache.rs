//! What this server knows of conversations that it writes to, so that a send need not read first.
//!
//! Bounded, and only ever a hint: who takes part is checked again after each write, by the roster. What is not known is
//! read anew. Of a write whose outcome is not known it is kept until that is settled, as the same write must go to the same buckets.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::try_join;
use lru::LruCache;

use crate::model::{Conversation, ConversationId, MessageId, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, user};
use crate::store::cql::inbox::writes::{HINT_LAG_MICROS, slot_of};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::bucket_choice::Course;
use crate::store::cql::message::register::{LastMessage, decode_membership};
use crate::store::{Audience, Result};

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("it is not zero");
/// Conversations with a write under way or of unknown outcome.
const UNSETTLED_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("it is not zero");
/// Of the index of buckets. A batch rarely has messages of more than two.
const INDEXED_MAX: usize = 8;
const PARTICIPANTS_AT_ONCE: i32 = 1_000;

statements! {
    /// The statements of this file.
    Statements {
        head: Read "SELECT kind, is_large, last_message, last_activity FROM conversations WHERE conversation_id = ?";
        is_large: Read "SELECT is_large FROM conversations WHERE conversation_id = ?";
        roster: Read "SELECT roster FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
        participants: Read "SELECT user_id, membership FROM participants_by_conversation WHERE conversation_id = ? AND user_id > ? LIMIT ?";
    }
}

pub(crate) struct Known {
    lines: Mutex<LruCache<ConversationId, Arc<Line>>>,
    unsettled: Mutex<LruCache<ConversationId, Arc<Line>>>,
}

impl Known {
    pub(crate) fn new() -> Self {
        Self { lines: Mutex::new(LruCache::new(CONVERSATIONS_MAX)), unsettled: Mutex::new(LruCache::new(UNSETTLED_MAX)) }
    }

    fn get(&self, conversation: ConversationId) -> Option<Arc<Line>> {
        let known = lock(&self.lines).get(&conversation).cloned();
        known.or_else(|| lock(&self.unsettled).get(&conversation).cloned())
    }

    /// A write begins, and where its messages go must not be forgotten.
    pub(crate) fn hold(&self, conversation: ConversationId, line: &Arc<Line>) {
        lock(&self.unsettled).put(conversation, Arc::clone(line));
    }

    /// What is known may not be so any more, and nothing tells: what an import wrote is read anew.
    pub(crate) fn forget(&self, conversation: ConversationId) {
        lock(&self.lines).pop(&conversation);
    }

    pub(crate) fn release(&self, conversation: ConversationId) {
        lock(&self.unsettled).pop(&conversation);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while holding what is known")
}

/// One conversation.
pub(crate) struct Line(Mutex<State>);

pub(crate) struct State {
    pub(crate) people: Arc<People>,
    pub(crate) course: Course,
    /// The newest message when it was read. A message that is not newer may be there already.
    pub(crate) newest_then: Option<MessageId>,
    pub(crate) last_activity: Timestamp,
    /// Buckets whose index row was acknowledged.
    indexed: VecDeque<Bucket>,
    /// The activity for which hints were acknowledged, for these people.
    hinted: Option<(Timestamp, Arc<People>)>,
}

impl Line {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    pub(crate) fn people(&self) -> Arc<People> {
        Arc::clone(&self.state().people)
    }

    pub(crate) fn put_people(&self, people: Arc<People>) {
        self.state().people = people;
    }
}

impl State {
    pub(crate) fn is_indexed(&self, bucket: Bucket) -> bool {
        self.indexed.contains(&bucket)
    }

    pub(crate) fn put_indexed(&mut self, bucket: Bucket) {
        if !self.is_indexed(bucket) {
            self.indexed.push_back(bucket);
            if self.indexed.len() > INDEXED_MAX {
                self.indexed.pop_front();
            }
        }
    }

    /// Whether an activity wants hints, and the slot that it takes them from. What is older than the last activity wants none.
    pub(crate) fn wanted_hint(&self, people: &Arc<People>, activity: Timestamp) -> Option<Hint> {
        let slot = slot_of(activity);
        let is_hinted = self.hinted.as_ref().is_some_and(|(hinted, of)| {
            slot_of(*hinted) == slot && activity <= hinted.plus_micros(HINT_LAG_MICROS) && Arc::ptr_eq(of, people)
        });
        if people.is_large || activity < self.last_activity || is_hinted {
            return None;
        }
        let left = Some(slot_of(self.last_activity)).filter(|left| *left < slot && self.last_activity > Timestamp::ZERO);
        Some(Hint { activity, left })
    }

    pub(crate) fn put_hinted(&mut self, hint: Hint, people: &Arc<People>) {
        self.hinted = Some((hint.activity, Arc::clone(people)));
    }
}

/// A hint that is to be written for each participant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hint {
    pub(crate) activity: Timestamp,
    /// The slot of the one before, which is wanted no more.
    pub(crate) left: Option<i32>,
}

/// Who takes part.
#[derive(Debug)]
pub(crate) struct People {
    /// As it was before they were read: every change of who takes part, an import's too, changes the roster. `None` where it is not known.
    pub(crate) roster: Option<Vec<u8>>,
    pub(crate) is_large: bool,
    /// Empty where it is large.
    pub(crate) joined: Arc<[UserId]>,
}

impl People {
    pub(crate) fn audience(&self) -> Audience {
        Audience { users: (!self.is_large).then(|| Arc::clone(&self.joined)) }
    }

    /// Those who were not among these others.
    pub(crate) fn beside<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'a UserId> {
        self.joined.iter().filter(|user| !others.joined.contains(user))
    }
}

/// What stands in `conversations` of its messages.
pub(crate) struct Head {
    pub(crate) is_large: bool,
    pub(crate) last: Option<LastMessage>,
    pub(crate) last_activity: Option<Timestamp>,
}

impl Inner {
    /// What is known of a conversation. `None` where it is not there.
    pub(crate) async fn line(&self, conversation: ConversationId) -> Result<Option<Arc<Line>>> {
        if let Some(line) = self.known.get(conversation) {
            return Ok(Some(line));
        }
        let (head, roster) = try_join(self.head(conversation), self.roster_now(conversation)).await?;
        let Some(head) = head else { return Ok(None) };
        let people = self.people_of(conversation, roster, head.is_large).await?;
        let state = State {
            people: Arc::new(people),
            course: Course::from(head.last.as_ref().map(|last| last.bucket)),
            newest_then: head.last.map(|last| last.id),
            last_activity: head.last_activity.unwrap_or(Timestamp::ZERO),
            indexed: VecDeque::new(),
            hinted: None,
        };
        let line = Arc::new(Line(Mutex::new(state)));
        // Somebody may have been faster, and may have written by what they know.
        let mut lines = lock(&self.known.lines);
        Ok(Some(Arc::clone(lines.get_or_insert(conversation, || line))))
    }

    pub(crate) async fn head(&self, conversation: ConversationId) -> Result<Option<Head>> {
        type Columns = (Option<i8>, Option<bool>, Option<Vec<u8>>, Option<i64>);
        let row: Option<Columns> = self.cluster.read_one(&self.statements.known.head, cells![conversation]).await?;
        let Some((Some(_), is_large, last, last_activity)) = row else { return Ok(None) };
        Ok(Some(Head {
            is_large: is_large.unwrap_or(false),
            last: last.map(|bytes| LastMessage::decode("conversations", &bytes)).transpose()?,
            last_activity: last_activity.map(Timestamp::from_micros),
        }))
    }

    async fn roster_now(&self, conversation: ConversationId) -> Result<Option<Vec<u8>>> {
        let row: Option<(Option<Vec<u8>>,)> = self.cluster.read_one(&self.statements.known.roster, cells![conversation]).await?;
        Ok(row.and_then(|(roster,)| roster))
    }

    /// Who takes part now, where that is not what these say.
    pub(crate) async fn other_people(&self, conversation: ConversationId, than: &People) -> Result<Option<Arc<People>>> {
        let flag = async {
            let row: Option<(Option<bool>,)> = self.cluster.read_one(&self.statements.known.is_large, cells![conversation]).await?;
            Ok(row.and_then(|(is_large,)| is_large).unwrap_or(false))
        };
        // It stays large for good, and does not become so but by a change of the roster. Who grows it sets the flag last.
        let may_grow = !than.is_large && than.joined.len() > Conversation::FAN_OUT_MAX;
        let is_large = async { if may_grow { flag.await } else { Ok(than.is_large) } };
        let (roster, is_large) = try_join(self.roster_now(conversation), is_large).await?;
        if (&roster, is_large) == (&than.roster, than.is_large) {
            return Ok(None);
        }
        let is_large = is_large || self.head(conversation).await?.is_some_and(|head| head.is_large);
        Ok(Some(Arc::new(self.people_of(conversation, roster, is_large).await?)))
    }

    /// The roster was read before: a list that is newer shows when it is read again.
    async fn people_of(&self, conversation: ConversationId, roster: Option<Vec<u8>>, is_large: bool) -> Result<People> {
        let mut joined = Vec::new();
        let (mut after, mut is_last) = (String::new(), is_large);
        while !is_last {
            let values = cells![conversation, after.as_str(), PARTICIPANTS_AT_ONCE];
            let rows: Vec<(String, Option<Vec<u8>>)> = self.cluster.read(&self.statements.known.participants, values).await?;
            is_last = rows.len() < PARTICIPANTS_AT_ONCE.unsigned_abs() as usize;
            after = rows.last().map_or(after, |(name, _)| name.clone());
            for (name, membership) in rows {
                let Some(membership) = membership else { continue };
                if decode_membership("participants_by_conversation", &membership)?.is_joined() {
                    joined.push(user("participants_by_conversation", &name)?);
                }
            }
        }
        Ok(People { roster, is_large, joined: joined.into() })
    }
}
