//! Identification of a caller: the token, and the user in whose name a service acts.

use axum::http::{HeaderMap, StatusCode, header};
use percent_encoding::percent_decode;

use super::answer::{Code, Problem};
use super::context::Server;
use super::origin::AS_HEADER;
use crate::auth::{self, Identity};
use crate::graphql::Refusal;
use crate::model::{ServiceRight, ServiceRights, Timestamp, UserId, Viewer};

/// Input path of a refused name.
const AS_PATH: &str = "Wideroom-As";

/// Caller whose token is valid.
#[derive(Debug, Clone)]
pub(super) struct Identified {
    pub(super) viewer: Viewer,
    pub(super) token: TokenTimes,
}

/// Times of a valid token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TokenTimes {
    pub(super) issued_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
}

/// Reason for an authorization that identifies no user.
pub(super) enum IdentifyError {
    /// The token is invalid: a sentence for the client.
    Token(String),
    /// The server refused to verify the signature.
    NotAdmitted(Problem),
    /// The token is valid, and its user is refused.
    Refused(Refusal),
}

impl From<auth::Error> for IdentifyError {
    fn from(error: auth::Error) -> Self {
        let said = error.to_string();
        let mut rest = said.chars();
        let first = rest.next().map(|first| first.to_ascii_uppercase());
        Self::Token(first.into_iter().chain(rest).chain(['.']).collect())
    }
}

impl Server {
    /// Identifies the subject of a `Bearer` token. Calls `admit` before it verifies a signature.
    pub(super) fn identify(
        &self,
        authorization: &str,
        admit: impl FnOnce() -> Result<(), Problem>,
    ) -> Result<Identified, IdentifyError> {
        let token = match authorization.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => {
                return Err(IdentifyError::Token(
                    "The authorization must be `Bearer` and a token.".to_owned(),
                ));
            }
        };
        self.auth
            .verify_after(token, || admit().map_err(IdentifyError::NotAdmitted))
            .map(Identified::from)
            .and_then(|identified| {
                self.check(&identified.viewer, identified.token)
                    .map_err(IdentifyError::Refused)?;
                Ok(identified)
            })
    }

    /// Whether a viewer is still allowed in. Reads memory alone.
    pub(super) fn check(&self, viewer: &Viewer, token: TokenTimes) -> Result<(), Refusal> {
        self.executor.check_restrictions(viewer, token.issued_at)
    }

    /// The caller in the name of a user. Only a service may act as another user.
    pub(super) fn act_as(
        &self,
        identified: Identified,
        user: ActedUser,
    ) -> Result<Identified, ActError> {
        // First the right, then the name: a stranger learns nothing about names.
        if !identified.viewer.may(ServiceRight::Act) {
            return Err(ActError::Bad(not_a_service()));
        }
        let user = user.0.map_err(ActError::Bad)?;
        let viewer = Viewer::acting(user, identified.viewer.user);
        self.check(&viewer, identified.token)
            .map_err(ActError::Refused)?;
        Ok(Identified {
            viewer,
            ..identified
        })
    }
}

impl From<Identity> for Identified {
    fn from(identity: Identity) -> Self {
        let Identity {
            user,
            rights,
            issued_at,
            expires_at,
        } = identity;
        let viewer = if rights.is_empty() {
            Viewer::from(user)
        } else {
            Viewer::service_with(user, rights)
        };
        let token = TokenTimes {
            issued_at,
            expires_at,
        };
        Self { viewer, token }
    }
}

/// Reason why a caller may not act as a user.
pub(super) enum ActError {
    /// The caller is no service, or the name is none.
    Bad(Problem),
    Refused(Refusal),
}

impl From<ActError> for Problem {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Bad(problem) => problem,
            ActError::Refused(refusal) => refused(refusal),
        }
    }
}

/// Answer over HTTP to a caller who is refused.
pub(super) fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Revoked => Problem::new(
            StatusCode::UNAUTHORIZED,
            Code::Unauthenticated,
            "The token was revoked; sign in again.",
        )
        .with_header(header::WWW_AUTHENTICATE, "Bearer error=\"invalid_token\""),
        Refusal::Suspended => Problem::new(
            StatusCode::FORBIDDEN,
            Code::Forbidden,
            "The user is suspended.",
        ),
    }
}

/// User named by `Wideroom-As`, or the reason why the name is refused.
pub(super) struct ActedUser(Result<UserId, Problem>);

impl ActedUser {
    /// `None` without the header.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(AS_HEADER).iter();
        let first = values.next()?;
        if values.next().is_some() {
            let sentence = "The header Wideroom-As may occur only once.";
            let twice = Problem::new(StatusCode::FORBIDDEN, Code::Forbidden, sentence);
            return Some(Self(Err(twice)));
        }
        // HTTP strips blanks at the ends of a value, and clients send ASCII: other names are percent-encoded.
        let name = percent_decode(first.as_bytes()).decode_utf8();
        Some(Self::parse(name.ok().as_deref()))
    }

    /// The name in `connection_init`.
    pub(super) fn named(name: &str) -> Self {
        Self::parse(Some(name))
    }

    fn parse(name: Option<&str>) -> Self {
        let refuse = |why: &str| {
            let sentence = format!("Wideroom-As names no user: {why}.");
            Problem::new(StatusCode::BAD_REQUEST, Code::BadUserInput, sentence)
                .with_input_path(AS_PATH)
        };
        Self(match name.map(UserId::parse_living) {
            Some(Ok(user)) => Ok(user),
            Some(Err(error)) => Err(refuse(&error.to_string())),
            None => Err(refuse("a username is UTF-8")),
        })
    }
}

/// Refusal of `Wideroom-As` without the scope, whoever is named.
pub(super) fn not_a_service() -> Problem {
    let sentence = format!(
        "Only a service may send Wideroom-As: its token has the scope `{}` or `{}`.",
        ServiceRight::Act.scope(),
        ServiceRights::ALL_SCOPE
    );
    Problem::new(StatusCode::FORBIDDEN, Code::Forbidden, sentence)
}

/// Whether the request has a token.
pub(super) fn authorization(headers: &HeaderMap) -> Option<&str> {
    // A header that is not text is no token.
    headers
        .get(header::AUTHORIZATION)
        .map(|value| value.to_str().unwrap_or_default())
}
