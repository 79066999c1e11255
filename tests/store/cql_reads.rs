//! Shares of reads on Cassandra: a user with many parallel reads has few statements in flight, and delays no other user.

use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};
use futures_util::{FutureExt as _, poll};
use wideroom::clock::SystemClock;
use wideroom::model::UserId;
use wideroom::store::cql::Cql;
use wideroom::store::{ReadShares, Result, StoreAdmin as _};

use super::stage::keyspace;

const SHARE: u64 = 4;
const READS: usize = 100;

#[tokio::test]
async fn a_user_with_many_reads_has_its_share_in_flight_and_others_do_not_wait() {
    let Some(address) = keyspace().await else {
        return;
    };
    let store = Cql::open(address, Arc::new(SystemClock)).await.unwrap();
    let shares = ReadShares::new(usize::try_from(SHARE).unwrap());
    let [alice, bob] = ["alice", "bob"].map(|name| UserId::parse(name).unwrap());
    let read = |user: &UserId| -> BoxFuture<'_, Result<Option<String>>> {
        let (store, shares, user) = (&store, Arc::clone(&shares), user.clone());
        async move { shares.reading_for(&user, store.note("absent")).await }.boxed()
    };
    let before = store.statements_sent();
    let mut flood: Vec<_> = (0..READS).map(|_| read(&alice)).collect();
    // A read sends its statement with its first poll, and no answer arrives between two polls.
    for read in &mut flood {
        assert!(poll!(read).is_pending());
    }
    assert_eq!(store.statements_sent() - before, SHARE);
    let mut other = read(&bob);
    assert!(poll!(&mut other).is_pending());
    assert_eq!(store.statements_sent() - before, SHARE + 1);
    other.await.unwrap();
    try_join_all(flood).await.unwrap();
    // Background tasks of the store send statements too.
    assert!(store.statements_sent() - before > READS as u64);
}
