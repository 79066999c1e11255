//! The real program behind real sockets: what it answers, how it ends, and what is left of it after any end.

mod answers;
mod app_key;
mod backup;
mod backup_key;
mod crash;
mod damage;
mod descriptors;
mod disk;
mod doors;
pub(crate) mod erasure;
mod export;
pub(crate) mod follower;
mod import;
pub(crate) mod ledger;
mod live;
mod nats;
mod outbox;
mod presence;
pub(crate) mod read;
mod refusals;
mod removal;
mod restored;
mod sample;
mod shutdown;
mod socket_doors;
pub(crate) mod stage;
mod verify;
pub(crate) mod webhook;

/// Random numbers, which need not be good.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::new_v4().as_u64_pair().0)
    }

    /// The same numbers for the same seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        // SplitMix64: seeds that are near each other begin far apart.
        let mut mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(mixed ^ (mixed >> 31))
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
