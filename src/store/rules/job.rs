//! Jobs as bytes: a version, then the rest.

use crate::model::Job;
use crate::store::{Error, Result};

const TABLE: &str = "jobs";
const VERSION: u8 = 1;

pub(in crate::store) fn encode(job: &Job) -> Vec<u8> {
    postcard::to_extend(job, vec![VERSION]).expect("plain data serialises")
}

pub(in crate::store) fn decode(bytes: &[u8]) -> Result<Job> {
    let corrupt = |cause| Error::Corrupt {
        table: TABLE,
        cause,
    };
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Err(corrupt("a job begins with its version".into()));
    };
    postcard::from_bytes(body).map_err(|error| corrupt(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        ConversationId, ErasureStep, JobLease, JobState, MessageId, OrderKey, Timestamp, UserId,
    };

    #[test]
    fn a_job_survives_the_round_trip_at_every_step() {
        let at = Timestamp::from_micros(9);
        let conversation = ConversationId::random();
        let message = MessageId::new(at, [3; 8]);
        for step in [
            ErasureStep::Restrict,
            ErasureStep::Leave(None),
            ErasureStep::Leave(Some(conversation)),
            ErasureStep::Conversations(Some(conversation)),
            ErasureStep::Messages(conversation, None),
            ErasureStep::Messages(conversation, Some(message)),
            ErasureStep::Reports(OrderKey::MAX),
            ErasureStep::Finish,
        ] {
            let job = Job {
                state: JobState::Failed,
                step,
                finished_at: Some(at),
                error: Some("a sentence".to_owned()),
                lease: Some(JobLease {
                    holder: uuid::Uuid::from_u128(4),
                    until: at,
                }),
                ..Job::erasure(UserId::parse("ann").unwrap(), at)
            };
            assert_eq!(decode(&encode(&job)).unwrap(), job);
        }
        assert!(decode(&[]).is_err() && decode(&[VERSION + 1, 7]).is_err());
    }
}
