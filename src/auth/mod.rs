//! Who is calling: signed tokens, as they are read at the doors and printed by `wideroom token`.
//!
//! A token that is not wholly in order names nobody. What is wrong with it is said in one public sentence and no more, and neither a token
//! nor a key is ever shown, logged or part of an error.

mod key;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};

pub use self::key::KeyError;
use crate::clock::{Clock, SystemClock};
use crate::model::{Timestamp, UserId};

/// The longest token that is looked at.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// By how much the clocks of issuer and server may differ.
pub const LEEWAY: Duration = Duration::from_secs(5);

/// Reads and issues tokens under one key.
pub struct Auth {
    clock: Arc<dyn Clock>,
    signing: EncodingKey,
    checking: DecodingKey,
    validation: Validation,
}

/// Whom a token names, and until when.
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
    #[error("the token names no user: `sub` must be 1 to {} bytes of text without control characters", UserId::BYTES_MAX)]
    Subject,
}

/// What we read in a token. Everything else in it is the issuer's own.
#[derive(serde::Deserialize)]
struct Claims {
    sub: Option<String>,
    /// Seconds since 1970, also with a fraction (RFC 7519, 2).
    exp: Option<f64>,
    nbf: Option<f64>,
}

#[derive(serde::Serialize)]
struct Issued<'a> {
    sub: &'a str,
    iat: i64,
    exp: i64,
}

impl Auth {
    /// Under the key of a data folder, which is made where there is none, as is the folder. Two processes that do this at once end with
    /// the same key.
    pub fn open(data_dir: &Path) -> Result<Self, KeyError> {
        Ok(Self::with_secret(&key::open(data_dir)?))
    }

    pub fn with_secret(secret: &[u8]) -> Self {
        // One algorithm and no other: neither `none` nor a public key that is passed off as a secret gets any further. Times are checked
        // here by our clock; a token with an audience is for somebody else, as we have no name yet.
        let mut validation = Validation::new(Algorithm::HS256);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.required_spec_claims.clear();
        Self {
            clock: Arc::new(SystemClock),
            signing: EncodingKey::from_secret(secret),
            checking: DecodingKey::from_secret(secret),
            validation,
        }
    }

    /// The same, by another clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Whom this token names, now.
    pub fn verify(&self, token: &str) -> Result<Identity, Error> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Error::TooLong);
        }
        let read = jsonwebtoken::decode::<Claims>(token, &self.checking, &self.validation).map_err(|error| reason(&error))?;
        // What an issuer calls critical must be understood (RFC 7515, 4.1.11), and we know no extension.
        if read.header.crit.is_some() {
            return Err(Error::Invalid);
        }
        let claims = read.claims;
        let now = self.clock.now();
        let leeway = micros(LEEWAY.as_secs_f64());
        let expires_at = moment(claims.exp.ok_or(Error::Endless)?);
        if now >= expires_at.plus_micros(leeway) {
            return Err(Error::Expired);
        }
        if claims.nbf.is_some_and(|not_before| now.plus_micros(leeway) < moment(not_before)) {
            return Err(Error::NotYet);
        }
        let user = UserId::parse(&claims.sub.ok_or(Error::Subject)?).map_err(|_| Error::Subject)?;
        Ok(Identity { user, expires_at: Some(expires_at) })
    }

    /// A token that names this user from now on, until `ttl` is over.
    pub fn issue(&self, user: &UserId, ttl: Duration, now: Timestamp) -> String {
        let iat = now.micros().div_euclid(1_000_000);
        let exp = now.plus_micros(micros(ttl.as_secs_f64())).micros().div_euclid(1_000_000);
        let claims = Issued { sub: user.as_str(), iat, exp };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.signing).expect("plain claims under an HMAC key always sign")
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(***)")
    }
}

fn reason(error: &jsonwebtoken::errors::Error) -> Error {
    if matches!(error.kind(), ErrorKind::InvalidSignature) { Error::Signature } else { Error::Invalid }
}

/// Whole microseconds; a float's conversion ends at the ends of an integer.
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

