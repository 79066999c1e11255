//! Domain model as plain data. It does no I/O, is not async, and imports no other module of the crate.

pub mod change;
pub mod content;
pub mod conversation;
pub mod event;
pub mod id;
pub mod inbox;
pub mod job;
pub mod live;
pub mod message;
pub mod metadata;
pub mod page;
pub mod reaction;
pub mod receipt;
pub mod report;
pub mod text;
pub mod time;
pub mod user;
pub mod viewer;

pub use change::{Change, ChangeKind, Revision};
pub use content::{Attachment, Body, Content, Parts};
pub use conversation::{
    AppKey, AppKeyClaim, Ban, Conversation, ConversationKind, ConversationProfile, Floor,
    GroupName, HistorySettings, HistoryVisibility, Membership, MembershipState, OwnFloor,
    Participant, PostingAct, PostingRoles, Role, Silence,
};
pub use event::{
    BlockNotice, Event, InboxChange, Notice, OutboxEvent, OutboxEventKind, OutboxRow, OutboxShard,
    Topic,
};
pub use id::{ChangeId, ConversationId, DirectIds, MessageId, OrderKey, TimeUuid};
pub use inbox::{
    ActPosition, Flags, IgnoredSenders, InboxKey, InboxRow, NotificationLevel, ReadMarker, Unread,
    hidden_larges,
};
pub use job::{ErasureStep, Job, JobId, JobLease, JobState};
pub use live::{
    LiveBody, LiveChunk, LiveCursor, LiveExtent, LiveKey, LiveMessage, LiveMessageId,
    LiveMessageState, LivePosition, LiveStart, LiveStatus, LiveStep, LiveStop, LiveText, LiveView,
    LiveWriter, LiveWriters, WriterName, WriterNumber, WritersError,
};
pub use message::{
    IdempotencyKey, InputHash, Mentions, Message, MessageKind, MessageStep, MessageStepState,
    MessageSteps, Pin, PinKey, StepsError,
};
pub use metadata::{Metadata, MetadataError};
pub use page::{Cut, Direction, Page, PageRequest};
pub use reaction::{Emoji, EmojiError, Reaction};
pub use receipt::DeliveryStatus;
pub use report::{Report, ReportId, ReportOutcome, ReportReason, ReportResolution, ReportState};
pub use text::{BYTE_ORDER_MARK, TextError, without_byte_order_mark};
pub use time::{Timestamp, TimestampText};
pub use user::{Block, Presence, Profile, Restriction, Suspension, UserId, UserIdError};
pub use viewer::{AGENT_SCOPE, ServiceRight, ServiceRights, Viewer, ViewerKind};
