//! AnswerQuotas of the answers under way: how many each user has, and their bytes; of an address, as long as no user is known.
//!
//! An answer counts from its admission until its last byte was written. An account lasts as long as something counts in it.

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
    /// Answers and bytes of each. `None`: nothing counts.
    most: Option<(usize, usize)>,
    answer_bytes: usize,
    refused: IntCounter,
}

/// One user's.
pub(crate) struct AnswerQuota {
    open: Arc<OpenQuotas>,
    owner: QuotaOwner,
    answers: AtomicUsize,
    pub(crate) bytes: Arc<AnswerAccount>,
}

/// An answer that counts until this is dropped.
struct AnswerPermit(Arc<AnswerQuota>);

impl AnswerQuotas {
    pub(crate) fn new(
        answer_bytes: usize,
        most: Option<(usize, usize)>,
        refused: IntCounter,
    ) -> Self {
        Self {
            open: Arc::default(),
            most,
            answer_bytes,
            refused,
        }
    }

    /// The budget of one more answer, which counts until the budget is dropped.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<Arc<AnswerBudget>, Problem> {
        let (Some(account), Some((answers_max, _))) = (self.of(caller), self.most) else {
            return Ok(Arc::new(AnswerBudget::new(self.answer_bytes)));
        };
        let more = |answers: usize| (answers < answers_max).then_some(answers + 1);
        if account
            .answers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_err()
        {
            self.refused.inc();
            let sentence = format!(
                "At most {answers_max} answers of one user are under way at once: read those first."
            );
            return Err(Problem::too_many(sentence));
        }
        let bytes = Arc::clone(&account.bytes);
        Ok(Arc::new(
            AnswerBudget::of(bytes, self.answer_bytes).with_permit(Box::new(AnswerPermit(account))),
        ))
    }

    /// The budget of the events of a subscription, which count once they are made.
    pub(crate) fn event_budget(&self) -> Arc<AnswerBudget> {
        Arc::new(AnswerBudget::new(self.answer_bytes))
    }

    pub(crate) fn of(&self, caller: &Caller) -> Option<Arc<AnswerQuota>> {
        let (_, bytes_max) = self.most?;
        let owner = match &caller.viewer {
            Some(viewer) => QuotaOwner::User(viewer.clone()),
            None => QuotaOwner::ClientAddress(caller.address),
        };
        let mut open = self.open.lock();
        if let Some(account) = open.get(&owner).and_then(Weak::upgrade) {
            return Some(account);
        }
        let account = AnswerQuota {
            open: Arc::clone(&self.open),
            owner: owner.clone(),
            answers: AtomicUsize::new(0),
            bytes: Arc::new(AnswerAccount::new(bytes_max)),
        };
        let account = Arc::new(account);
        open.insert(owner, Arc::downgrade(&account));
        Some(account)
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
        // A new one may have taken its place already.
        if open
            .get(&self.owner)
            .is_some_and(|account| account.strong_count() == 0)
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
    fn an_account_ends_with_its_last_answer() {
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
