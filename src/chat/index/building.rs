//! Building: which segment comes next, and its way into the directory.

use std::ops::Bound;

use uuid::Uuid;

use super::SearchIndex;
use super::directory::{Building, Directory, Segment};
use super::indexer::{IndexGoal, IndexStep, ReadDirectory};
use super::segment::{BYTES_MAX, MESSAGES_MAX, SegmentBuilder};
use crate::chat::error::Result;
use crate::model::{ConversationId, Cut, Message, OrderKey, PageRequest, Timestamp};
use crate::store::DirectoryChange;

/// Messages of one read.
const READ: usize = 100;
/// Loose messages of a segment at which it is built again.
const LOOSE_MAX: usize = 64;

/// Run of messages that becomes one segment in the place of others.
pub(super) struct SegmentPlan {
    after: OrderKey,
    until: OrderKey,
    messages_min: usize,
    messages_max: usize,
    replaced: Vec<Segment>,
    /// Whether the terms of the replaced segments are taken as they are.
    is_merge: bool,
}

struct Collected {
    builder: SegmentBuilder,
    messages: usize,
    /// The last position that was read.
    until: OrderKey,
    /// The moment before the messages were read.
    built: Timestamp,
    /// Whether there are more messages than a segment has.
    is_cut: bool,
}

impl Collected {
    fn add(&mut self, message: &Message) {
        self.builder.add(message);
        self.messages += 1;
        self.until = message.id.order_key();
    }

    /// The segment after a position, and its blocks.
    fn into_segment(self, id: Uuid, after: OrderKey) -> (Segment, Vec<Vec<u8>>) {
        let segment = Segment {
            id,
            after,
            until: self.until,
            built: self.built,
            messages: u32::try_from(self.messages).unwrap_or(u32::MAX),
            bytes: u32::try_from(self.builder.bytes()).unwrap_or(u32::MAX),
        };
        (segment, self.builder.build())
    }
}

impl SearchIndex {
    pub(super) fn plan(&self, directory: &Directory, goal: IndexGoal) -> Option<SegmentPlan> {
        if let Some(plan) = self.to_replace(directory, goal) {
            return Some(plan);
        }
        let IndexGoal::Grow { messages_min } = goal else {
            return None;
        };
        let (after, until) = (directory.until(), self.settled());
        (after < until).then(|| SegmentPlan {
            after,
            until,
            messages_min,
            messages_max: self.levels[2] as usize,
            replaced: Vec::new(),
            is_merge: false,
        })
    }

    /// A segment in the place of others.
    pub(super) fn to_replace(&self, directory: &Directory, goal: IndexGoal) -> Option<SegmentPlan> {
        if let Some(segment) = self.to_rebuild(directory, goal) {
            return Some(SegmentPlan {
                after: segment.after.max(directory.removed),
                until: segment.until,
                messages_min: 0,
                messages_max: MESSAGES_MAX,
                replaced: vec![segment],
                is_merge: false,
            });
        }
        if goal == IndexGoal::Refresh {
            return None;
        }
        let run = directory.to_merge(&self.levels, BYTES_MAX)?;
        let (first, last) = (run.first()?, run.last()?);
        Some(SegmentPlan {
            after: first.after,
            until: last.until,
            messages_min: 0,
            messages_max: MESSAGES_MAX,
            replaced: run.to_vec(),
            is_merge: true,
        })
    }

    fn to_rebuild(&self, directory: &Directory, goal: IndexGoal) -> Option<Segment> {
        let least = match goal {
            IndexGoal::Refresh => 1,
            IndexGoal::Grow { .. } => LOOSE_MAX,
        };
        let is_due = |segment: &&Segment| {
            let loose = directory.loose.iter();
            let loose = loose.filter(|one| segment.has(one.message.order_key()));
            loose.count() >= least
                || segment.has(directory.removed) && segment.until > directory.removed
        };
        directory.segments.iter().find(is_due).copied()
    }

