//! Rate limit of one kind of operation: token buckets that can be switched off.

use std::hash::Hash;

use tokio::time::Instant;

use crate::chat::error::Result;
use crate::metrics::Metrics;
use crate::rate::{Buckets, Rate};

pub(crate) struct RateLimit {
    buckets: Buckets,
    is_on: bool,
}

impl RateLimit {
    /// `name` labels the refusals of this limit in the metrics.
    pub(crate) fn new(name: &str, rate: Rate, is_on: bool) -> Self {
        Self {
            buckets: Buckets::new(name, rate),
            is_on,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Takes one token from the bucket of the key.
    pub(crate) fn take(&self, key: &impl Hash) -> Result<()> {
        if self.is_on {
            Ok(self.buckets.take(key, 1, Instant::now())?)
        } else {
            Ok(())
        }
    }

    /// Takes all of these tokens from the bucket of the key, or none.
    pub(crate) fn take_all(&self, key: &impl Hash, tokens: u32) -> Result<()> {
        if self.is_on && tokens > 0 {
            Ok(self.buckets.take_all(key, tokens, Instant::now())?)
        } else {
            Ok(())
        }
    }

    /// Takes tokens for work that is done, also those that have not refilled: the bucket goes into debt.
    pub(crate) fn overdraw(&self, key: &impl Hash, tokens: u32) {
        if self.is_on && tokens > 0 {
            self.buckets.overdraw(key, tokens, Instant::now());
        }
    }

    /// Refunds tokens that were taken and not used.
    pub(crate) fn refund(&self, key: &impl Hash, tokens: u32) {
        if tokens > 0 {
            self.buckets.give_back(key, tokens);
        }
    }

    /// Adds the number of refusals to the metrics of the process.
    pub(crate) fn register(&self, metrics: &Metrics) {
        self.buckets.register(metrics);
    }
}
