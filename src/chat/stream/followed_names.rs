//! Followed names: the number of users that each viewer follows with all presence streams together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::chat::error::{Error, Result};
use crate::model::UserId;

/// `retryAfterMs` of a viewer at the bound.
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct FollowedNames {
    viewers: Arc<Mutex<HashMap<UserId, usize>>>,
    max: usize,
}

/// Share of one stream in its viewer's number, released on drop.
pub(crate) struct FollowedNamesPermit {
    viewers: Arc<Mutex<HashMap<UserId, usize>>>,
    viewer: UserId,
    count: usize,
}

impl FollowedNames {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            viewers: Arc::default(),
            max,
        }
    }

    pub(crate) fn acquire(&self, viewer: &UserId, count: usize) -> Result<FollowedNamesPermit> {
        let mut viewers = self.viewers.lock();
        let followed = viewers.entry(viewer.clone()).or_default();
        if *followed + count > self.max {
            if *followed == 0 {
                viewers.remove(viewer);
            }
            return Err(Error::TooFast {
                retry_after: RETRY_AFTER,
            });
        }
        *followed += count;
        Ok(FollowedNamesPermit {
            viewers: Arc::clone(&self.viewers),
            viewer: viewer.clone(),
            count,
        })
    }
}

impl Drop for FollowedNamesPermit {
    fn drop(&mut self) {
        let mut viewers = self.viewers.lock();
        if let Some(followed) = viewers.get_mut(&self.viewer) {
            *followed -= self.count;
            if *followed == 0 {
                viewers.remove(&self.viewer);
            }
        }
    }
}
