//! Authentication: signed tokens that the server verifies and `wideroom token` issues.
//!
//! The key of the data folder verifies them, or the keys in the operator's own files and of an identity provider instead (see
//! `keyring` and `jwks`).
//!
//! An invalid token identifies no user. Its error is one public sentence. The server never shows or logs a token or a key,
//! and no error contains one.

mod claims_cache;
mod error;
pub mod exposure;
mod jwks;
mod key;
mod keyring;
mod keys;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, EncodingKey, Header, Validation};

use self::claims_cache::ClaimsCache;
pub use self::error::Error;
pub use self::jwks::ProviderKeys;
pub use self::key::{FILE_NAME as KEY_FILE, KeyFileError};
use self::keyring::{Keyring, ParseKeys};
use self::keys::{VerificationKey, parse_keys, parse_secret};
use crate::clock::{Clock, SystemClock};
use crate::model::{AGENT_SCOPE, ServiceRights, Timestamp, UserId};
use crate::signed_post::PostTarget;

/// Longest token that the server parses.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Default tolerance for the clock difference between issuer and server.
pub const LEEWAY: Duration = Duration::from_secs(5);
/// Audience of backup tokens. They are valid for backups only, and no other token is.
pub const BACKUP_AUDIENCE: &str = "wideroom-backup";
/// Audience of the tokens that the pages of `--demo` issue. Only a server with `--demo` accepts it.
pub const DEMO_AUDIENCE: &str = "wideroom-demo";
/// Allowed signature algorithms. `none` is not among them, and each key is bound to one of them.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::HS256,
    Algorithm::RS256,
    Algorithm::ES256,
    Algorithm::EdDSA,
];

/// Rules for accepted tokens: keys, audience, issuer and life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    /// File of a secret for HS256. With this or `keys`, the server ignores the key of the data folder.
    pub secret: Option<PathBuf>,
    /// File of public keys, as PEM or a JWKS.
    pub keys: Option<PathBuf>,
    /// Address of an identity provider's public keys, a JWKS.
    pub keys_url: Option<PostTarget>,
    /// Required audience. Without it, tokens must not have one.
    pub audience: Option<String>,
    /// Required issuer.
    pub issuer: Option<String>,
    pub leeway: Duration,
    /// Longest life of a token, from `iat` to `exp`. `None` accepts any.
    pub life_max: Option<Duration>,
    /// Subjects that are services by tokens of an identity provider (`keys`, `keys_url`). Tokens of `secret` and of
    /// the data folder need no entry.
    pub service_subjects: BTreeSet<UserId>,
}

impl Default for TokenRules {
    fn default() -> Self {
        Self {
            secret: None,
            keys: None,
            keys_url: None,
            audience: None,
            issuer: None,
            leeway: LEEWAY,
            life_max: None,
            service_subjects: BTreeSet::new(),
        }
    }
}

impl TokenRules {
    /// Whether other keys replace the key of the data folder.
    pub fn has_keys_of_its_own(&self) -> bool {
        self.secret.is_some() || self.keys.is_some() || self.keys_url.is_some()
    }
}

/// Verifies tokens, and issues them with the key of the data folder.
pub struct Auth {
    clock: Arc<dyn Clock>,
    signing: EncodingKey,
    trusted: Arc<Keyring>,
    rules: TokenRules,
    /// Validation of each algorithm, in the order of the algorithms.
    validations: [Validation; 4],
    claims_cache: ClaimsCache,
}

/// User that a token names, and the expiry of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: UserId,
    /// Rights of a service. Without any, the token is a user's.
    pub rights: ServiceRights,
    /// Issue time, if the token names one.
    pub issued_at: Option<Timestamp>,
    /// Expiry; every token of this version has one.
    pub expires_at: Option<Timestamp>,
}

/// Claims that the server reads. It ignores all others.
#[derive(Clone, serde::Deserialize)]
struct Claims {
    sub: Option<String>,
    /// Seconds since 1970, also with a fraction (RFC 7519, 2).
    exp: Option<f64>,
    nbf: Option<f64>,
    /// An `iat` that is no number counts as missing.
    #[serde(default, deserialize_with = "number")]
    iat: Option<f64>,
    /// Scopes with spaces between them (RFC 8693, 4.2). A `scope` that is no text counts as missing.
    #[serde(default, deserialize_with = "text")]
    scope: Option<String>,
    /// Whether a key of an identity provider signed the token.
    #[serde(skip)]
    is_of_provider: bool,
}

fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(<serde_json::Value as serde::Deserialize>::deserialize(deserializer)?.as_f64())
}

fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
    Ok(value.as_str().map(str::to_owned))
}

#[derive(serde::Serialize)]
struct Issued<'a> {
    sub: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
}

impl Auth {
    /// Opens the key of a data folder, and creates a missing folder and key. Two concurrent processes get the same key.
    pub fn open(data_dir: &Path) -> Result<Self, KeyFileError> {
        Ok(Self::with_secret(&key::open(data_dir)?))
    }

