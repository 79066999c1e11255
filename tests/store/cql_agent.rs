//! Cost of agents on Cassandra: no partition under the name of one grows, and a send takes the statements of one to a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::value::Row;
use wideroom::clock::ManualClock;
use wideroom::model::{ConversationId, UserId};
use wideroom::store::cql::{Address, Cql};
use wideroom::store::{NewConversation, Store};

use super::ask::{MarkTo, make, mark, send};
use super::membership::{govern, joins, leaves};
use super::stage::{keyspace, keyspace_alone};
use crate::support::cassandra::shared;
use crate::support::size::sized;
use crate::support::words::{
    NOW, change, conversation_id, direct, id, new, new_salt_among_others, text, user,
};

struct Place {
    store: Cql,
    session: Session,
    keyspace: String,
}

impl Place {
    async fn open() -> Option<Self> {
        Self::at(keyspace().await?).await
    }

    async fn at(address: Address) -> Option<Self> {
        new_salt_among_others();
        let keyspace = address.keyspace.clone();
        let session = shared().await?.session().await;
        session.use_keyspace(&keyspace, true).await.unwrap();
        let clock = Arc::new(ManualClock::at(NOW));
        let store = Cql::open(address, clock).await.unwrap();
        Some(Self {
            store,
            session,
            keyspace,
        })
    }

    /// Tables whose partitions a user's name begins, each with the columns of its partition key.
    async fn tables(&self) -> BTreeMap<String, Vec<String>> {
        let statement = "SELECT table_name, column_name, kind, position FROM system_schema.columns WHERE keyspace_name = ?";
        let columns = self.session.query_unpaged(statement, (&self.keyspace,));
        let columns = columns.await.unwrap().into_rows_result().unwrap();
        let columns = columns.rows::<(String, String, String, i32)>().unwrap();
        let mut tables: BTreeMap<String, Vec<(i32, String)>> = BTreeMap::new();
        for (table, column, kind, position) in columns.map(Result::unwrap) {
            if kind == "partition_key" {
                tables.entry(table).or_default().push((position, column));
            }
        }
        let named = tables.into_iter().map(|(table, mut columns)| {
            columns.sort_unstable();
            let columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
            (table, columns)
        });
        named
            .filter(|(_, columns)| columns[0] == "user_id")
            .collect()
    }

    /// Rows under the name of a user in these tables; partitions, where a part of the user's rows is one.
    async fn rows_of(&self, user: &UserId) -> usize {
        let mut count = 0;
        for (table, columns) in self.tables().await {
            let name = user.as_str();
            let is_whole = columns.len() == 1;
            let rows = if is_whole {
                let statement = format!("SELECT user_id FROM {table} WHERE user_id = ?");
                self.session.query_unpaged(statement, (name,)).await
            } else {
                let statement = format!("SELECT DISTINCT {} FROM {table}", columns.join(", "));
                self.session.query_unpaged(statement, ()).await
            };
            let rows = rows.unwrap().into_rows_result().unwrap();
            let rows = rows.rows::<Row>().unwrap().map(Result::unwrap);
            let names = rows.map(|mut row| row.columns.swap_remove(0).unwrap());
            count += names
                .filter(|one| one.as_text().is_some_and(|one| one == name))
                .count();
        }
        count
    }

    /// Writes an entry as that of a person, and a hint.
    async fn write_old_rows(&self, agent: &UserId, person: &UserId, id: ConversationId) {
        let select =
            "SELECT membership FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
        let found = self.session.query_unpaged(select, (person.as_str(), id.0));
        let found = found.await.unwrap().into_rows_result().unwrap();
        let (membership,) = found.single_row::<(Vec<u8>,)>().unwrap();
        let entry = "INSERT INTO inbox_by_user (user_id, conversation_id, membership, is_muted) VALUES (?, ?, ?, true) USING TIMESTAMP 5";
        let written = self
            .session
            .query_unpaged(entry, (agent.as_str(), id.0, membership));
        written.await.unwrap();
        let hint = "INSERT INTO inbox_activity_by_user (user_id, slot, conversation_id, last_activity) VALUES (?, 5, ?, 5) USING TIMESTAMP 5";
        let written = self.session.query_unpaged(hint, (agent.as_str(), id.0));
        written.await.unwrap();
    }
}

