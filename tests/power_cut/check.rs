//! Check of a data folder after a power cut: the real program opens it, and the ledger says what
//! must be in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use uuid::Uuid;
use wideroom::model::{MessageId, OrderKey};

use super::load::{Action, Task, name};
use super::replay::Acks;
use crate::support::program::Program;

#[derive(Debug)]
pub(super) enum Outcome {
    /// The store opened: number of its messages.
    Opened(usize),
    /// The program refused the folder, and nothing was acknowledged yet: its reason.
    Refused(String),
}

/// A message as its sender's actions leave it, or as an export has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    conversation: Uuid,
    sender: String,
    key: Option<String>,
    /// `None`: deleted.
    body: Option<String>,
    is_reacted: bool,
}

/// Everything that one task did, so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    conversations: BTreeMap<Uuid, BTreeSet<String>>,
    messages: BTreeMap<MessageId, Message>,
}

impl Work {
    fn of(task: &Task, actions: &[Action]) -> Self {
        let mut work = Self::default();
        for action in actions {
            work.add(task, action);
        }
        work
    }

    fn add(&mut self, task: &Task, action: &Action) {
        match action {
            Action::Create {
                conversation,
                users,
            } => {
                let users = users.iter().copied().map(name).collect();
                self.conversations.insert(*conversation, users);
            }
            Action::Send {
                conversation,
                message,
                key,
                body,
            } => {
                let (key, body) = (Some(key.clone()), Some(body.clone()));
                let (conversation, sender) = (*conversation, name(task.user));
                let new = Message {
                    conversation,
                    sender,
                    key,
                    body,
                    is_reacted: false,
                };
                self.messages.insert(*message, new);
            }
            Action::Edit { message, body } => {
                self.messages.get_mut(message).unwrap().body = Some(body.clone());
            }
            Action::Delete { message } => self.messages.get_mut(message).unwrap().body = None,
            Action::React { message, is_on } => {
                self.messages.get_mut(message).unwrap().is_reacted = *is_on;
            }
            Action::Mark { .. } => {}
        }
    }
}

/// Lines of an export.
#[derive(Default)]
struct Found {
    work: Work,
    /// Read markers by conversation and user.
    markers: HashMap<(Uuid, String), OrderKey>,
}

/// Opens the folder twice: the first time recovers it. `Err` says what is wrong.
pub(super) fn check(program: &Program, tasks: &[Task], acks: &Acks) -> Result<Outcome, String> {
    let verified = program.run(&["verify"]);
    let said = format!("{}{}", verified.stdout, verified.stderr);
    if verified.code != Some(0) || !verified.stdout.starts_with("sound: ") {
        let reason = verified
            .stderr
            .strip_prefix("wideroom: ")
            .unwrap_or_default()
            .trim();
        let is_stated = verified.code == Some(1) && reason.lines().count() == 1;
        let is_refused = is_stated && verified.stdout.is_empty();
        if is_refused && acks.is_empty() {
            return Ok(Outcome::Refused(reason.to_owned()));
        }
        return Err(format!("verify ended with {:?}: {said}", verified.code));
    }
    let exported = program.run(&["export", "-"]);
    if exported.code != Some(0) {
        return Err(format!(
            "export ended with {:?}: {}",
            exported.code, exported.stderr
        ));
    }
    let mut found = Found::read(&exported.stdout)?;
    let count = found.work.messages.len();
    for (number, task) in tasks.iter().enumerate() {
        let acked = acks.get(&number).copied().unwrap_or_default();
        let wrong = |error| format!("task {number} of {}: {error}", name(task.user));
        found.check(task, acked).map_err(wrong)?;
    }
    if let Some((id, message)) = found.work.messages.first_key_value() {
        return Err(format!("nobody sent message {id:?}: {message:?}"));
    }
    if let Some(conversation) = found.work.conversations.keys().next() {
        return Err(format!("nobody created conversation {conversation}"));
    }
    Ok(Outcome::Opened(count))
}

