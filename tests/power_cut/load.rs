//! Load of the recorded server: tasks that create, send, edit, delete, react and mark, and the
//! ledger of their work.

use std::net::SocketAddr;

use serde_json::{Value, json};
use uuid::Uuid;
use wideroom::model::MessageId;

use super::replay::{ACK, Acks};
use crate::binary::Dice;
use crate::support::client::{Caller, soon};
use crate::support::program::Program;

/// Users with a task each.
pub(super) const USERS: usize = 8;
const BODY_BYTES_MAX: u64 = 15_000;
const EMOJI: &str = "👍";

/// Request of a task, with all that is known once it is answered.
#[derive(Debug)]
pub(super) enum Action {
    Create {
        conversation: Uuid,
        users: Vec<usize>,
    },
    Send {
        conversation: Uuid,
        message: MessageId,
        key: String,
        body: String,
    },
    Edit {
        message: MessageId,
        body: String,
    },
    Delete {
        message: MessageId,
    },
    React {
        message: MessageId,
        is_on: bool,
    },
    Mark {
        conversation: Uuid,
        up_to: MessageId,
    },
}

/// Actions of one user, in their order. Each began after the answer to the one before it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) user: usize,
    pub(super) actions: Vec<Action>,
}

pub(super) fn name(user: usize) -> String {
    format!("user-{user}")
}

/// Conversation: its global id, its UUID and its users.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    id: String,
    uuid: Uuid,
    users: Vec<usize>,
}

/// Work of all tasks on one disk, and how much of it was acknowledged.
#[derive(Default)]
pub(super) struct Ledger {
    /// A task's number is its index.
    pub(super) tasks: Vec<Task>,
    pub(super) acks: Acks,
    pub(super) conversations: Vec<Conversation>,
}

/// Runs a task for each user at once, and waits for all answers. On a new ledger a task creates
/// conversations first.
pub(super) async fn run(
    program: &Program,
    address: SocketAddr,
    ledger: &mut Ledger,
    requests: usize,
    seed: u64,
) {
    let connect = async |number, user, conversations| {
        let caller = Caller::connect(address, &program.token(&name(user))).await;
        Worker {
            caller: caller.unwrap(),
            number,
            task: Task {
                user,
                actions: Vec::new(),
            },
            conversations,
            own: Vec::new(),
            sent_to: None,
        }
    };
    if ledger.conversations.is_empty() {
        let creator = connect(ledger.tasks.len(), 0, Vec::new()).await;
        let (task, conversations) = creator.create_all().await;
        ledger.tasks.push(task);
        ledger.conversations = conversations;
    }
    let first = ledger.tasks.len();
    let mut running = Vec::new();
    for user in 0..USERS {
        let mut own = ledger.conversations.clone();
        own.retain(|conversation| conversation.users.contains(&user));
        let worker = connect(first + user, user, own).await;
        let dice = Dice::seeded(seed ^ (first + user) as u64);
        running.push(tokio::spawn(worker.run(requests, dice)));
    }
    for worker in running {
        ledger.tasks.push(worker.await.unwrap());
    }
}

/// A message that the worker may change: its global id and itself.
struct Own {
    id: String,
    message: MessageId,
    is_reacted: bool,
}

struct Worker {
    caller: Caller,
    /// Number of its task.
    number: usize,
    task: Task,
    conversations: Vec<Conversation>,
    own: Vec<Own>,
    /// Conversation of the last send.
    sent_to: Option<Uuid>,
}

