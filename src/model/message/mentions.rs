//! Mentions of a message: lists that the sender names, and that are never parsed from the body.

use super::UserId;

/// Users whom a message mentions. Kept as named, whether they take part or not; only participants are
/// counted and notified.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Mentions {
    /// Ordered by username (bytewise), without duplicates.
    users: Vec<UserId>,
    pub everyone: bool,
}

impl Mentions {
    pub const COUNT_MAX: usize = 50;
    /// Bound of all names together.
    pub const BYTES_MAX: usize = 2 * 1024;
    /// Stores forget a mention after this time.
    pub const LIFETIME_MICROS: i64 = 400 * 24 * 3_600 * 1_000_000;

    /// Nobody.
    pub const NONE: Self = Self {
        users: Vec::new(),
        everyone: false,
    };

    pub fn new(mut users: Vec<UserId>, everyone: bool) -> Self {
        users.sort_unstable();
        users.dedup();
        Self { users, everyone }
    }

    pub fn users(&self) -> &[UserId] {
        &self.users
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && !self.everyone
    }

    /// The part of these mentions that earlier ones do not cover.
    #[must_use]
    pub fn beyond(&self, earlier: &Self) -> Self {
        if earlier.everyone {
            return Self::NONE;
        }
        let users = self.users.iter().filter(|user| !earlier.names(user));
        Self {
            users: users.cloned().collect(),
            everyone: self.everyone,
        }
    }

    /// Whether the names are within their bounds.
    pub fn is_within_bounds(&self) -> bool {
        self.users.len() <= Self::COUNT_MAX && self.bytes() <= Self::BYTES_MAX
    }

    /// Bytes of all names.
    pub fn bytes(&self) -> usize {
        self.users.iter().map(|user| user.as_str().len()).sum()
    }

    pub fn names(&self, user: &UserId) -> bool {
        self.users.binary_search(user).is_ok()
    }

    /// Whether the message is an unread mention of this user until the user reads it.
    pub fn concern(&self, user: &UserId) -> bool {
        self.everyone || self.names(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: &[&str]) -> Vec<UserId> {
        names
            .iter()
            .map(|name| UserId::parse(name).unwrap())
            .collect()
    }

    #[test]
    fn names_are_sorted_and_distinct() {
        let mentions = Mentions::new(users(&["zoe", "ann", "zoe", "Ann"]), false);
        assert_eq!(mentions.users(), users(&["Ann", "ann", "zoe"]));
        assert!(mentions.concern(&users(&["ann"])[0]) && !mentions.concern(&users(&["an"])[0]));
        assert!(Mentions::new(Vec::new(), true).concern(&users(&["an"])[0]));
    }

    #[test]
    fn only_those_whom_earlier_mentions_do_not_cover_are_new() {
        let before = Mentions::new(users(&["ann"]), false);
        let after = Mentions::new(users(&["ann", "ben"]), false);
        assert_eq!(after.beyond(&before), Mentions::new(users(&["ben"]), false));
        assert_eq!(before.beyond(&after), Mentions::NONE);
        let everyone = Mentions::new(Vec::new(), true);
        assert_eq!(everyone.beyond(&before), everyone);
        assert_eq!(after.beyond(&everyone), Mentions::NONE);
    }

    #[test]
    fn names_have_a_bound_of_their_number_and_of_their_bytes() {
        let many = |count: usize, length: usize| {
            let names = (0..count).map(|n| format!("{n:0length$}"));
            Mentions::new(
                names.map(|name| UserId::parse(&name).unwrap()).collect(),
                false,
            )
        };
        assert!(many(50, 2).is_within_bounds() && !many(51, 2).is_within_bounds());
        assert!(many(16, 128).is_within_bounds() && !many(17, 128).is_within_bounds());
    }
}