    /// Opens the secret of an external issuer. Blocks.
    pub fn open_secret(path: &Path) -> Result<Self, KeyFileError> {
        Ok(Self::with_secret(keys::secret(
            path,
            &keyring::bytes(path)?,
        )?))
    }

    pub fn with_secret(secret: &[u8]) -> Self {
        let rules = TokenRules::default();
        Self {
            clock: Arc::new(SystemClock),
            signing: EncodingKey::from_secret(secret),
            trusted: Keyring::fixed(VerificationKey::secret(secret)),
            validations: ALGORITHMS.map(|algorithm| validation(algorithm, &rules)),
            rules,
            claims_cache: ClaimsCache::default(),
        }
    }

    /// Applies rules: the keys of their files, if there are any, verify tokens. Blocks.
    pub fn with_rules(self, rules: TokenRules) -> Result<Self, KeyFileError> {
        let files: [(ParseKeys, _); 2] = [(parse_secret, &rules.secret), (parse_keys, &rules.keys)];
        let given = |(parse, path): (ParseKeys, &Option<PathBuf>)| Some((parse, path.clone()?));
        let files: Vec<_> = files.into_iter().filter_map(given).collect();
        let trusted = if rules.has_keys_of_its_own() {
            Keyring::open(files)?
        } else {
            self.trusted
        };
        let validations = ALGORITHMS.map(|algorithm| validation(algorithm, &rules));
        Ok(Self {
            trusted,
            rules,
            validations,
            claims_cache: ClaimsCache::default(),
            ..self
        })
    }

    /// Accepts the tokens of the pages too, for a server with `--demo`.
    #[must_use]
    pub fn with_demo(mut self) -> Self {
        for validation in &mut self.validations {
            validation
                .aud
                .get_or_insert_default()
                .insert(DEMO_AUDIENCE.to_owned());
        }
        self.claims_cache = ClaimsCache::default();
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Verifies a token at the current time and returns the identity that it names.
    pub fn verify(&self, token: &str) -> Result<Identity, Error> {
        self.verify_after(token, || Ok(()))
    }

    /// Verifies a token, and calls `admit` before it verifies a signature. A cached signature needs no call.
    pub fn verify_after<E: From<Error>>(
        &self,
        token: &str,
        admit: impl FnOnce() -> Result<(), E>,
    ) -> Result<Identity, E> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Error::TooLong.into());
        }
        let keys = self.trusted.keys();
        let check = || {
            admit()?;
            self.check(&keys, token).map_err(E::from)
        };
        let claims = self.claims_cache.claims(&keys, token, check)?;
        self.identity(claims).map_err(E::from)
    }

    /// Identity of claims with a valid signature, at the current time.
    fn identity(&self, claims: Claims) -> Result<Identity, Error> {
        let now = self.clock.now();
        let leeway = micros(self.rules.leeway.as_secs_f64());
        let expires_at = moment(claims.exp.ok_or(Error::Endless)?);
        if now >= expires_at.plus_micros(leeway) {
            return Err(Error::Expired);
        }
        if self
            .rules
            .life_max
            .is_some_and(|max| outlives(expires_at, claims.iat, max, now, leeway))
        {
            return Err(Error::LongLived);
        }
        if claims
            .nbf
            .is_some_and(|not_before| now.plus_micros(leeway) < moment(not_before))
        {
            return Err(Error::NotYet);
        }
        let user =
            UserId::parse_new(&claims.sub.ok_or(Error::Subject)?).map_err(|_| Error::Subject)?;
        let is_trusted = !claims.is_of_provider || self.rules.service_subjects.contains(&user);
        let scopes = claims.scope.filter(|_| is_trusted).unwrap_or_default();
        let rights = ServiceRights::of_scopes(&scopes);
        check_agent(&user, &scopes, rights)?;
        Ok(Identity {
            user,
            rights,
            issued_at: claims.iat.map(moment),
            expires_at: Some(expires_at),
        })
    }

    /// Claims of a token with a valid signature, audience and issuer.
    fn check(&self, keys: &[VerificationKey], token: &str) -> Result<Claims, Error> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| Error::Invalid)?;
        // A verifier must understand all critical extensions (RFC 7515, 4.1.11); this one supports none.
        if header.crit.is_some() {
            return Err(Error::Invalid);
        }
        let place = ALGORITHMS
            .iter()
            .position(|algorithm| *algorithm == header.alg)
            .ok_or(Error::Invalid)?;
        for key in keys
            .iter()
            .filter(|key| key.is_meant_by(header.alg, header.kid.as_deref()))
        {
            match jsonwebtoken::decode::<Claims>(token, &key.checking, &self.validations[place])
                .map_err(|error| reason(&error))
            {
                Err(Error::Signature) => {}
                decoded => {
                    return decoded.map(|decoded| Claims {
                        is_of_provider: key.is_of_provider,
                        ..decoded.claims
                    });
                }
            }
        }
        self.trusted.request_poll();
        if keys.iter().all(|key| key.algorithm != header.alg) {
            return Err(Error::Invalid);
        }
        Err(Error::Signature)
    }

    /// Keys of the identity provider, to be refreshed while the server runs. Until then there are none.
    pub fn provider_keys(&self) -> Option<ProviderKeys> {
        let target = self.rules.keys_url.clone()?;
        Some(ProviderKeys::of(&self.trusted, target))
    }

    /// Reason why there are no keys of the identity provider: the server is not ready.
    pub fn missing_keys(&self) -> Option<String> {
        self.trusted.missing_keys()
    }

    /// Fault of a key file whose previous keys are in use: a sentence for operators. `None` while the files are valid.
    pub fn key_fault(&self) -> Option<String> {
        self.trusted.fault()
    }

    /// Issues a token for a user, or for an agent, that expires after `ttl`.
    pub fn issue(&self, user: &UserId, ttl: Duration, now: Timestamp) -> String {
        let audience = self.rules.audience.as_deref();
        self.sign(user, agent_scope(user), ttl, now, audience)
    }

    /// Issues a token of a service with these rights that expires after `ttl`.
    pub fn issue_service(
        &self,
        service: &UserId,
        rights: ServiceRights,
        ttl: Duration,
        now: Timestamp,
    ) -> String {
        let audience = self.rules.audience.as_deref();
        self.sign(service, Some(&rights.scopes()), ttl, now, audience)
    }

    /// Issues a token for a user, or for an agent, that only a server with `--demo` accepts.
    pub fn issue_demo(&self, user: &UserId, ttl: Duration, now: Timestamp) -> String {
        self.sign(
            user,
            agent_scope(user),
            self.rules.life_max.map_or(ttl, |max| max.min(ttl)),
            now,
            Some(DEMO_AUDIENCE),
        )
    }

    fn sign(
        &self,
        user: &UserId,
        scope: Option<&str>,
        ttl: Duration,
        now: Timestamp,
        aud: Option<&str>,
    ) -> String {
        let iat = now.micros().div_euclid(1_000_000);
        let exp = now
            .plus_micros(micros(ttl.as_secs_f64()))
            .micros()
            .div_euclid(1_000_000);
        let claims = Issued {
            sub: user.as_str(),
            scope,
            iat,
            exp,
            aud,
            iss: self.rules.issuer.as_deref(),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.signing)
            .expect("plain claims under an HMAC key always sign")
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(***)")
    }
}

