//! Pages of participants, and participants by name, in the embedded store.
//!
//! Rows of users who have left stay. A page that met many of them in a row remembers where they lie, and the next one seeks
//! past them ([`crate::store::rules::former_runs`]).

use super::read_context::ReadContext;
use crate::model::{
    ActPosition, ConversationId, Direction, Membership, MessageId, OrderKey, Page, PageRequest,
    Participant, UserId,
};
use crate::store::Result;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::db::{InTable, MalformedKey, View, corrupt};
use crate::store::embedded::engine::key::{self, Cell, Span};
use crate::store::embedded::engine::page::read_page;
use crate::store::embedded::engine::record::{self, HeadRecord};
use crate::store::rules::former_runs::MetRuns;

/// Reads a page of the present participants whose names begin with a prefix.
pub(super) fn with_prefix(
    context: &ReadContext,
    conversation: ConversationId,
    prefix: &str,
    request: &PageRequest<UserId>,
) -> Result<Page<Participant>> {
    let is_joined = |one: &Participant| one.membership.is_joined();
    participants(context, conversation, prefix, request, is_joined)
}

/// Reads a page of those who receive a message.
pub(super) fn receivers(
    context: &ReadContext,
    conversation: ConversationId,
    message: MessageId,
    sender: &UserId,
    request: &PageRequest<UserId>,
) -> Result<Page<Participant>> {
    let receives = |one: &Participant| one.receives(message, sender);
    participants(context, conversation, "", request, receives)
}

/// Reads a page of participants by name, filtered by membership.
fn participants(
    context: &ReadContext,
    conversation: ConversationId,
    prefix: &str,
    request: &PageRequest<UserId>,
    is_listed: impl Fn(&Participant) -> bool,
) -> Result<Page<Participant>> {
    let state = context.state(conversation)?;
    let view = context.view();
    let has = |user: &UserId| {
        let cell = key::participant(conversation, user, Cell::Membership);
        let membership = view.decoded(&cell, record::decode_membership)?;
        let participant = Cells {
            membership,
            ..Cells::default()
        }
        .into_participant(conversation, user.clone());
        Ok(participant.is_some_and(|participant| is_listed(&participant)))
    };
    let page = read_page(
        &key::participants_with_prefix(conversation, prefix),
        request,
        |user| key::participant_place(conversation, user),
        has,
        |span, direction, limit| {
            let reading = Reading {
                view: &view,
                conversation,
                direction,
                limit,
            };
            reading.present(context, span, &is_listed)
        },
    )?;
    Ok(page.map(|one| as_it_counts(state.as_deref(), one)))
}

/// Participant with the effective role.
fn as_it_counts(state: Option<&ConversationState>, one: Participant) -> Participant {
    match state {
        Some(state) => Participant {
            membership: state.effective(&one.user, one.membership),
            ..one
        },
        None => one,
    }
}

/// Reads the first participants of a range, those who have left included.
pub(super) fn listed(
    view: &View<'_>,
    conversation: ConversationId,
    span: Span,
    limit: usize,
) -> Result<Vec<Participant>> {
    let reading = Reading {
        view,
        conversation,
        direction: Direction::Forward,
        limit,
    };
    reading.run(span, &|_| true, &|_| None, &mut |_, _| {})
}

/// One read of a range of participants.
struct Reading<'a> {
    view: &'a View<'a>,
    conversation: ConversationId,
    direction: Direction,
    limit: usize,
}

