//! Numbers for the badge of an app, alone or shared by the payloads of one user.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::page::{InboxFilter, SCAN_CHUNK, is_unread};
use super::{InboxService, PreviewFields};
use crate::chat::error::Result;
use crate::model::{InboxRow, PageRequest, UserId};

/// Cap of the counts of conversations, and of the conversations whose messages are counted.
const SUMMARY_COUNT_MAX: usize = 100;
/// Least time between two computations for the payloads of one user.
const SHARED_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxSummary {
    pub unread_conversation_count: usize,
    /// Those of them with an unread mention.
    pub mentioned_conversation_count: usize,
    /// Unread messages of the most recently active of them, each conversation up to its cap.
    pub unread_message_count: usize,
    pub is_capped: bool,
}

/// Counts that cost further reads. Those that are not wanted stay zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SummaryFields {
    pub mentions: bool,
    pub messages: bool,
}

impl InboxService {
    /// Number of unread conversations that are neither muted nor archived, among the newest
    /// entries, and the wanted counts of them.
    pub async fn summary(&self, viewer: &UserId, wanted: SummaryFields) -> Result<InboxSummary> {
        let mut left = self.scan_max;
        let (mut count, mut mentioned, mut newest) = (0, 0, Vec::new());
        let mut request = PageRequest::first(SCAN_CHUNK);
        let filter = InboxFilter {
            unread_only: true,
            ..InboxFilter::default()
        };
        let is_beyond = loop {
            request.count = SCAN_CHUNK.min(left);
            let mut page = self.store.inbox(viewer, &request).await?;
            left -= page.items.len();
            self.keep_archived(viewer, page.items.iter_mut()).await?;
            request.after = page.items.last().map(InboxRow::key);
            let unmuted: Vec<_> = page
                .items
                .into_iter()
                .filter(|row| !row.flags.is_muted)
                .collect();
            let matching = self.matching(viewer, &filter, &unmuted).await?;
            let matching = unmuted.iter().zip(&matching);
            let unread: Vec<_> = matching
                .filter_map(|(row, visible)| Some(row.above(visible.as_ref()?.floor)))
                .collect();
            if wanted.mentions {
                let mentions = self.mentions_up_to(viewer, &unread, 0).await?;
                mentioned += mentions.iter().filter(|one| is_unread(one)).count();
            }
            count += unread.len();
            newest.extend(unread.into_iter().take(SUMMARY_COUNT_MAX - newest.len()));
            let is_full =
                count > SUMMARY_COUNT_MAX && (!wanted.mentions || mentioned > SUMMARY_COUNT_MAX);
            if is_full || !page.has_next || left == 0 {
                break page.has_next || count.max(mentioned) > SUMMARY_COUNT_MAX;
            }
        };
        let (messages, has_capped) = if wanted.messages {
            self.count_messages(viewer, &newest).await?
        } else {
            (0, false)
        };
        Ok(InboxSummary {
            unread_conversation_count: count.min(SUMMARY_COUNT_MAX),
            mentioned_conversation_count: mentioned.min(SUMMARY_COUNT_MAX),
            unread_message_count: messages,
            is_capped: is_beyond || has_capped,
        })
    }

    /// Summaries that the payloads of this user share.
    pub fn shared_summary(&self, viewer: &UserId) -> Arc<SharedSummary> {
        self.summaries
            .get_or_insert_with(viewer.clone(), SharedSummary::default)
    }

    /// Unread messages of these entries, and whether a count of them is capped.
    async fn count_messages(&self, viewer: &UserId, rows: &[InboxRow]) -> Result<(usize, bool)> {
        let wanted = PreviewFields {
            unread: true,
            last_message: false,
        };
        let previews = self.previews(viewer, rows, wanted).await?;
        let counts = previews.iter().filter_map(|preview| preview.unread);
        Ok(counts.fold((0, false), |(sum, has_capped), unread| {
            let count = usize::try_from(unread.count).unwrap_or(usize::MAX);
            (sum + count, has_capped || unread.is_capped)
        }))
    }
}

/// Single-flight computation of a user's summary: payloads of events that were received before it
/// began share it, and computations keep their distance.
#[derive(Default)]
pub struct SharedSummary(Mutex<HashMap<SummaryFields, (Instant, Option<InboxSummary>)>>);

impl SharedSummary {
    /// A summary whose computation began at this moment or later.
    pub async fn since(
        &self,
        moment: Instant,
        wanted: SummaryFields,
        compute: impl AsyncFnOnce() -> Result<InboxSummary>,
    ) -> Result<InboxSummary> {
        let mut last = self.0.lock().await;
        if let Some((began, summary)) = last.get(&wanted) {
            match summary {
                Some(summary) if *began >= moment => return Ok(*summary),
                Some(_) | None => sleep_until(*began + SHARED_INTERVAL).await,
            }
        }
        // Recorded before the read, which may fail: the next one keeps its distance from it, too.
        let began = Instant::now();
        last.insert(wanted, (began, None));
        let summary = compute().await?;
        last.insert(wanted, (began, Some(summary)));
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;
    use crate::chat::Error;

    #[tokio::test(start_paused = true)]
    async fn payloads_share_a_summary_that_began_after_their_events() {
        let (shared, runs) = (SharedSummary::default(), AtomicUsize::new(0));
        let summary = |count| InboxSummary {
            unread_conversation_count: count,
            mentioned_conversation_count: 0,
            unread_message_count: 0,
            is_capped: false,
        };
        let ask = |moment| {
            shared.since(moment, SummaryFields::default(), async || {
                match runs.fetch_add(1, Ordering::Relaxed) {
                    2 => Err(Error::CursorExpired),
                    run => Ok(summary(run)),
                }
            })
        };
        let start = Instant::now();
        let together = join_all((0..50).map(|_| ask(start))).await;
        assert!(together.into_iter().all(|one| one.unwrap() == summary(0)));
        // A later event needs another one, which waits.
        tokio::time::advance(Duration::from_millis(10)).await;
        let later = Instant::now();
        assert_eq!(ask(later).await.unwrap(), summary(1));
        assert_eq!(start.elapsed(), SHARED_INTERVAL);
        assert_eq!(ask(start).await.unwrap(), summary(1));
        // A failure is nobody's summary, and is tried again no sooner.
        let last = Instant::now() + Duration::from_nanos(1);
        assert!(ask(last).await.is_err());
        assert_eq!(ask(last).await.unwrap(), summary(3));
        assert_eq!(start.elapsed(), 3 * SHARED_INTERVAL);
        assert_eq!(runs.into_inner(), 4);
    }
}
