//! Keys of small and rare rows, each behind its tag: conversations, users, pairs, idempotency keys, reactions, lists and expiries.

use super::{
    Key, Listing, Span, Table, Tag, conversation_id, inbox_key, name, rows, split_name, turned,
};
use crate::model::message::IdempotencyKey;
use crate::model::{
    ConversationId, Emoji, InboxKey, JobId, MessageId, OrderKey, OutboxShard, ReportId, TimeUuid,
    Timestamp, UserId,
};
use crate::store::{DeadLetter, Restricted};

pub(in crate::store::embedded) fn meta(name: &str) -> Key {
    rows(Tag::Meta, &[name.as_bytes()])
}

pub(in crate::store::embedded) fn note(name: &str) -> Key {
    rows(Tag::Note, &[name.as_bytes()])
}

pub(in crate::store::embedded) fn conversation(id: ConversationId) -> Key {
    rows(Tag::Conversation, &[id.0.as_bytes()])
}

pub(in crate::store::embedded) fn conversations_after(after: Option<ConversationId>) -> Span {
    all_after(Tag::Conversation, after.map(conversation))
}

/// Parses a key of [`conversations_after`].
pub(in crate::store::embedded) fn conversation_of(bytes: &[u8]) -> Option<ConversationId> {
    conversation_id(bytes.get(1..)?.try_into().ok()?)
}

pub(in crate::store::embedded) fn users_after(after: Option<&UserId>) -> Span {
    all_after(Tag::User, after.map(user))
}

/// Parses a key of [`users_after`].
pub(in crate::store::embedded) fn user_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(1..)?).ok()?).ok()
}

fn all_after(tag: Tag, after: Option<Key>) -> Span {
    let all = Span::of_prefix(Table::Rows, vec![tag as u8]);
    match after {
        Some(key) => all.behind(&Span::of_key(key)),
        None => all,
    }
}

/// Key of a conversation's membership version and owner count.
pub(in crate::store::embedded) fn roster(id: ConversationId) -> Key {
    rows(Tag::Roster, &[id.0.as_bytes()])
}

pub(in crate::store::embedded) fn pair(one: &UserId, other: &UserId) -> Key {
    rows(Tag::Pair, &[&crate::model::id::pair_key(one, other)])
}

pub(in crate::store::embedded) fn user(id: &UserId) -> Key {
    rows(Tag::User, &[id.as_str().as_bytes()])
}

/// Restriction of a user. That of everyone has an empty name, which no user has.
pub(in crate::store::embedded) fn restriction(restricted: &Restricted) -> Key {
    let name = restricted.as_ref().map_or("", UserId::as_str);
    rows(Tag::Restriction, &[name.as_bytes()])
}

pub(in crate::store::embedded) fn restrictions() -> Span {
    all_after(Tag::Restriction, None)
}

/// Parses a key of [`restrictions`].
pub(in crate::store::embedded) fn restricted_of(bytes: &[u8]) -> Option<Restricted> {
    match bytes.get(1..)? {
        [] => Some(None),
        _ => user_of(bytes).map(Some),
    }
}

// Blocks: name ‖ 0 ‖ blocked name.

pub(in crate::store::embedded) fn block(user: &UserId, blocked: &UserId) -> Key {
    rows(Tag::Block, &[&name(user), blocked.as_str().as_bytes()])
}

pub(in crate::store::embedded) fn blocks(user: &UserId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::Block, &[&name(user)]).bytes)
}

/// Parses the user of a key of [`all_blocks`].
pub(in crate::store::embedded) fn blocker_of(bytes: &[u8]) -> Option<UserId> {
    Some(split_name(bytes.get(1..)?)?.0)
}

/// Parses the blocked user of a key of [`blocks`].
pub(in crate::store::embedded) fn blocked_of(bytes: &[u8]) -> Option<UserId> {
    let (_, blocked) = split_name(bytes.get(1..)?)?;
    UserId::parse(std::str::from_utf8(blocked).ok()?).ok()
}

// Bans: conversation ‖ name.

pub(in crate::store::embedded) fn ban(conversation: ConversationId, user: &UserId) -> Key {
    rows(
        Tag::Ban,
        &[conversation.0.as_bytes(), user.as_str().as_bytes()],
    )
}

