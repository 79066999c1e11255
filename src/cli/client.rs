//! `wideroom client`: writes the JavaScript client of this version into a folder, as a package of npm.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Error, print};
use crate::server::pages::client::FILES;

#[derive(Args)]
pub(super) struct ClientFlags {
    /// Folder to write.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(flags: &ClientFlags) -> Result<(), Error> {
    let ClientFlags { folder } = flags;
    let failed = |source| Error::Output {
        path: folder.clone(),
        source,
    };
    if !is_ours(folder).map_err(failed)? {
        return Err(Error::OtherFiles(folder.clone()));
    }
    fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in FILES {
        fs::write(folder.join(name), text).map_err(failed)?;
    }
    print(&format!("wrote wideroom-client to {}", folder.display()))
}

/// Whether the folder is missing, empty, or a copy of the package.
fn is_ours(folder: &Path) -> std::io::Result<bool> {
    match fs::read_to_string(folder.join("package.json")) {
        Ok(text) => Ok(text.contains("\"name\": \"wideroom-client\"")),
        Err(_) if !folder.try_exists()? => Ok(true),
        Err(_) => Ok(fs::read_dir(folder)?.next().is_none()),
    }
}
