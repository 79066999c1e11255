//! What the operator's door asks of a running server: whether it lives, whether it is ready, and a copy of its store.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Bytes;
use futures_util::StreamExt as _;

use super::stop::Stop;
use crate::server::admin::{NoBackup, Operated, Pieces};
use crate::store::embedded::Embedded;
use crate::store::{self, NOTE_IMPORTED_AT, Store};

pub(super) struct Running {
    pub(super) store: Arc<dyn Store>,
    /// The same, where it is in this process.
    pub(super) embedded: Option<Arc<Embedded>>,
    pub(super) stop: Stop,
}

#[async_trait]
impl Operated for Running {
    fn alive(&self) -> Result<(), String> {
        self.embedded.as_ref().and_then(|store| store.failure()).map_or(Ok(()), Err)
    }

    async fn ready(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("the server is stopping".to_owned());
        }
        self.store.health()?;
        // Something that every store has to look up.
        self.store.note(NOTE_IMPORTED_AT).await.map(drop).map_err(|error| error.to_string())
    }

    fn backup(&self) -> Result<Pieces, NoBackup> {
        let store = self.embedded.as_ref().ok_or(NoBackup::OnCluster)?;
        let pieces = store.copy().ok_or(NoBackup::UnderWay)?;
        let piece = |piece: store::Result<Vec<u8>>| match piece {
            Ok(piece) => Ok(Bytes::from(piece)),
            Err(error) => {
                tracing::error!(%error, "a backup broke off");
                Err(io::Error::other(error.to_string()))
            }
        };
        Ok(pieces.map(piece).boxed())
    }
}
