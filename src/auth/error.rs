//! Errors of token verification.

use super::TOKEN_BYTES_MAX;
use crate::model::{AGENT_SCOPE, UserId};

/// Reason for a refused token: a public sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    #[error("the token is not valid")]
    Invalid,
    #[error("the token is not signed by a key of this server")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token does not say when it expires")]
    Endless,
    #[error("the token lives longer than this server allows")]
    LongLived,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token is of another issuer")]
    Issuer,
    #[error(
        "the token names no user: `sub` must be 1 to {} bytes of visible text, without blanks at its ends, and without control characters and bidirectional controls",
        UserId::BYTES_MAX
    )]
    Subject,
    #[error(
        "a username that begins with `{}` is an agent's: its token needs the scope `{AGENT_SCOPE}`, and a token of an identity provider also an entry in `service-subjects`",
        UserId::AGENT_PREFIX
    )]
    NoAgent,
    #[error(
        "the token of an agent gives no right of a service: use a second token, of a service, for that"
    )]
    AgentWithRights,
}
