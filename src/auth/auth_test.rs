//! Tokens of the data folder's key: valid ones and every kind of refusal.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::*;
use crate::clock::ManualClock;

const SECRET: &[u8] = b"thirty-two bytes for a test key.";
const NOW: i64 = 1_770_000_000;

fn auth() -> Auth {
    Auth::with_secret(SECRET).with_clock(Arc::new(ManualClock::at(Timestamp::from_micros(
        NOW * 1_000_000,
    ))))
}

fn signed(claims: &Value) -> String {
    signed_by(Algorithm::HS256, SECRET, claims)
}

fn signed_by(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
    jsonwebtoken::encode(
        &Header::new(algorithm),
        claims,
        &EncodingKey::from_secret(secret),
    )
    .unwrap()
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
    assert_eq!(
        identity,
        Identity {
            user: alice,
            rights: ServiceRights::default(),
            issued_at: Some(now),
            expires_at: Some(now.plus_micros(60_000_000))
        }
    );
    let at = |seconds: i64| {
        Auth::with_secret(SECRET).with_clock(Arc::new(ManualClock::at(
            now.plus_micros(seconds * 1_000_000),
        )))
    };
    assert!(at(64).verify(&token).is_ok());
    assert_eq!(at(65).verify(&token), Err(Error::Expired));
}

#[test]
fn the_longest_life_ends_in_the_year_9999() {
    let alice = UserId::parse("alice").unwrap();
    let token = auth().issue(
        &alice,
        Duration::MAX,
        Timestamp::from_micros(NOW * 1_000_000),
    );
    assert!(auth().verify(&token).unwrap().expires_at.unwrap() <= Timestamp::MAX);
}

#[test]
fn a_token_of_another_key_is_forged() {
    assert_eq!(
        refusal(&signed_by(
            Algorithm::HS256,
            b"another key",
            &json!({ "sub": "alice", "exp": NOW + 60 })
        )),
        Error::Signature
    );
}

#[test]
fn a_changed_claim_breaks_the_signature() {
    let token = signed(&json!({ "sub": "alice", "exp": NOW + 60 }));
    let parts: Vec<_> = token.split('.').collect();
    let other = URL_SAFE_NO_PAD.encode(json!({ "sub": "bob", "exp": NOW + 60 }).to_string());
    assert_eq!(
        refusal(&format!("{}.{other}.{}", parts[0], parts[2])),
        Error::Signature
    );
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
        assert_eq!(
            refusal(&signed_by(
                algorithm,
                SECRET,
                &json!({ "sub": "alice", "exp": NOW + 60 })
            )),
            Error::Invalid
        );
    }
}

#[test]
fn the_times_of_a_token_hold_with_five_seconds_of_leeway() {
    let verify = |claims: Value| auth().verify(&signed(&claims));
    assert!(verify(json!({ "sub": "alice", "exp": NOW - 4 })).is_ok());
    assert_eq!(
        verify(json!({ "sub": "alice", "exp": NOW - 5 })),
        Err(Error::Expired)
    );
    assert_eq!(
        verify(json!({ "sub": "alice", "exp": -1 })),
        Err(Error::Expired)
    );
    assert!(verify(json!({ "sub": "alice", "exp": NOW + 60, "nbf": NOW + 5 })).is_ok());
    assert_eq!(
        verify(json!({ "sub": "alice", "exp": NOW + 60, "nbf": NOW + 6 })),
        Err(Error::NotYet)
    );
    assert_eq!(
        verify(json!({ "sub": "alice", "exp": NOW as f64 + 0.5 }))
            .unwrap()
            .expires_at
            .unwrap()
            .micros()
            % 1_000_000,
        500_000
    );
}

#[test]
fn a_token_must_end_and_must_say_so_in_numbers() {
    assert_eq!(refusal(&signed(&json!({ "sub": "alice" }))), Error::Endless);
    assert_eq!(
        refusal(&signed(&json!({ "sub": "alice", "exp": "tomorrow" }))),
        Error::Invalid
    );
    assert_eq!(
        refusal(&signed(
            &json!({ "sub": "alice", "exp": NOW + 60, "nbf": "now" })
        )),
        Error::Invalid
    );
}

#[test]
fn a_token_must_name_somebody() {
    assert_eq!(
        refusal(&signed(&json!({ "exp": NOW + 60 }))),
        Error::Subject
    );
    for nobody in ["", "al\nice", "\u{0}", &"a".repeat(129)] {
        assert_eq!(
            refusal(&signed(&json!({ "sub": nobody, "exp": NOW + 60 }))),
            Error::Subject
        );
    }
    assert_eq!(
        refusal(&signed(&json!({ "sub": 7, "exp": NOW + 60 }))),
        Error::Invalid
    );
}

#[test]
fn a_token_for_another_audience_is_refused() {
    assert_eq!(
        refusal(&signed(
            &json!({ "sub": "alice", "exp": NOW + 60, "aud": "somebody-else" })
        )),
        Error::Audience
    );
}

#[test]
fn what_an_issuer_calls_critical_is_not_passed_over() {
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["exp".to_owned()]);
    let claims = json!({ "sub": "alice", "exp": NOW + 60 });
    assert_eq!(
        refusal(
            &jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(SECRET)).unwrap()
        ),
        Error::Invalid
    );
}

#[test]
fn a_token_is_bounded() {
    let long =
        signed(&json!({ "sub": "alice", "exp": NOW + 60, "note": "x".repeat(TOKEN_BYTES_MAX) }));
    assert_eq!(refusal(&long), Error::TooLong);
}

#[test]
fn what_is_no_token_is_told_no_more_than_that() {
    for text in ["", ".", "..", "...", "a.b.c", "alice", "é.é.é"] {
        assert_eq!(refusal(text), Error::Invalid);
    }
    assert_eq!(Error::Invalid.to_string(), "the token is not valid");
}
