//! Each kind of key opens the door to its own algorithm, and to nothing else.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use wideroom::auth::{Auth, Error, TokenRules};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use super::files::{
    EC_384, Folder, LOCAL, Pair, RSA_SHORT, assert_alice, by_keys, by_secret, by_secret_file,
    claims, jwks, local_token,
};

const SECRET: &[u8] = b"a secret of an issuer, thirty-two bytes and some.";

#[test]
fn public_keys_of_each_kind_open_the_door_as_pem_and_as_jwks() {
    let folder = Folder::new();
    for pair in [Pair::rsa(), Pair::ec(), Pair::ed()] {
        let pem = by_keys(&folder.write("key.pem", &pair.public)).unwrap();
        let set =
            by_keys(&folder.write("keys.json", format!("\u{feff}{}", jwks(&[pair.jwk("one")]))))
                .unwrap();
        assert_alice(pem.verify(&pair.token(None)));
        assert_alice(pem.verify(&pair.token(Some("a key without a name fits every name"))));
        assert_alice(set.verify(&pair.token(Some("one"))));
        assert_alice(set.verify(&pair.token(None)));
        assert_eq!(set.verify(&pair.token(Some("two"))), Err(Error::Signature));
        for auth in [&pem, &set] {
            assert_eq!(
                auth.verify(&local_token()),
                Err(Error::Invalid),
                "the key of the data folder opens nothing here"
            );
        }
    }
}

#[test]
fn several_keys_stand_in_one_file() {
    let folder = Folder::new();
    let (rsa, ec, ed, other) = (Pair::rsa(), Pair::ec(), Pair::ed(), Pair::ec());
    let pem = by_keys(&folder.write(
        "keys.pem",
        format!("A comment.\n{}{}\n{}", rsa.public, ec.public, ed.public),
    ))
    .unwrap();
    let set = by_keys(&folder.write(
        "keys.json",
        jwks(&[rsa.jwk("1"), ec.jwk("2"), ed.jwk("3"), other.jwk("4")]),
    ))
    .unwrap();
    for (pair, id) in [(&rsa, "1"), (&ec, "2"), (&ed, "3"), (&other, "4")] {
        assert_alice(set.verify(&pair.token(Some(id))));
        assert_alice(set.verify(&pair.token(None)));
        if id != "4" {
            assert_alice(pem.verify(&pair.token(None)));
        }
    }
    assert_eq!(
        set.verify(&other.token(Some("2"))),
        Err(Error::Signature),
        "a name chooses the key"
    );
    assert_eq!(pem.verify(&other.token(None)), Err(Error::Signature));
}

#[test]
fn a_secret_opens_the_door_to_hs256() {
    let folder = Folder::new();
    for bytes in [
        SECRET.to_vec(),
        [SECRET, b"\n"].concat(),
        [SECRET, b"\r\n"].concat(),
    ] {
        let auth = by_secret_file(&folder.write("secret", bytes)).unwrap();
        assert_alice(auth.verify(&by_secret(SECRET, &claims())));
        assert_eq!(auth.verify(&local_token()), Err(Error::Signature));
        assert_eq!(auth.verify(&Pair::ec().token(None)), Err(Error::Invalid));
    }
    let set = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET), "alg": "HS256" });
    assert_alice(
        by_keys(&folder.write("keys.json", jwks(&[set])))
            .unwrap()
            .verify(&by_secret(SECRET, &claims())),
    );
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    let folder = Folder::new();
    for pair in [Pair::rsa(), Pair::ec(), Pair::ed()] {
        let pem = pair.public.as_bytes();
        let body: String = pair
            .public
            .lines()
            .filter(|line| !line.starts_with('-'))
            .collect();
        let der = STANDARD.decode(body).unwrap();
        let auth = by_keys(&folder.write("key.pem", pem)).unwrap();
        let set = by_keys(&folder.write("keys.json", jwks(&[pair.jwk("one")]))).unwrap();
        // Everybody knows the public key. One that signs with its bytes is nobody.
        for secret in [pem, pair.public.trim().as_bytes(), &der] {
            let forged = by_secret(secret, &claims());
            assert_eq!(auth.verify(&forged), Err(Error::Invalid));
            assert_eq!(set.verify(&forged), Err(Error::Invalid));
        }
        for bytes in [pem, &der] {
            let refused = by_secret_file(&folder.write("secret", bytes))
                .unwrap_err()
                .to_string();
            assert!(
                refused.ends_with(
                    "the file holds a key or a JWKS and no secret: --token-keys-file takes public keys"
                ),
                "{refused}"
            );
        }
    }
    assert!(by_secret_file(&folder.write("secret", jwks(&[Pair::ec().jwk("one")]))).is_err());
    // One key in 256 ends like this, and is one with or without the line break of an editor.
    let der = [&[0x30, 42][..], &[7; 41], b"\n"].concat();
    for bytes in [
        &der[..],
        &[&der[..], b"\n"].concat(),
        &[&der[..], b"\r\n"].concat(),
    ] {
        assert!(
            by_secret_file(&folder.write("secret", bytes)).is_err(),
            "{bytes:?}"
        );
    }
}

