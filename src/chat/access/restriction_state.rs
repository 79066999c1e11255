//! Restrictions as a server knows them, in memory.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::{Restriction, Timestamp, UserId, Viewer};
use crate::store::Restricted;

/// Restrictions that refuse somebody.
pub(super) struct RestrictionState {
    everyone: Option<Timestamp>,
    pub(super) tokens_from: HashMap<UserId, Timestamp>,
    /// End of each suspension.
    pub(super) suspended: HashMap<UserId, Option<Timestamp>>,
    pub(super) read_at: Instant,
    /// Number of changes by this server.
    changes: u64,
}

impl RestrictionState {
    pub(super) fn new(all: Vec<(Restricted, Restriction)>) -> Self {
        let mut state = Self {
            everyone: None,
            tokens_from: HashMap::new(),
            suspended: HashMap::new(),
            read_at: Instant::now(),
            changes: 0,
        };
        for (restricted, restriction) in all {
            state.put(&restricted, &restriction);
        }
        state
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Puts a change by this server. Returns whether it restricts anybody else than before.
    pub(super) fn put_change(&mut self, restricted: &Restricted, after: &Restriction) -> bool {
        self.changes += 1;
        self.put(restricted, after)
    }

    /// Puts what a read has found that began after so many changes by this server. Returns whether anything is new, or `None` if this server
    /// has changed something since: the answer may be older.
    pub(super) fn put_read(
        &mut self,
        changes: u64,
        read: &[(&UserId, Restriction)],
    ) -> Option<bool> {
        if changes != self.changes {
            return None;
        }
        let mut is_new = false;
        for (user, restriction) in read {
            is_new |= self.put(&Some((*user).clone()), restriction);
        }
        Some(is_new)
    }

    /// Replaces the restriction of one user, or of everyone. Returns whether anything changed.
    pub(super) fn put(&mut self, restricted: &Restricted, restriction: &Restriction) -> bool {
        let Some(user) = restricted else {
            let everyone = self.everyone.max(restriction.tokens_from);
            let is_new = everyone != self.everyone;
            self.everyone = everyone;
            // The later moment of everyone replaces the earlier ones of users.
            self.tokens_from
                .retain(|_, moment| Some(*moment) > everyone);
            return is_new;
        };
        let tokens_from = restriction
            .tokens_from
            .filter(|at| Some(*at) > self.everyone);
        let had_tokens = match tokens_from {
            Some(moment) => self.tokens_from.insert(user.clone(), moment),
            None => self.tokens_from.remove(user),
        };
        let until = restriction.suspension.as_ref().map(|one| one.until);
        let had_suspension = match until {
            Some(until) => self.suspended.insert(user.clone(), until),
            None => self.suspended.remove(user),
        };
        had_tokens != tokens_from || had_suspension != until
    }

    pub(super) fn is_suspended(&self, user: &UserId, now: Timestamp) -> bool {
        let until = self.suspended.get(user);
        until.is_some_and(|until| until.is_none_or(|until| now < until))
    }

    pub(super) fn is_caller_suspended(&self, caller: &Viewer, now: Timestamp) -> bool {
        self.is_suspended(caller.subject(), now) || self.is_suspended(&caller.user, now)
    }

    /// Moment of issue that a token needs at least.
    pub(super) fn tokens_from(&self, subject: &UserId) -> Option<Timestamp> {
        self.tokens_from.get(subject).copied().max(self.everyone)
    }

    pub(super) fn is_revoked(&self, subject: &UserId, issued_at: Option<Timestamp>) -> bool {
        // A token without a moment of issue counts as older than every revocation.
        self.tokens_from(subject)
            .is_some_and(|from| issued_at.is_none_or(|issued_at| issued_at < from))
    }

    /// Drops what refuses nobody any more.
    pub(super) fn prune(&mut self, now: Timestamp, token_life: Option<Duration>) {
        self.suspended
            .retain(|_, until| until.is_none_or(|until| now < until));
        let Some(life) = token_life else { return };
        let life = i64::try_from(life.as_micros()).unwrap_or(i64::MAX);
        let oldest = now.plus_micros(life.saturating_neg());
        self.tokens_from.retain(|_, moment| *moment > oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Suspension;

    #[test]
    fn an_answer_that_is_older_than_a_change_here_ends_no_suspension() {
        let user = UserId::parse("mallory").unwrap();
        let now = Timestamp::from_micros(0);
        let suspension = Suspension {
            since: now,
            until: None,
            reason: None,
        };
        let suspended = Restriction {
            suspension: Some(suspension),
            ..Restriction::default()
        };
        let free = [(&user, Restriction::default())];
        let mut state = RestrictionState::new(Vec::new());
        let asked_after = state.changes();
        assert!(state.put_change(&Some(user.clone()), &suspended));
        assert_eq!(state.put_read(asked_after, &free), None);
        assert!(state.is_suspended(&user, now));
        // Another server has restored the user since.
        assert_eq!(state.put_read(state.changes(), &free), Some(true));
        assert!(!state.is_suspended(&user, now));
        assert_eq!(state.put_read(state.changes(), &free), Some(false));
    }
}
