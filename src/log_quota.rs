//! Quota of log lines: each kind of line may be written so often in a minute. Further ones are counted, and the count is one line.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

/// Period of a quota.
pub const PERIOD: Duration = Duration::from_secs(60);

/// Lines of the running period, by kind. There are as many kinds as places in the code, or codes of answers.
pub struct LogQuota<K>(Mutex<HashMap<K, Lines>>);

#[derive(Default)]
struct Lines {
    written: u32,
    left_out: u64,
}

impl<K> Default for LogQuota<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> LogQuota<K> {
    /// Whether a line of this kind is written.
    pub fn admits<Q>(&self, kind: &Q, lines_max: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut kinds = self.0.lock();
        let Some(lines) = kinds.get_mut(kind) else {
            let first = Lines {
                written: 1,
                left_out: 0,
            };
            kinds.insert(kind.to_owned(), first);
            return true;
        };
        let is_admitted = lines.written < lines_max;
        if is_admitted {
            lines.written += 1;
        } else {
            lines.left_out += 1;
        }
        is_admitted
    }

    /// Begins the next period. Returns the kinds of which lines were left out, each with their number.
    pub fn renew(&self) -> Vec<(K, u64)> {
        let kinds = std::mem::take(&mut *self.0.lock());
        kinds
            .into_iter()
            .filter(|(_, lines)| lines.left_out > 0)
            .map(|(kind, lines)| (kind, lines.left_out))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_quota_are_counted_until_the_next_period() {
        let quota = LogQuota::<String>::default();
        let written = |kind: &str| (0..100).filter(|_| quota.admits(kind, 3)).count();
        assert_eq!((written("one"), written("two")), (3, 3));
        assert!(quota.admits("three", 3));
        let mut left_out = quota.renew();
        left_out.sort();
        assert_eq!(left_out, [("one".to_owned(), 97), ("two".to_owned(), 97)]);
        assert_eq!(written("one"), 3);
    }
}