    /// Builds a segment, and puts it in the place of those that it replaces.
    pub(super) async fn build(
        &self,
        id: ConversationId,
        goal: IndexGoal,
        read: ReadDirectory,
        plan: SegmentPlan,
    ) -> Result<IndexStep> {
        let now = self.in_flight.now();
        let merged = match plan.is_merge {
            true => self.merge(id, &plan).await?,
            false => None,
        };
        let collected = match merged {
            Some(merged) => merged,
            None => self.collect(id, &plan).await?,
        };
        if collected.messages < plan.messages_min.max(1) && plan.replaced.is_empty() {
            // Changes alone are worth no write.
            return Ok(IndexStep::Done);
        }
        let segment = Uuid::new_v4();
        let mut directory = read.directory;
        if directory.segments.is_empty() {
            // Changes that other servers make meanwhile know of no segment.
            self.schedule_refresh(id).await?;
        }
        directory.building = Some(Building {
            id: segment,
            server: self.server,
            since: now,
        });
        let claim = directory.encode();
        directory.building = None;
        let replaced: Vec<_> = plan.replaced.iter().map(|one| one.id).collect();
        directory.segments.retain(|one| !replaced.contains(&one.id));
        directory.stale.extend(replaced);
        let (messages, is_cut) = (collected.messages, collected.is_cut);
        let is_swapped = if messages > 0 {
            let (new, blocks) = collected.into_segment(segment, plan.after);
            let after = |one: &Segment| one.until <= plan.after;
            let at = directory.segments.partition_point(after);
            directory.segments.insert(at, new);
            directory.settle(self.window_micros());
            let change = DirectoryChange {
                seen: read.bytes,
                claim,
                to: directory.encode(),
            };
            self.add_segment(id, segment, &blocks, change).await?
        } else {
            self.swap(id, &read.bytes, &directory).await?
        };
        if !is_swapped {
            return Ok(IndexStep::More);
        }
        self.meter.segments.inc();
        self.meter.messages.inc_by(messages as u64);
        // They stay in the directory until the next step, which deletes them again if this fails.
        self.delete_stale(id, &mut directory).await?;
        let is_last = plan.replaced.is_empty() && !is_cut;
        match is_last && self.to_replace(&directory, goal).is_none() {
            true => Ok(IndexStep::Done),
            false => Ok(IndexStep::More),
        }
    }

    /// Puts segments together without their messages: what is loose in one of them stays loose. `None` where one cannot be
    /// read.
    async fn merge(&self, id: ConversationId, plan: &SegmentPlan) -> Result<Option<Collected>> {
        let mut collected = Collected {
            builder: SegmentBuilder::default(),
            messages: 0,
            until: plan.until,
            built: Timestamp::MAX,
            is_cut: false,
        };
        let Some(whole) = self.whole_segments(id, &plan.replaced).await? else {
            return Ok(None);
        };
        for (segment, (header, blocks)) in plan.replaced.iter().zip(whole) {
            if collected.builder.add_segment(&header, &blocks).is_err() {
                return Ok(None);
            }
            collected.messages += segment.messages as usize;
            collected.built = collected.built.min(segment.built);
            tokio::task::yield_now().await;
        }
        Ok(Some(collected))
    }

    /// Reads the messages of a plan, the oldest first, as many as a segment has.
    async fn collect(&self, id: ConversationId, plan: &SegmentPlan) -> Result<Collected> {
        let is_new = plan.replaced.is_empty();
        let messages_max = plan.messages_max;
        let cut = Cut {
            start: Bound::Excluded(plan.after),
            end: Bound::Included(plan.until),
        };
        let mut collected = Collected {
            builder: SegmentBuilder::default(),
            messages: 0,
            until: plan.until,
            built: self.built_at(),
            is_cut: false,
        };
        let mut request = PageRequest::last(READ);
        loop {
            let page = self.store.history(id, &cut, &request).await?;
            for message in page.items.iter().rev() {
                collected.add(message);
                let is_full = collected.builder.is_full();
                if is_new && (is_full || collected.messages >= messages_max) {
                    collected.is_cut = true;
                    return Ok(collected);
                }
            }
            let Some(newest) = page.items.first().filter(|_| page.has_previous) else {
                if !is_new {
                    collected.until = plan.until;
                }
                return Ok(collected);
            };
            request.before = Some(newest.id.order_key());
            tokio::task::yield_now().await;
        }
    }
}
