//! Servers that notify each other over a real NATS: at once while it is there, and nothing is lost when it goes, or comes back.

use std::time::{Duration, Instant};

use serde_json::json;
use wideroom::bus::Bus;
use wideroom::chat::MessageUpdates;
use wideroom::model::{ConversationId, UserId};

use super::live::{take_up_to, write};
use super::pair::{Server, people};
use super::updates::receive;
use crate::support::client;
use crate::support::cost::least_time;
use crate::support::nats::Nats;
use crate::support::world::PATIENCE;

/// The median time of a message to the other server. Without NATS it waits for a poll: every three seconds here.
const MEDIAN_MAX: Duration = Duration::from_millis(100);

/// Two servers that poll the store only every three seconds.
struct Two {
    servers: [Server; 2],
    buses: [Bus; 2],
}

/// Two servers that hear each other, two people, and a group of theirs.
struct Scene {
    nats: Nats,
    two: Two,
    people: [UserId; 2],
    conversation: ConversationId,
}

impl Scene {
    async fn set() -> Option<Self> {
        let nats = Nats::start()?;
        let two = two(&nats).await?;
        two.hear_each_other(true).await;
        let people = people(["anna", "ben"]);
        let conversation = two.servers[0].group(&people[0], &[&people[1]]).await;
        Some(Self {
            nats,
            two,
            people,
            conversation,
        })
    }

