//! What makes the updates of two streams the same one: that both were heard from one notice, or given by one read.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::bus::NoticeEnvelope;

/// The identity of what an update was made of. Whoever shows two updates that are equal in it, at equal positions, shows the same.
#[derive(Clone)]
pub struct UpdateKey {
    of: Of,
    place: usize,
}

#[derive(Clone)]
enum Of {
    Notice(Arc<NoticeEnvelope>),
    Read(Arc<u8>),
}

impl UpdateKey {
    pub(crate) fn heard(notice: Arc<NoticeEnvelope>) -> Self {
        Self {
            of: Of::Notice(notice),
            place: 0,
        }
    }

    /// To hash and to compare. It stands for this one as long as this is held, or a clone.
    pub fn identity(&self) -> (usize, usize) {
        let of = match &self.of {
            Of::Notice(notice) => Arc::as_ptr(notice) as usize,
            Of::Read(source) => Arc::as_ptr(source) as usize,
        };
        (of, self.place)
    }

    /// Where the first who shows it may leave what they made of it. `None` where it was read.
    pub fn shown(&self) -> Option<&OnceLock<Arc<dyn Any + Send + Sync>>> {
        match &self.of {
            Of::Notice(notice) => Some(&notice.rendered),
            Of::Read(_) => None,
        }
    }
}

impl std::fmt::Debug for UpdateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.identity().fmt(f)
    }
}

/// The identity of a read. It does not keep alive what was read.
pub(crate) struct Source(Arc<u8>);

impl Default for Source {
    fn default() -> Self {
        Self(Arc::new(0))
    }
}

impl Source {
    /// What stands at this place of it.
    pub(crate) fn at(&self, place: usize) -> UpdateKey {
        UpdateKey {
            of: Of::Read(Arc::clone(&self.0)),
            place,
        }
    }
}
