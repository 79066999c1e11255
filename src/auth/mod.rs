//! Authentication: signed tokens that the server verifies and `wideroom token` issues.
//!
//! They are checked by the key of the data folder, or instead by the keys in the operator's own files (see `keyring`).
//!
//! A token that is not wholly in order names nobody. What is wrong with it is said in one public sentence and no more, and neither a token
//! nor a key is ever shown, logged or part of an error.

mod checked;
pub mod exposure;
mod key;
mod keyring;
mod keys;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, EncodingKey, Header, Validation};

use self::checked::Checked;
pub use self::key::{FILE_NAME as KEY_FILE, KeyError};
use self::keyring::{FileKind, Keyring};
use self::keys::Key;
use crate::clock::{Clock, SystemClock};
use crate::model::{Timestamp, UserId};

/// The longest token that is looked at.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Default tolerance for the clock difference between issuer and server.
pub const LEEWAY: Duration = Duration::from_secs(5);
/// Audience of backup tokens. They are valid for backups only, and no other token is.
pub const BACKUP_AUDIENCE: &str = "wideroom-backup";
/// The audience of the tokens that the pages of `--demo` hand out. Only a server with `--demo` accepts it.
pub const DEMO_AUDIENCE: &str = "wideroom-demo";
/// Allowed signature algorithms. `none` is not among them, and each key is bound to one of them.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::HS256,
    Algorithm::RS256,
    Algorithm::ES256,
    Algorithm::EdDSA,
];

/// Whose tokens are good, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    /// A file with a secret for HS256. With this or `keys`, the key of the data folder opens nothing.
    pub secret: Option<PathBuf>,
    /// A file with public keys, as PEM or as a JWKS.
    pub keys: Option<PathBuf>,
    /// Required audience. Without it, tokens must not have one.
    pub audience: Option<String>,
    /// Required issuer.
    pub issuer: Option<String>,
    pub leeway: Duration,
    /// The longest life of a token, from `iat` to `exp`. `None`: any.
    pub life_max: Option<Duration>,
}

impl Default for TokenRules {
    fn default() -> Self {
        Self {
            secret: None,
            keys: None,
            audience: None,
            issuer: None,
            leeway: LEEWAY,
            life_max: None,
        }
    }
}

impl TokenRules {
    /// Whether the key of the data folder is good for nothing but `wideroom token` elsewhere.
    pub fn has_keys_of_its_own(&self) -> bool {
        self.secret.is_some() || self.keys.is_some()
    }
}

/// Reads tokens, and issues them under the key of the data folder.
pub struct Auth {
    clock: Arc<dyn Clock>,
    signing: EncodingKey,
    trusted: Arc<Keyring>,
    rules: TokenRules,
    /// One for each algorithm, in their order.
    validations: [Validation; 4],
    checked: Checked,
}

/// User that a token names, and the expiry of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: UserId,
    /// Every token of this version ends. `None` is for issuers whose tokens do not.
    pub expires_at: Option<Timestamp>,
}

/// Why a token names nobody. Each is a sentence that anybody may read.
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
        "the token names no user: `sub` must be 1 to {} bytes of text without control characters",
        UserId::BYTES_MAX
    )]
    Subject,
}

/// Claims that the server reads. It ignores all others.
#[derive(Clone, serde::Deserialize)]
struct Claims {
    sub: Option<String>,
    /// Seconds since 1970, also with a fraction (RFC 7519, 2).
    exp: Option<f64>,
    nbf: Option<f64>,
    /// Read for the life of the token only: an `iat` that is no number counts as none.
    #[serde(default, deserialize_with = "number")]
    iat: Option<f64>,
}

fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(<serde_json::Value as serde::Deserialize>::deserialize(deserializer)?.as_f64())
}

#[derive(serde::Serialize)]
struct Issued<'a> {
    sub: &'a str,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
}

impl Auth {
    /// Under the key of a data folder, which is made where there is none, as is the folder. Two processes that do this at once end with
    /// the same key.
    pub fn open(data_dir: &Path) -> Result<Self, KeyError> {
        Ok(Self::with_secret(&key::open(data_dir)?))
    }