pub(in crate::store::embedded) fn bans(conversation: ConversationId) -> Span {
    Span::of_prefix(
        Table::Rows,
        rows(Tag::Ban, &[conversation.0.as_bytes()]).bytes,
    )
}

pub(in crate::store::embedded) fn ban_place(conversation: ConversationId, user: &UserId) -> Span {
    Span::of_key(ban(conversation, user))
}

/// Parses the user of a key of [`bans`].
pub(in crate::store::embedded) fn banned_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(17..)?).ok()?).ok()
}

// Outbox: shard ‖ order key of the row ‖ conversation, the oldest first.

pub(in crate::store::embedded) fn outbox_row(
    shard: OutboxShard,
    position: OrderKey,
    conversation: ConversationId,
) -> Key {
    rows(
        Tag::Outbox,
        &[&[shard.number()], &position.0, conversation.0.as_bytes()],
    )
}

/// Rows after a position, and up to another one.
pub(in crate::store::embedded) fn outbox_rows(
    shard: OutboxShard,
    after: OrderKey,
    up_to: OrderKey,
) -> Span {
    let at = |position: OrderKey| {
        let prefix = rows(Tag::Outbox, &[&[shard.number()], &position.0]).bytes;
        Span::of_prefix(Table::Rows, prefix)
    };
    Span {
        table: Table::Rows,
        start: at(after).end,
        end: at(up_to).end,
    }
}

/// Parses a key of [`outbox_rows`].
pub(in crate::store::embedded) fn outbox_row_of(
    bytes: &[u8],
) -> Option<(TimeUuid, ConversationId)> {
    let (position, conversation) = bytes.get(2..)?.split_first_chunk::<16>()?;
    Some((
        TimeUuid::from_order_key(OrderKey(*position))?,
        conversation_id(conversation.try_into().ok()?)?,
    ))
}

/// Position of a named reader in one shard: reader ‖ 0 ‖ shard.
pub(in crate::store::embedded) fn reader_position(reader: &str, shard: OutboxShard) -> Key {
    rows(
        Tag::OutboxPosition,
        &[reader.as_bytes(), &[0, shard.number()]],
    )
}

/// Dead letter: reader ‖ 0 ‖ order key of the event ‖ kind ‖ part.
pub(in crate::store::embedded) fn dead_letter(reader: &str, letter: &DeadLetter) -> Key {
    let event = &letter.event;
    rows(
        Tag::OutboxDead,
        &[
            reader.as_bytes(),
            &[0],
            &event.id.order_key().0,
            &[event.kind.number()],
            letter.part.as_bytes(),
        ],
    )
}

/// Dead letters of a reader, those with the oldest events first.
pub(in crate::store::embedded) fn dead_letters(reader: &str) -> Span {
    let prefix = rows(Tag::OutboxDead, &[reader.as_bytes(), &[0]]).bytes;
    Span::of_prefix(Table::Rows, prefix)
}

pub(in crate::store::embedded) fn send_by_key(
    conversation: ConversationId,
    sender: &UserId,
    key: &IdempotencyKey,
) -> Key {
    rows(
        Tag::SendByKey,
        &[
            conversation.0.as_bytes(),
            &name(sender),
            key.as_str().as_bytes(),
        ],
    )
}

// Reactions: conversation ‖ order key ‖ emoji ‖ 0 ‖ name ‖ 0. No emoji holds a zero byte.

pub(in crate::store::embedded) fn reaction(
    conversation: ConversationId,
    message: MessageId,
    emoji: &Emoji,
    user: &UserId,
) -> Key {
    rows(
        Tag::Reaction,
        &[
            conversation.0.as_bytes(),
            &message.order_key().0,
            emoji.as_str().as_bytes(),
            &[0],
            &name(user),
        ],
    )
}

pub(in crate::store::embedded) fn reactions(
    conversation: ConversationId,
    message: MessageId,
) -> Span {
    Span::of_prefix(
        Table::Rows,
        rows(
            Tag::Reaction,
            &[conversation.0.as_bytes(), &message.order_key().0],
        )
        .bytes,
    )
}

/// Range of the reactions with one emoji.
pub(in crate::store::embedded) fn reactions_of(
    conversation: ConversationId,
    message: MessageId,
    emoji: &Emoji,
) -> Span {
    let key = rows(
        Tag::Reaction,
        &[
            conversation.0.as_bytes(),
            &message.order_key().0,
            emoji.as_str().as_bytes(),
            &[0],
        ],
    );
    Span::of_prefix(Table::Rows, key.bytes)
}

