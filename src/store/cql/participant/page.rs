//! Pages of participants, and single participants by username.
//!
//! Rows of users who have left stay in the partition. A page of a small conversation that its first read does not fill reads the rows of
//! present participants by their names. Else it reads on in pieces until it is full, and long runs of former participants are read once.

use futures_util::future::try_join;

use super::pager::{Named, Pager};
use super::roster::{Roster, TABLE};
use super::{KEYS_AT_ONCE, Participants};
use crate::model::{
    ActPosition, ConversationId, Direction, MessageId, OrderKey, Page, PageRequest, Participant,
    UserId,
};
use crate::store::Result;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{act_position, list, order_key, user, values};
use crate::store::cql::message::membership::decode_membership;
use crate::store::rules::former_runs::{CachedRuns, MetRuns, NameRange, successor};

statements! {
    SELECT_PARTICIPANT: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
    SELECT_PARTICIPANTS_ASC: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id ASC LIMIT ?";
    SELECT_PARTICIPANTS_NAMED: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id IN ?";
    SELECT_PARTICIPANTS_DESC: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id DESC LIMIT ?";
}

type ParticipantColumns = (
    String,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
);

impl Named for ParticipantColumns {
    fn name(&self) -> &str {
        &self.0
    }
}

/// A stored participant, with the roster of its partition. A row without a membership is none: a marker left it.
fn decode(
    conversation: ConversationId,
    columns: ParticipantColumns,
) -> Result<Option<(Participant, Roster)>> {
    let (name, membership, read_up_to, delivered_up_to, roster) = columns;
    let Some(membership) = membership else {
        return Ok(None);
    };
    let up_to =
        |bytes: Option<Vec<u8>>| bytes.map_or(Ok(OrderKey::MIN), |bytes| order_key(TABLE, &bytes));
    let read = match read_up_to {
        Some(bytes) => act_position(TABLE, &bytes)?,
        None => ActPosition::own(OrderKey::MIN),
    };
    let participant = Participant {
        conversation,
        user: user(TABLE, &name)?,
        membership: decode_membership(TABLE, &membership)?,
        read_up_to: read.up_to,
        is_read_by_service: read.is_by_service,
        delivered_up_to: up_to(delivered_up_to)?,
    };
    Ok(Some((
        participant,
        Roster::decode_optional(roster.as_deref())?,
    )))
}

/// The participant with the role that counts, succession included.
fn effective((participant, roster): (Participant, Roster)) -> Participant {
    Participant {
        membership: roster.effective(&participant.user, participant.membership),
        ..participant
    }
}

type IsListed<'a> = &'a (dyn Fn(&Participant) -> bool + Sync);

/// A part of the participants, in the order of usernames.
#[derive(Clone)]
struct ParticipantListing<'a> {
    conversation: ConversationId,
    range: NameRange,
    direction: Direction,
    count: usize,
    is_listed: IsListed<'a>,
    /// Whether it may list users who have left.
    has_former: bool,
}

