//! Live messages of silent writers on several servers: together they settle all of them, each once, and one goes on where another has ended.

use futures_util::future::join_all;
use wideroom::bus::Bus;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{
    ConversationId, Cut, IdempotencyKey, LiveStart, LiveText, LiveWriters, PageRequest, UserId,
    WriterName, WriterNumber,
};
use wideroom::store::Store as _;
use wideroom::store::live::{LiveListing, LiveStore as _, LiveWrite, WriterClaim, minute_of};

use super::pair::{Server, people};
use crate::support::cassandra::shared;
use crate::support::ground::Keyspace;

/// Reader of the outbox under whose name the leases are.
const READER: &str = "wideroom:live";
/// So many that each server holds the shards of some.
const CONVERSATIONS: usize = 16;
const TEXT: &str = "It rains";
/// Age of the last write.
const SILENT_MICROS: i64 = 150 * 1_000_000;

/// A live message of a writer who has been silent for long enough.
async fn silent(server: &Server, sender: &UserId) -> ConversationId {
    let on = server.group(sender, &[]).await;
    let at = SystemClock.now().plus_micros(-SILENT_MICROS);
    let key = IdempotencyKey::parse("answer").unwrap();
    let live = server.chat.lives.key_of(on, sender, &key).await.unwrap();
    let writer = WriterName::parse("w").unwrap();
    let claim = WriterClaim::First {
        start: LiveStart {
            sender: sender.clone(),
            key: key.clone(),
            reply_to: None,
            at,
        },
        writers: LiveWriters::default().with_writer(writer, at).unwrap(),
    };
    let cql = &server.cql;
    assert!(cql.claim_live_writer(live, &claim).await.unwrap());
    let listing = LiveListing {
        minute: minute_of(at),
        live,
        sender: sender.clone(),
        key,
    };
    cql.list_live(&listing, listing.minute + 2).await.unwrap();
    let write = LiveWrite {
        writer: WriterNumber::new(1).unwrap(),
        text: LiveText::new(0, TEXT.to_owned()),
        status: None,
        steps: None,
        at,
    };
    cql.write_live(live, &write).await.unwrap();
    on
}

/// Interrupted messages with the text, in all of these conversations.
async fn settled(server: &Server, all: &[ConversationId]) -> usize {
    let mut settled = 0;
    for id in all {
        let (cut, page) = (Cut::default(), PageRequest::first(9));
        let history = server.cql.history(*id, &cut, &page).await.unwrap();
        let contents = history.items.iter().filter_map(|one| one.content.as_ref());
        let found = contents.filter(|one| one.is_interrupted && one.body.as_str() == TEXT);
        settled += found.count();
    }
    settled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_settle_silent_writers_together_and_one_after_the_other() {
    let Some(shared) = shared().await else { return };
    let keyspace = Keyspace::empty(shared.authority().to_owned(), &SystemClock).await;
    let url = keyspace.url();
    let one = Server::at(url.parse().unwrap(), Bus::default(), 0).await;
    let other = Server::at(url.parse().unwrap(), Bus::default(), 0).await;
    let (mut first, mut second) = (one.chat.lives.settler(), other.chat.lives.settler());
    let [anna] = people(["anna"]);
    let all = join_all((0..CONVERSATIONS).map(|_| silent(&one, &anna))).await;
    let (passed, beside) = tokio::join!(first.pass(), second.pass());
    passed.and(beside).unwrap();
    assert_eq!(settled(&one, &all).await, CONVERSATIONS);

    let all = join_all((0..CONVERSATIONS).map(|_| silent(&one, &anna))).await;
    one.chat.finish().await;
    drop((one, first));
    let mut third = other.chat.lives.settler();
    third.pass().await.unwrap();
    assert_eq!(
        settled(&other, &all).await,
        0,
        "a lease outlives its holder"
    );
    other.end_leases(READER).await;
    let truncate = format!("TRUNCATE {}.server_beats", keyspace.name());
    let session = shared.session().await;
    session.query_unpaged(truncate, ()).await.unwrap();
    third.pass().await.unwrap();
    assert_eq!(settled(&other, &all).await, CONVERSATIONS);
    third.pass().await.unwrap();
    assert_eq!(settled(&other, &all).await, CONVERSATIONS);
}
