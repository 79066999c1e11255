//! Posting roles of a group: the role that an act of its participants needs.

use super::Role;

/// Roles that posting in a group needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct PostingRoles {
    /// For sends and edits. MEMBER is everyone.
    pub send: Role,
    /// For adding participants.
    pub add: Role,
    /// For pins. `None`: MEMBER in a small conversation, ADMIN in a large one.
    pub pin: Option<Role>,
}

impl Default for PostingRoles {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Act whose role an OWNER of a group sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostingAct {
    Send,
    Add,
    Pin,
}

impl PostingRoles {
    pub const DEFAULT: Self = Self {
        send: Role::Member,
        add: Role::Admin,
        pin: None,
    };

    /// The same with another role for an act. `None` is the default.
    pub fn with(self, act: PostingAct, role: Option<Role>) -> Self {
        match act {
            PostingAct::Send => Self {
                send: role.unwrap_or(Self::DEFAULT.send),
                ..self
            },
            PostingAct::Add => Self {
                add: role.unwrap_or(Self::DEFAULT.add),
                ..self
            },
            PostingAct::Pin => Self { pin: role, ..self },
        }
    }

    pub fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }
}
