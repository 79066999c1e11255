//! A group whose people come and go while its servers die: each coming and going is wholly done or not at all.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::crowd::{Places, TRY_AGAIN_AFTER};
use crate::binary::read;
use crate::support::client::{Caller, Cut, Reply};
use crate::support::program::Program;
use crate::support::world::PATIENCE;

/// Participants from the beginning. The guests join and leave.
const FOUNDERS: [&str; 2] = ["club-owner", "club-first"];
const GUESTS: [&str; 4] = ["club-a", "club-b", "club-c", "club-d"];

const ADD: &str = "mutation($c: ID!, $u: String!) { addParticipants(input: {conversationId: $c, usernames: [$u]}) { conversation { id } } }";
const REMOVE: &str = "mutation($c: ID!, $u: String!) { removeParticipant(input: {conversationId: $c, username: $u}) { conversation { id } } }";
const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { uuid } } } }";

pub(super) struct Club {
    owner: String,
    tokens: Vec<(&'static str, String)>,
    id: String,
    /// The latest request, whose outcome may be unknown.
    open: Option<Deed>,
    done: Vec<Deed>,
}

/// Meeting through all troubles, until it is ended.
pub(super) struct Meeting {
    is_over: watch::Sender<bool>,
    deeds: JoinHandle<Vec<Deed>>,
}

/// The owner has somebody in or out, or says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    Add(&'static str),
    Remove(&'static str),
    Say(String),
}

impl Club {
    pub(super) async fn found(program: &Program, address: SocketAddr) -> Self {
        let owner = program.token(FOUNDERS[0]);
        let document = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"club\", usernames: $u, idempotencyKey: \"club\"}) { conversation { id } } }";
        let mut caller = Caller::connect(address, &owner).await.unwrap();
        let made = caller
            .data_at_last(document, &json!({ "u": [FOUNDERS[1]] }))
            .await
            .unwrap();
        let id = made["createGroupConversation"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let tokens = FOUNDERS
            .iter()
            .chain(&GUESTS)
            .map(|name| (*name, program.token(name)))
            .collect();
        Self {
            owner,
            tokens,
            id,
            open: None,
            done: Vec::new(),
        }
    }

    /// Deed after deed until the server is gone. Answers with those that were done, and the one that was under way.
    pub(super) fn meet(
        &self,
        address: SocketAddr,
        round: usize,
    ) -> JoinHandle<(Vec<Deed>, Option<Deed>)> {
        let (owner, id) = (self.owner.clone(), self.id.clone());
        tokio::spawn(async move {
            let mut done = Vec::new();
            let Ok(mut caller) = Caller::connect(address, &owner).await else {
                return (done, None);
            };
            for number in 0.. {
                let guest = GUESTS[number % GUESTS.len()];
                let is_in = (number / GUESTS.len()).is_multiple_of(2);
                for deed in [
                    if is_in {
                        Deed::Add(guest)
                    } else {
                        Deed::Remove(guest)
                    },
                    Deed::Say(format!("club {round} {number}")),
                ] {
                    match deed.done(&mut caller, &id).await {
                        Ok(_) => done.push(deed),
                        Err(Cut) => return (done, Some(deed)),
                    }
                }
            }
            unreachable!("it ends with its server")
        })
    }

    /// Deed after deed through all troubles, each repeated until it is acknowledged, on the next
    /// server where one is gone.
    pub(super) fn meet_through(&self, places: Places) -> Meeting {
        let (owner, id) = (self.owner.clone(), self.id.clone());
        let (is_over, over) = watch::channel(false);
        let deeds = tokio::spawn(async move {
            let (mut done, mut caller, mut server) = (Vec::new(), None, 0);
            for number in 0.. {
                if *over.borrow() {
                    break;
                }
                let guest = GUESTS[number % GUESTS.len()];
                let deed = match number / GUESTS.len() % 3 {
                    0 => Deed::Add(guest),
                    1 => Deed::Say(format!("club through {number}")),
                    _ => Deed::Remove(guest),
                };
                loop {
                    if caller.is_none() {
                        let place = {
                            let places = places.borrow();
                            places[server % places.len()]
                        };
                        caller = Caller::connect(place, &owner).await.ok();
                    }
                    let reply = match &mut caller {
                        Some(caller) => deed.tried(caller, &id).await,
                        None => Err(Cut),
                    };
                    match reply {
                        Ok(reply) if reply.body.get("errors").is_none() => break,
                        Ok(reply) => assert_eq!(reply.code(), "UNAVAILABLE", "{}", reply.body),
                        Err(Cut) => (caller, server) = (None, server + 1),
                    }
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
                done.push(deed);
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
            done
        });
        Meeting { is_over, deeds }
    }

    /// Waits for the deed under way. How many were done.
    pub(super) async fn end(&mut self, meeting: Meeting) -> usize {
        meeting.is_over.send_replace(true);
        let ended = tokio::time::timeout(PATIENCE, meeting.deeds).await;
        let done = ended
            .expect("the last deed is acknowledged in time")
            .unwrap();
        let count = done.len();
        self.done.extend(done);
        count
    }

    pub(super) fn note(&mut self, (done, open): (Vec<Deed>, Option<Deed>)) {
        self.done.extend(done);
        self.open = open;
    }

    /// Repeats the unfinished change on another server and removes all guests, so that the next round starts from the same state.
    pub(super) async fn finish(&mut self, address: SocketAddr) {
        self.check(address).await;
        let mut caller = Caller::connect(address, &self.owner).await.unwrap();
        for deed in self.open.take().into_iter().chain(GUESTS.map(Deed::Remove)) {
            deed.done(&mut caller, &self.id).await.unwrap();
            self.done.push(deed);
        }
        self.check(address).await;
    }

    /// Participants and their inboxes match the SYSTEM messages, and every acknowledged change is there exactly once.
    pub(super) async fn check(&self, address: SocketAddr) {
        let mut owner = Caller::connect(address, &self.owner).await.unwrap();
        // Any change first completes the change of a dead server. This one itself changes nothing.
        let nothing = Deed::Add(FOUNDERS[1]);
        nothing.done(&mut owner, &self.id).await.unwrap();
        let history = read::history(&mut owner, &self.id).await;
        let mut there: BTreeSet<_> = FOUNDERS.map(str::to_owned).into();
        for message in history
            .messages
            .iter()
            .filter(|message| message.whole["kind"] == "SYSTEM")
        {
            let metadata = &message.whole["metadata"];
            let moved = metadata["usernames"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap().to_owned());
            for user in moved {
                let is_new = match metadata["event"].as_str().unwrap() {
                    "joined" => there.insert(user),
                    "removed" => there.remove(&user),
                    other => panic!("{other}"),
                };
                assert!(is_new, "it was told twice: {message:?}");
            }
        }
        let named = |edge: &Value| {
            edge["node"]["user"]["username"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let participants: BTreeSet<_> = history.participants["edges"]
            .as_array()
            .unwrap()
            .iter()
            .map(named)
            .collect();
        assert_eq!(
            participants, there,
            "those who are in it are not those of whom it was told"
        );
        for (name, token) in &self.tokens {
            let inbox = read::inbox(&mut Caller::connect(address, token).await.unwrap()).await;
            let entry = inbox
                .entries
                .iter()
                .find(|entry| entry.conversation == self.id);
            assert_eq!(entry.is_some(), there.contains(*name), "{name}: {entry:?}");
            if let Some(entry) = entry {
                assert_eq!(
                    (entry.message_count, entry.last_message),
                    (history.message_count, history.last_message),
                    "{name}"
                );
            }
        }
        for deed in &self.done {
            let Deed::Say(body) = deed else { continue };
            let times = history
                .messages
                .iter()
                .filter(|message| message.body.as_ref() == Some(body))
                .count();
            assert_eq!(times, 1, "{body}");
        }
    }
}

impl Deed {
    /// Document and variables. Each may be done twice.
    fn request(&self, conversation: &str) -> (&'static str, Value) {
        match self {
            Self::Add(user) => (ADD, json!({ "c": conversation, "u": user })),
            Self::Remove(user) => (REMOVE, json!({ "c": conversation, "u": user })),
            Self::Say(body) => {
                let key = body.replace(' ', "-");
                (SEND, json!({ "c": conversation, "b": body, "k": key }))
            }
        }
    }

    async fn tried(&self, caller: &mut Caller, conversation: &str) -> Result<Reply, Cut> {
        let (document, variables) = self.request(conversation);
        caller.ask(document, &variables).await
    }

    async fn done(&self, caller: &mut Caller, conversation: &str) -> Result<Value, Cut> {
        let (document, variables) = self.request(conversation);
        caller.data_at_last(document, &variables).await
    }
}
