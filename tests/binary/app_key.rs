//! Two services create the conversations of one app's keys at once, while their servers are killed: each key has one conversation, with all
//! participants, and until then none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::Dice;
use super::read;
use super::stage::serve;
use crate::support::cassandra::shared;
use crate::support::client::{Caller, Cut, Reply, soon};
use crate::support::program::Program;
use crate::support::server::Server;
use crate::support::size::sized;

const SERVICES: [&str; 2] = ["billing", "dispatch"];
const CREATE: &str = "mutation($k: String!, $n: String!) {
    made: createGroupConversation(input: {name: $n, usernames: [\"courier\", \"shop\"], appKey: $k, metadata: {order: 42}}) {
    conversation { id participantCount } } }";
const FIND: &str = "query($k: String!) { made: conversationByAppKey(appKey: $k) {
    id appKey name metadata participantCount participants(first: 9) { edges { node { role user { username } } } } } }";
/// Keys that the services create at once.
const LANES: usize = 8;

/// Least numbers of keys and of kills.
#[derive(Clone, Copy)]
struct Least {
    keys: usize,
    kills: usize,
}

/// Addresses of the servers, each of which may be away.
type Addresses = [watch::Receiver<Option<SocketAddr>>; 2];

/// State that the lanes share.
struct Orders {
    tokens: [String; 2],
    addresses: Addresses,
    /// Requests that were begun, by which the servers are killed: among them, whatever they are at.
    begun: watch::Sender<usize>,
    next: AtomicUsize,
    is_over: watch::Sender<bool>,
}

/// A service at a server, which may be another process each time.
struct Client {
    orders: Arc<Orders>,
    index: usize,
    connection: Option<Caller>,
}

impl Client {
    fn new(orders: &Arc<Orders>, index: usize) -> Self {
        let orders = Arc::clone(orders);
        Self {
            orders,
            index,
            connection: None,
        }
    }

    /// Repeats a request of this service for a customer until it is answered.
    async fn ask(&mut self, customer: &str, document: &str, variables: &Value) -> Value {
        loop {
            match self.try_ask(customer, document, variables).await {
                Ok(mut reply) if reply.body.get("errors").is_none() => {
                    return reply.body["data"]["made"].take();
                }
                Ok(reply) => assert_eq!(reply.code(), "UNAVAILABLE", "{}", reply.body),
                Err(Cut) => self.connection = None,
            }
        }
    }

    async fn try_ask(
        &mut self,
        customer: &str,
        document: &str,
        variables: &Value,
    ) -> Result<Reply, Cut> {
        let orders = &self.orders;
        let mut address = orders.addresses[self.index].clone();
        // A server that does not start again ends the test, and this wait with it.
        let address = *address.wait_for(Option::is_some).await.unwrap();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Caller::connect(address.unwrap(), &orders.tokens[self.index]).await?,
        };
        orders.begun.send_modify(|begun| *begun += 1);
        let asked = connection.ask_as(customer, document, variables).await;
        self.connection = Some(connection);
        asked
    }

    async fn create(&mut self, number: usize) -> String {
        let variables = json!({"k": key(number), "n": name(number)});
        let made = self.ask(&customer(number), CREATE, &variables).await;
        let conversation = &made["conversation"];
        assert_eq!(conversation["participantCount"], 3, "{made}");
        conversation["id"].as_str().unwrap().to_owned()
    }

    /// The conversation of a key, whole. `None` before it is there.
    async fn find(&mut self, number: usize) -> Option<String> {
        let variables = json!({"k": key(number)});
        let found = self.ask(&customer(number), FIND, &variables).await;
        let id = found["id"].as_str()?.to_owned();
        let there =
            |name: &str, role: &str| json!({"node": {"role": role, "user": {"username": name}}});
        let people = [
            there("courier", "MEMBER"),
            there(&customer(number), "OWNER"),
            there("shop", "MEMBER"),
        ];
        let whole = json!({"id": id, "appKey": key(number), "name": name(number), "metadata": {"order": 42},
            "participantCount": 3, "participants": {"edges": people}});
        assert_eq!(found, whole);
        Some(id)
    }
}

fn key(number: usize) -> String {
    format!("order:{number}")
}

fn name(number: usize) -> String {
    format!("Order {number}")
}

fn customer(number: usize) -> String {
    format!("customer-{number}")
}

/// Key after key until it is over. Both services create it at once, while a third client looks for it.
async fn create_on(orders: Arc<Orders>) -> Vec<(usize, String)> {
    let [mut billing, mut dispatch, mut reader] = [0, 1, 1].map(|at| Client::new(&orders, at));
    let mut made = Vec::new();
    while !*orders.is_over.borrow() {
        let number = orders.next.fetch_add(1, Ordering::Relaxed);
        let (one, other, early) = tokio::join!(
            billing.create(number),
            dispatch.create(number),
            reader.find(number)
        );
        assert_eq!(one, other, "{}", key(number));
        assert!(early.is_none_or(|early| early == one), "{}", key(number));
        assert_eq!(reader.find(number).await.as_ref(), Some(&one));
        made.push((number, one));
    }
    made
}