#[test]
fn an_algorithm_that_is_not_of_the_key_is_refused() {
    let folder = Folder::new();
    let rsa = Pair::rsa();
    for auth in [
        by_keys(&folder.write("key.pem", &rsa.public)).unwrap(),
        by_keys(&folder.write("k.json", jwks(&[rsa.jwk("1")]))).unwrap(),
    ] {
        for algorithm in [Algorithm::RS512, Algorithm::PS256] {
            assert_eq!(
                auth.verify(&rsa.sign(algorithm, None, &claims())),
                Err(Error::Invalid)
            );
        }
        let body = URL_SAFE_NO_PAD.encode(claims().to_string());
        for name in ["none", "None", "", "HS256"] {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": name, "kid": "1" }).to_string());
            assert_eq!(
                auth.verify(&format!("{header}.{body}.")),
                Err(Error::Invalid),
                "{name}"
            );
        }
        let signed = rsa.token(None);
        assert_eq!(
            auth.verify(&signed[..=signed.rfind('.').unwrap()]),
            Err(Error::Signature),
            "a signature that is left out"
        );
    }
}

#[test]
fn keys_that_are_of_no_use_are_refused_with_one_line() {
    let folder = Folder::new();
    let ec = Pair::ec();
    let with = |name: &str, value: Value| {
        let mut jwk = ec.jwk("one");
        jwk[name] = value;
        jwks(&[jwk])
    };
    let without_use = "there is no key that signs with RS256, ES256, EdDSA or HS256";
    for (text, reason) in [
        (String::new(), "the keys are neither PEM nor a JWKS"),
        (
            "a secret of thirty-two bytes or more".to_owned(),
            "the keys are neither PEM nor a JWKS",
        ),
        (
            ec.private.clone(),
            "there is a private key, which belongs to the issuer alone: give the public one",
        ),
        (
            Pair::make(Algorithm::RS256, RSA_SHORT).public,
            "an RSA key has at least 2,048 bits",
        ),
        (
            Pair::make(Algorithm::ES384, EC_384).public,
            "a key in it is broken, or of a kind that is not served: RSA, EC on P-256 and Ed25519 are",
        ),
        (
            ec.public[..ec.public.len() / 2].to_owned(),
            "a key in it is broken, or of a kind that is not served: RSA, EC on P-256 and Ed25519 are",
        ),
        (
            "{".to_owned(),
            "the keys are not a JWKS: a JSON object with `keys`",
        ),
        (jwks(&[]), without_use),
        (with("use", json!("enc")), without_use),
        (with("key_ops", json!(["encrypt"])), without_use),
        (with("alg", json!("ES384")), without_use),
        (with("crv", json!("P-384")), without_use),
        (with("x", json!("AAAA")), without_use),
        (
            jwks(&[json!({ "kty": "oct", "k": "c2hvcnQ" })]),
            without_use,
        ),
    ] {
        let path = folder.write("keys", &text);
        let line = format!("{} cannot be used for tokens: {reason}", path.display());
        assert_eq!(by_keys(&path).unwrap_err().to_string(), line, "{text}");
    }
    assert!(
        by_secret_file(&folder.write("secret", "short"))
            .unwrap_err()
            .to_string()
            .ends_with("a secret has at least 32 bytes")
    );
    assert!(
        by_keys(&folder.path("nowhere"))
            .unwrap_err()
            .to_string()
            .contains("cannot be read")
    );
    assert!(
        by_keys(&folder.path(""))
            .unwrap_err()
            .to_string()
            .contains("cannot be read")
    );
}

