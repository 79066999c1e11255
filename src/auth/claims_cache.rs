//! Cache of verified tokens: a signature is checked once, not with every request that presents it.
//!
//! It holds only facts that cannot change: callers check the times of a token on each use. New keys clear the cache. An
//! entry holds the SHA-256 of its token, never the token.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};

use super::Claims;
use super::keys::VerificationKey;

const TOKENS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

pub(super) struct ClaimsCache(Mutex<CachedClaims>);

struct CachedClaims {
    /// Keys that verified the cached tokens.
    keys: Option<Arc<[VerificationKey]>>,
    claims: LruCache<[u8; 32], Claims>,
}

impl Default for ClaimsCache {
    fn default() -> Self {
        Self(Mutex::new(CachedClaims {
            keys: None,
            claims: LruCache::new(TOKENS_MAX),
        }))
    }
}

impl ClaimsCache {
    /// Claims of a token from the cache if these keys have verified it, otherwise the result of `check`.
    pub(super) fn claims<E>(
        &self,
        keys: &Arc<[VerificationKey]>,
        token: &str,
        check: impl FnOnce() -> Result<Claims, E>,
    ) -> Result<Claims, E> {
        let name: [u8; 32] = Sha256::digest(token).into();
        if let Some(claims) = self.lock(keys).claims.get(&name) {
            return Ok(claims.clone());
        }
        let claims = check()?;
        self.lock(keys).claims.put(name, claims.clone());
        Ok(claims)
    }

    fn lock(&self, keys: &Arc<[VerificationKey]>) -> MutexGuard<'_, CachedClaims> {
        let mut cached = self.0.lock();
        if !cached
            .keys
            .as_ref()
            .is_some_and(|verified| Arc::ptr_eq(verified, keys))
        {
            cached.keys = Some(Arc::clone(keys));
            cached.claims.clear();
        }
        cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Arc<[VerificationKey]> {
        [VerificationKey::secret(&[7; 32])].into()
    }

    fn claims(sub: &str) -> Claims {
        Claims {
            sub: Some(sub.to_owned()),
            exp: None,
            nbf: None,
            iat: None,
            scope: None,
            is_of_provider: false,
        }
    }

    #[test]
    fn a_token_is_checked_once_by_the_same_keys() {
        let (cache, old, new) = (ClaimsCache::default(), keys(), keys());
        let ask = |keys: &Arc<[VerificationKey]>, token: &str, found: Result<Claims, ()>| {
            cache.claims(keys, token, || found).map(|claims| claims.sub)
        };
        assert_eq!(
            ask(&old, "a", Ok(claims("alice"))),
            Ok(Some("alice".to_owned()))
        );
        assert_eq!(
            ask(&old, "a", Err(())),
            Ok(Some("alice".to_owned())),
            "nobody looked again"
        );
        assert_eq!(ask(&old, "b", Err(())), Err(()));
        assert_eq!(
            ask(&old, "b", Ok(claims("bob"))),
            Ok(Some("bob".to_owned())),
            "what was refused is not remembered"
        );
        assert_eq!(
            ask(&new, "a", Err(())),
            Err(()),
            "by other keys it may be none"
        );
    }

    #[test]
    fn the_least_recently_shown_tokens_are_forgotten() {
        let (cache, keys) = (ClaimsCache::default(), keys());
        for number in 0..=TOKENS_MAX.get() {
            cache
                .claims(&keys, &number.to_string(), || Ok::<_, ()>(claims("x")))
                .unwrap();
        }
        assert!(cache.claims(&keys, "0", || Err(())).is_err());
        assert!(cache.claims(&keys, "1", || Err(())).is_ok());
        assert_eq!(cache.lock(&keys).claims.len(), TOKENS_MAX.get());
    }
}
