//! Keys of an external issuer that verify tokens: a secret, public keys as PEM, or a JWKS.
//!
//! Each key has the one algorithm of its kind, whatever a token claims. A public key is therefore never used as a secret
//! (algorithm confusion).

use std::path::Path;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents,
};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};

use super::KeyFileError;
use crate::model::without_byte_order_mark;

/// Most keys: a token without `kid` is tried with each.
const KEYS_MAX: usize = 32;
/// Shortest secret: the size of the HS256 output (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// Shortest RSA key. A PKCS #1 public key of 2,048 bits has 270 bytes, one of 1,024 bits 140.
const RSA_DER_BYTES_MIN: usize = 260;
const RSA_MODULUS_BYTES_MIN: usize = 256;

const UNREADABLE: &str =
    "a key in it is broken, or of a kind that is not served: RSA, EC on P-256 and Ed25519 are";
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----";

/// Key with its algorithm and name.
#[derive(Clone)]
pub(super) struct VerificationKey {
    /// `kid` in a JWKS.
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) checking: DecodingKey,
    /// Whether the key is an identity provider's. Its tokens make only listed subjects a service.
    pub(super) is_of_provider: bool,
}

impl VerificationKey {
    pub(super) fn secret(secret: &[u8]) -> Self {
        Self {
            id: None,
            algorithm: Algorithm::HS256,
            checking: DecodingKey::from_secret(secret),
            is_of_provider: false,
        }
    }

    /// Key of this algorithm, or `None` if the bytes are no such key.
    fn tried(
        id: Option<String>,
        algorithm: Algorithm,
        checking: DecodingKey,
    ) -> Result<Self, &'static str> {
        if !is_readable(algorithm, &checking) {
            return Err(UNREADABLE);
        }
        Ok(Self {
            id,
            algorithm,
            checking,
            is_of_provider: true,
        })
    }

    /// Whether both are one key under one name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        use DecodingKeyKind::{RsaModulusExponent, SecretOrDer};
        let is_one_key = match (self.checking.kind(), other.checking.kind()) {
            (SecretOrDer(one), SecretOrDer(other)) => one == other,
            (
                RsaModulusExponent { n, e },
                RsaModulusExponent {
                    n: other,
                    e: exponent,
                },
            ) => (n, e) == (other, exponent),
            (SecretOrDer(_), RsaModulusExponent { .. })
            | (RsaModulusExponent { .. }, SecretOrDer(_)) => false,
        };
        is_one_key && self.id == other.id && self.algorithm == other.algorithm
    }

    /// Whether the key fits a token with this algorithm and `kid`.
    pub(super) fn is_meant_by(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        let is_named = match (self.id.as_deref(), id) {
            (Some(own), Some(named)) => own == named,
            (None, _) | (_, None) => true,
        };
        is_named && self.algorithm == algorithm
    }
}

/// Whether the bytes are a key of this algorithm. The library would report a broken key as an invalid signature.
fn is_readable(algorithm: Algorithm, key: &DecodingKey) -> bool {
    match (algorithm, key.kind()) {
        (Algorithm::HS256, DecodingKeyKind::SecretOrDer(_)) => true,
        (Algorithm::RS256, DecodingKeyKind::SecretOrDer(der)) => {
            ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der).is_ok()
        }
        (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            RsaPublicKeyComponents { n, e }
                .to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256)
                .is_ok()
        }
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
            ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).is_ok()
        }
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
            ParsedPublicKey::new(&ED25519, point).is_ok()
        }
        (_, DecodingKeyKind::SecretOrDer(_) | DecodingKeyKind::RsaModulusExponent { .. }) => false,
    }
}

