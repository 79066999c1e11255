//! How many users, conversations and messages the servers are measured with.

use std::ops::Range;
use std::time::Duration;

use super::SERVERS;
use crate::Size;

/// Users whose streams are on the first servers only, however many servers there are. Their
/// numbers follow those of the others.
pub const NEIGHBOURS: usize = 1_000;

/// The servers that the participants of a kind of conversation have their streams on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Any server: a large conversation has readers on all of them.
    Everywhere,
    /// The first three servers.
    Neighbours,
}

/// A kind of conversation.
pub struct Kind {
    pub name: &'static str,
    pub participants: usize,
    pub readers: Readers,
    pub conversations: usize,
    pub messages: usize,
}

/// How the servers with readers of a conversation grow with the number of all servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// They stay as few as its participants, or as [`Readers::Neighbours`].
    Bounded,
    WithServers,
}

impl Kind {
    pub fn spread(&self) -> Spread {
        let most = SERVERS[SERVERS.len() - 1];
        if self.readers == Readers::Everywhere && self.participants > most {
            Spread::WithServers
        } else {
            Spread::Bounded
        }
    }
}

/// How much there is of it.
pub struct Scale {
    pub users: usize,
    pub rest: Duration,
    pub kinds: [Kind; 4],
}

impl Scale {
    pub fn of(size: &Size) -> Self {
        let is_quick = size.messages < crate::FULL.messages;
        let by = if is_quick { 10 } else { 1 };
        let kind = |name, participants, readers, conversations: usize, messages: usize| Kind {
            name,
            participants,
            readers,
            conversations: (conversations / by).max(1),
            messages: messages / by.min(4),
        };
        Self {
            users: 20_000 / by,
            // A poll crosses from one minute's mailbox into the next for some seconds of each minute.
            rest: Duration::from_secs(60),
            kinds: [
                kind("of two", 2, Readers::Everywhere, 2_000, 400),
                kind("of eight", 8, Readers::Everywhere, 500, 200),
                kind("of 500 on 3 servers", 500, Readers::Neighbours, 2, 40),
                kind("of 500 on all servers", 500, Readers::Everywhere, 2, 40),
            ],
        }
    }

    /// The numbers of the users whom a kind of conversation draws its participants from.
    pub fn numbers(&self, readers: Readers) -> Range<usize> {
        match readers {
            Readers::Everywhere => 0..self.users,
            Readers::Neighbours => self.users..self.users + NEIGHBOURS,
        }
    }
}

/// Pseudo-random numbers of a seed (SplitMix64): the same conversations in each run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }

    /// Different numbers.
    pub fn some(&mut self, count: usize, of: Range<usize>) -> Vec<usize> {
        let mut some = Vec::with_capacity(count);
        while some.len() < count {
            let one = of.start + self.below(of.len());
            if !some.contains(&one) {
                some.push(one);
            }
        }
        some
    }
}
