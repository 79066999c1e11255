//! Keys of an identity provider, which it publishes under a URL (JWKS, RFC 7517): fetched over https, and refreshed.
//!
//! A key that no token had before is asked for at once, and at most once a minute: a stranger with invented key ids makes
//! no more requests. While the provider is away its last keys stay in use for a day.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::keyring::Keyring;
use super::keys::{VerificationKey, parse_provider_keys};
use crate::signed_post::{GetClient, PostLimits, PostTarget};

/// Interval of the refreshes.
const REFRESH_EVERY: Duration = Duration::from_secs(600);
/// Shortest interval between two requests, unless the first one failed.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Pauses after a failure: doubled up to the longest.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long keys are used that cannot be fetched again.
const KEEP: Duration = Duration::from_secs(24 * 3_600);
const _: () =
    assert!(RETRY_MAX.as_secs() <= ASK_AGAIN.as_secs() && REFRESH_EVERY.as_secs() < KEEP.as_secs());

const LIMITS: PostLimits = PostLimits {
    deadline: Duration::from_secs(5),
    answer_bytes: 64 * 1024,
};

/// Keys of the provider, or the reason why there are none.
type FetchedKeys = Result<Vec<VerificationKey>, String>;

/// Refreshes the keys until the keyring is dropped. Run it on the server's runtime.
pub struct ProviderKeys {
    ring: Weak<Keyring>,
    target: PostTarget,
}

impl ProviderKeys {
    /// The keyring has no key of the provider until the first fetch.
    pub(super) fn of(ring: &Arc<Keyring>, target: PostTarget) -> Self {
        ring.put_provider(
            None,
            Some(format!("the keys of {target} were not fetched yet")),
        );
        let ring = Arc::downgrade(ring);
        Self { ring, target }
    }

    pub async fn refresh(self) {
        let Self { ring, target } = self;
        let shown = target.to_string();
        refresh(ring, &shown, || fetch(target.clone()).boxed()).await;
    }
}

async fn fetch(target: PostTarget) -> FetchedKeys {
    let client = spawn_blocking(|| GetClient::new(target)).await;
    let client = client
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    let answer = client
        .get(LIMITS)
        .await
        .map_err(|error| error.to_string())?;
    match answer.body {
        Some(body) if answer.status == 200 => parse_provider_keys(&body).map_err(str::to_owned),
        Some(_) => Err(format!("the answer has the status {}", answer.status)),
        None => Err("the answer has more than 64 KiB, or broke off".to_owned()),
    }
}

async fn refresh(
    ring: Weak<Keyring>,
    shown: &str,
    fetch: impl Fn() -> BoxFuture<'static, FetchedKeys>,
) {
    let (mut fetched_at, mut last_fault) = (None::<Instant>, String::new());
    let mut retry = RETRY_MIN;
    loop {
        let asked_at = Instant::now();
        let answer = fetch().await;
        let Some(ring) = ring.upgrade() else { return };
        let pause = match answer {
            Ok(keys) => {
                if fetched_at.is_none() || !last_fault.is_empty() {
                    tracing::info!(
                        url = shown,
                        keys = keys.len(),
                        "the server fetched the token keys"
                    );
                }
                (fetched_at, retry) = (Some(Instant::now()), RETRY_MIN);
                last_fault.clear();
                ring.put_provider(Some(keys), None);
                REFRESH_EVERY
            }
            Err(reason) => {
                let fault = format!("the token keys of {shown} cannot be fetched: {reason}");
                if fault != last_fault {
                    tracing::error!(
                        "{fault}; the server asks again and uses the last keys for 24 hours"
                    );
                    last_fault.clone_from(&fault);
                }
                let is_old = fetched_at.is_none_or(|at| at.elapsed() >= KEEP);
                ring.put_provider(is_old.then(Vec::new), Some(fault));
                let pause = retry;
                retry = (retry * 2).min(RETRY_MAX);
                pause
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = ring.asked_provider() => sleep_until(asked_at + ASK_AGAIN.min(pause)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    struct Provider {
        ring: Arc<Keyring>,
        answer: Arc<Mutex<Result<usize, String>>>,
        asked: Arc<AtomicUsize>,
    }

    /// A provider with one key, and the refreshes of its keys.
    fn provider() -> Provider {
        let ring = Keyring::open(Vec::new()).unwrap();
        let answer = Arc::new(Mutex::new(Ok(1)));
        let asked = Arc::new(AtomicUsize::new(0));
        let (weak, given, count) = (Arc::downgrade(&ring), answer.clone(), asked.clone());
        tokio::spawn(async move {
            let fetch = move || {
                count.fetch_add(1, Ordering::SeqCst);
                let answer = given.lock().clone();
                let keys = answer.map(|keys| vec![VerificationKey::secret(b"a key"); keys]);
                ready(keys).boxed()
            };
            refresh(weak, "https://provider.test/jwks", fetch).await;
        });
        Provider {
            ring,
            answer,
            asked,
        }
    }

    impl Provider {
        fn keys(&self) -> usize {
            self.ring.keys().len()
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_refreshed_every_ten_minutes_and_at_most_once_a_minute_for_unknown_ones() {
        let provider = provider();
        sleep(MINUTE / 60).await;
        assert_eq!((provider.keys(), provider.asked()), (1, 1));
        let verifying = provider.ring.keys();
        sleep(10 * MINUTE).await;
        assert_eq!(provider.asked(), 2);
        assert!(
            Arc::ptr_eq(&verifying, &provider.ring.keys()),
            "what they verified stays"
        );
        *provider.answer.lock() = Ok(2);
        sleep(10 * MINUTE).await;
        assert_eq!((provider.keys(), provider.asked()), (2, 3));
        // Unknown keys, each second for ten minutes.
        for _ in 0..600 {
            provider.ring.request_poll();
            sleep(MINUTE / 60).await;
        }
        assert!(
            (9..=11).contains(&(provider.asked() - 3)),
            "{}",
            provider.asked()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_leaves_the_keys_for_a_day_and_ends_by_itself() {
        let provider = provider();
        sleep(MINUTE).await;
        *provider.answer.lock() = Err("no connection".to_owned());
        sleep(23 * 60 * MINUTE).await;
        assert_eq!((provider.keys(), provider.ring.missing_keys()), (1, None));
        assert!(provider.ring.fault().is_some());
        assert!(provider.asked() < 24 * 60 + 10, "{}", provider.asked());
        sleep(2 * 60 * MINUTE).await;
        assert_eq!(provider.keys(), 0);
        assert!(provider.ring.missing_keys().is_some(), "not ready");
        *provider.answer.lock() = Ok(1);
        sleep(MINUTE).await;
        assert_eq!((provider.keys(), provider.ring.fault()), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_first_answer_there_are_no_keys() {
        let ring = Keyring::open(Vec::new()).unwrap();
        let target = PostTarget::parse("https://provider.test/jwks?secret=1", false).unwrap();
        drop(ProviderKeys::of(&ring, target));
        let missing = ring.missing_keys().unwrap();
        assert!(
            missing.contains("provider.test") && !missing.contains("secret"),
            "{missing}"
        );
    }
}
