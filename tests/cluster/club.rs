//! A group whose people come and go while its servers die: each coming and going is wholly done or not at all.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::binary::read;
use crate::support::client::{Caller, Cut, Reply};
use crate::support::program::Program;

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
        let document = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"club\", usernames: $u}) { conversation { id } } }";
        let mut caller = Caller::connect(address, &owner).await.unwrap();
        let made = caller
            .data(document, &json!({ "u": [FOUNDERS[1]] }))
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
                    match ask(&mut caller, &id, &deed).await {
                        Ok(reply) if reply.body.get("errors").is_none() => done.push(deed),
                        Ok(reply) => panic!("{deed:?}: {}", reply.body),
                        Err(Cut) => return (done, Some(deed)),
                    }
                }
            }
            unreachable!("it ends with its server")
        })
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
            let reply = ask(&mut caller, &self.id, &deed).await.unwrap();
            assert!(
                reply.body.get("errors").is_none(),
                "{deed:?}: {}",
                reply.body
            );
            self.done.push(deed);
        }
        self.check(address).await;
    }

    /// Participants and their inboxes match the SYSTEM messages, and every acknowledged change is there exactly once.
    pub(super) async fn check(&self, address: SocketAddr) {
        let mut owner = Caller::connect(address, &self.owner).await.unwrap();
        // Any change first completes the change of a dead server. This one itself changes nothing.
        let reply = ask(&mut owner, &self.id, &Deed::Add(FOUNDERS[1]))
            .await
            .unwrap();
        assert!(reply.body.get("errors").is_none(), "{}", reply.body);
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

async fn ask(caller: &mut Caller, id: &str, deed: &Deed) -> Result<Reply, Cut> {
    match deed {
        Deed::Add(user) => caller.ask(ADD, &json!({ "c": id, "u": user })).await,
        Deed::Remove(user) => caller.ask(REMOVE, &json!({ "c": id, "u": user })).await,
        Deed::Say(body) => {
            caller
                .ask(
                    SEND,
                    &json!({ "c": id, "b": body, "k": body.replace(' ', "-") }),
                )
                .await
        }
    }
}
