//! The outbox on a ring that lost a node: a lane without a quorum stops no send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ConversationId, OutboxEvent, UserId};
use wideroom::store::cql::{Cql, migrate};
use wideroom::store::{Error, NewMessage, OutboxRead, Store as _, StoreAdmin as _};

use crate::support::cassandra::{Ring, say};
use crate::support::words::{conversation_id, group, id_with, new, new_salt, text, user};

/// Conversations, each of one user: with one copy of everything, a part of them lives without the node.
const CONVERSATIONS: u8 = 240;
/// Repetitions of a write of unknown outcome, as the chat repeats it. Each takes the next lane.
const TRIES: usize = 8;
/// One send of so many may be refused on a machine with other load. Without lanes, a third is.
const REFUSED_SHARE_MAX: usize = 5;
/// Conversations and sends at once: most of a refused one's time is waiting.
const AT_ONCE: usize = 12;
/// How long the other nodes may take to notice.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

/// Whether the message is persisted, and after how many tries.
async fn append(store: &Cql, message: &NewMessage) -> (bool, usize) {
    let conversation = message.message.conversation;
    for number in 1..=TRIES {
        let messages = std::slice::from_ref(message);
        match store.append_messages(conversation, messages).await {
            Ok(_) => return (true, number),
            Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {}
            Err(error @ Error::Corrupt { .. }) => panic!("{error}"),
        }
    }
    (false, TRIES)
}

fn message(conversation: ConversationId, sender: &UserId, number: u8) -> NewMessage {
    // Now, and like no other.
    let micros = SystemClock.now().micros() - crate::support::words::START.micros();
    let [.., byte] = *conversation.0.as_bytes();
    let id = id_with(micros, [0x80, number, byte, 0, 0, 0, 0, 0]);
    new(text(conversation, id, sender))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a ring of three nodes"]
async fn a_lane_without_a_quorum_stops_no_send() {
    let Some(mut ring) = Ring::start(3).await else {
        return;
    };
    new_salt();
    let address = |timeout| {
        let url = format!("{}?timeout={timeout}s", ring.url("lanes"));
        url.parse().unwrap()
    };
    let clock = Arc::new(SystemClock);
    migrate(&address(10), Some(1), &*clock).await.unwrap();
    let patient = Cql::open(address(10), clock.clone()).await.unwrap();
    let without = Cql::open(address(2), clock.clone()).await.unwrap();
    let with = Cql::open(address(2), clock.clone()).await.unwrap();
    with.set_outbox(Some(SystemClock.now())).await.unwrap();
    let all: Vec<_> = (0..CONVERSATIONS)
        .map(|number| (conversation_id(number), user(&format!("user{number}"))))
        .collect();
    let made = stream::iter(&all).map(async |(conversation, owner)| {
        let group = group(*conversation, std::slice::from_ref(owner));
        patient.create_conversation(&group).await.unwrap();
        for store in [&without, &with] {
            let first = message(*conversation, owner, 1);
            assert!(append(store, &first).await.0, "while all nodes are there");
        }
    });
    made.buffer_unordered(AT_ONCE).collect::<()>().await;
    let before = read(&patient).await.unwrap();
    assert_eq!(before, usize::from(CONVERSATIONS), "one row for each send");
    ring.kill(3);
    let began = Instant::now();
    // A quorum of one is missing where the node had the only copy, and that is known before long.
    let mut alive = Vec::new();
    while alive.is_empty() || began.elapsed() < NOTICED_WITHIN {
        let sends = stream::iter(&all).map(async |(conversation, owner)| {
            let one = message(*conversation, owner, 2);
            let messages = std::slice::from_ref(&one);
            let sent = without.append_messages(*conversation, messages).await;
            sent.is_ok().then(|| (*conversation, owner.clone()))
        });
        let sends = sends.buffer_unordered(AT_ONCE);
        alive = sends.filter_map(async |sent| sent).collect().await;
        if alive.len() < all.len() && began.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    assert!(alive.len() > 3, "{} of {}", alive.len(), all.len());
    let sends = alive
        .iter()
        .flat_map(|one| (3..6).map(move |number| (one, number)));
    let sends = stream::iter(sends).map(async |((conversation, owner), number)| {
        let began = Instant::now();
        let sent = append(&with, &message(*conversation, owner, number)).await;
        (sent, began.elapsed())
    });
    let sends: Vec<_> = sends.buffer_unordered(AT_ONCE).collect().await;
    let tries: Vec<_> = sends.iter().map(|((_, count), _)| *count).collect();
    let refused = sends.iter().filter(|((is_sent, _), _)| !is_sent).count();
    let longest = sends
        .iter()
        .map(|(_, took)| *took)
        .max()
        .unwrap_or_default();
    say(&format!(
        "outbox: {} of {} conversations live without a node; {} sends with rows took {} tries, the longest {longest:.1?}",
        alive.len(),
        all.len(),
        tries.len(),
        tries.iter().sum::<usize>()
    ));
    // One that was slow to write has forgotten what it cannot read now.
    assert!(
        refused <= tries.len() / REFUSED_SHARE_MAX,
        "{refused} of {} sends were stopped",
        tries.len()
    );
    ring.restart(3).await;
    // With the node back, every row can be read.
    let expected = before + tries.len() - refused;
    let began = Instant::now();
    let mut found = 0;
    while found < expected && began.elapsed() < NOTICED_WITHIN {
        found = match read(&with).await {
            Ok(found) => found,
            Err(Error::Unavailable(_)) => 0,
            Err(error) => panic!("{error}"),
        };
    }
    assert!(found >= expected, "{found} of {expected}");
    for store in [patient, without, with] {
        store.close().await.unwrap();
    }
}

/// Messages in the outbox of the last ten minutes.
async fn read(store: &Cql) -> Result<usize, Error> {
    use wideroom::model::{OrderKey, OutboxEventKind, OutboxShard};
    let now = SystemClock.now();
    let after = OrderKey::first_at(now.plus_micros(-600_000_000));
    let up_to = OrderKey::first_at(now.plus_micros(1_000_000));
    let mut count = 0;
    for shard in OutboxShard::all() {
        let mut reads = [OutboxRead { shard, after }];
        while reads[0].after < up_to {
            let pages = store.outbox(&reads, up_to, 1_000).await?;
            let events = pages[0].rows.iter().flat_map(|row| &row.events);
            let is_message = |event: &&OutboxEvent| event.kind == OutboxEventKind::MessageAdded;
            count += events.filter(is_message).count();
            reads[0].after = pages[0].read_to;
        }
    }
    Ok(count)
}
