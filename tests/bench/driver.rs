//! The driver alone, without us: the statements that a send of ours takes in a conversation of two, in the same order and as much at the same
//! time, to the same tables.

use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlTimeuuid, MaybeUnset};
use std::num::NonZeroUsize;
use tokio::join;
use uuid::Uuid;
use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::model::{ConversationId, TimeUuid, UserId};
use wideroom::store::cql::Address;

use crate::world::{body, client_key};

const TEN_DAYS_MICROS: i64 = 10 * 24 * 3_600 * 1_000_000;
const REGISTER: i64 = 1;

/// One sender in one conversation of two.
pub struct Pair {
    pub conversation: ConversationId,
    pub sender: UserId,
    pub peer: UserId,
}

pub struct Driver {
    session: Session,
    ids: IdGenerator,
    conversation: PreparedStatement,
    seat: PreparedStatement,
    claim: PreparedStatement,
    message: PreparedStatement,
    head: PreparedStatement,
    entry: PreparedStatement,
    sessions: PreparedStatement,
    roster: PreparedStatement,
}

impl Driver {
    /// With the settings of ours, on its keyspace.
    pub async fn connect(address: &Address) -> Self {
        let connections = PoolSize::PerHost(NonZeroUsize::new(2).unwrap());
        let mut builder = SessionBuilder::new()
            .known_nodes(&address.contact_points)
            .pool_size(connections)
            .tcp_nodelay(true);
        if let Some(credentials) = &address.credentials {
            builder = builder.user(&credentials.user, &credentials.password);
        }
        let session = builder.build().await.unwrap();
        session.use_keyspace(&address.keyspace, true).await.unwrap();
        Self {
            conversation: prepare(&session, "SELECT kind, name, created_at, created_by, input_hash, is_large, made, last_message, newest_change FROM conversations WHERE conversation_id = ?").await,
            seat: prepare(&session, "SELECT membership, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?").await,
            claim: prepare(&session, "INSERT INTO sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS").await,
            message: prepare(&session, "INSERT INTO messages_by_conversation (conversation_id, width, start, message_id, sender_id, kind, content, reply_to, client_key, deleted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?").await,
            head: prepare(&session, "UPDATE conversations USING TIMESTAMP ? SET last_message = ?, last_activity = ? WHERE conversation_id = ?").await,
            entry: prepare(&session, "UPDATE inbox_by_user USING TIMESTAMP ? SET last_message = ?, last_activity = ?, sent_up_to = ? WHERE user_id = ? AND conversation_id = ?").await,
            sessions: prepare(&session, "SELECT user_id, kind, server_id FROM sessions_by_user WHERE user_id IN ? LIMIT ?").await,
            roster: prepare(&session, "SELECT roster, settled FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1").await,
            ids: IdGenerator::random(),
            session,
        }
    }

    async fn run(
        &self,
        statement: &PreparedStatement,
        values: impl scylla::serialize::row::SerializeRow,
    ) {
        self.session
            .execute_unpaged(statement, values)
            .await
            .unwrap();
    }

    /// One send: its reads before the write, the write, and its reads after it.
    pub async fn send(&self, pair: &Pair, number: u64, is_keyed: bool) {
        let conversation = pair.conversation.0;
        join!(
            self.run(&self.conversation, (conversation,)),
            self.run(&self.seat, (conversation, pair.sender.as_str()))
        );
        let id = self.ids.next(SystemClock.now());
        if is_keyed {
            let start = id.moment().micros() - id.moment().micros() % TEN_DAYS_MICROS;
            let values = (
                conversation,
                pair.sender.as_str(),
                client_key(number),
                timeuuid(id),
                0_i8,
                start,
                vec![7_u8; 32],
            );
            self.run(&self.claim, values).await;
        }
        self.write(pair, id, number, is_keyed).await;
        self.run(&self.roster, (conversation,)).await;
        let users = vec![pair.sender.as_str(), pair.peer.as_str()];
        self.run(&self.sessions, (users, 10_000_i32)).await;
    }

    async fn write(&self, pair: &Pair, id: TimeUuid, number: u64, is_keyed: bool) {
        let (conversation, micros) = (pair.conversation.0, id.moment().micros());
        let start = micros - micros % TEN_DAYS_MICROS;
        let place = id.order_key().0;
        let last = [
            place.as_slice(),
            &[0],
            &start.to_be_bytes(),
            pair.sender.as_str().as_bytes(),
        ]
        .concat();
        let text = body(number);
        let content = [
            &[1, u8::try_from(text.len()).unwrap()],
            text.as_bytes(),
            &[0; 3],
        ]
        .concat();
        let mut batch = Batch::new(BatchType::Logged);
        batch.set_consistency(Consistency::LocalQuorum);
        batch.set_is_idempotent(true);
        [&self.message, &self.head, &self.entry, &self.entry]
            .into_iter()
            .for_each(|statement| batch.append_statement(statement.clone()));
        let key = if is_keyed {
            MaybeUnset::Set(client_key(number))
        } else {
            MaybeUnset::Unset
        };
        let (reply_to, deleted_at) = (MaybeUnset::<CqlTimeuuid>::Unset, MaybeUnset::<i64>::Unset);
        let message = (
            conversation,
            0_i8,
            start,
            timeuuid(id),
            pair.sender.as_str(),
            0_i8,
            content,
            reply_to,
            key,
            deleted_at,
            micros,
        );
        let head = (REGISTER, last.as_slice(), micros, conversation);
        let own = (
            REGISTER,
            last.as_slice(),
            micros,
            MaybeUnset::Set(place.to_vec()),
            pair.sender.as_str(),
            conversation,
        );
        let others = (
            REGISTER,
            last.as_slice(),
            micros,
            MaybeUnset::<Vec<u8>>::Unset,
            pair.peer.as_str(),
            conversation,
        );
        self.session
            .batch(&batch, (message, head, own, others))
            .await
            .unwrap();
    }
}

async fn prepare(session: &Session, text: &str) -> PreparedStatement {
    let mut statement = session.prepare(text).await.unwrap();
    statement.set_consistency(Consistency::LocalQuorum);
    statement.set_serial_consistency(Some(SerialConsistency::LocalSerial));
    statement.set_is_idempotent(true);
    statement.set_use_cached_result_metadata(text.starts_with("SELECT"));
    statement
}

fn timeuuid(id: TimeUuid) -> CqlTimeuuid {
    let id: Uuid = id.uuid();
    id.into()
}