impl Found {
    fn read(export: &str) -> Result<Self, String> {
        let mut found = Self::default();
        let (mut count, mut reactions, mut is_whole) = (0, Vec::new(), false);
        for line in export.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            match line["type"].as_str().unwrap() {
                "conversation" => {
                    let id = uuid(&line["id"]);
                    found.work.conversations.insert(id, BTreeSet::new());
                }
                "participant" => found.add_participant(&line),
                "message" => found.add_message(&line)?,
                "reaction" => reactions.push(message_id(&line["messageId"])),
                "end" => is_whole = line["lines"] == count,
                _ => {}
            }
            count += 1;
        }
        for message in reactions {
            let message = found.work.messages.get_mut(&message).unwrap();
            message.is_reacted = true;
        }
        is_whole
            .then_some(found)
            .ok_or_else(|| "the export is not whole".to_owned())
    }

    fn add_participant(&mut self, line: &Value) {
        let (conversation, user) = (uuid(&line["conversationId"]), text(&line["username"]));
        if !line["readUpTo"].is_null() {
            let marker = message_id(&line["readUpTo"]).order_key();
            self.markers.insert((conversation, user.clone()), marker);
        }
        self.work
            .conversations
            .get_mut(&conversation)
            .unwrap()
            .insert(user);
    }

    fn add_message(&mut self, line: &Value) -> Result<(), String> {
        let optional = |field: &str| line[field].as_str().map(str::to_owned);
        let message = Message {
            conversation: uuid(&line["conversationId"]),
            sender: text(&line["sender"]),
            key: optional("clientKey"),
            body: optional("body").filter(|_| line["deletedAt"].is_null()),
            is_reacted: false,
        };
        let before = self.work.messages.insert(message_id(&line["id"]), message);
        let twice = |_| Err(format!("a message is there twice: {line}"));
        before.map_or(Ok(()), twice)
    }

    /// Takes a task's work out of the export: all acknowledged actions, and at most the next one.
    fn check(&mut self, task: &Task, acked: usize) -> Result<(), String> {
        let all = Work::of(task, &task.actions);
        let mut found = Work::default();
        for id in all.conversations.keys() {
            let taken = self.work.conversations.remove_entry(id);
            found.conversations.extend(taken);
        }
        for id in all.messages.keys() {
            let taken = self.work.messages.remove_entry(id);
            found.messages.extend(taken);
        }
        let possible = acked..=(acked + 1).min(task.actions.len());
        let mut possible = possible.map(|count| Work::of(task, &task.actions[..count]));
        if !possible.any(|work| found.agrees(&work)) {
            let expected = Work::of(task, &task.actions[..acked]);
            return Err(found.difference(&expected, task, acked));
        }
        self.check_markers(task, acked)
    }

    /// A marker is where it was acknowledged to be, or further.
    fn check_markers(&self, task: &Task, acked: usize) -> Result<(), String> {
        let mut least: BTreeMap<Uuid, OrderKey> = BTreeMap::new();
        for action in &task.actions[..acked] {
            if let Action::Mark {
                conversation,
                up_to,
            } = action
            {
                let least = least.entry(*conversation).or_insert(up_to.order_key());
                *least = (*least).max(up_to.order_key());
            }
        }
        for (conversation, least) in least {
            let marker = self.markers.get(&(conversation, name(task.user)));
            if marker.is_none_or(|marker| *marker < least) {
                let user = name(task.user);
                return Err(format!(
                    "the marker of {user} in {conversation} is {marker:?}, and {least:?} was acknowledged"
                ));
            }
        }
        Ok(())
    }
}

impl Work {
    /// Compares with the expected work. Keys and reactions of deleted messages do not count.
    fn agrees(&self, expected: &Self) -> bool {
        let alike = |(id, expected): (&MessageId, &Message)| {
            let found = self.messages.get(id);
            found.is_some_and(|found| match expected.body {
                Some(_) => found == expected,
                None => {
                    let of = |message: &Message| (message.conversation, message.sender.clone());
                    found.body.is_none() && of(found) == of(expected)
                }
            })
        };
        self.conversations == expected.conversations
            && self.messages.len() == expected.messages.len()
            && expected.messages.iter().all(alike)
    }

    fn difference(&self, expected: &Self, task: &Task, acked: usize) -> String {
        let lost = expected
            .messages
            .keys()
            .filter(|id| !self.messages.contains_key(id));
        let lost = lost.count();
        let extra = self
            .messages
            .keys()
            .filter(|id| !expected.messages.contains_key(id));
        let extra = extra.count();
        let other = expected.messages.iter().filter_map(|(id, expected)| {
            let found = self.messages.get(id).filter(|found| *found != expected)?;
            Some(format!(
                "{id:?} is {}, not {}",
                found.brief(),
                expected.brief()
            ))
        });
        let other: Vec<_> = other.take(3).collect();
        let next = format!("{:?}", task.actions.get(acked));
        let next: String = next.chars().take(200).collect();
        let conversations = (self.conversations.len(), expected.conversations.len());
        format!(
            "{acked} actions acknowledged: {lost} messages lost, {extra} more than acknowledged, \
             conversations {conversations:?}, changed: {other:?}; the next action is {next}"
        )
    }
}

impl Message {
    fn brief(&self) -> String {
        let body = self
            .body
            .as_deref()
            .map(|body| body.chars().take(24).collect::<String>());
        format!("{body:?} of {}, reacted: {}", self.sender, self.is_reacted)
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

fn uuid(value: &Value) -> Uuid {
    text(value).parse().unwrap()
}

fn message_id(value: &Value) -> MessageId {
    MessageId::parse(&text(value)).unwrap()
}