/// Scope of a token of this user: an agent's, or none.
fn agent_scope(user: &UserId) -> Option<&'static str> {
    user.is_agent().then_some(AGENT_SCOPE)
}

/// The rule of usernames of agents: the token has the scope of an agent, and no right of a service.
fn check_agent(user: &UserId, scopes: &str, rights: ServiceRights) -> Result<(), Error> {
    if !user.is_agent() {
        return Ok(());
    }
    if !scopes.split(' ').any(|scope| scope == AGENT_SCOPE) {
        return Err(Error::NoAgent);
    }
    match rights.is_empty() {
        true => Ok(()),
        false => Err(Error::AgentWithRights),
    }
}

/// Validation for exactly one algorithm, which refuses `none` and a public key as a secret. The callers check the times by
/// our own clock.
fn validation(algorithm: Algorithm, rules: &TokenRules) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.required_spec_claims.clear();
    // A configured claim is required. Without a configured audience the library refuses tokens with one: they are for
    // another service.
    if let Some(audience) = &rules.audience {
        validation.set_audience(&[audience]);
        validation.required_spec_claims.insert("aud".to_owned());
    }
    if let Some(issuer) = &rules.issuer {
        validation.set_issuer(&[issuer]);
        validation.required_spec_claims.insert("iss".to_owned());
    }
    validation
}

/// Whether the life of a token exceeds `max`. The life begins at `iat`, but now if `iat` is missing or in the future: a
/// future date cannot extend a token.
fn outlives(
    expires_at: Timestamp,
    issued_at: Option<f64>,
    max: Duration,
    now: Timestamp,
    leeway: i64,
) -> bool {
    let max = micros(max.as_secs_f64());
    match issued_at
        .map(moment)
        .filter(|issued_at| *issued_at <= now.plus_micros(leeway))
    {
        Some(issued_at) => expires_at > issued_at.plus_micros(max),
        None => expires_at > now.plus_micros(max.saturating_add(leeway)),
    }
}

fn reason(error: &jsonwebtoken::errors::Error) -> Error {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's reasons are many, and a token is told few"
    )]
    match error.kind() {
        ErrorKind::InvalidSignature => Error::Signature,
        ErrorKind::InvalidAudience => Error::Audience,
        ErrorKind::InvalidIssuer => Error::Issuer,
        ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Error::Audience,
        ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => Error::Issuer,
        _ => Error::Invalid,
    }
}

/// Converts seconds to whole microseconds. The conversion of a float saturates.
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

fn moment(seconds: f64) -> Timestamp {
    Timestamp::from_micros(micros(seconds))
}

#[cfg(test)]
#[path = "auth_test.rs"]
mod tests;
