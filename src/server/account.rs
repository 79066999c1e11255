//! Accounts of the answers under way: how many each user has, and their bytes; of an address, as long as no user is known.
//!
//! An answer counts from its admission until its last byte was written. An account lasts as long as something counts in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::address::Address;
use super::answer::Problem;
use super::gate::Caller;
use crate::graphql::{AnswerAccount, AnswerBudget};
use crate::metrics::IntCounter;
use crate::model::UserId;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Owner {
    User(UserId),
    Address(Address),
}

type Open = Mutex<HashMap<Owner, Weak<Account>>>;

pub(super) struct Accounts {
    open: Arc<Open>,
    /// Answers and bytes of each. `None`: nothing counts.
    most: Option<(usize, usize)>,
    answer_bytes: usize,
    refused: IntCounter,
}

/// One user's.
pub(super) struct Account {
    open: Arc<Open>,
    owner: Owner,
    answers: AtomicUsize,
    pub(super) bytes: Arc<AnswerAccount>,
}

/// An answer that counts until this is dropped.
struct Permit(Arc<Account>);

impl Accounts {
    pub(super) fn new(
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
    pub(super) fn admit(&self, caller: &Caller) -> Result<Arc<AnswerBudget>, Problem> {
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
            AnswerBudget::of(bytes, self.answer_bytes).with_permit(Box::new(Permit(account))),
        ))
    }

    /// The budget of the events of a subscription, which count once they are made.
    pub(super) fn event_budget(&self) -> Arc<AnswerBudget> {
        Arc::new(AnswerBudget::new(self.answer_bytes))
    }

    pub(super) fn of(&self, caller: &Caller) -> Option<Arc<Account>> {
        let (_, bytes_max) = self.most?;
        let owner = match &caller.viewer {
            Some(viewer) => Owner::User(viewer.clone()),
            None => Owner::Address(caller.address),
        };
        let mut open = self.open.lock();
        if let Some(account) = open.get(&owner).and_then(Weak::upgrade) {
            return Some(account);
        }
        let account = Account {
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

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Account {
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
        let accounts = Accounts::new(10, Some((2, 15)), metrics::counter("refused", "In a test."));
        let address = Address::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let alice = Caller {
            viewer: UserId::parse("alice").ok(),
            address,
        };
        let stranger = Caller {
            viewer: None,
            address,
        };
        let first = accounts.admit(&alice).unwrap();
        let second = accounts.admit(&alice).unwrap();
        assert!(accounts.admit(&alice).is_err() && accounts.admit(&stranger).is_ok());
        first.spend(10).unwrap();
        assert!(second.spend(6).is_err());
        drop(first);
        let third = accounts.admit(&alice).unwrap();
        third.spend(10).unwrap();
        assert_eq!(accounts.open.lock().len(), 1);
        drop((second, third));
        assert!(accounts.open.lock().is_empty());
    }
}
