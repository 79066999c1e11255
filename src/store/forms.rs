//! Forms: encodings of stored values. During a rolling upgrade an older server still serves, which can
//! read no form that came after it.

/// Version of the forms of a store: the number of the migration that brings the newest of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormVersion(pub i32);

impl FormVersion {
    /// Every form of this build may be written.
    pub const ALL: Self = Self(i32::MAX);
    /// Banned users and silences in memberships, and changes of a membership without a message.
    pub const MODERATION: Self = Self(10);
    /// Pins of messages, and their changes.
    pub const PINS: Self = Self(11);
    /// Mentions in contents of messages.
    pub const MENTIONS: Self = Self(12);
    /// Settings and bounds of the history, in conversations and memberships.
    pub const HISTORY: Self = Self(14);
    /// Reports in the outbox.
    pub const REPORTS: Self = Self(15);
    /// Jobs, participants who leave without a message, and erased users in the outbox.
    pub const ERASURE: Self = Self(17);
    /// Held conversations in the positions of readers of the outbox.
    pub const HELD_POSITIONS: Self = Self(20);
    /// Lists of pins.
    pub const PIN_LISTS: Self = Self(21);
    /// Registers of late messages.
    pub const LATE_WRITES: Self = Self(21);
    /// Parts of contents by number: durations and thumbnails of attachments are the first ones.
    pub const PARTS: Self = Self(23);
    /// Live messages.
    pub const LIVE_MESSAGES: Self = Self(24);
}