impl Reading<'_> {
    /// Reads listed participants, none of them a former one, and seeks past known runs of those.
    fn present(
        &self,
        context: &ReadContext,
        span: Span,
        is_listed: &impl Fn(&Participant) -> bool,
    ) -> Result<Vec<Participant>> {
        let id = self.conversation;
        let roster = self.roster()?;
        let runs = context.former.of(id);
        let runs = runs.filter(|runs| runs.is_of(Some(&roster)));
        let run_of = |user: &UserId| runs.as_ref()?.run_of(user.as_str());
        let mut met = MetRuns::new();
        let found = self.run(span, is_listed, &run_of, &mut |user, one| {
            let is_present = one.is_some_and(|one| one.membership.is_joined());
            // The rows beside a known run are another run.
            if run_of(user).is_some() {
                met.close();
            } else {
                met.note(user.as_str(), is_present, Some(&roster));
            }
        })?;
        met.close();
        context.former.add(id, met);
        Ok(found)
    }

    /// Token that each change of a membership replaces: the version, and the count, which an import changes.
    fn roster(&self) -> Result<Vec<u8>> {
        let id = self.conversation;
        let head: Option<HeadRecord> = self.view.record(&key::head(id))?;
        let count = head.map_or(0, |head| head.participant_count);
        let version = self.view.get(&key::roster(id))?.unwrap_or_default();
        Ok([&version[..], &count.to_be_bytes()].concat())
    }

    /// The cells of one participant are adjacent in either direction.
    fn run<'r>(
        &self,
        mut span: Span,
        is_listed: &impl Fn(&Participant) -> bool,
        run_of: &impl Fn(&UserId) -> Option<(&'r str, &'r str)>,
        note: &mut impl FnMut(&UserId, Option<&Participant>),
    ) -> Result<Vec<Participant>> {
        let mut found = Vec::new();
        let id = self.conversation;
        let mut keep = |cells: Option<(UserId, Cells)>, found: &mut Vec<Participant>| {
            let Some((user, cells)) = cells else { return };
            let one = cells.into_participant(id, user.clone());
            note(&user, one.as_ref());
            found.extend(one.filter(is_listed));
        };
        loop {
            let mut cells: Option<(UserId, Cells)> = None;
            let mut behind_run = None;
            for row in self.view.scan(span.clone(), self.direction) {
                let (key, value) = row?;
                let (user, cell) = key::participant_cell(&key).in_table("participants")?;
                if cells.as_ref().is_none_or(|(present, _)| *present != user) {
                    keep(cells.take(), &mut found);
                    if found.len() == self.limit {
                        return Ok(found);
                    }
                    if let Some(run) = run_of(&user) {
                        keep(Some((user, Cells::default())), &mut found);
                        behind_run = Some(self.behind(&span, run)?);
                        break;
                    }
                }
                cells
                    .get_or_insert_with(|| (user, Cells::default()))
                    .1
                    .read(cell, &value)?;
            }
            keep(cells, &mut found);
            let Some(behind) = behind_run else {
                found.truncate(self.limit);
                return Ok(found);
            };
            span = behind;
        }
    }

    /// The part of a range behind a run.
    fn behind(&self, span: &Span, (first, last): (&str, &str)) -> Result<Span> {
        let end = match self.direction {
            Direction::Forward => last,
            Direction::Backward => first,
        };
        let end = UserId::parse(end).in_table("participants")?;
        let place = key::participant_place(self.conversation, &end);
        Ok(match self.direction {
            Direction::Forward => span.clone().behind(&place),
            Direction::Backward => span.clone().before(&place),
        })
    }
}

/// Participant under assembly from its cells.
#[derive(Default)]
struct Cells {
    membership: Option<Membership>,
    read_up_to: Option<ActPosition>,
    delivered_up_to: Option<OrderKey>,
}

impl Cells {
    fn read(&mut self, cell: u8, value: &[u8]) -> Result<()> {
        let result = match cell {
            cell if cell == Cell::Membership as u8 => record::decode_membership(value)
                .map(|membership| self.membership = Some(membership)),
            cell if cell == Cell::ReadUpTo as u8 => {
                record::decode_act(value).map(|act| self.read_up_to = Some(act))
            }
            cell if cell == Cell::DeliveredUpTo as u8 => {
                record::decode_position(value).map(|position| self.delivered_up_to = Some(position))
            }
            _ => return Err(corrupt("participants", MalformedKey)),
        };
        result.in_table("participants")
    }

    fn into_participant(self, conversation: ConversationId, user: UserId) -> Option<Participant> {
        Some(Participant {
            conversation,
            user,
            membership: self.membership?,
            read_up_to: self.read_up_to.map_or(OrderKey::MIN, |act| act.up_to),
            is_read_by_service: self.read_up_to.is_some_and(|act| act.is_by_service),
            delivered_up_to: self.delivered_up_to.unwrap_or(OrderKey::MIN),
        })
    }
}

pub(super) fn participants_by_name(
    context: &ReadContext,
    keys: &[(ConversationId, UserId)],
) -> Result<Vec<Option<Participant>>> {
    let each = |(conversation, user): &(ConversationId, UserId)| {
        let state = context.state(*conversation)?;
        let view = context.view();
        let key = |cell| key::participant(*conversation, user, cell);
        let cells = Cells {
            membership: view.decoded(&key(Cell::Membership), record::decode_membership)?,
            read_up_to: view.decoded(&key(Cell::ReadUpTo), record::decode_act)?,
            delivered_up_to: view.decoded(&key(Cell::DeliveredUpTo), record::decode_position)?,
        };
        let found = cells.into_participant(*conversation, user.clone());
        Ok(found.map(|one| as_it_counts(state.as_deref(), one)))
    };
    keys.iter().map(each).collect()
}
