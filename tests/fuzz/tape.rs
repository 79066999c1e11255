//! A tape of random numbers, and what is made of it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::store::ask::runner;
use crate::support::size::sized;

/// Seconds of each test: usually, and in the gate.
const SECONDS: [u64; 2] = [1, 3];
/// Between two looks at the time.
const CASES: u32 = 16;
/// Pieces that stand somewhere in what is damaged.
const PIECES: &[&str] = &[
    "",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    "$",
    "!",
    "...",
    "@",
    "#",
    "&",
    "|",
    "=",
    ".",
    "-",
    "0",
    "1",
    "-1",
    "2147483648",
    "1e400",
    "null",
    "true",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "👩‍👩‍👧",
    "\u{fffd}",
    "\\ud800",
    "\\u0000",
    "\n",
    "\"\"\"",
    "__typename",
    "on",
    "fragment",
    "subscription",
    "9999-12-31T23:59:59Z",
    "AAAA",
    "=",
    "_",
    "%00",
];
const EDITS_MAX: usize = 4;
const CUT_CHARS_MAX: usize = 24;

pub(super) struct Tape {
    numbers: Vec<u16>,
    place: usize,
}

impl Tape {
    /// From 0 to below `count`; 0 when the tape is at its end.
    pub(super) fn number(&mut self, count: usize) -> usize {
        let number = self.numbers.get(self.place).copied().unwrap_or_default();
        self.place += 1;
        usize::from(number) % count.max(1)
    }

    pub(super) fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.number(all.len())]
    }

    /// Once in so many times, and never at the end of the tape.
    pub(super) fn once_in(&mut self, count: usize) -> bool {
        self.number(count) == count - 1
    }

    /// The same text with a few pieces gone, doubled, or put in.
    pub(super) fn damage(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.number(EDITS_MAX) {
            let start = self.number(chars.len() + 1);
            let end = (start + self.number(CUT_CHARS_MAX)).min(chars.len());
            let piece: Vec<char> = match self.number(4) {
                0 => Vec::new(),
                1 => chars[start..end].repeat(1 + self.number(3)),
                2 => self.one_of(PIECES).chars().collect(),
                _ => char::from_u32(self.number(usize::from(u16::MAX)) as u32)
                    .into_iter()
                    .collect(),
            };
            chars.splice(start..end, piece);
        }
        chars.into_iter().collect()
    }

    /// The same bytes, some of them changed, gone or more.
    pub(super) fn damage_bytes(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.number(EDITS_MAX) {
            let (place, byte) = (self.number(bytes.len()), self.number(256) as u8);
            match self.number(4) {
                0 => bytes.truncate(place),
                1 => bytes.insert(place, byte),
                _ if bytes.is_empty() => bytes.push(byte),
                2 => bytes[place] ^= 1 << (byte % 8),
                _ => bytes[place] = byte,
            }
        }
    }
}

/// Plays as many tapes as the time allows.
pub(super) fn play<T: Debug>(mut make: impl FnMut(&mut Tape) -> T, mut test: impl FnMut(T)) {
    let seconds = std::env::var("WIDEROOM_FUZZ_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or_else(|| {
            let [usual, gate] = SECONDS;
            sized(usual, gate)
        });
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let tapes = proptest::collection::vec(any::<u16>(), 0..200);
    let (make, test) = (
        std::cell::RefCell::new(&mut make),
        std::cell::RefCell::new(&mut test),
    );
    while Instant::now() < deadline {
        let outcome = runner(CASES).run(&tapes, |numbers| {
            let case = (make.borrow_mut())(&mut Tape { numbers, place: 0 });
            let shown = format!("{case:?}");
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                (test.borrow_mut())(case)
            }));
            prop_assert!(caught.is_ok(), "{shown}");
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}