/// Servers of one store, any of which is killed and started again.
struct Servers {
    program: Program,
    running: Vec<Option<Server>>,
    addresses: Vec<watch::Sender<Option<SocketAddr>>>,
}

impl Servers {
    fn start(program: Program, count: usize) -> Self {
        let mut servers = Self {
            program,
            running: (0..count).map(|_| None).collect(),
            addresses: (0..count).map(|_| watch::channel(None).0).collect(),
        };
        (0..count).for_each(|at| servers.start_one(at));
        servers
    }

    fn start_one(&mut self, at: usize) {
        let server = serve(&self.program);
        self.addresses[at].send_replace(Some(server.address()));
        self.running[at] = Some(server);
    }

    fn kill(&mut self, at: usize) {
        self.addresses[at].send_replace(None);
        let log = self.running[at].take().unwrap().kill();
        assert!(!log.contains("panicked"), "{log}");
    }

    /// Kills one of them among the requests, again and again.
    async fn kill_among(&mut self, orders: &Orders, least: Least, spread: u64) -> usize {
        let (mut dice, mut kills) = (Dice::new(), 0);
        let mut begun = orders.begun.subscribe();
        while kills < least.kills || orders.next.load(Ordering::Relaxed) < least.keys + LANES {
            let until = *begun.borrow() + 1 + usize::try_from(dice.roll(spread)).unwrap();
            // How long so many take depends on the machine: each of them has the deadline.
            while *begun.borrow_and_update() < until {
                soon(begun.changed()).await.unwrap();
            }
            let at = usize::try_from(dice.roll(self.running.len() as u64)).unwrap();
            self.kill(at);
            self.start_one(at);
            kills += 1;
        }
        kills
    }
}

async fn play(program: Program, count: usize, least: Least) {
    let mut servers = Servers::start(program, count);
    let tokens = SERVICES.map(|service| {
        let token = servers.program.run(&["token", "--service", service]);
        token.succeeded().trim().to_owned()
    });
    let address = |at: usize| servers.addresses[at % count].subscribe();
    let orders = Arc::new(Orders {
        tokens,
        addresses: [address(0), address(1)],
        begun: watch::channel(0).0,
        next: AtomicUsize::new(0),
        is_over: watch::channel(false).0,
    });
    let lanes: Vec<_> = (0..LANES)
        .map(|_| tokio::spawn(create_on(Arc::clone(&orders))))
        .collect();
    // A key takes four requests: about as many kills as are asked for come within the least number of keys.
    let spread = (8 * least.keys / least.kills).max(4 * LANES) as u64;
    let kills = servers.kill_among(&orders, least, spread).await;
    orders.is_over.send_replace(true);
    let mut made = BTreeMap::new();
    for lane in lanes {
        made.extend(soon(lane).await.unwrap());
    }
    println!("{} keys, {kills} kills of {count} servers", made.len());
    assert!(made.len() >= least.keys);
    check(&mut servers, &orders, &made).await;
}

/// A fresh process finds each key, and nobody has a second conversation.
async fn check(servers: &mut Servers, orders: &Arc<Orders>, made: &BTreeMap<usize, String>) {
    for at in 0..servers.running.len() {
        servers.kill(at);
        servers.start_one(at);
    }
    let mut reader = Client::new(orders, 0);
    for (number, id) in made {
        assert_eq!(reader.find(*number).await.as_ref(), Some(id));
    }
    let mut listed: Vec<_> = made.values().cloned().collect();
    listed.sort_unstable();
    let first = servers.running[0].as_ref().unwrap();
    for name in ["shop", "courier"] {
        let token = servers.program.token(name);
        let mut caller = Caller::connect(first.address(), &token).await.unwrap();
        let entries = read::inbox(&mut caller).await.entries;
        let mut found: Vec<_> = entries
            .into_iter()
            .map(|entry| entry.conversation)
            .collect();
        found.sort_unstable();
        assert!(found == listed, "{} and not {}", found.len(), listed.len());
    }
    for server in &mut servers.running {
        let server = server.take().unwrap();
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
    }
    let verified = servers.program.run(&["verify"]);
    assert!(verified.succeeded().starts_with("sound: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_and_a_server_that_is_killed_make_one_conversation_of_a_key() {
    let (usual, gate) = ((20, 2), (600, 25));
    let (keys, kills) = sized(usual, gate);
    play(Program::new(), 1, Least { keys, kills }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: servers on a cluster take seconds to start"]
async fn two_services_on_two_servers_that_are_killed_make_one_conversation_of_a_key() {
    let Some(node) = shared().await else { return };
    let program = Program::on_cluster(node).await;
    let (keys, kills) = sized((20, 2), (200, 6));
    play(program, 2, Least { keys, kills }).await;
}