impl Worker {
    /// Creates a group of all users, and a conversation of the first user with each other one.
    async fn create_all(mut self) -> (Task, Vec<Conversation>) {
        let group = "mutation($n: String!, $u: [String!]!) {
            done: createGroupConversation(input: {name: $n, usernames: $u}) {
                ACK conversation { id uuid } } }";
        let direct = "mutation($u: String!) {
            done: startDirectConversation(input: {username: $u}) {
                ACK conversation { id uuid } } }";
        let others: Vec<_> = (1..USERS).map(name).collect();
        let variables = json!({ "n": "group", "u": others });
        self.create(group, variables, (0..USERS).collect()).await;
        for user in 1..USERS {
            self.create(direct, json!({ "u": name(user) }), vec![0, user])
                .await;
        }
        (self.task, self.conversations)
    }

    async fn run(mut self, requests: usize, mut dice: Dice) -> Task {
        while self.task.actions.len() < requests {
            match dice.roll(10) {
                6 if !self.own.is_empty() => self.edit(&mut dice).await,
                7 if !self.own.is_empty() => self.react(&mut dice).await,
                8 if dice.roll(4) == 0 && !self.own.is_empty() => self.delete(&mut dice).await,
                9 => self.mark(&mut dice).await,
                _ => self.send(&mut dice).await,
            }
        }
        self.task
    }

    /// Sends a mutation whose answer names this request, by an alias in place of `ACK`. Answers with its payload.
    async fn ask(&mut self, document: &str, variables: Value) -> Value {
        let ack = format!("{ACK}{}_{}", self.number, self.task.actions.len());
        let document = document.replace("ACK", &format!("{ack}: __typename"));
        let mut data = soon(self.caller.data(&document, &variables)).await.unwrap();
        assert!(data["done"][ack].is_string());
        data["done"].take()
    }

    async fn create(&mut self, document: &str, variables: Value, users: Vec<usize>) {
        let done = self.ask(document, variables).await;
        let made = &done["conversation"];
        let conversation = Conversation {
            id: text(&made["id"]),
            uuid: text(&made["uuid"]).parse().unwrap(),
            users: users.clone(),
        };
        let action = Action::Create {
            conversation: conversation.uuid,
            users,
        };
        self.conversations.push(conversation);
        self.task.actions.push(action);
    }

    async fn send(&mut self, dice: &mut Dice) {
        let document = "mutation($c: ID!, $b: String!, $k: String!) {
            done: sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) {
                ACK messageEdge { node { id uuid } } } }";
        let conversation = dice.pick(&self.conversations).clone();
        let key = format!("key-{}-{}", self.number, self.task.actions.len());
        let body = self.body(dice);
        let variables = json!({ "c": conversation.id, "b": body, "k": key });
        let done = self.ask(document, variables).await;
        let node = &done["messageEdge"]["node"];
        let message = message_id(&node["uuid"]);
        self.own.push(Own {
            id: text(&node["id"]),
            message,
            is_reacted: false,
        });
        let conversation = conversation.uuid;
        self.sent_to = Some(conversation);
        self.task.actions.push(Action::Send {
            conversation,
            message,
            key,
            body,
        });
    }

    async fn edit(&mut self, dice: &mut Dice) {
        let document = "mutation($i: ID!, $b: String!) {
            done: editMessage(input: {messageId: $i, body: $b}) { ACK } }";
        let (at, body) = (self.pick_own(dice), self.body(dice));
        self.ask(document, json!({ "i": self.own[at].id, "b": body }))
            .await;
        let message = self.own[at].message;
        self.task.actions.push(Action::Edit { message, body });
    }

    async fn delete(&mut self, dice: &mut Dice) {
        let document = "mutation($i: ID!) {
            done: deleteMessage(input: {messageId: $i}) { ACK } }";
        let at = self.pick_own(dice);
        let Own { id, message, .. } = self.own.swap_remove(at);
        self.ask(document, json!({ "i": id })).await;
        self.task.actions.push(Action::Delete { message });
    }

    async fn react(&mut self, dice: &mut Dice) {
        let document = |field| {
            format!(
                "mutation($i: ID!, $e: String!) {{
                    done: {field}(input: {{messageId: $i, emoji: $e}}) {{ ACK }} }}"
            )
        };
        let at = self.pick_own(dice);
        let own = &mut self.own[at];
        own.is_reacted = !own.is_reacted;
        let (id, message, is_on) = (own.id.clone(), own.message, own.is_reacted);
        let field = if is_on {
            "addReaction"
        } else {
            "removeReaction"
        };
        self.ask(&document(field), json!({ "i": id, "e": EMOJI }))
            .await;
        self.task.actions.push(Action::React { message, is_on });
    }

    /// Marks the conversation of the last send as read: it has a message to mark.
    async fn mark(&mut self, dice: &mut Dice) {
        let document = "mutation($c: ID!) {
            done: markRead(input: {conversationId: $c}) {
                ACK inboxEntry { readUpTo { uuid } } } }";
        let Some(uuid) = self.sent_to else {
            return self.send(dice).await;
        };
        let conversation = self
            .conversations
            .iter()
            .find(|other| other.uuid == uuid)
            .unwrap();
        let done = self.ask(document, json!({ "c": conversation.id })).await;
        let up_to = message_id(&done["inboxEntry"]["readUpTo"]["uuid"]);
        self.task.actions.push(Action::Mark {
            conversation: uuid,
            up_to,
        });
    }

    fn pick_own(&self, dice: &mut Dice) -> usize {
        usize::try_from(dice.roll(self.own.len() as u64)).unwrap()
    }

    /// A text like no other, often larger than a block of the disk.
    fn body(&self, dice: &mut Dice) -> String {
        let len = match dice.roll(4) {
            0 => dice.roll(300),
            1 => dice.roll(6_000),
            _ => BODY_BYTES_MAX - dice.roll(3_000),
        };
        let (task, number) = (self.number, self.task.actions.len());
        format!("task {task} action {number} {}", random_text(dice, len))
    }
}

/// A text that is too random to be compressed.
pub(super) fn random_text(dice: &mut Dice, len: u64) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    (0..len).map(|_| char::from(*dice.pick(LETTERS))).collect()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

fn message_id(value: &Value) -> MessageId {
    MessageId::parse(&text(value)).unwrap()
}
