//! Verification: checks derived data against messages and participants, piece by piece over all tables.
//!
//! The bucket index comes first, as histories are read by it. Then come conversations with everything derived from them; then inboxes, for
//! entries of users who are not in the conversation; then reactions, for messages without the mark; then restrictions and blocks; then mentions that no message has; then reports. After a repair the check runs again, and
//! a finding counts as repaired only if it is gone.

use uuid::Uuid;

use super::Admin;
use super::verify_conversation::check;
use crate::model::{
    ConversationId, Emoji, Membership, MembershipState, MessageId, OrderKey, Role, UserId,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::{Statement, statements};
use crate::store::cql::driver::value::{time_uuid, user, values};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::membership::decode_membership;
use crate::store::rules::finding;
use crate::store::{Error, Finding, Result, StoreFuture, Verified, VerifyPosition};

/// Partitions, conversations and users of one piece.
const PARTITIONS_MAX: usize = 500;
const CONVERSATIONS_MAX: usize = 16;
const USERS_MAX: usize = 32;
/// Entries of one read.
const ENTRIES_MAX: usize = 500;

statements! {
    SCAN_BUCKETS: Read "SELECT DISTINCT conversation_id, width, start FROM messages_by_conversation WHERE token(conversation_id, width, start) >= ? LIMIT ?";
    SCAN_BUCKETS_FROM: Read "SELECT DISTINCT conversation_id, width, start FROM messages_by_conversation WHERE token(conversation_id, width, start) >= token(?, ?, ?) LIMIT ?";
    SCAN_INBOXES: Read "SELECT DISTINCT user_id FROM inbox_by_user WHERE token(user_id) >= ? LIMIT ?";
    SCAN_INBOXES_FROM: Read "SELECT DISTINCT user_id FROM inbox_by_user WHERE token(user_id) >= token(?) LIMIT ?";
    SCAN_BLOCKERS: Read "SELECT DISTINCT user_id FROM blocks_by_user WHERE token(user_id) >= ? LIMIT ?";
    SCAN_BLOCKERS_FROM: Read "SELECT DISTINCT user_id FROM blocks_by_user WHERE token(user_id) >= token(?) LIMIT ?";
    SELECT_MEMBERSHIP: Read "SELECT membership FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
    SCAN_REACTIONS: Read "SELECT DISTINCT conversation_id, message_id FROM reactions_by_message WHERE token(conversation_id, message_id) >= ? LIMIT ?";
    SCAN_REACTIONS_FROM: Read "SELECT DISTINCT conversation_id, message_id FROM reactions_by_message WHERE token(conversation_id, message_id) >= token(?, ?) LIMIT ?";
}

pub(super) type PartitionKey = Option<Vec<u8>>;

/// Check of one piece of a stage. Returns the last key if more may follow.
type CqlStage =
    for<'a> fn(&'a mut CqlPieceCheck<'_>, Option<&'a [u8]>) -> StoreFuture<'a, PartitionKey>;

/// The stages in order: a position is the number of one and the key of a partition.
const STAGES: [CqlStage; 9] = [
    |check, from| Box::pin(check.buckets(from)),
    |check, from| Box::pin(check.conversations(from)),
    |check, from| Box::pin(check.inboxes(from)),
    |check, from| Box::pin(check.reactions(from)),
    |check, _| Box::pin(check.restrictions()),
    |check, from| Box::pin(check.blocks(from)),
    |check, from| Box::pin(check.mentions(from)),
    |check, from| Box::pin(check.everyone(from)),
    |check, from| Box::pin(check.reports(from)),
];

/// A running check of one piece.
pub(super) struct CqlPieceCheck<'a> {
    pub(super) admin: &'a Admin,
    pub(super) repair: bool,
    pub(super) verified: Verified,
}

impl Admin {
    pub(crate) async fn verify(
        &self,
        after: Option<&VerifyPosition>,
        repair: bool,
    ) -> Result<Verified> {
        let (stage, from) = VerifyPosition::parts(after);
        let mut check = CqlPieceCheck {
            admin: self,
            repair,
            verified: Verified::default(),
        };
        let last = STAGES[usize::from(stage)](&mut check, from).await?;
        check.verified.next = VerifyPosition::after(stage, STAGES.len(), last);
        Ok(check.verified)
    }

    /// Users of a piece who have a partition in a table. Returns them with the last one if more may follow.
    async fn owners(
        &self,
        statements: (&'static Statement, &'static Statement),
        from: Option<&[u8]>,
    ) -> Result<(Vec<String>, PartitionKey)> {
        let from = from.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let after = from.clone().map(|name| values![name]);
        let is_after = |(name,): &(String,)| from.as_ref() == Some(name);
        let rows = self.rows_after(statements, after, USERS_MAX, is_after);
        let owners: Vec<_> = rows.await?.into_iter().map(|(name,)| name).collect();
        let last = owners.last().filter(|_| owners.len() == USERS_MAX);
        let last = last.map(|name| name.clone().into_bytes());
        Ok((owners, last))
    }
}