impl Participants {
    pub(crate) async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        let each = async |(conversation, user): &(ConversationId, UserId)| {
            let row = self
                .executor
                .read_one(&SELECT_PARTICIPANT, values![*conversation, user])
                .await?;
            let found = row
                .map(|columns| decode(*conversation, columns))
                .transpose()?
                .flatten();
            Ok(found.map(effective))
        };
        concurrently(keys.iter().map(each)).await
    }

    pub(crate) async fn participant_counts(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<u64>> {
        let rosters = concurrently(conversations.iter().map(|id| self.roster(*id))).await?;
        Ok(rosters
            .into_iter()
            .map(|seen| u64::from(seen.roster.participants.joined))
            .collect())
    }

    pub(crate) async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.participants_with_prefix(conversation, "", page).await
    }

    /// The same, of those whose usernames begin with a prefix.
    pub(crate) async fn participants_with_prefix(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let is_listed: IsListed<'_> = &|one| one.membership.is_joined();
        self.page(conversation, prefix, page, is_listed).await
    }

    pub(crate) async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let is_listed: IsListed<'_> = &|one| one.receives(message, sender);
        self.page(conversation, "", page, is_listed).await
    }

    async fn page(
        &self,
        conversation: ConversationId,
        prefix: &str,
        request: &PageRequest<UserId>,
        is_listed: IsListed<'_>,
    ) -> Result<Page<Participant>> {
        let listing = |range, direction, count| ParticipantListing {
            conversation,
            range,
            direction,
            count,
            is_listed,
            has_former: false,
        };
        let behind = async {
            let Some((range, back)) = NameRange::with_prefix(prefix).behind_page(request) else {
                return Ok(false);
            };
            Ok(!self.listed(listing(range, back, 1)).await?.is_empty())
        };
        let range = NameRange::with_prefix(prefix).of_page(request);
        let rows = self.listed(listing(range, request.direction, request.overread()));
        let (rows, has_behind) = try_join(rows, behind).await?;
        Ok(Page::from_overread(
            request,
            rows.into_iter().map(effective).collect(),
            has_behind,
        ))
    }

    /// Participants after a username, those who have left included. Roles are as stored, without succession.
    pub(crate) async fn stored_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<Participant>> {
        let from = after.map(|after| successor(after.as_str()));
        let listing = ParticipantListing {
            conversation,
            range: NameRange {
                from: from.unwrap_or_default(),
                ..NameRange::all()
            },
            direction: Direction::Forward,
            count: limit,
            is_listed: &|_| true,
            has_former: true,
        };
        let rows = self.listed_past(listing, None).await?.unwrap_or_default();
        Ok(rows.into_iter().map(|(one, _)| one).collect())
    }

    /// The participants of a listing. None of them is a former one.
    async fn listed(&self, listing: ParticipantListing<'_>) -> Result<Vec<(Participant, Roster)>> {
        let conversation = listing.conversation;
        if let Some(known) = self.former.of(conversation) {
            match self.listed_past(listing.clone(), Some(&*known)).await? {
                Some(found) => return Ok(found),
                None => self.former.forget(conversation),
            }
        }
        let found = self.listed_past(listing, None).await?;
        Ok(found.unwrap_or_default())
    }

    /// The participants of a listing by the names of the present ones. `None` if these are not known, or change meanwhile.
    async fn listed_by_name(
        &self,
        listing: &ParticipantListing<'_>,
        range: &NameRange,
    ) -> Result<Option<Vec<(Participant, Roster)>>> {
        let conversation = listing.conversation;
        let seen = self.roster_cells(conversation).await?;
        let Some(mut names) = seen.present() else {
            return Ok(None);
        };
        let (from, before) = (range.from.as_str(), range.before.as_str());
        names.retain(|name| (from..before).contains(&name.as_str()));
        let pieces = names.chunks(KEYS_AT_ONCE).map(|piece| {
            let values = values![conversation, list(piece.iter())];
            self.executor
                .read::<ParticipantColumns>(&SELECT_PARTICIPANTS_NAMED, values)
        });
        let mut found = Vec::with_capacity(names.len());
        for columns in concurrently(pieces).await?.into_iter().flatten() {
            if columns.4 != seen.bytes {
                return Ok(None);
            }
            let decoded = decode(conversation, columns)?;
            found.extend(decoded.filter(|(one, _)| (listing.is_listed)(one)));
        }
        if listing.direction == Direction::Backward {
            found.reverse();
        }
        Ok(Some(found))
    }

    /// The participants of a listing, past known runs of former ones. `None` if the roster is not that of the runs any more.
    async fn listed_past(
        &self,
        listing: ParticipantListing<'_>,
        known: Option<&CachedRuns>,
    ) -> Result<Option<Vec<(Participant, Roster)>>> {
        let ParticipantListing {
            conversation,
            direction,
            count,
            is_listed,
            ..
        } = listing;
        let statement = match direction {
            Direction::Forward => &SELECT_PARTICIPANTS_ASC,
            Direction::Backward => &SELECT_PARTICIPANTS_DESC,
        };
        let range = listing.range.clone();
        let mut pager = Pager::new(self, conversation, statement, range, direction, count);
        let mut may_name = !listing.has_former && known.is_none();
        let mut found = Vec::with_capacity(count);
        let mut met = MetRuns::new();
        // Whether a run was skipped, and no row read since has confirmed its roster.
        let mut is_unconfirmed = false;
        while found.len() < count {
            if let Some(known) = known
                && pager.skip(known)
            {
                is_unconfirmed = true;
                met.close();
            }
            let Some(rows) = pager.next::<ParticipantColumns>().await? else {
                break;
            };
            for columns in rows {
                let roster = columns.4.as_deref();
                if let Some(known) = known {
                    if !known.is_of(roster) {
                        return Ok(None);
                    }
                    is_unconfirmed = false;
                }
                let (name, roster) = (columns.0.clone(), columns.4.clone());
                let decoded = decode(conversation, columns)?;
                let is_present = decoded
                    .as_ref()
                    .is_some_and(|(one, _)| one.membership.is_joined());
                met.note(&name, is_present, roster.as_deref());
                found.extend(decoded.filter(|(one, _)| is_listed(one)));
            }
            if std::mem::take(&mut may_name)
                && found.len() < count
                && let Some(range) = pager.rest()
                && let Some(rest) = self.listed_by_name(&listing, range).await?
            {
                found.extend(rest);
                break;
            }
        }
        if is_unconfirmed {
            let roster = self.roster_cells(conversation).await?.bytes;
            if !known.is_some_and(|known| known.is_of(roster.as_deref())) {
                return Ok(None);
            }
        }
        met.close();
        self.former.add(conversation, met);
        found.truncate(count);
        Ok(Some(found))
    }
}
