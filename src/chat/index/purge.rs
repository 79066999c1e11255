//! Purge: removes the words of removed, erased and changed messages from the index of a conversation.

use super::SearchIndex;
use super::directory::Directory;
use super::indexer::{IndexGoal, IndexStep};
use crate::chat::error::{Error, Result};
use crate::model::{ConversationId, OrderKey};

/// Attempts of a compare-and-set before a caller gets an error.
const TRIES_MAX: usize = 8;
/// Steps of one refresh.
const REFRESH_STEPS_MAX: usize = 256;

impl SearchIndex {
    /// Forgets messages up to a position, which were removed from the disk, with their words.
    pub(crate) async fn trim(&self, id: ConversationId, up_to: OrderKey) -> Result<()> {
        let is_touched = |directory: &Directory| {
            up_to > directory.removed && directory.segments.iter().any(|one| one.after < up_to)
        };
        self.change(id, |directory| {
            if !is_touched(directory) {
                return false;
            }
            directory.removed = up_to;
            let gone = directory.segments.iter().filter(|one| one.until <= up_to);
            let gone: Vec<_> = gone.map(|one| one.id).collect();
            directory.segments.retain(|one| one.until > up_to);
            directory.stale.extend(gone);
            true
        })
        .await?;
        self.refresh(id).await
    }

    /// Deletes the index of a conversation. It is built again in the background.
    pub(crate) async fn drop_all(&self, id: ConversationId) -> Result<()> {
        self.change(id, |directory| {
            let is_empty = directory.all_ids().next().is_none();
            *directory = self.begun_anew(directory);
            !is_empty
        })
        .await?;
        self.request(id);
        Ok(())
    }

    /// Builds the segments with changed messages again, so that the old words leave the disk. An index that was turned off
    /// is deleted.
    pub(crate) async fn refresh(&self, id: ConversationId) -> Result<()> {
        if !self.is_on {
            return self.drop_all(id).await;
        }
        if self.directory(id).await?.is_none() {
            return Ok(());
        }
        for _ in 0..REFRESH_STEPS_MAX {
            if self.step(id, IndexGoal::Refresh).await? == IndexStep::Done {
                break;
            }
        }
        Ok(())
    }

    /// Changes a directory that exists, and deletes what it then names as stale. `change` returns whether anything is
    /// to be written.
    async fn change(
        &self,
        id: ConversationId,
        change: impl Fn(&mut Directory) -> bool,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let Some(bytes) = self.store.search_directories(&[id]).await?.pop().flatten() else {
                return Ok(());
            };
            let Some(mut directory) = Directory::decode(&bytes) else {
                return Ok(());
            };
            if !change(&mut directory) {
                return Ok(());
            }
            if self.swap(id, &Some(bytes), &directory).await? {
                return self.delete_stale(id, &mut directory).await;
            }
        }
        Err(Error::Busy)
    }
}
