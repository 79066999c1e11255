//! The real program behind real sockets: what it answers, how it ends, and what is left of it after any end.

mod answers;
mod backup;
mod backup_key;
mod crash;
mod damage;
mod disk;
mod doors;
mod export;
pub(crate) mod follower;
mod import;
pub(crate) mod ledger;
mod nats;
mod presence;
pub(crate) mod read;
mod shutdown;
mod socket_doors;
pub(crate) mod stage;
mod verify;

/// Random numbers, which need not be good.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::new_v4().as_u64_pair().0)
    }

    /// Below `count`.
    pub(crate) fn roll(&mut self, count: u64) -> u64 {
        // Xorshift; never zero.
        self.0 |= 1 << 63;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % count
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.roll(items.len() as u64)).unwrap()]
    }
}
