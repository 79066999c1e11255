//! Fixture of the crash tests: a store, its users, and their conversations of every size.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::client::Caller;
use crate::support::program::Program;
use crate::support::server::Server;

/// Everybody is in the large conversation.
pub(crate) const USERS: usize = 40;
const GROUP: usize = 8;
/// So many users talk to each of the next two.
const TALKERS: usize = 16;

pub(crate) struct Stage {
    pub(crate) program: Program,
    /// The first is the one that many write to at once, the second the large one, the others are small.
    pub(crate) conversations: Vec<Conversation>,
}

pub(crate) struct Conversation {
    pub(crate) id: String,
    /// Before there was any message.
    pub(crate) events_cursor: String,
    /// Users by their number.
    pub(crate) participants: Vec<usize>,
}

pub(crate) const GROUP_AT: usize = 0;
pub(crate) const LARGE_AT: usize = 1;
pub(crate) const SMALL_AT: usize = 2;

pub(crate) fn name(user: usize) -> String {
    format!("user-{user:02}")
}

/// The server with little in its log, and no rates: a few users do here what takes many.
pub(crate) fn serve(program: &Program) -> Server {
    Server::start(program, &["--log", "warn", "--rates", "off"])
}

impl Stage {
    /// Set up by a server that ends in order.
    pub(crate) async fn set_up(program: Program) -> Self {
        let mut stage = Self {
            program,
            conversations: Vec::new(),
        };
        let server = serve(&stage.program);
        stage
            .group(server.address(), "busy", (0..GROUP).collect())
            .await;
        stage
            .group(server.address(), "large", (0..USERS).collect())
            .await;
        for user in 0..TALKERS {
            stage.direct(server.address(), user, user + 1).await;
            stage.direct(server.address(), user, user + 2).await;
        }
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
        stage
    }

    pub(crate) async fn caller(&self, address: SocketAddr, user: usize) -> Caller {
        Caller::connect(address, &self.program.token(&name(user)))
            .await
            .unwrap()
    }

    pub(crate) fn of_user(&self, user: usize) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.conversations.len())
            .filter(move |at| self.conversations[*at].participants.contains(&user))
    }

    async fn group(&mut self, address: SocketAddr, title: &str, participants: Vec<usize>) {
        let document = "mutation($n: String!, $u: [String!]!) {
            made: createGroupConversation(input: {name: $n, usernames: $u, idempotencyKey: $n}) { conversation { id eventsCursor } } }";
        let others: Vec<_> = participants[1..].iter().copied().map(name).collect();
        let made = self
            .caller(address, participants[0])
            .await
            .data_at_last(document, &json!({ "n": title, "u": others }))
            .await
            .unwrap();
        self.add(&made, participants);
    }

    async fn direct(&mut self, address: SocketAddr, user: usize, peer: usize) {
        let document = "mutation($u: String!) { made: startDirectConversation(input: {username: $u}) { conversation { id eventsCursor } } }";
        let made = self
            .caller(address, user)
            .await
            .data_at_last(document, &json!({ "u": name(peer) }))
            .await
            .unwrap();
        self.add(&made, vec![user, peer]);
    }

    fn add(&mut self, made: &Value, participants: Vec<usize>) {
        let conversation = &made["made"]["conversation"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (id, events_cursor) = (
            text(&conversation["id"]),
            text(&conversation["eventsCursor"]),
        );
        self.conversations.push(Conversation {
            id,
            events_cursor,
            participants,
        });
    }
}