pub(super) fn uuid_of(bytes: &[u8]) -> Uuid {
    Uuid::from_slice(bytes.get(..16).unwrap_or_default()).unwrap_or_default()
}

impl CqlPieceCheck<'_> {
    async fn buckets(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let (admin, repair) = (self.admin, self.repair);
        type Columns = (Uuid, i8, i64);
        let from: Option<Columns> = from.map(|bytes| {
            let (width, start) = (
                bytes.get(16).copied().unwrap_or_default().cast_signed(),
                bytes.get(17..).and_then(|bytes| bytes.try_into().ok()),
            );
            (
                uuid_of(bytes),
                width,
                i64::from_be_bytes(start.unwrap_or_default()),
            )
        });
        let after = from.map(|(id, width, start)| values![id, width, start]);
        let is_after = |row: &Columns| from.as_ref() == Some(row);
        let rows = admin
            .rows_after(
                (&SCAN_BUCKETS, &SCAN_BUCKETS_FROM),
                after,
                PARTITIONS_MAX,
                is_after,
            )
            .await?;
        self.verified.looked_at += rows.len() as u64;
        let each = rows.iter().map(async |(id, width, start)| {
            let (id, bucket) = (ConversationId(*id), Bucket::from_row(*width, *start)?);
            if !admin
                .messages
                .present_buckets(id, &[bucket])
                .await?
                .is_empty()
            {
                return Ok(None);
            }
            if repair {
                let mut writes = Writes::of_one_partition();
                admin.messages.put_bucket(&mut writes, id, bucket);
                admin.executor.write_all(writes).await?;
                admin.messages.invalidate_counts(id).await?;
            }
            Ok(Some(Finding::of(
                finding::BUCKET,
                format!("from {} on, conversation {id}", bucket.start),
                repair,
            )))
        });
        let found = concurrently(each).await?.into_iter().flatten();
        self.verified.findings.extend(found);
        let last = rows.last().filter(|_| rows.len() == PARTITIONS_MAX);
        Ok(last.map(|(id, width, start)| {
            [
                id.as_bytes().as_slice(),
                &width.to_be_bytes(),
                &start.to_be_bytes(),
            ]
            .concat()
        }))
    }

    async fn conversations(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let (admin, repair) = (self.admin, self.repair);
        let after = from.map(|bytes| ConversationId(uuid_of(bytes)));
        let page = admin.all_conversations(after, CONVERSATIONS_MAX).await?;
        for (conversation, _) in &page {
            let checked = check(admin, conversation, false).await?;
            self.verified.looked_at += checked.looked_at;
            if checked.findings.is_empty() {
                continue;
            }
            // The second check does not find a write that was in flight during the first one.
            let mut found = check(admin, conversation, repair).await?.findings;
            if repair {
                let left = check(admin, conversation, false).await?.findings;
                found
                    .iter_mut()
                    .for_each(|finding| finding.is_repaired = !left.contains(finding));
            }
            self.verified.findings.extend(found);
        }
        let last = page.last().filter(|_| page.len() == CONVERSATIONS_MAX);
        Ok(last.map(|(conversation, _)| conversation.id.0.as_bytes().to_vec()))
    }

    async fn inboxes(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let statements = (&SCAN_INBOXES, &SCAN_INBOXES_FROM);
        let (owners, last) = self.admin.owners(statements, from).await?;
        for name in &owners {
            self.inbox(&user("inbox_by_user", name)?).await?;
        }
        Ok(last)
    }

    /// Every block can be read, and its user has the row by which exports find it.
    async fn blocks(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let (admin, repair) = (self.admin, self.repair);
        let statements = (&SCAN_BLOCKERS, &SCAN_BLOCKERS_FROM);
        let (owners, last) = admin.owners(statements, from).await?;
        for name in &owners {
            let owner = user("blocks_by_user", name)?;
            match admin.blocks.of_user(&owner).await {
                Ok(blocks) => self.verified.looked_at += blocks.len() as u64,
                Err(Error::Corrupt { cause, .. }) => {
                    let example = format!("of blocks_by_user, of {owner}: {cause}");
                    self.verified.found(finding::UNREADABLE, example, false);
                }
                Err(error) => return Err(error),
            }
            let (what, verified) = (finding::BLOCKER, &mut self.verified);
            let restrictions = &admin.restrictions;
            restrictions
                .verify_user(name, what, repair, verified)
                .await?;
        }
        Ok(last)
    }

    async fn restrictions(&mut self) -> Result<PartitionKey> {
        let restrictions = &self.admin.restrictions;
        restrictions.verify(self.repair, &mut self.verified).await?;
        Ok(None)
    }

    async fn reports(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let from = from.and_then(|bytes| bytes.try_into().ok());
        let older_than = from.map_or(OrderKey::MAX, OrderKey);
        let reports = &self.admin.reports;
        let verified = &mut self.verified;
        let last = reports.verify(older_than, self.repair, verified).await?;
        Ok(last.map(|position| position.0.to_vec()))
    }

    async fn inbox(&mut self, owner: &UserId) -> Result<()> {
        let (admin, repair) = (self.admin, self.repair);
        let mut after = ConversationId(Uuid::nil());
        loop {
            let rows = admin
                .inboxes
                .stored_memberships(owner, after, ENTRIES_MAX)
                .await?;
            self.verified.looked_at += rows.len() as u64;
            let is_last = rows.len() < ENTRIES_MAX;
            after = rows.last().map_or(after, |(id, _)| *id);
            let each = rows.into_iter().map(async |(id, entry)| {
                if owner.is_agent() {
                    return self.entry_of_agent(owner, id).await.map(Some);
                }
                if !entry.is_some_and(|entry| entry.is_joined()) {
                    return Ok(None);
                }
                let values = values![id, owner];
                let cell: Option<Vec<u8>> =
                    admin.executor.read_cell(&SELECT_MEMBERSHIP, values).await?;
                let given = cell
                    .map(|bytes| decode_membership("participants_by_conversation", &bytes))
                    .transpose()?;
                if given.is_some_and(|given| given.is_joined()) {
                    return Ok(None);
                }
                if repair {
                    let never = Membership {
                        state: MembershipState::Left,
                        ..Membership::joined(Role::Member)
                    };
                    let mut writes = Writes::of_one_partition();
                    writes.put_entry_membership(
                        owner,
                        id,
                        &given.unwrap_or(never),
                        admin.clock.now().micros(),
                    );
                    admin.executor.write_all(writes).await?;
                }
                Ok(Some(Finding::of(
                    finding::STRAY,
                    format!("{owner}, conversation {id}"),
                    repair,
                )))
            });
            let found = concurrently(each).await?.into_iter().flatten();
            self.verified.findings.extend(found);
            if is_last {
                return Ok(());
            }
        }
    }

    /// An agent has no entry. Versions before 0.3 knew no agents, and wrote one for a user of such a name.
    async fn entry_of_agent(&self, agent: &UserId, id: ConversationId) -> Result<Finding> {
        let (admin, repair) = (self.admin, self.repair);
        if repair {
            let now = admin.clock.now();
            let mut writes = Writes::logged();
            writes.delete_entry(agent, id, now);
            admin.executor.write_all(writes).await?;
            admin.inboxes.erase(agent, now).await?;
        }
        let example = format!("that of {agent}, conversation {id}");
        Ok(Finding::of(finding::AGENT, example, repair))
    }

    async fn reactions(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let (admin, repair) = (self.admin, self.repair);
        type Columns = (Uuid, scylla::value::CqlTimeuuid);
        let from = from.map(|bytes| (uuid_of(bytes), uuid_of(bytes.get(16..).unwrap_or_default())));
        let after = from
            .map(|(id, message)| {
                Ok(values![
                    id,
                    time_uuid("reactions_by_message", message.into())?
                ])
            })
            .transpose()?;
        let is_after = |(id, message): &Columns| from == Some((*id, (*message).into()));
        let rows: Vec<Columns> = admin
            .rows_after(
                (&SCAN_REACTIONS, &SCAN_REACTIONS_FROM),
                after,
                PARTITIONS_MAX,
                is_after,
            )
            .await?;
        self.verified.looked_at += rows.len() as u64;
        let each = rows.iter().map(async |(id, message)| {
            let (id, message): (_, MessageId) = (
                ConversationId(*id),
                time_uuid("reactions_by_message", *message)?,
            );
            // No client sees a reaction to a message that does not exist.
            let Some((present, bucket)) =
                skip_damaged(admin.messages.find_message(id, message, None).await)?
            else {
                return Ok(None);
            };
            if present.has_reactions {
                return Ok(None);
            }
            if repair {
                let none: [(&Emoji, &UserId); 0] = [];
                admin
                    .messages
                    .put_imported_reactions(id, message, bucket, &none)
                    .await?;
            }
            Ok(Some(Finding::of(
                finding::REACTION_MARK,
                format!("{message}, conversation {id}"),
                repair,
            )))
        });
        let found = concurrently(each).await?.into_iter().flatten();
        self.verified.findings.extend(found);
        let last = rows.last().filter(|_| rows.len() == PARTITIONS_MAX);
        Ok(last.map(|(id, message)| {
            [id.as_bytes().as_slice(), Uuid::from(*message).as_bytes()].concat()
        }))
    }
}

/// Reads a damaged message as an absent one. The check of its conversation reports it.
pub(super) fn skip_damaged<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(Error::Corrupt { .. }) => Ok(None),
        read => read,
    }
}
