//! The library's own HTTP and WebSocket handlers over the same API and store, as a server in a
//! process of its own.
//!
//! The ratio of our cost to its cost is what our own transports cost or save.

use std::path::Path;
use std::sync::Arc;

use wideroom::auth::Auth;

use crate::world::{World, open_store};
use crate::{peer, server};

/// Serves a data folder until the process is killed. It prints its address first.
pub async fn serve(folder: &Path) {
    let store = open_store(folder).await;
    let unused = tempfile::tempdir().unwrap();
    let world = World::over(store, unused, Vec::new()).await;
    let auth = Auth::open(folder).unwrap();
    let router = peer::router(world.api, Arc::new(auth));
    axum::serve(server::listener(), router).await.unwrap();
}

/// Copies a data folder that no server has open.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
