//! Ledger of attempted and acknowledged sends, compared with the history.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use wideroom::model::{MessageId, OrderKey};

use super::read::{self, Entry, History, Inbox};
use super::stage::{Stage, USERS, name};

/// The most that an unread count says.
const UNREAD_CAP: i64 = 99;
/// Age of a large conversation's head, in the inboxes of another server of a cluster than the sender's.
const HEAD_AGE_MAX: Duration = Duration::from_millis(1_100);

/// One message that somebody wanted to send; its body is like no other.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) task: usize,
    pub(crate) conversation: usize,
    pub(crate) user: usize,
    pub(crate) body: String,
    pub(crate) key: Option<String>,
    pub(crate) began: Instant,
    /// `None`: whether it was done, nobody knows.
    pub(crate) kept: Option<Kept>,
}

/// Content and time of the first acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) id: MessageId,
    pub(crate) at: Instant,
}

/// An acknowledged `markRead`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) conversation: usize,
    pub(crate) user: usize,
    pub(crate) up_to: OrderKey,
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) marks: Vec<Mark>,
}

/// Everything, as it was read.
pub(crate) struct Found {
    pub(crate) histories: Vec<History>,
    pub(crate) inboxes: Vec<Inbox>,
}

impl Ledger {
    /// Number of acknowledged attempts.
    pub(crate) fn kept(&self) -> usize {
        let attempts = self.attempts.iter();
        attempts.filter(|attempt| attempt.kept.is_some()).count()
    }

    /// Reads everything, and holds it against what was acknowledged. Nobody may be sending meanwhile.
    pub(crate) async fn check(&self, stage: &Stage, address: SocketAddr) -> Found {
        if stage.program.is_on_cluster() {
            tokio::time::sleep(HEAD_AGE_MAX).await;
        }
        let histories = join_all(stage.conversations.iter().map(async |conversation| {
            let reader = *conversation.participants.last().unwrap();
            read::history(&mut stage.caller(address, reader).await, &conversation.id).await
        }));
        let inboxes = join_all(
            (0..USERS).map(async |user| read::inbox(&mut stage.caller(address, user).await).await),
        );
        let (histories, inboxes) = tokio::join!(histories, inboxes);
        for (at, history) in histories.iter().enumerate() {
            self.check_history(
                at,
                history,
                *stage.conversations[at].participants.last().unwrap(),
            );
        }
        for (user, inbox) in inboxes.iter().enumerate() {
            self.check_inbox(stage, user, inbox, &histories);
        }
        Found { histories, inboxes }
    }

    fn check_history(&self, conversation: usize, history: &History, reader: usize) {
        let messages = &history.messages;
        assert_eq!(
            history.message_count,
            i64::try_from(messages.len()).unwrap(),
            "messageCount is the length of history"
        );
        assert_eq!(history.last_message, messages.last().map(|read| read.id));
        assert!(
            messages
                .windows(2)
                .all(|pair| pair[0].id.order_key() < pair[1].id.order_key()),
            "history is in order"
        );
        let places: HashMap<_, _> = messages
            .iter()
            .enumerate()
            .map(|(place, read)| (read.body.as_deref().unwrap(), place))
            .collect();
        assert_eq!(places.len(), messages.len(), "a message is there twice");
        let mut attempts = vec![None; messages.len()];
        for attempt in self
            .attempts
            .iter()
            .filter(|attempt| attempt.conversation == conversation)
        {
            let Some(place) = places.get(attempt.body.as_str()) else {
                assert!(attempt.kept.is_none(), "acknowledged and lost: {attempt:?}");
                continue;
            };
            let read = &messages[*place];
            // The sender alone is shown the key of a message.
            let key = attempt.key.as_ref().filter(|_| attempt.user == reader);
            assert_eq!(
                (&read.sender, read.key.as_ref()),
                (&name(attempt.user), key),
                "{attempt:?}"
            );
            assert!(
                attempt.kept.is_none_or(|kept| kept.id == read.id),
                "{attempt:?} is another one: {read:?}"
            );
            attempts[*place] = Some(attempt);
        }
        // A message acknowledged before another attempt began precedes it in the history.
        let mut next_kept: Option<Instant> = None;
        for (attempt, read) in attempts.iter().zip(messages).rev() {
            let attempt = attempt.unwrap_or_else(|| panic!("nobody sent this: {read:?}"));
            assert!(
                next_kept.is_none_or(|kept| attempt.began <= kept),
                "out of order: {attempt:?}"
            );
            next_kept = [next_kept, attempt.kept.map(|kept| kept.at)]
                .into_iter()
                .flatten()
                .min();
        }
    }

    fn check_inbox(&self, stage: &Stage, user: usize, inbox: &Inbox, histories: &[History]) {
        let entries: HashMap<_, _> = inbox
            .entries
            .iter()
            .map(|entry| (entry.conversation.as_str(), entry))
            .collect();
        let expected: HashSet<_> = stage
            .of_user(user)
            .map(|at| stage.conversations[at].id.as_str())
            .collect();
        assert_eq!(
            entries.len(),
            inbox.entries.len(),
            "a conversation is there twice: {:?}",
            inbox.entries
        );
        assert_eq!(
            entries.keys().copied().collect::<HashSet<_>>(),
            expected,
            "{}'s conversations",
            name(user)
        );
        // All times are written with the same number of digits.
        assert!(
            inbox
                .entries
                .windows(2)
                .all(|pair| pair[0].last_activity >= pair[1].last_activity),
            "{:?}",
            inbox.entries
        );
        for at in stage.of_user(user) {
            let entry = entries[stage.conversations[at].id.as_str()];
            histories[at].agrees(&name(user), entry, UNREAD_CAP);
            if let Some(newest) = histories[at].messages.last() {
                assert_eq!(entry.last_activity, newest.created_at, "{entry:?}");
            }
            self.check_marker(at, user, entry);
        }
    }

    /// A marker is where it was acknowledged to be, or further; a send moves its sender's.
    fn check_marker(&self, conversation: usize, user: usize, entry: &Entry) {
        let marks = self
            .marks
            .iter()
            .filter(|mark| (mark.conversation, mark.user) == (conversation, user))
            .map(|mark| mark.up_to);
        let sent = self
            .attempts
            .iter()
            .filter(|attempt| (attempt.conversation, attempt.user) == (conversation, user));
        let sent = sent.filter_map(|attempt| Some(attempt.kept?.id.order_key()));
        let least = marks.chain(sent).max();
        assert!(
            entry.read_up_to >= least,
            "{}'s marker went back from {least:?}: {entry:?}",
            name(user)
        );
    }
}
