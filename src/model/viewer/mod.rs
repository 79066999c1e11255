//! Viewer: the authenticated caller of an operation.

mod service_rights;

pub use self::service_rights::{ServiceRight, ServiceRights};
use super::UserId;

/// Scope of the token of an agent ([`UserId::is_agent`]). It gives no right of a service.
pub const AGENT_SCOPE: &str = "wideroom:agent";

/// Authenticated caller of an operation. The operation has the rights of `user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    pub user: UserId,
    pub kind: ViewerKind,
}

/// Relation between the caller and the user whose rights the operation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewerKind {
    /// The user's own token.
    User,
    /// A service under its own name, with these rights.
    Service(ServiceRights),
    /// The named service acts as the user.
    ActingService(UserId),
}

impl Viewer {
    /// The service of this name, with all rights.
    pub fn service(user: UserId) -> Self {
        Self::service_with(user, ServiceRights::ALL)
    }

    pub fn service_with(user: UserId, rights: ServiceRights) -> Self {
        Self {
            user,
            kind: ViewerKind::Service(rights),
        }
    }

    /// The service of this name, which acts as the user.
    pub fn acting(user: UserId, service: UserId) -> Self {
        Self {
            user,
            kind: ViewerKind::ActingService(service),
        }
    }

    /// Whether the caller is a service under its own name.
    pub fn is_service(&self) -> bool {
        matches!(self.kind, ViewerKind::Service(_))
    }

    /// Whether the caller is a service under its own name, and has this right.
    pub fn may(&self, right: ServiceRight) -> bool {
        matches!(self.kind, ViewerKind::Service(rights) if rights.has(right))
    }

    /// Whether the rates of services alone bound what the caller writes: one that acts as users, or moderates. A service that only reads
    /// writes at the rates of a user.
    pub fn writes_at_service_rates(&self) -> bool {
        self.is_acted_for() || self.may(ServiceRight::Act) || self.may(ServiceRight::Moderate)
    }

    /// Whether the user takes no part in this act: a service acts in the user's name.
    pub fn is_acted_for(&self) -> bool {
        matches!(self.kind, ViewerKind::ActingService(_))
    }

    /// The service behind the call, under its own name or as a user.
    pub fn service_name(&self) -> Option<&UserId> {
        match &self.kind {
            ViewerKind::User => None,
            ViewerKind::Service(_) => Some(&self.user),
            ViewerKind::ActingService(service) => Some(service),
        }
    }

    /// The subject of the token: the identity that pays for the call.
    pub fn subject(&self) -> &UserId {
        self.service_name().unwrap_or(&self.user)
    }
}

impl From<&Viewer> for Viewer {
    fn from(viewer: &Viewer) -> Self {
        viewer.clone()
    }
}

impl From<&UserId> for Viewer {
    fn from(user: &UserId) -> Self {
        user.clone().into()
    }
}

impl From<UserId> for Viewer {
    fn from(user: UserId) -> Self {
        Self {
            user,
            kind: ViewerKind::User,
        }
    }
}
