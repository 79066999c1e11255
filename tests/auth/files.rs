//! Keys in files, and who signs with them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tempfile::TempDir;
use wideroom::auth::{Auth, Error, Identity, KeyFileError, TokenRules};
use wideroom::clock::{Clock, SystemClock};
use wideroom::model::UserId;

pub(crate) struct Folder(TempDir);

/// A pair of keys as an issuer has it.
pub(crate) struct Pair {
    pub(crate) algorithm: Algorithm,
    pub(crate) private: String,
    pub(crate) public: String,
}

/// Options of OpenSSL for each kind of key.
const RSA: &[&str] = &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
pub(super) const RSA_SHORT: &[&str] = &["RSA", "-pkeyopt", "rsa_keygen_bits:1024"];
const EC: &[&str] = &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
pub(super) const EC_384: &[&str] = &["EC", "-pkeyopt", "ec_paramgen_curve:P-384"];
const ED: &[&str] = &["ED25519"];

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Whole or not at all, as an operator's tools do it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let aside = self.path("aside");
        std::fs::write(&aside, bytes).unwrap();
        std::fs::rename(aside, self.path(name)).unwrap();
        self.path(name)
    }
}

impl Pair {
    pub(crate) fn rsa() -> Self {
        Self::make(Algorithm::RS256, RSA)
    }

    pub(crate) fn ec() -> Self {
        Self::make(Algorithm::ES256, EC)
    }

    pub(crate) fn ed() -> Self {
        Self::make(Algorithm::EdDSA, ED)
    }

    pub(super) fn make(algorithm: Algorithm, kind: &[&str]) -> Self {
        let folder = Folder::new();
        let file = folder.path("private.pem");
        let private = openssl(&[&["genpkey", "-algorithm"], kind].concat(), None);
        std::fs::write(&file, &private).unwrap();
        Self {
            algorithm,
            public: openssl(&["pkey", "-pubout", "-in"], Some(&file)),
            private,
        }
    }

    fn signing(&self) -> EncodingKey {
        let pem = self.private.as_bytes();
        if self.algorithm == Algorithm::RS256 {
            return EncodingKey::from_rsa_pem(pem).unwrap();
        }
        EncodingKey::from_ec_pem(pem)
            .or_else(|_| EncodingKey::from_ed_pem(pem))
            .unwrap()
    }

    /// This key in a JWKS, by this name.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        let jwk = Jwk::from_encoding_key(&self.signing(), self.algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = json!(id);
        jwk
    }

    /// A token of alice's, good for an hour.
    pub(crate) fn token(&self, id: Option<&str>) -> String {
        self.sign(self.algorithm, id, &claims())
    }

    pub(super) fn sign(&self, algorithm: Algorithm, id: Option<&str>, claims: &Value) -> String {
        let header = Header {
            kid: id.map(str::to_owned),
            ..Header::new(algorithm)
        };
        jsonwebtoken::encode(&header, claims, &self.signing()).unwrap()
    }
}

pub(crate) fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

pub(super) fn claims() -> Value {
    json!({ "sub": "alice", "exp": SystemClock.now().micros() / 1_000_000 + 3_600 })
}

pub(super) fn by_secret(secret: &[u8], claims: &Value) -> String {
    jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        claims,
        &EncodingKey::from_secret(secret),
    )
    .unwrap()
}

/// A server's own key, which opens nothing where there are others.
pub(super) const LOCAL: &[u8] = b"thirty-two bytes for a test key.";

pub(super) fn local_token() -> String {
    Auth::with_secret(LOCAL).issue(
        &UserId::parse("alice").unwrap(),
        Duration::from_secs(60),
        SystemClock.now(),
    )
}

pub(super) fn by_keys(path: &Path) -> Result<Auth, KeyFileError> {
    Auth::with_secret(LOCAL).with_rules(TokenRules {
        keys: Some(path.to_owned()),
        ..TokenRules::default()
    })
}

pub(super) fn by_secret_file(path: &Path) -> Result<Auth, KeyFileError> {
    Auth::with_secret(LOCAL).with_rules(TokenRules {
        secret: Some(path.to_owned()),
        ..TokenRules::default()
    })
}

pub(super) fn assert_alice(verified: Result<Identity, Error>) {
    assert_eq!(verified.unwrap().user.as_str(), "alice");
}

/// Output of the `openssl` program, which these tests require.
pub(super) fn openssl(arguments: &[&str], file: Option<&Path>) -> String {
    let output = Command::new("openssl")
        .args(arguments)
        .args(file)
        .output()
        .expect("these tests want the program openssl");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