/// Parses a secret file into a key.
pub(super) fn parse_secret(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<VerificationKey>, KeyFileError> {
    Ok(vec![VerificationKey::secret(secret(path, bytes)?)])
}

/// Bytes of one secret, without the line break that editors append.
pub(super) fn secret<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a [u8], KeyFileError> {
    let secret = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    let unusable = |reason| KeyFileError::unusable(path, reason);
    // A public key is public: as a secret it would let every client sign tokens. A key in DER can end with a byte like a
    // line break.
    let text = secret.trim_ascii_start();
    let is_key = text.starts_with(PEM_BEGIN.as_bytes())
        || text.starts_with(b"{")
        || text.starts_with(b"ssh-");
    if is_key || [bytes, secret].into_iter().any(is_der) {
        return Err(unusable(
            "the file holds a key or a JWKS and no secret: --token-keys-file takes public keys",
        ));
    }
    if secret.len() < SECRET_BYTES_MIN {
        return Err(unusable("a secret has at least 32 bytes"));
    }
    Ok(secret)
}

/// Whether the bytes are one complete ASN.1 sequence, as every key in DER is.
fn is_der(bytes: &[u8]) -> bool {
    match bytes {
        [0x30, length @ 0..=0x7f, rest @ ..] => rest.len() == usize::from(*length),
        [0x30, 0x81, length, rest @ ..] => rest.len() == usize::from(*length),
        [0x30, 0x82, high, low, rest @ ..] => {
            rest.len() == usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
    }
}

/// Parses a file of public keys: PEM blocks, or a JWKS.
pub(super) fn parse_keys(path: &Path, bytes: &[u8]) -> Result<Vec<VerificationKey>, KeyFileError> {
    let unusable = |reason| KeyFileError::unusable(path, reason);
    let text =
        std::str::from_utf8(bytes).map_err(|_| unusable("the keys are neither PEM nor a JWKS"))?;
    let text = without_byte_order_mark(text);
    let keys = if text.trim_start().starts_with('{') {
        jwks(text)
    } else {
        pem(text)
    };
    let keys = keys.map_err(unusable)?;
    if keys.len() > KEYS_MAX {
        return Err(unusable("the keys are more than 32"));
    }
    Ok(keys)
}

/// Parses the answer of an identity provider: a JWKS of public keys. Secrets in it are passed over.
pub(super) fn parse_provider_keys(bytes: &[u8]) -> Result<Vec<VerificationKey>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the keys are not a JWKS")?;
    let mut keys = jwks(without_byte_order_mark(text))?;
    keys.retain(|key| key.algorithm != Algorithm::HS256);
    match keys.len() {
        0 => Err("there is no public key that signs with RS256, ES256 or EdDSA"),
        1..=KEYS_MAX => Ok(keys),
        _ => Err("the keys are more than 32"),
    }
}

fn pem(text: &str) -> Result<Vec<VerificationKey>, &'static str> {
    if text.contains("PRIVATE KEY-----") {
        return Err(
            "there is a private key, which belongs to the issuer alone: give the public one",
        );
    }
    let starts: Vec<_> = text
        .match_indices(PEM_BEGIN)
        .map(|(start, _)| start)
        .collect();
    if starts.is_empty() {
        return Err("the keys are neither PEM nor a JWKS");
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| pem_key(&text[*start..end]))
        .collect()
}

fn pem_key(block: &str) -> Result<VerificationKey, &'static str> {
    if !block.starts_with(PEM_PUBLIC) {
        return Err("only `PUBLIC KEY` blocks are read");
    }
    let block = block.as_bytes();
    // Each of these refuses keys of other kinds.
    if let Ok(key) = DecodingKey::from_rsa_pem(block) {
        let is_long = key
            .try_get_as_bytes()
            .is_ok_and(|der| der.len() >= RSA_DER_BYTES_MIN);
        return if is_long {
            VerificationKey::tried(None, Algorithm::RS256, key)
        } else {
            Err("an RSA key has at least 2,048 bits")
        };
    }
    let (algorithm, key) = match (
        DecodingKey::from_ec_pem(block),
        DecodingKey::from_ed_pem(block),
    ) {
        (Ok(key), _) => (Algorithm::ES256, key),
        (_, Ok(key)) => (Algorithm::EdDSA, key),
        _ => return Err(UNREADABLE),
    };
    VerificationKey::tried(None, algorithm, key)
}

#[derive(serde::Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

/// Parses a JWKS. It ignores keys for other purposes (RFC 7517, 5), and needs at least one usable key.
fn jwks(text: &str) -> Result<Vec<VerificationKey>, &'static str> {
    let set: Jwks = serde_json::from_str(text)
        .map_err(|_| "the keys are not a JWKS: a JSON object with `keys`")?;
    let keys: Vec<_> = set.keys.into_iter().filter_map(jwk).collect();
    if keys.is_empty() {
        Err("there is no key that signs with RS256, ES256, EdDSA or HS256")
    } else {
        Ok(keys)
    }
}

fn jwk(value: serde_json::Value) -> Option<VerificationKey> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let common = &jwk.common;
    let is_for_signing = common
        .public_key_use
        .as_ref()
        .is_none_or(|used| *used == PublicKeyUse::Signature)
        && common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let checking = DecodingKey::from_jwk(&jwk).ok()?;
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => is_long_rsa(&checking).then_some(Algorithm::RS256),
        AlgorithmParameters::EllipticCurve(ec) => {
            (ec.curve == EllipticCurve::P256).then_some(Algorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(pair) => {
            (pair.curve == EllipticCurve::Ed25519).then_some(Algorithm::EdDSA)
        }
        AlgorithmParameters::OctetKey(_) => checking
            .try_get_as_bytes()
            .is_ok_and(|secret| secret.len() >= SECRET_BYTES_MIN)
            .then_some(Algorithm::HS256),
        // Refuse unknown and future kinds of keys.
        AlgorithmParameters::Other(_) | _ => None,
    }?;
    let is_of_its_kind = common
        .key_algorithm
        .is_none_or(|named| named == algorithm.into());
    (is_for_signing && is_of_its_kind)
        .then(|| VerificationKey::tried(common.key_id.clone(), algorithm, checking).ok())
        .flatten()
}

fn is_long_rsa(key: &DecodingKey) -> bool {
    let DecodingKeyKind::RsaModulusExponent { n, .. } = key.kind() else {
        return false;
    };
    n.iter().skip_while(|byte| **byte == 0).count() >= RSA_MODULUS_BYTES_MIN
}
