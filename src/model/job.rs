//! Jobs: work in the background that survives restarts. An erasure of a user is one.

use uuid::Uuid;

use super::{ConversationId, MessageId, OrderKey, Timestamp, UserId};

/// Namespace of the ids of jobs. It must never change, as ids are permanent.
const NAMESPACE: Uuid = Uuid::from_u128(0x2d5b_7e0c_91a4_5f38_8c1e_64b0_73d2_a95f);

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    /// Id of the erasure of a user: the UUIDv5 of the name, so that a second call finds the first one's job.
    pub fn of_erasure(user: &UserId) -> Self {
        let name = [b"erasure ".as_slice(), user.as_str().as_bytes()].concat();
        Self(Uuid::new_v5(&NAMESPACE, &name))
    }
}

/// State of a job. Stores persist the index, so never reorder it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum JobState {
    Running,
    Done,
    /// It ended without its result. A new call begins it again.
    Failed,
}

/// Erasure of a user, as it is persisted after each step.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Job {
    pub id: JobId,
    pub user: UserId,
    pub state: JobState,
    pub step: ErasureStep,
    /// Messages and reports that the job has read, those of other users included.
    pub done_count: u64,
    pub started_at: Timestamp,
    /// `None` while it runs.
    pub finished_at: Option<Timestamp>,
    /// One sentence for operators, of a job that failed.
    pub error: Option<String>,
    /// `None` while no server works on it.
    pub lease: Option<JobLease>,
}

impl Job {
    /// Running jobs of a deployment. More would make their list long, which every server reads.
    pub const RUNNING_MAX: usize = 1_000;
    /// Time for which a store keeps a job that has ended.
    pub const ENDED_LIFETIME_MICROS: i64 = 400 * 24 * 3_600 * 1_000_000;

    pub fn erasure(user: UserId, started_at: Timestamp) -> Self {
        Self {
            id: JobId::of_erasure(&user),
            user,
            state: JobState::Running,
            step: ErasureStep::Restrict,
            done_count: 0,
            started_at,
            finished_at: None,
            error: None,
            lease: None,
        }
    }

    /// Whether another server than `holder` works on it.
    pub fn is_leased_to_another(&self, holder: Uuid, now: Timestamp) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.holder != holder && now < lease.until)
    }
}

/// Lease of a job: its holder alone works on it, until the lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JobLease {
    pub holder: Uuid,
    pub until: Timestamp,
}

/// Next step of an erasure. Stores persist the index of the variant, so never reorder them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ErasureStep {
    /// Suspend the user and revoke the tokens.
    Restrict,
    /// Leave the conversations after this one.
    Leave(Option<ConversationId>),
    /// Erase the user from the conversations after this one.
    Conversations(Option<ConversationId>),
    /// Erase the user from the messages of a conversation, those that are older than this one.
    Messages(ConversationId, Option<MessageId>),
    /// Erase the user from the reports that are older than this position.
    Reports(OrderKey),
    /// Erase the profile, and publish the event.
    Finish,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_erasure_follows_from_the_name() {
        let id = |name| JobId::of_erasure(&UserId::parse(name).unwrap());
        assert_eq!(id("ann"), id("ann"));
        assert_ne!(id("ann"), id("Ann"));
        // Jobs of this user are in stores.
        assert_eq!(
            id("ann").0.to_string(),
            Uuid::new_v5(&NAMESPACE, b"erasure ann").to_string()
        );
    }

    #[test]
    fn a_lease_keeps_other_servers_away_until_it_ends() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let at = Timestamp::from_micros;
        let mut job = Job::erasure(UserId::parse("ann").unwrap(), at(1));
        assert!(!job.is_leased_to_another(one, at(2)));
        job.lease = Some(JobLease {
            holder: one,
            until: at(5),
        });
        assert!(!job.is_leased_to_another(one, at(2)));
        assert!(job.is_leased_to_another(other, at(4)));
        assert!(!job.is_leased_to_another(other, at(5)));
    }
}
