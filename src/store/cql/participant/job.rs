//! Jobs: those that run in one partition, which every server reads, and those that have ended in others.
//!
//! A running job is replaced by lightweight transactions alone. One that ends is written to its other
//! partition first: a server that dies in between leaves it running, and it ends again.

use std::sync::Arc;

use scylla::value::Row;

use crate::model::{Job, JobId};
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{row_limit, values};
use crate::store::{Result, rules};

const TABLE: &str = "jobs";
/// Partition of the jobs that run.
const RUNNING: i8 = 0;
/// Partitions of the jobs that have ended.
const ENDED_SHARDS: u8 = 16;
const ENDED_SECONDS: i32 = (Job::ENDED_LIFETIME_MICROS / 1_000_000) as i32;

statements! {
    SELECT_JOB: Read "SELECT state FROM jobs WHERE shard = ? AND job_id = ?";
    SELECT_JOBS: Read "SELECT state FROM jobs WHERE shard = ? LIMIT ?";
    ADD_JOB: Conditional "INSERT INTO jobs (shard, job_id, state) VALUES (?, ?, ?) IF NOT EXISTS";
    SWAP_JOB: Conditional "UPDATE jobs SET state = ? WHERE shard = ? AND job_id = ? IF state = ?";
    END_JOB: Conditional "DELETE FROM jobs WHERE shard = ? AND job_id = ? IF state = ?";
    INSERT_ENDED_JOB: Write "INSERT INTO jobs (shard, job_id, state) VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?";
}

/// Jobs, without a cache.
pub(crate) struct JobTable {
    executor: Arc<Executor>,
}

fn ended_shard(id: JobId) -> i8 {
    let [.., last] = *id.0.as_bytes();
    (last % ENDED_SHARDS).cast_signed() + 1
}

impl JobTable {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    pub(crate) async fn by_ids(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        let each = ids
            .iter()
            .map(async |id| match self.job(RUNNING, *id).await? {
                Some(running) => Ok(Some(running)),
                None => self.job(ended_shard(*id), *id).await,
            });
        concurrently(each).await
    }

    async fn job(&self, shard: i8, id: JobId) -> Result<Option<Job>> {
        let values = values![shard, id.0];
        let state: Option<Vec<u8>> = self.executor.read_cell(&SELECT_JOB, values).await?;
        state.map(|bytes| rules::job::decode(&bytes)).transpose()
    }

    pub(crate) async fn running(&self, limit: usize) -> Result<Vec<Job>> {
        let values = values![RUNNING, row_limit(limit)];
        let rows: Vec<(Option<Vec<u8>>,)> = self.executor.read(&SELECT_JOBS, values).await?;
        let states = rows.into_iter().filter_map(|(state,)| state);
        states.map(|bytes| rules::job::decode(&bytes)).collect()
    }

    pub(crate) async fn swap(&self, seen: Option<&Job>, to: &Job) -> Result<bool> {
        let state = rules::job::encode(to);
        let refused: Option<Row> = match (seen, to.finished_at) {
            (None, None) => {
                let values = values![RUNNING, to.id.0, state];
                self.executor.write_if(&ADD_JOB, values).await?
            }
            (None, Some(_)) => return Err(corrupt(TABLE, "a job ends that did not run")),
            (Some(seen), None) => {
                let values = values![state, RUNNING, to.id.0, rules::job::encode(seen)];
                self.executor.write_if(&SWAP_JOB, values).await?
            }
            (Some(seen), Some(finished_at)) => {
                let shard = ended_shard(to.id);
                let values = values![shard, to.id.0, state, finished_at, ENDED_SECONDS];
                self.executor.write(&INSERT_ENDED_JOB, values).await?;
                let values = values![RUNNING, to.id.0, rules::job::encode(seen)];
                self.executor.write_if(&END_JOB, values).await?
            }
        };
        Ok(refused.is_none())
    }
}
