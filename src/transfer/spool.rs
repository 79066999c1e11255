//! Spool: lines that wait for their conversation, on disk, so that a file in any order needs no
//! memory.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _, BufWriter};

use super::NO_FOLLOW;
use super::reader::Unit;

pub(super) struct Spool {
    path: PathBuf,
    /// Whether a later run must find the file again.
    is_kept: bool,
    file: Option<BufWriter<File>>,
    bytes: u64,
}

impl Spool {
    /// A spool for a source that is read only once. It ends with the process.
    pub(super) fn passing(dir: &Path) -> Self {
        Self {
            is_kept: false,
            ..Self::kept(dir, &uuid::Uuid::new_v4().to_string())
        }
    }

    /// A spool for a source that a later run may resume.
    pub(super) fn kept(dir: &Path, name: &str) -> Self {
        Self {
            path: dir.join(format!("import-{name}.held")),
            is_kept: true,
            file: None,
            bytes: 0,
        }
    }

    /// Resumes after the bytes that an earlier run has noted. False if they do not exist any more.
    pub(super) async fn resume(&mut self, bytes: u64) -> io::Result<bool> {
        if bytes == 0 {
            return Ok(true);
        }
        let mut file = match OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NO_FOLLOW)
            .open(&self.path)
            .await
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if file.metadata().await?.len() < bytes {
            return Ok(false);
        }
        // Lines after this position belong to a batch without a checkpoint, and will be read again.
        file.set_len(bytes).await?;
        file.seek(io::SeekFrom::End(0)).await?;
        (self.file, self.bytes) = (Some(BufWriter::new(file)), bytes);
        Ok(true)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) async fn push(&mut self, unit: &Unit) -> io::Result<()> {
        if self.file.is_none() {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(NO_FOLLOW)
                .open(&self.path)
                .await?;
            if !self.is_kept {
                tokio::fs::remove_file(&self.path).await?;
            }
            self.file = Some(BufWriter::new(file));
        }
        let file = self.file.as_mut().expect("it was opened just now");
        let number = format!("{}\t", unit.number);
        file.write_all(number.as_bytes()).await?;
        file.write_all(&unit.text).await?;
        file.write_all(b"\n").await?;
        self.bytes += (number.len() + unit.text.len() + 1) as u64;
        Ok(())
    }

    /// Syncs the file, before a note refers to it.
    pub(super) async fn sync(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.flush().await?;
        if self.is_kept {
            file.get_ref().sync_data().await
        } else {
            Ok(())
        }
    }

    /// All lines of the spool, from the first one.
    pub(super) async fn read(&mut self) -> io::Result<Option<std::fs::File>> {
        self.sync().await?;
        let Some(file) = &mut self.file else {
            return Ok(None);
        };
        file.rewind().await?;
        Ok(Some(file.get_ref().try_clone().await?.into_std().await))
    }

    pub(super) async fn remove(&mut self) -> io::Result<()> {
        if self.file.is_some() && self.is_kept {
            tokio::fs::remove_file(&self.path).await
        } else {
            Ok(())
        }
    }
}