/// Range of the reactions after one of them.
pub(in crate::store::embedded) fn reactions_after(
    conversation: ConversationId,
    message: MessageId,
    after: Option<&(Emoji, UserId)>,
) -> Span {
    let all = reactions(conversation, message);
    match after {
        Some((emoji, user)) => {
            all.behind(&Span::of_key(reaction(conversation, message, emoji, user)))
        }
        None => all,
    }
}

/// Range of the reactions of all messages of a conversation.
pub(in crate::store::embedded) fn reactions_in(conversation: ConversationId) -> Span {
    Span::of_prefix(
        Table::Rows,
        rows(Tag::Reaction, &[conversation.0.as_bytes()]).bytes,
    )
}

/// Parses the message of a reaction key.
pub(in crate::store::embedded) fn reaction_to(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(bytes.get(17..33)?.try_into().ok()?))
}

/// Parses the emoji and the user of a reaction key.
pub(in crate::store::embedded) fn reaction_of(bytes: &[u8]) -> Option<(Emoji, UserId)> {
    let rest = bytes.get(33..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let emoji = Emoji::kept(std::str::from_utf8(&rest[..end]).ok()?);
    let (user, rest) = split_name(&rest[end + 1..])?;
    rest.is_empty().then_some((emoji, user))
}

// Reports, and their resolutions: inverted order key, so that the newest comes first.

pub(in crate::store::embedded) fn report(position: OrderKey) -> Key {
    rows(Tag::Report, &[&turned(position.0)])
}

pub(in crate::store::embedded) fn report_resolution(position: OrderKey) -> Key {
    rows(Tag::ReportResolution, &[&turned(position.0)])
}

/// Reports before one position and after another one.
pub(in crate::store::embedded) fn reports(older_than: OrderKey, newer_than: OrderKey) -> Span {
    Span {
        table: Table::Rows,
        start: Span::of_key(report(older_than)).end,
        end: report(newer_than).bytes,
    }
}

/// Range of all reports and all resolutions.
pub(in crate::store::embedded) fn all_reports() -> Span {
    Span {
        table: Table::Rows,
        start: vec![Tag::Report as u8],
        end: vec![Tag::ReportResolution as u8 + 1],
    }
}

/// Parses the report of a key of [`all_reports`].
pub(in crate::store::embedded) fn report_of(bytes: &[u8]) -> Option<ReportId> {
    ReportId::from_order_key(OrderKey(turned(*bytes.last_chunk::<16>()?)))
}

// Pins: conversation ‖ order key of the message.

pub(in crate::store::embedded) fn pin(conversation: ConversationId, message: MessageId) -> Key {
    rows(
        Tag::Pin,
        &[conversation.0.as_bytes(), &message.order_key().0],
    )
}

/// Range of the pins of a conversation.
pub(in crate::store::embedded) fn pins(conversation: ConversationId) -> Span {
    Span::of_prefix(
        Table::Rows,
        rows(Tag::Pin, &[conversation.0.as_bytes()]).bytes,
    )
}

/// Parses the message of a key of [`pins`].
pub(in crate::store::embedded) fn pinned_of(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(bytes.get(17..)?.try_into().ok()?))
}

// Mentions: name ‖ 0 ‖ conversation ‖ order key. Mentions of everyone: conversation ‖ order key.

pub(in crate::store::embedded) fn mention(
    user: &UserId,
    conversation: ConversationId,
    message: OrderKey,
) -> Key {
    rows(
        Tag::Mention,
        &[&name(user), conversation.0.as_bytes(), &message.0],
    )
}

pub(in crate::store::embedded) fn everyone(conversation: ConversationId, message: OrderKey) -> Key {
    rows(Tag::Everyone, &[conversation.0.as_bytes(), &message.0])
}

/// Mentions of a user after a position, and up to another one, the oldest first.
pub(in crate::store::embedded) fn mentions(
    user: &UserId,
    conversation: ConversationId,
    (after, up_to): (OrderKey, OrderKey),
) -> Span {
    between(
        mention(user, conversation, after),
        mention(user, conversation, up_to),
    )
}

/// Mentions of everyone after a position, and up to another one, the oldest first.
pub(in crate::store::embedded) fn everyones(
    conversation: ConversationId,
    (after, up_to): (OrderKey, OrderKey),
) -> Span {
    between(everyone(conversation, after), everyone(conversation, up_to))
}