    /// Under the secret in this file, as whoever issues tokens has it. Blocks.
    pub fn open_secret(path: &Path) -> Result<Self, KeyError> {
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
            trusted: Keyring::fixed(Key::secret(secret)),
            validations: ALGORITHMS.map(|algorithm| validation(algorithm, &rules)),
            rules,
            checked: Checked::default(),
        }
    }

    /// The same, by these rules: tokens are checked by the keys of their files, where they name any. Blocks.
    pub fn with_rules(self, rules: TokenRules) -> Result<Self, KeyError> {
        let secret = rules.secret.clone().map(|path| (FileKind::Secret, path));
        let keys = rules.keys.clone().map(|path| (FileKind::Keys, path));
        let files: Vec<_> = secret.into_iter().chain(keys).collect();
        let trusted = if files.is_empty() {
            self.trusted
        } else {
            Keyring::open(files)?
        };
        let validations = ALGORITHMS.map(|algorithm| validation(algorithm, &rules));
        Ok(Self {
            trusted,
            rules,
            validations,
            checked: Checked::default(),
            ..self
        })
    }

    /// The same for a server with `--demo`: tokens of its pages are accepted beside the others.
    #[must_use]
    pub fn with_demo(mut self) -> Self {
        for validation in &mut self.validations {
            validation
                .aud
                .get_or_insert_default()
                .insert(DEMO_AUDIENCE.to_owned());
        }
        self.checked = Checked::default();
        self
    }

    /// The same, by another clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Verifies a token at the current time and returns the identity that it names.
    pub fn verify(&self, token: &str) -> Result<Identity, Error> {
        self.verify_after(token, || Ok(()))
    }

    /// The same, with `admit` called before a signature is verified. It is not called for a token whose signature was found good before.
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
        let claims = self.checked.claims(&keys, token, check)?;
        self.identity(claims).map_err(E::from)
    }

    /// The user whom claims name, now. Their signature is good.
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
        let user = UserId::parse(&claims.sub.ok_or(Error::Subject)?).map_err(|_| Error::Subject)?;
        Ok(Identity {
            user,
            expires_at: Some(expires_at),
        })
    }

    /// Claims of a token with a valid signature, audience and issuer.
    fn check(&self, keys: &[Key], token: &str) -> Result<Claims, Error> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| Error::Invalid)?;
        // A verifier must understand all critical extensions (RFC 7515, 4.1.11), and this one supports none.
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
                decoded => return decoded.map(|decoded| decoded.claims),
            }
        }
        if keys.iter().all(|key| key.algorithm != header.alg) {
            return Err(Error::Invalid);
        }
        self.trusted.look();
        Err(Error::Signature)
    }

    /// Why the keys in use are older than their files: a sentence for operators. `None` while the files are in order.
    pub fn key_fault(&self) -> Option<String> {
        self.trusted.fault()
    }

    /// A token that names this user from now on, until `ttl` is over.
    pub fn issue(&self, user: &UserId, ttl: Duration, now: Timestamp) -> String {
        self.sign(user, ttl, now, self.rules.audience.as_deref())
    }

    /// A token that only a server with `--demo` accepts.
    pub fn issue_demo(&self, user: &UserId, ttl: Duration, now: Timestamp) -> String {
        self.sign(
            user,
            self.rules.life_max.map_or(ttl, |max| max.min(ttl)),
            now,
            Some(DEMO_AUDIENCE),
        )
    }

    fn sign(&self, user: &UserId, ttl: Duration, now: Timestamp, aud: Option<&str>) -> String {
        let iat = now.micros().div_euclid(1_000_000);
        let exp = now
            .plus_micros(micros(ttl.as_secs_f64()))
            .micros()
            .div_euclid(1_000_000);
        let claims = Issued {
            sub: user.as_str(),
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

/// One algorithm and no other: neither `none` nor a public key that is passed off as a secret gets any further. Times are checked here, by
/// our clock.
fn validation(algorithm: Algorithm, rules: &TokenRules) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.required_spec_claims.clear();
    // A claim that is wanted must be there. The library refuses an audience where none is wanted: that token is for somebody else.
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

/// Whether a token lives longer than `max`. Its life begins at `iat`. Without one, or with one ahead of our clock, it begins now: an issuer
/// cannot make a token longer by a date in the future.
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

/// Whole microseconds; a float's conversion ends at the ends of an integer.
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

fn moment(seconds: f64) -> Timestamp {
    Timestamp::from_micros(micros(seconds))
}

#[cfg(test)]
#[path = "auth_test.rs"]
mod tests;
