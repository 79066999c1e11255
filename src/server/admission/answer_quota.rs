//! Quotas of answers in flight: their number and bytes for each user, or for each address while no user is known.
//!
//! An answer counts from its admission until its last byte is written. A quota exists while something counts in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Caller;
use super::address::ClientAddress;
use crate::graphql::{AnswerAccount, AnswerBudget};
use crate::metrics::IntCounter;
use crate::model::UserId;
use crate::server::answer::Problem;

#[derive(Clone, PartialEq, Eq, Hash)]
enum QuotaOwner {
    User(UserId),
    ClientAddress(ClientAddress),
}

type OpenQuotas = Mutex<HashMap<QuotaOwner, Weak<AnswerQuota>>>;

pub(crate) struct AnswerQuotas {
    open: Arc<OpenQuotas>,
    /// Answers and bytes of each owner. `None` lifts the quota.
    max: Option<(usize, usize)>,
    answer_bytes: usize,
    refused: IntCounter,
}

/// Quota of one owner.
pub(crate) struct AnswerQuota {
    open: Arc<OpenQuotas>,
    owner: QuotaOwner,
    answers: AtomicUsize,
    pub(crate) bytes: Arc<AnswerAccount>,
}

/// Permit of one answer, released when it is dropped.
struct AnswerPermit(Arc<AnswerQuota>);

impl AnswerQuotas {
    pub(crate) fn new(
        answer_bytes: usize,
        max: Option<(usize, usize)>,
        refused: IntCounter,
    ) -> Self {
        Self {
            open: Arc::default(),
            max,
            answer_bytes,
            refused,
        }
    }

    /// Budget of one more answer, which counts until the budget is dropped.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<Arc<AnswerBudget>, Problem> {
        let (Some(quota), Some((answers_max, _))) = (self.of(caller), self.max) else {
            return Ok(Arc::new(AnswerBudget::new(self.answer_bytes)));
        };
        let more = |answers: usize| (answers < answers_max).then_some(answers + 1);
        if quota
            .answers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_err()
        {
            self.refused.inc();
            let sentence =
                format!("A user has at most {answers_max} answers in flight: read those first.");
            return Err(Problem::too_many(sentence));
        }
        let bytes = Arc::clone(&quota.bytes);
        Ok(Arc::new(
            AnswerBudget::of(bytes, self.answer_bytes).with_permit(Box::new(AnswerPermit(quota))),
        ))
    }

    /// Budget of the events of a subscription, which count once they are rendered.
    pub(crate) fn event_budget(&self) -> Arc<AnswerBudget> {
        Arc::new(AnswerBudget::new(self.answer_bytes))
    }

    pub(crate) fn of(&self, caller: &Caller) -> Option<Arc<AnswerQuota>> {
        let (_, bytes_max) = self.max?;
        let owner = match &caller.viewer {
            Some(viewer) => QuotaOwner::User(viewer.clone()),
            None => QuotaOwner::ClientAddress(caller.address),
        };
        let mut open = self.open.lock();
        if let Some(quota) = open.get(&owner).and_then(Weak::upgrade) {
            return Some(quota);
        }
        let quota = AnswerQuota {
            open: Arc::clone(&self.open),
            owner: owner.clone(),
            answers: AtomicUsize::new(0),
            bytes: Arc::new(AnswerAccount::new(bytes_max)),
        };
        let quota = Arc::new(quota);
        open.insert(owner, Arc::downgrade(&quota));
        Some(quota)
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for AnswerQuota {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        // A new quota may have replaced this one.
        if open
            .get(&self.owner)
            .is_some_and(|quota| quota.strong_count() == 0)
        {
            open.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::metrics;

    #[test]
    fn a_quota_ends_with_its_last_answer() {
        let quotas =
            AnswerQuotas::new(10, Some((2, 15)), metrics::counter("refused", "In a test."));
        let address = ClientAddress::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let alice = Caller {
            viewer: UserId::parse("alice").ok(),
            address,
        };
        let stranger = Caller {
            viewer: None,
            address,
        };
        let first = quotas.admit(&alice).unwrap();
        let second = quotas.admit(&alice).unwrap();
        assert!(quotas.admit(&alice).is_err() && quotas.admit(&stranger).is_ok());
        first.spend(10).unwrap();
        assert!(second.spend(6).is_err());
        drop(first);
        let third = quotas.admit(&alice).unwrap();
        third.spend(10).unwrap();
        assert_eq!(quotas.open.lock().len(), 1);
        drop((second, third));
        assert!(quotas.open.lock().is_empty());
    }
}