/// Keys after one, and up to another one.
fn between(after: Key, up_to: Key) -> Span {
    Span {
        table: Table::Rows,
        start: Span::of_key(after).end,
        end: Span::of_key(up_to).end,
    }
}

/// Parses the message at the end of a key of [`mentions`] or [`everyones`].
pub(in crate::store::embedded) fn mentioned_at(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(*bytes.last_chunk::<16>()?))
}

pub(in crate::store::embedded) fn all_mentions() -> Span {
    all_after(Tag::Mention, None)
}

pub(in crate::store::embedded) fn all_everyones() -> Span {
    all_after(Tag::Everyone, None)
}

/// Parses the message of a key of [`all_mentions`].
pub(in crate::store::embedded) fn mention_of(bytes: &[u8]) -> Option<(ConversationId, MessageId)> {
    let (_, rest) = split_name(bytes.get(1..)?)?;
    let (conversation, _) = rest.split_first_chunk::<16>()?;
    Some((conversation_id(conversation)?, mentioned_at(rest)?))
}

/// Parses a key of [`all_everyones`].
pub(in crate::store::embedded) fn everyone_of(bytes: &[u8]) -> Option<(ConversationId, MessageId)> {
    let (conversation, _) = bytes.get(1..)?.split_first_chunk::<16>()?;
    Some((conversation_id(conversation)?, mentioned_at(bytes)?))
}

/// The message of the key of a mention of everyone.
pub(in crate::store::embedded) fn everyone_in(key: &Key) -> Option<(ConversationId, MessageId)> {
    has_tag(key, Tag::Everyone)
        .then(|| everyone_of(&key.bytes))
        .flatten()
}

/// Key of the row that lists a conversation in a user's inbox.
pub(in crate::store::embedded) fn listed(
    user: &UserId,
    conversation: ConversationId,
    listing: Listing,
) -> Key {
    match listing {
        Listing::Active(activity) => super::activity(
            user,
            &InboxKey {
                activity,
                conversation,
            },
        ),
        Listing::Busy => rows(Tag::BusyByUser, &[&name(user), conversation.0.as_bytes()]),
        Listing::Large => rows(Tag::LargeByUser, &[&name(user), conversation.0.as_bytes()]),
    }
}

pub(in crate::store::embedded) fn busy(user: &UserId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::BusyByUser, &[&name(user)]).bytes)
}

/// Key that schedules a check of a busy conversation, for when it may have become quiet.
pub(in crate::store::embedded) fn busy_conversation(id: ConversationId) -> Key {
    rows(Tag::Busy, &[id.0.as_bytes()])
}

/// Parses a key of [`busy_conversation`]. `None` for any other key.
pub(in crate::store::embedded) fn busy_conversation_id(key: &Key) -> Option<ConversationId> {
    match (key.table, key.bytes.split_first()) {
        (Table::Rows, Some((&tag, id))) if tag == Tag::Busy as u8 => {
            conversation_id(id.try_into().ok()?)
        }
        _ => None,
    }
}

pub(in crate::store::embedded) fn larges(user: &UserId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::LargeByUser, &[&name(user)]).bytes)
}

/// Parses the conversation at the end of a key of [`larges`] or [`busy`].
pub(in crate::store::embedded) fn listed_id(bytes: &[u8]) -> Option<ConversationId> {
    conversation_id(bytes.last_chunk::<16>()?)
}

// Whole lists, for export and verification.

pub(in crate::store::embedded) fn all_activities() -> Span {
    Span {
        table: Table::Activity,
        start: Vec::new(),
        end: vec![0xff; 64],
    }
}

pub(in crate::store::embedded) fn all_busy() -> Span {
    all_after(Tag::BusyByUser, None)
}

pub(in crate::store::embedded) fn all_larges() -> Span {
    all_after(Tag::LargeByUser, None)
}

pub(in crate::store::embedded) fn all_blocks() -> Span {
    all_after(Tag::Block, None)
}

pub(in crate::store::embedded) fn all_pairs() -> Span {
    all_after(Tag::Pair, None)
}

/// The part of a range after the key with these bytes.
pub(in crate::store::embedded) fn behind(span: Span, bytes: Option<Vec<u8>>) -> Span {
    match bytes {
        Some(bytes) => {
            let key = Key {
                table: span.table,
                bytes,
            };
            span.behind(&Span::of_key(key))
        }
        None => span,
    }
}