#[test]
fn keys_for_something_else_are_passed_over() {
    let folder = Folder::new();
    let ed = Pair::ed();
    let others = [
        json!({ "kty": "RSA", "n": "x", "e": "AQAB", "use": "enc" }),
        json!({ "kty": "from another century" }),
        json!(7),
    ];
    let set = jwks(&[&others[..], &[ed.jwk("one")]].concat());
    assert_alice(
        by_keys(&folder.write("keys.json", set))
            .unwrap()
            .verify(&ed.token(Some("one"))),
    );
}

#[test]
fn audience_and_issuer_must_be_the_ones_that_are_wanted() {
    let rules = |audience: Option<&str>, issuer: Option<&str>| {
        let rules = TokenRules {
            audience: audience.map(str::to_owned),
            issuer: issuer.map(str::to_owned),
            ..TokenRules::default()
        };
        Auth::with_secret(LOCAL).with_rules(rules).unwrap()
    };
    let token = |extra: Value| {
        let mut claims = claims();
        claims
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        by_secret(LOCAL, &claims)
    };
    let strict = rules(Some("chat"), Some("issuer"));
    assert_alice(strict.verify(&token(json!({ "aud": "chat", "iss": "issuer" }))));
    assert_alice(strict.verify(&token(json!({ "aud": ["shop", "chat"], "iss": "issuer" }))));
    for aud in [
        json!("shop"),
        json!(["shop"]),
        json!([]),
        json!(7),
        Value::Null,
    ] {
        assert_eq!(
            strict.verify(&token(json!({ "aud": aud, "iss": "issuer" }))),
            Err(Error::Audience),
            "{aud}"
        );
    }
    for iss in [json!("mallory"), json!(7), Value::Null] {
        assert_eq!(
            strict.verify(&token(json!({ "aud": "chat", "iss": iss }))),
            Err(Error::Issuer),
            "{iss}"
        );
    }
    assert_eq!(
        rules(None, None).verify(&token(json!({ "aud": "chat" }))),
        Err(Error::Audience),
        "it is for somebody else"
    );
    assert_alice(rules(None, None).verify(&token(json!({ "iss": "anybody" }))));
    assert_alice(rules(Some("chat"), Some("issuer")).verify(&strict.issue(
        &wideroom::model::UserId::parse("alice").unwrap(),
        std::time::Duration::from_secs(60),
        wideroom::clock::Clock::now(&wideroom::clock::SystemClock),
    )));
}