fn moment(seconds: f64) -> Timestamp {
    Timestamp::from_micros(micros(seconds))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::*;
    use crate::clock::ManualClock;

    const SECRET: &[u8] = b"thirty-two bytes for a test key.";
    const NOW: i64 = 1_770_000_000;

    fn auth() -> Auth {
        Auth::with_secret(SECRET).with_clock(Arc::new(ManualClock::at(Timestamp::from_micros(NOW * 1_000_000))))
    }

    fn signed(claims: &Value) -> String {
        signed_by(Algorithm::HS256, SECRET, claims)
    }

    fn signed_by(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
        jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    fn refusal(token: &str) -> Error {
        auth().verify(token).unwrap_err()
    }

    #[test]
    fn an_issued_token_names_its_user_until_it_ends() {
        let alice = UserId::parse("alice").unwrap();
        let now = Timestamp::from_micros(NOW * 1_000_000);
        let token = auth().issue(&alice, Duration::from_secs(60), now);
        let identity = auth().verify(&token).unwrap();
        assert_eq!(identity, Identity { user: alice, expires_at: Some(now.plus_micros(60_000_000)) });
        let at = |seconds: i64| Auth::with_secret(SECRET).with_clock(Arc::new(ManualClock::at(now.plus_micros(seconds * 1_000_000))));
        assert!(at(64).verify(&token).is_ok());
        assert_eq!(at(65).verify(&token), Err(Error::Expired));
    }

    #[test]
    fn the_longest_life_ends_in_the_year_9999() {
        let alice = UserId::parse("alice").unwrap();
        let token = auth().issue(&alice, Duration::MAX, Timestamp::from_micros(NOW * 1_000_000));
        assert!(auth().verify(&token).unwrap().expires_at.unwrap() <= Timestamp::MAX);
    }

    #[test]
    fn a_token_of_another_key_is_forged() {
        assert_eq!(refusal(&signed_by(Algorithm::HS256, b"another key", &json!({ "sub": "alice", "exp": NOW + 60 }))), Error::Signature);
    }

    #[test]
    fn a_changed_claim_breaks_the_signature() {
        let token = signed(&json!({ "sub": "alice", "exp": NOW + 60 }));
        let parts: Vec<_> = token.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(json!({ "sub": "bob", "exp": NOW + 60 }).to_string());
        assert_eq!(refusal(&format!("{}.{other}.{}", parts[0], parts[2])), Error::Signature);
    }

    #[test]
    fn the_algorithm_none_is_no_algorithm() {
        let claims = URL_SAFE_NO_PAD.encode(json!({ "sub": "alice", "exp": NOW + 60 }).to_string());
        for name in ["none", "None", "NONE", "nOnE"] {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": name, "typ": "JWT" }).to_string());
            assert_eq!(refusal(&format!("{header}.{claims}.")), Error::Invalid);
        }
    }

    #[test]
    fn another_algorithm_with_the_right_key_is_refused() {
        for algorithm in [Algorithm::HS384, Algorithm::HS512] {
            assert_eq!(refusal(&signed_by(algorithm, SECRET, &json!({ "sub": "alice", "exp": NOW + 60 }))), Error::Invalid);
        }
    }

    #[test]
    fn the_times_of_a_token_hold_with_five_seconds_of_leeway() {
        let verify = |claims: Value| auth().verify(&signed(&claims));
        assert!(verify(json!({ "sub": "alice", "exp": NOW - 4 })).is_ok());
        assert_eq!(verify(json!({ "sub": "alice", "exp": NOW - 5 })), Err(Error::Expired));
        assert_eq!(verify(json!({ "sub": "alice", "exp": -1 })), Err(Error::Expired));
        assert!(verify(json!({ "sub": "alice", "exp": NOW + 60, "nbf": NOW + 5 })).is_ok());
        assert_eq!(verify(json!({ "sub": "alice", "exp": NOW + 60, "nbf": NOW + 6 })), Err(Error::NotYet));
        assert_eq!(verify(json!({ "sub": "alice", "exp": NOW as f64 + 0.5 })).unwrap().expires_at.unwrap().micros() % 1_000_000, 500_000);
    }

    #[test]
    fn a_token_must_end_and_must_say_so_in_numbers() {
        assert_eq!(refusal(&signed(&json!({ "sub": "alice" }))), Error::Endless);
        assert_eq!(refusal(&signed(&json!({ "sub": "alice", "exp": "tomorrow" }))), Error::Invalid);
        assert_eq!(refusal(&signed(&json!({ "sub": "alice", "exp": NOW + 60, "nbf": "now" }))), Error::Invalid);
    }

    #[test]
    fn a_token_must_name_somebody() {
        assert_eq!(refusal(&signed(&json!({ "exp": NOW + 60 }))), Error::Subject);
        for nobody in ["", "al\nice", "\u{0}", &"a".repeat(129)] {
            assert_eq!(refusal(&signed(&json!({ "sub": nobody, "exp": NOW + 60 }))), Error::Subject);
        }
        assert_eq!(refusal(&signed(&json!({ "sub": 7, "exp": NOW + 60 }))), Error::Invalid);
    }

    #[test]
    fn a_token_for_another_audience_is_refused() {
        assert_eq!(refusal(&signed(&json!({ "sub": "alice", "exp": NOW + 60, "aud": "somebody-else" }))), Error::Invalid);
    }

    #[test]
    fn what_an_issuer_calls_critical_is_not_passed_over() {
        let mut header = Header::new(Algorithm::HS256);
        header.crit = Some(vec!["exp".to_owned()]);
        let claims = json!({ "sub": "alice", "exp": NOW + 60 });
        assert_eq!(refusal(&jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(SECRET)).unwrap()), Error::Invalid);
    }

    #[test]
    fn a_token_is_bounded() {
        let long = signed(&json!({ "sub": "alice", "exp": NOW + 60, "note": "x".repeat(TOKEN_BYTES_MAX) }));
        assert_eq!(refusal(&long), Error::TooLong);
    }

    #[test]
    fn what_is_no_token_is_told_no_more_than_that() {
        for text in ["", ".", "..", "...", "a.b.c", "alice", "é.é.é"] {
            assert_eq!(refusal(text), Error::Invalid);
        }
        assert_eq!(Error::Invalid.to_string(), "the token is not valid");
    }
}
