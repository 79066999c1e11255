//! Fill probe: measures how many messages of all servers lie in the bucket that this server writes to.
//!
//! The count begins at the checkpoint of the bucket and writes the next one, so its cost does not grow with the bucket. Most measurements find
//! fewer messages than one sample has, and end there.

use std::time::Duration;

use super::Sends;
use super::writer_cache::ConversationWriteState;
use crate::model::{ConversationId, Direction};
use crate::store::Result;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::bucket::choice::{BucketMeasurement, SAMPLE_MESSAGES};
use crate::store::cql::message::bucket::id_range::IdRange;
use crate::store::cql::message::history::MessageSummary;

/// How long a send waits for a measurement, at most. A missed one is due again later.
const MEASURE_WAIT_MAX: Duration = Duration::from_secs(1);

impl Sends {
    /// Measures the bucket that a conversation is written to, if it is time. A failure costs nothing but the measurement.
    pub(super) async fn probe_fill(
        &self,
        conversation: ConversationId,
        state: &ConversationWriteState,
    ) {
        let Some(bucket) = state.lock().buckets.take_measurement(self.clock.now()) else {
            return;
        };
        let measured = self.measure(conversation, bucket);
        match tokio::time::timeout(MEASURE_WAIT_MAX, measured).await {
            Ok(Ok(measurement)) => state.lock().buckets.note_measurement(measurement),
            Ok(Err(error)) => {
                tracing::debug!(%conversation, %error, "the store failed to measure a partition");
            }
            Err(_) => {
                tracing::debug!(%conversation, "the store did not measure a partition in time");
            }
        }
    }

    async fn measure(
        &self,
        conversation: ConversationId,
        bucket: Bucket,
    ) -> Result<BucketMeasurement> {
        let newest: Vec<MessageSummary> = self
            .messages
            .read_bucket(
                conversation,
                bucket,
                IdRange::WHOLE,
                Direction::Backward,
                SAMPLE_MESSAGES,
            )
            .await?;
        let count = newest.len() as u64;
        let messages = if newest.len() < SAMPLE_MESSAGES {
            count
        } else {
            self.messages.bucket_fill(conversation, bucket).await?
        };
        Ok(BucketMeasurement {
            bucket,
            messages,
            sample: newest.last().map(|oldest| (oldest.moment(), count)),
        })
    }
}