/// Parses a list row into its user and its conversation.
pub(in crate::store::embedded) fn listing_of(row: &Key) -> Option<(UserId, ConversationId)> {
    let named = if row.table == Table::Activity {
        &row.bytes[..]
    } else {
        row.bytes.get(1..)?
    };
    let (user, _) = split_name(named)?;
    let id = if row.table == Table::Activity {
        inbox_key(&row.bytes)?.conversation
    } else {
        listed_id(&row.bytes)?
    };
    Some((user, id))
}

// Expiry: hour ‖ table ‖ key of the expiring row. All rows of an hour have expired once it has begun.

pub(in crate::store::embedded) const HOUR_MICROS: i64 = 3_600 * 1_000_000;

fn hour(moment: Timestamp) -> u32 {
    u32::try_from(moment.micros() / HOUR_MICROS)
        .expect("the year 9999 lies within 71 million hours of 1970")
}

pub(in crate::store::embedded) fn expiry(of: &Key, expires_at: Timestamp) -> Key {
    rows(
        Tag::Expiry,
        &[
            &(hour(expires_at) + 1).to_be_bytes(),
            &[of.table as u8],
            &of.bytes,
        ],
    )
}

/// Range of everything that has expired.
pub(in crate::store::embedded) fn expired(now: Timestamp) -> Span {
    let start = rows(Tag::Expiry, &[]).bytes;
    let end = rows(Tag::Expiry, &[&(hour(now) + 1).to_be_bytes()]).bytes;
    Span {
        table: Table::Rows,
        start,
        end,
    }
}

pub(in crate::store::embedded) fn is_send_by_key(key: &Key) -> bool {
    has_tag(key, Tag::SendByKey)
}

pub(in crate::store::embedded) fn is_dead_letter(key: &Key) -> bool {
    has_tag(key, Tag::OutboxDead)
}

pub(in crate::store::embedded) fn is_ended_job(key: &Key) -> bool {
    has_tag(key, Tag::EndedJob)
}

fn has_tag(key: &Key, tag: Tag) -> bool {
    key.table == Table::Rows && key.bytes.first() == Some(&(tag as u8))
}

/// Parses the key that a row of [`expired`] refers to.
pub(in crate::store::embedded) fn expired_key(bytes: &[u8]) -> Option<Key> {
    let (table, key) = bytes.get(5..)?.split_first()?;
    let table = *Table::ALL.get(usize::from(*table))?;
    Some(Key {
        table,
        bytes: key.to_vec(),
    })
}

// Users who are notified of all messages: conversation ‖ name.

pub(in crate::store::embedded) fn notify_all(conversation: ConversationId, user: &UserId) -> Key {
    rows(
        Tag::NotifyAll,
        &[conversation.0.as_bytes(), user.as_str().as_bytes()],
    )
}

/// Those of a conversation after a user.
pub(in crate::store::embedded) fn notify_all_after(
    conversation: ConversationId,
    after: Option<&UserId>,
) -> Span {
    let all = Span::of_prefix(
        Table::Rows,
        rows(Tag::NotifyAll, &[conversation.0.as_bytes()]).bytes,
    );
    match after {
        Some(user) => all.behind(&Span::of_key(notify_all(conversation, user))),
        None => all,
    }
}

/// Parses the user of a key of [`notify_all_after`].
pub(in crate::store::embedded) fn notify_all_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(17..)?).ok()?).ok()
}

// Jobs: those that run, and those that have ended.

pub(in crate::store::embedded) fn job(id: JobId) -> Key {
    rows(Tag::Job, &[id.0.as_bytes()])
}

pub(in crate::store::embedded) fn ended_job(id: JobId) -> Key {
    rows(Tag::EndedJob, &[id.0.as_bytes()])
}

/// Range of the jobs that run.
pub(in crate::store::embedded) fn jobs() -> Span {
    all_after(Tag::Job, None)
}

/// Range of all mentions of a user, in all conversations.
pub(in crate::store::embedded) fn mentions_of_user(user: &UserId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::Mention, &[&name(user)]).bytes)
}

/// Range of the cells of all entries of a user.
pub(in crate::store::embedded) fn entries(user: &UserId) -> Span {
    Span::of_prefix(Table::Inbox, name(user))
}
