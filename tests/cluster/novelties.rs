//! A group whose messages have a form of content that only the next version knows, where that
//! version wrote them.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::rolling_upgrade::{RunningVersion, Version};
use crate::support::client::{Caller, Socket};
use crate::support::program::Program;

const PEOPLE: [&str; 2] = ["novel-owner", "novel-reader"];
/// Reaction of the reader to each message that the owner has edited.
const EMOJI: &str = "👍";

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) { sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { id uuid } } } }";
const EDIT: &str = "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) { message { uuid } } }";
const REACT: &str = "mutation($m: ID!, $e: String!) { addReaction(input: {messageId: $m, emoji: $e}) { message { uuid } } }";
const PAGES: &str = "query($c: ID!) {
    conversation(id: $c) { messageCount messages(first: 100) { edges { node { uuid kind body reactions { emoji } } } } participants(first: 10) { edges { node { user { username } } } } }
    inbox(first: 10) { edges { node { unreadCount lastMessage { uuid } conversation { id } } } } }";

/// One acknowledged message.
struct Novelty {
    uuid: String,
    body: String,
    /// Version that wrote its body.
    writer: Version,
}

pub(super) struct Novelties {
    id: String,
    /// Before there was any message.
    cursor: String,
    tokens: [String; 2],
    /// Whether the next version writes bodies that this one does not know.
    are_unknown: bool,
    kept: Vec<Novelty>,
}

impl Novelties {
    pub(super) async fn begin(program: &Program, address: SocketAddr, are_unknown: bool) -> Self {
        let tokens = PEOPLE.map(|name| program.token(name));
        let document = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"novelties\", usernames: $u, idempotencyKey: \"novelties\"}) { conversation { id eventsCursor } } }";
        let mut owner = Caller::connect(address, &tokens[0]).await.unwrap();
        let made = owner
            .data_at_last(document, &json!({ "u": [PEOPLE[1]] }))
            .await;
        let made = made.unwrap();
        let made = &made["createGroupConversation"]["conversation"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            id: text(&made["id"]),
            cursor: text(&made["eventsCursor"]),
            tokens,
            are_unknown,
            kept: Vec::new(),
        }
    }

    /// Writes and reads through each server. No page may fail, and no message may be missing or
    /// there twice.
    pub(super) async fn pass(&mut self, servers: &[RunningVersion]) {
        for running in servers {
            self.write(running.server.address(), running.version).await;
        }
        for running in servers {
            let address = running.server.address();
            self.is_served_by(address, running.version).await;
            self.is_replayed_by(address).await;
        }
    }

    /// A message that stays, and one that the owner edits and the reader likes.
    async fn write(&mut self, address: SocketAddr, writer: Version) {
        let [mut owner, mut reader] = [
            Caller::connect(address, &self.tokens[0]).await.unwrap(),
            Caller::connect(address, &self.tokens[1]).await.unwrap(),
        ];
        for is_edited in [false, true] {
            let body = format!("next: {}", self.kept.len());
            let variables = json!({ "c": self.id, "b": body, "k": body });
            let sent = owner.data_at_last(SEND, &variables).await.unwrap();
            let again = owner.data_at_last(SEND, &variables).await.unwrap();
            let node = &sent["sendMessage"]["messageEdge"]["node"];
            assert_eq!(node, &again["sendMessage"]["messageEdge"]["node"]);
            let mut novelty = Novelty {
                uuid: node["uuid"].as_str().unwrap().to_owned(),
                body,
                writer,
            };
            if is_edited {
                novelty.body += ", edited";
                let edit = json!({ "m": node["id"], "b": novelty.body });
                owner.data_at_last(EDIT, &edit).await.unwrap();
                let like = json!({ "m": node["id"], "e": EMOJI });
                reader.data_at_last(REACT, &like).await.unwrap();
            }
            self.kept.push(novelty);
        }
    }

    /// A body that this version does not know is left out.
    async fn is_served_by(&self, address: SocketAddr, version: Version) {
        for token in &self.tokens {
            let mut caller = Caller::connect(address, token).await.unwrap();
            let data = caller
                .data_at_last(PAGES, &json!({ "c": self.id }))
                .await
                .unwrap();
            let shown = &data["conversation"];
            let of_users = shown["messages"]["edges"].as_array().unwrap();
            let of_users: Vec<_> = of_users
                .iter()
                .map(|edge| &edge["node"])
                .filter(|node| node["kind"] == "TEXT")
                .collect();
            assert_eq!(of_users.len(), self.kept.len(), "{shown}");
            for (node, novelty) in of_users.iter().rev().zip(&self.kept) {
                assert_eq!(node["uuid"], novelty.uuid.as_str(), "{node}");
                let is_known = !self.are_unknown
                    || version == Version::Next
                    || novelty.writer == Version::Present;
                let body = if is_known { novelty.body.as_str() } else { "" };
                assert_eq!(node["body"].as_str().unwrap_or_default(), body, "{node}");
                let likes = node["reactions"].as_array().unwrap().len();
                assert_eq!(likes == 1, novelty.body.ends_with("edited"), "{node}");
            }
            let participants = shown["participants"]["edges"].as_array().unwrap();
            assert_eq!(participants.len(), PEOPLE.len());
            let entries = data["inbox"]["edges"].as_array().unwrap();
            assert_eq!(entries.len(), 1, "{data}");
            let last = &entries[0]["node"]["lastMessage"]["uuid"];
            assert_eq!(last, self.kept.last().unwrap().uuid.as_str());
        }
    }

    /// A stream from the beginning passes over what its server does not know.
    async fn is_replayed_by(&self, address: SocketAddr) {
        let mut socket = Socket::connect(address, &self.tokens[1]).await;
        let query = format!(
            "subscription {{ conversationEvents(conversationId: \"{}\", after: \"{}\") {{ event {{ __typename ... on MessageAddedEvent {{ messageEdge {{ node {{ uuid }} }} }} }} }} }}",
            self.id, self.cursor
        );
        socket.subscribe("1", &query).await;
        let mut missing: Vec<_> = self.kept.iter().map(|novelty| &novelty.uuid).collect();
        while !missing.is_empty() {
            let heard = socket.told("1").await;
            let node = &heard["conversationEvents"]["event"]["messageEdge"]["node"];
            missing.retain(|uuid| node["uuid"] != uuid.as_str());
        }
    }
}