    /// Waits until NATS knows so many subjects of servers.
    async fn subscribed(&self, count: usize) {
        let start = Instant::now();
        loop {
            let subjects = self.subjects().await;
            if subjects.len() == count {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{subjects:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn subjects(&self) -> Vec<String> {
        let connections = client::http(self.nats.monitor, "GET", "/connz?subs=1", &[], b"")
            .await
            .body["connections"]
            .clone();
        connections
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["subscriptions_list"].as_array())
            .flatten()
            .filter_map(|subject| Some(subject.as_str()?.to_owned()))
            .filter(|subject| subject.starts_with("wideroom.tests."))
            .collect()
    }
}

async fn two(nats: &Nats) -> Option<Two> {
    let address = nats.url().parse().unwrap();
    // Tests share a NATS with nobody, and a keyspace with others.
    let buses = [
        Bus::with_nats(&address, "tests").await.unwrap(),
        Bus::with_nats(&address, "tests").await.unwrap(),
    ];
    let servers = [
        Server::on(buses[0].clone(), 0).await?,
        Server::on(buses[1].clone(), 0).await?,
    ];
    Some(Two { servers, buses })
}

impl Two {
    async fn hear_each_other(&self, wanted: bool) {
        eventually("NATS", || {
            self.buses
                .iter()
                .all(|bus| bus.is_connected_to_peers() == wanted)
        })
        .await;
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends some on one server, each once the one before was heard on the other, and says how long each took.
async fn converse(
    one: &Server,
    heard: &mut MessageUpdates,
    sender: &UserId,
    conversation: ConversationId,
    count: usize,
) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..count {
        let sent = one.send(sender, conversation, "hello").await;
        let at = Instant::now();
        receive(heard, sent.id).await;
        took.push(at.elapsed());
    }
    took.sort_unstable();
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_nats_goes_and_comes_back() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    let ([anna, ben], conversation) = (scene.people.clone(), scene.conversation);
    let [one, other] = &scene.two.servers;
    let mut heard = other.messages(&ben, conversation, None).await;
    let mut inbox = other.inbox(&ben).await;
    scene.subscribed(2).await;
    let quick_median = async |heard: &mut MessageUpdates| {
        least_time(MEDIAN_MAX, async |_| {
            converse(one, heard, &anna, conversation, 10).await[5]
        })
        .await
    };
    let with = quick_median(&mut heard).await;
    scene.nats.kill();
    let without = converse(one, &mut heard, &anna, conversation, 5).await;
    scene.two.hear_each_other(false).await;
    scene.nats.start_again();
    let sent = one.send(&anna, conversation, "while it comes back").await;
    receive(&mut heard, sent.id).await;
    scene.two.hear_each_other(true).await;
    scene.subscribed(2).await;
    let again = quick_median(&mut heard).await;
    println!(
        "heard on the other server, medians: with NATS {with:?}, without {:?}, with it again {again:?}",
        without[2]
    );
    assert!(
        with <= MEDIAN_MAX && again <= MEDIAN_MAX,
        "{with:?} {again:?}"
    );
    let shown = async {
        loop {
            inbox.next().await.unwrap().unwrap();
            let row = other
                .chat
                .inbox
                .entry(&ben, conversation)
                .await
                .unwrap()
                .unwrap();
            if row.last_message > Some(sent.id) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shown)
        .await
        .expect("the inbox was not told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_nats_hangs() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    let ([anna, ben], conversation) = (&scene.people, scene.conversation);
    let [one, other] = &scene.two.servers;
    let mut heard = other.messages(ben, conversation, None).await;
    scene.subscribed(2).await;
    scene.nats.freeze();
    // Nobody knows it yet, and all poll every three seconds.
    let hung = converse(one, &mut heard, anna, conversation, 3).await;
    scene.nats.thaw();
    let again = converse(one, &mut heard, anna, conversation, 5).await;
    println!(
        "heard on the other server, medians: while NATS hangs {:?}, after it {:?}",
        hung[1], again[2]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typing_and_presence_cross_servers() {
    let Some(nats) = Nats::start() else { return };
    let Some(two) = two(&nats).await else { return };
    let [one, other] = &two.servers;
    two.hear_each_other(true).await;
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.actor(&anna).direct(ben.as_str()).await;
    one.actor(&anna).send(&conversation, "Hello").await;
    let here = one.chat.presence.connect(&anna);
    let mut typing = other.actor(&ben).subscribe(
        "subscription($c: ID!) { typingChanged(conversationId: $c) { user { username } isTyping } }",
        json!({"c": conversation}),
    );
    let mut presence = other.actor(&ben).subscribe(
        "subscription($u: [String!]!) { presenceChanged(usernames: $u) { presence { isOnline } } }",
        json!({"u": [anna.as_str()]}),
    );
    // She was there before he asked, and so the other server asks.
    let mut is_online = false;
    while !is_online {
        is_online = presence.next().await["presenceChanged"]["presence"]["isOnline"]
            .as_bool()
            .unwrap();
    }
    assert!(typing.is_quiet());
    let heard = async {
        let sign = "mutation($c: ID!, $t: Boolean!) { setTyping(input: {conversationId: $c, typing: $t}) { __typename } }";
        // A typing signal without a subscriber is lost by design.
        loop {
            one.actor(&anna)
                .data(sign, json!({"c": conversation, "t": true}))
                .await;
            if let Ok(told) = tokio::time::timeout(Duration::from_millis(200), typing.next()).await
            {
                assert_eq!(
                    told["typingChanged"],
                    json!({"user": {"username": anna.as_str()}, "isTyping": true})
                );
                one.actor(&anna)
                    .data(sign, json!({"c": conversation, "t": false}))
                    .await;
                return typing.next().await["typingChanged"]["isTyping"].clone();
            }
        }
    };
    assert_eq!(
        tokio::time::timeout(PATIENCE, heard)
            .await
            .expect("no sign came"),
        false
    );
    drop(here);
    assert_eq!(
        presence.next().await["presenceChanged"]["presence"]["isOnline"],
        false
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_one_subject_however_many_streams_it_has() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    scene.subscribed(2).await;
    let other = &scene.two.servers[1];
    let mut streams = Vec::new();
    for _ in 0..20 {
        for user in &scene.people {
            let stream = other.chat.streams.messages(user, scene.conversation, None);
            streams.push(stream.await.unwrap());
        }
    }
    assert_eq!(scene.subjects().await.len(), 2);
}

/// With NATS a viewer on another server gets each text at once, and not with the next poll, a second later. Without it the poll
/// goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_text_wakes_viewers_on_other_servers() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    let ([anna, ben], conversation) = (&scene.people, scene.conversation);
    let [one, other] = &scene.two.servers;
    let mut updates = other
        .chat
        .streams
        .lives(ben, conversation, None)
        .await
        .unwrap();
    scene.subscribed(2).await;
    let mut position = 0;
    let mut median = async || {
        let mut took = Vec::new();
        for _ in 0..5 {
            position = write(one, anna, conversation, "answer", position)
                .await
                .next_position;
            let at = Instant::now();
            take_up_to(&mut updates, position).await;
            took.push(at.elapsed());
        }
        took.sort_unstable();
        took[2]
    };
    let with = least_time(MEDIAN_MAX, async |_| median().await).await;
    scene.nats.kill();
    let without = median().await;
    println!("live text on the other server, medians: with NATS {with:?}, without {without:?}");
    assert!(with <= MEDIAN_MAX, "{with:?}");
}
