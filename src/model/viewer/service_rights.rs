//! Rights of a service. Its token names each of them by a scope.

use strum::VariantArray;

/// Right of a service under its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum ServiceRight {
    /// Receives the events of the outbox, with everything that its document selects.
    Outbox,
    /// Reads every conversation.
    Read,
    /// Acts as any user, with the rights of that user.
    Act,
    /// Governs every conversation as an OWNER does, without the bounds of users. It includes [`Self::Read`].
    Moderate,
    /// Changes profiles, suspends users and revokes tokens.
    Users,
    /// Erases users.
    Erase,
}

impl ServiceRight {
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Scope that names the right in a token.
    pub fn scope(self) -> &'static str {
        match self {
            Self::Outbox => "wideroom:outbox",
            Self::Read => "wideroom:read",
            Self::Act => "wideroom:act",
            Self::Moderate => "wideroom:moderate",
            Self::Users => "wideroom:users",
            Self::Erase => "wideroom:erase",
        }
    }
}

/// Set of rights. A caller without any is no service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceRights(u8);

impl ServiceRights {
    pub const ALL: Self = Self((1 << ServiceRight::ALL.len()) - 1);
    /// Scope of all rights.
    pub const ALL_SCOPE: &str = "wideroom:service";

    /// Rights of the scopes of a token, with spaces between them (RFC 8693, 4.2). Unknown scopes give none.
    pub fn of_scopes(scopes: &str) -> Self {
        let of_scope = |scope| match ServiceRight::ALL
            .iter()
            .copied()
            .find(|right| right.scope() == scope)
        {
            Some(right) => Self::of(right),
            None if scope == Self::ALL_SCOPE => Self::ALL,
            None => Self::default(),
        };
        scopes.split(' ').map(of_scope).collect()
    }

    /// Scopes of a token with these rights.
    pub fn scopes(self) -> String {
        if self == Self::ALL {
            return Self::ALL_SCOPE.to_owned();
        }
        let rights = ServiceRight::ALL
            .iter()
            .copied()
            .filter(|right| self.has(*right));
        rights
            .map(ServiceRight::scope)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// A right, with the right that it includes.
    fn of(right: ServiceRight) -> Self {
        let bit = |right: ServiceRight| 1 << right as u8;
        match right {
            ServiceRight::Moderate => Self(bit(right) | bit(ServiceRight::Read)),
            ServiceRight::Outbox
            | ServiceRight::Read
            | ServiceRight::Act
            | ServiceRight::Users
            | ServiceRight::Erase => Self(bit(right)),
        }
    }

    pub fn has(self, right: ServiceRight) -> bool {
        self.0 & 1 << right as u8 != 0
    }

    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl FromIterator<Self> for ServiceRights {
    fn from_iter<T: IntoIterator<Item = Self>>(rights: T) -> Self {
        Self(rights.into_iter().fold(0, |all, rights| all | rights.0))
    }
}

impl FromIterator<ServiceRight> for ServiceRights {
    fn from_iter<T: IntoIterator<Item = ServiceRight>>(rights: T) -> Self {
        rights.into_iter().map(Self::of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_gives_its_own_right_and_moderate_gives_read_too() {
        for right in ServiceRight::ALL.iter().copied() {
            let rights = ServiceRights::of_scopes(&format!("openid {} email", right.scope()));
            let has: Vec<_> = ServiceRight::ALL
                .iter()
                .copied()
                .filter(|other| rights.has(*other))
                .collect();
            if right == ServiceRight::Moderate {
                assert_eq!(has, [ServiceRight::Read, right]);
            } else {
                assert_eq!(has, [right]);
            }
            assert_eq!(ServiceRights::of_scopes(&rights.scopes()), rights);
        }
    }

    #[test]
    fn one_scope_gives_all_rights_and_unknown_ones_give_none() {
        let all: ServiceRights = ServiceRight::ALL.iter().copied().collect();
        assert_eq!(all, ServiceRights::ALL);
        assert_eq!(ServiceRights::of_scopes("wideroom:service"), all);
        assert_eq!(all.scopes(), "wideroom:service");
        for none in [
            "",
            "wideroom",
            "wideroom:",
            "wideroom:reads",
            "wideroom:admin",
            "WIDEROOM:READ",
            "wideroom:read,wideroom:act",
            "wideroom:read\twideroom:act",
        ] {
            assert!(ServiceRights::of_scopes(none).is_empty(), "{none}");
        }
    }
}
