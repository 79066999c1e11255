//! Envelope of a notice on the bus: the notice with a write-once slot for a rendered payload.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::model::Notice;

/// A published notice. All subscribers of its topic receive the same envelope.
#[derive(Debug)]
pub struct NoticeEnvelope {
    pub notice: Notice,
    /// Payload cache: the first subscriber to render the notice leaves the result here, and the
    /// others reuse it. The bus does not know its type.
    pub rendered: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl From<Notice> for Arc<NoticeEnvelope> {
    fn from(notice: Notice) -> Self {
        Self::new(NoticeEnvelope {
            notice,
            rendered: OnceLock::new(),
        })
    }
}

impl Deref for NoticeEnvelope {
    type Target = Notice;

    fn deref(&self) -> &Notice {
        &self.notice
    }
}
