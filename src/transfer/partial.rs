//! The file of an export as long as it is not whole: it lies beside the one that it becomes, and its last line says how far it came.
//!
//! So nothing else must be noted, a killed export goes on where it was, and the file that was asked for is there whole or not at all.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::export::{ExportCounts, LeftOut, Position, Within, Written};
use super::line::{LINE_BYTES_MAX, Line};
use crate::model::{ConversationId, Emoji, MessageId, UserId};

/// Digits by which the partial files of two stores are told apart.
const MARK_BYTES: usize = 4;

pub struct Partial {
    pub path: PathBuf,
    target: PathBuf,
    file: File,
    /// Beside it: what was left out of it so far.
    journal_path: PathBuf,
}

impl Partial {
    /// Of an export of this store into that file, and what an earlier run left of it. Blocks.
    pub fn open(target: &Path, store: &str) -> io::Result<(Self, Written)> {
        let mark: String = Sha256::digest(store)
            .iter()
            .take(MARK_BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut path = target.as_os_str().to_owned();
        let mut journal_path = path.clone();
        path.push(format!(".{mark}.partial"));
        journal_path.push(format!(".{mark}.damaged"));
        let (path, journal_path) = (PathBuf::from(path), PathBuf::from(journal_path));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another export is writing it")
            }
            TryLockError::Error(error) => error,
        })?;
        // An earlier version may have made it for others to read. Some file systems hold no modes: there it stays as it is.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
        let (mut written, bytes) = read(&file)?;
        written.left_out = if written.is_begun() {
            left_out(&journal_path)?
        } else {
            LeftOut::new()
        };
        // A line that broke off is written again.
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok((
            Self {
                path,
                target: target.to_owned(),
                file,
                journal_path,
            },
            written,
        ))
    }

    /// The file in which an export notes what it leaves out. Blocks.
    pub fn journal(&self, written: &Written) -> io::Result<tokio::fs::File> {
        let mut open = OpenOptions::new();
        let mut file = open
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.journal_path)?;
        if written.is_begun() {
            // Ends a line that broke off.
            file.write_all(b"\n")?;
        } else {
            file.set_len(0)?;
        }
        Ok(tokio::fs::File::from_std(file))
    }

    pub fn writer(&self) -> io::Result<tokio::fs::File> {
        self.file.try_clone().map(tokio::fs::File::from_std)
    }

    /// It is whole: it takes the place of what was there before. Blocks.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.target)?;
        remove_where_there(&self.journal_path)?;
        let folder = self
            .target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn remove_where_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What an earlier run noted. A line that broke off belongs to a message that is met again.
fn left_out(path: &Path) -> io::Result<LeftOut> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let one = |line: &str| {
        let (conversation, message) = line.split_once(' ')?;
        Some((
            ConversationId(conversation.parse().ok()?),
            MessageId::parse(message)?,
        ))
    };
    Ok(text.lines().filter_map(one).collect())
}

/// How far a file goes in whole lines, and how many bytes they are. From what is no export it begins anew.
fn read(file: &File) -> io::Result<(Written, u64)> {
    let mut input = BufReader::with_capacity(256 * 1024, file);
    let (mut written, mut bytes) = (Written::default(), 0);
    let mut text = Vec::new();
    loop {
        text.clear();
        let read = (&mut input)
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut text)?;
        let Some((b'\n', line)) = text.split_last() else {
            return Ok((written, bytes));
        };
        let Ok(line) = Line::parse(line) else {
            return Ok((written, bytes));
        };
        let Some(position) = position(&line) else {
            return Ok((written, bytes));
        };
        written.counts.add(&line);
        written.position = position;
        bytes += read as u64;
    }
}

fn position(line: &Line) -> Option<Position> {
    let user = |name: &str| UserId::parse(name).ok();
    let within = |id: uuid::Uuid, within| Position::Conversation(ConversationId(id), within);
    Some(match line {
        Line::Header(_) => Position::Header,
        Line::User(line) => Position::User(user(&line.username)?),
        Line::Conversation(line) => within(line.id, Within::Conversation),
        Line::Participant(line) => within(
            line.conversation_id,
            Within::Participant(user(&line.username)?),
        ),
        Line::Message(line) => within(
            line.conversation_id,
            Within::Message(MessageId::parse(&line.id)?),
        ),
        Line::Reaction(line) => {
            let reaction = (Emoji::kept(&line.emoji), user(&line.username)?);
            within(
                line.conversation_id,
                Within::Reaction(MessageId::parse(&line.message_id)?, reaction),
            )
        }
        Line::End(_) => Position::End,
    })
}

impl Written {
    /// Whether there is anything of an earlier run.
    pub fn is_begun(&self) -> bool {
        self.counts != ExportCounts::default()
    }
}