#[test]
fn a_scope_makes_a_service_and_a_providers_key_only_of_a_listed_subject() {
    let with_scope = |scope: Value| {
        let mut claims = claims();
        claims["scope"] = scope;
        claims
    };
    let local = Auth::with_secret(LOCAL);
    let is_service = |scope: Value| {
        let identity = local.verify(&by_secret(LOCAL, &with_scope(scope))).unwrap();
        !identity.rights.is_empty()
    };
    for scope in ["wideroom:service", "openid wideroom:service email"] {
        assert!(is_service(json!(scope)), "{scope}");
    }
    for other in [
        json!("wideroom:services"),
        json!("WIDEROOM:SERVICE"),
        json!("openid,wideroom:service"),
        json!(["wideroom:service"]),
        json!(7),
        Value::Null,
    ] {
        assert!(!is_service(other.clone()), "{other}");
    }
    let (folder, pair) = (Folder::new(), Pair::ed());
    let keys = folder.write("keys.pem", &pair.public);
    let scopes = json!("wideroom:outbox wideroom:act");
    let token = pair.sign(pair.algorithm, None, &with_scope(scopes));
    for (listed, expected) in [(&[][..], false), (&["bob"], false), (&["alice"], true)] {
        let rules = TokenRules {
            keys: Some(keys.clone()),
            service_subjects: listed
                .iter()
                .map(|name| UserId::parse(name).unwrap())
                .collect(),
            ..TokenRules::default()
        };
        let auth = Auth::with_secret(LOCAL).with_rules(rules).unwrap();
        assert_eq!(!auth.verify(&token).unwrap().rights.is_empty(), expected);
    }
}

#[test]
fn a_demo_token_is_no_service() {
    let auth = Auth::with_secret(LOCAL).with_demo();
    let alice = UserId::parse("alice").unwrap();
    let token = auth.issue_demo(&alice, Duration::from_secs(60), SystemClock.now());
    assert!(auth.verify(&token).unwrap().rights.is_empty());
}

/// A provider's users choose their names, and often their scopes: an agent of a provider is named by the operator.
#[test]
fn a_token_of_an_agent_has_the_scope_of_one_and_no_right_of_a_service() {
    let (folder, pair) = (Folder::new(), Pair::ed());
    let keys = folder.write("keys.pem", &pair.public);
    let named = |name: &str, scope: &str| {
        let mut claims = claims();
        claims["sub"] = json!(name);
        claims["scope"] = json!(scope);
        claims
    };
    let agent = "agent:helper";
    let subjects = [UserId::parse(agent).unwrap()];
    for service_subjects in [&subjects[..], &[]] {
        let rules = TokenRules {
            keys: Some(keys.clone()),
            service_subjects: service_subjects.iter().cloned().collect(),
            ..TokenRules::default()
        };
        let provider = Auth::with_secret(LOCAL).with_rules(rules).unwrap();
        let own = Auth::with_secret(SECRET);
        let is_listed = !service_subjects.is_empty();
        for (auth, is_trusted, sign) in [
            (
                &own,
                true,
                &(|claims: &Value| by_secret(SECRET, claims)) as &dyn Fn(&Value) -> String,
            ),
            (&provider, is_listed, &|claims| {
                pair.sign(pair.algorithm, None, claims)
            }),
        ] {
            let verified = |scope: &str| auth.verify(&sign(&named(agent, scope)));
            for none in ["", "openid", "wideroom:agents", "WIDEROOM:AGENT"] {
                assert_eq!(verified(none), Err(Error::NoAgent), "{none:?}");
            }
            for scope in ["wideroom:agent", "openid wideroom:agent email"] {
                let identity = verified(scope);
                match is_trusted {
                    true => assert!(identity.unwrap().rights.is_empty()),
                    false => assert_eq!(identity, Err(Error::NoAgent)),
                }
            }
            let both = verified("wideroom:agent wideroom:read");
            let refusal = match is_trusted {
                true => Error::AgentWithRights,
                false => Error::NoAgent,
            };
            assert_eq!(both, Err(refusal));
            // The scope alone makes nobody an agent, and no service.
            let alice = auth.verify(&sign(&named("alice", "wideroom:agent")));
            assert!(alice.unwrap().rights.is_empty());
        }
    }
}

#[test]
fn a_demo_token_of_an_agent_is_an_agents_and_of_a_demo_alone() {
    let demo = Auth::with_secret(LOCAL).with_demo();
    let agent = UserId::parse("agent:echo").unwrap();
    let token = demo.issue_demo(&agent, Duration::from_secs(60), SystemClock.now());
    let identity = demo.verify(&token).unwrap();
    assert!(identity.user == agent && identity.rights.is_empty());
    assert!(Auth::with_secret(LOCAL).verify(&token).is_err());
}
