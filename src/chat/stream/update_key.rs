//! Update keys: the identity of an update across streams. Updates of one notice, or of one item of
//! one shared read or step, have equal keys.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::bus::NoticeEnvelope;
use crate::model::LiveStep;

/// Identity of the source of an update. Streams that render updates with equal keys at equal
/// positions render the same.
#[derive(Clone)]
pub struct UpdateKey {
    source: KeySource,
    index: usize,
}

#[derive(Clone)]
enum KeySource {
    Notice(Arc<NoticeEnvelope>),
    Read(Arc<u8>),
    Step(Arc<LiveStep>),
}

impl UpdateKey {
    pub(crate) fn of_notice(notice: Arc<NoticeEnvelope>) -> Self {
        Self {
            source: KeySource::Notice(notice),
            index: 0,
        }
    }

    pub(crate) fn of_step(step: Arc<LiveStep>) -> Self {
        Self {
            source: KeySource::Step(step),
            index: 0,
        }
    }

    /// Comparable and hashable identity. It is unique as long as this key, or a clone of it,
    /// exists.
    pub fn identity(&self) -> (usize, usize) {
        let address = match &self.source {
            KeySource::Notice(notice) => Arc::as_ptr(notice) as usize,
            KeySource::Read(read) => Arc::as_ptr(read) as usize,
            KeySource::Step(step) => Arc::as_ptr(step) as usize,
        };
        (address, self.index)
    }

    /// Payload cache of the notice, in which the first stream leaves its rendering. `None` for an
    /// update of a read or a step.
    pub fn shown(&self) -> Option<&OnceLock<Arc<dyn Any + Send + Sync>>> {
        match &self.source {
            KeySource::Notice(notice) => Some(&notice.rendered),
            KeySource::Read(_) | KeySource::Step(_) => None,
        }
    }
}

impl std::fmt::Debug for UpdateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.identity().fmt(f)
    }
}

/// Identity of a read. It does not keep the result of the read alive.
pub(crate) struct ReadIdentity(Arc<u8>);

impl Default for ReadIdentity {
    fn default() -> Self {
        Self(Arc::new(0))
    }
}

impl ReadIdentity {
    /// Key of the item with this index in the result.
    pub(crate) fn key(&self, index: usize) -> UpdateKey {
        UpdateKey {
            source: KeySource::Read(Arc::clone(&self.0)),
            index,
        }
    }
}