async fn talk(store: &Cql, agent: &UserId, number: usize) {
    let person = user(&format!("person{number}"));
    let made = NewConversation {
        change: change(0),
        ..direct(&person, agent)
    };
    store.create_conversation(&made).await.unwrap();
    let conversation = made.conversation.id;
    send(store, conversation, 5, &person).await;
    send(store, conversation, 7, agent).await;
    let to = MarkTo::read(5, change(9));
    mark(store, agent, conversation, to).await;
    let delivered = store.mark_delivered(agent, conversation, id(5).order_key());
    delivered.await.unwrap();
    assert!(store.inbox_rows(agent, &[conversation]).await.unwrap()[0].is_some());
}

#[tokio::test]
async fn conversations_of_an_agent_write_no_row_under_its_name() {
    let Some(place) = Place::open().await else {
        return;
    };
    let (store, agent) = (&place.store, user("agent:helper"));
    let count = sized(48, 2_000);
    for first in (0..count).step_by(16) {
        let some = first..(first + 16).min(count);
        join_all(some.map(|number| talk(store, &agent, number))).await;
    }
    let (group, ann) = (conversation_id(9), user("ann"));
    make(store, group, std::slice::from_ref(&ann)).await;
    govern(store, group, 10, &[joins(&agent, 10)]).await;
    send(store, group, 15, &ann).await;
    govern(store, group, 20, &[leaves(&agent, 20)]).await;
    assert!(place.tables().await.len() > 4);
    assert_eq!(place.rows_of(&agent).await, 0);
    assert!(place.rows_of(&ann).await > 2, "those of a person are found");
}

/// Statements of a send to the first of these users, by the other one.
async fn statements_of_send(store: &Cql, number: u8, people: &[UserId; 2]) -> u64 {
    let conversation = conversation_id(number);
    make(store, conversation, people).await;
    send(store, conversation, 5, &people[1]).await;
    let message = text(conversation, id(7), &people[1]);
    let before = store.statements_sent();
    let sent = store.append_messages(conversation, &[new(message)]).await;
    let audience = sent.unwrap().audience;
    assert_eq!(audience.users.unwrap().len(), 2);
    store.statements_sent() - before
}

#[tokio::test]
async fn a_send_takes_the_statements_of_one_to_a_person() {
    let Some(place) = Place::open().await else {
        return;
    };
    let [ann, ben, agent] = ["ann", "ben", "agent:helper"].map(user);
    let to_person = statements_of_send(&place.store, 1, &[ben.clone(), ann.clone()]).await;
    let to_agent = statements_of_send(&place.store, 2, &[agent.clone(), ann.clone()]).await;
    let by_agent = statements_of_send(&place.store, 3, &[ann, agent]).await;
    assert_eq!([to_agent, by_agent], [to_person, to_person]);
}

#[tokio::test]
async fn rows_that_earlier_versions_wrote_are_dropped_by_a_repair() {
    let Some((address, _alone)) = keyspace_alone().await else {
        return;
    };
    let place = Place::at(address).await.unwrap();
    let (agent, ann, conversation) = (user("agent:old"), user("ann"), conversation_id(1));
    make(&place.store, conversation, &[ann.clone(), agent.clone()]).await;
    place.write_old_rows(&agent, &ann, conversation).await;
    assert_eq!(place.rows_of(&agent).await, 2);
    let row = place
        .store
        .inbox_rows(&agent, &[conversation])
        .await
        .unwrap()[0]
        .unwrap();
    assert!(!row.flags.is_muted);
    let found = super::ask::findings(&place.store, conversation, "agent", true).await;
    let what = "an inbox entry of an agent, which has no inbox";
    assert_eq!(found, [(what, true)]);
    assert_eq!(place.rows_of(&agent).await, 0);
    let again = super::ask::findings(&place.store, conversation, "", false).await;
    assert_eq!(again, []);
}
