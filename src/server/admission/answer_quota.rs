//! Quotas of answers in flight: their number and bytes for each user, or for each address while no user is known.
//!
//! An answer counts from its admission until its last byte is written. A quota exists while something counts in it.

use std::sync::Arc;

use super::Caller;
use super::address::ClientAddress;
use crate::graphql::{AnswerAccount, AnswerBudget, OperationCost};
use crate::metrics::IntCounter;
use crate::model::UserId;
use crate::server::answer::Problem;
use crate::weak_map::WeakMap;

#[derive(Clone, PartialEq, Eq, Hash)]
enum QuotaOwner {
    User(UserId),
    ClientAddress(ClientAddress),
}

pub(crate) struct AnswerQuotas {
    accounts: WeakMap<QuotaOwner, AnswerAccount>,
    /// Answers and bytes of each owner. `None` lifts the quota.
    max: Option<(usize, usize)>,
    answer_bytes: usize,
    refused: IntCounter,
}

impl AnswerQuotas {
    pub(crate) fn new(
        answer_bytes: usize,
        max: Option<(usize, usize)>,
        refused: IntCounter,
    ) -> Self {
        Self {
            accounts: WeakMap::default(),
            max,
            answer_bytes,
            refused,
        }
    }

    /// Budget of one more answer, which counts until the budget is dropped.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<Arc<AnswerBudget>, Problem> {
        let (Some(account), Some((answers_max, _))) = (self.account(caller), self.max) else {
            return Ok(self.event_budget());
        };
        let budget = account.admit(self.answer_bytes).ok_or_else(|| {
            self.refused.inc();
            Problem::too_many(format!(
                "A user has at most {answers_max} answers in flight: read those first."
            ))
        })?;
        Ok(Arc::new(budget))
    }

    /// Budget of the answer to an operation. Live writes wait for their pace, and the rate of live writes bounds their number.
    pub(crate) fn admit_operation(
        &self,
        caller: &Caller,
        cost: OperationCost,
    ) -> Result<Arc<AnswerBudget>, Problem> {
        if cost.is_live_write() {
            return Ok(self.event_budget());
        }
        self.admit(caller)
    }

    /// Budget of the events of a subscription, which count once they are rendered.
    pub(crate) fn event_budget(&self) -> Arc<AnswerBudget> {
        Arc::new(AnswerBudget::new(self.answer_bytes))
    }

    /// Account of the caller. It lives while something counts in it.
    pub(crate) fn account(&self, caller: &Caller) -> Option<Arc<AnswerAccount>> {
        let (answers_max, bytes_max) = self.max?;
        let owner = match &caller.viewer {
            Some(viewer) => QuotaOwner::User(viewer.user.clone()),
            None => QuotaOwner::ClientAddress(caller.address),
        };
        let new = || AnswerAccount::new(answers_max, bytes_max);
        Some(self.accounts.get_or_insert_with(owner, new))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::metrics;
    use crate::model::Viewer;

    #[test]
    fn an_answer_counts_until_its_budget_is_dropped() {
        let quotas =
            AnswerQuotas::new(10, Some((2, 15)), metrics::counter("refused", "In a test."));
        let address = ClientAddress::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let alice = Caller {
            viewer: UserId::parse("alice").ok().map(Viewer::from),
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
        drop((second, third));
        assert_eq!(quotas.account(&alice).unwrap().bytes(), 0);
    }
}
