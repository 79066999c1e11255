//! Replay of a trace: applies its system calls to the model of the disk, and notes the
//! acknowledgements.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::disk::{Disk, NodeId, SyncStart};
use super::trace::{Call, Step, Trace, find};

/// Prefix of the name that a response has for its request: `ack_TASK_NUMBER`.
pub(super) const ACK: &str = "ack_";

/// Number of acknowledged requests of each task, which waits for each answer before it goes on.
pub(super) type Acks = HashMap<usize, usize>;

/// Open file description. Descriptors share it after a `dup`.
#[derive(Debug, Clone, Copy)]
enum Open {
    Socket,
    Folder(NodeId),
    File {
        node: NodeId,
        offset: u64,
        is_append: bool,
    },
}

pub(super) struct Replay<'a> {
    trace: &'a Trace,
    /// Steps that are done.
    done: usize,
    pub(super) disk: Disk,
    pub(super) acks: Acks,
    /// Files of calls without an end, below the root. The kernel stopped their threads as the process ended: it may
    /// have done such a call, a part of it or nothing.
    pub(super) unended: BTreeSet<PathBuf>,
    opens: Vec<Open>,
    descriptors: HashMap<i64, usize>,
    /// Running syncs by the index of their call.
    syncs: HashMap<usize, SyncStart>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(trace: &'a Trace, disk: Disk, acks: Acks) -> Self {
        Self {
            trace,
            done: 0,
            disk,
            acks,
            unended: BTreeSet::new(),
            opens: Vec::new(),
            descriptors: HashMap::new(),
            syncs: HashMap::new(),
        }
    }

    /// Applies all steps before this one.
    pub(super) fn advance(&mut self, step: usize) {
        let trace = self.trace;
        for step in &trace.steps[self.done..step] {
            match *step {
                Step::Begin(call) => self.begin(call, &trace.calls[call]),
                Step::End(call) => {
                    let succeeded = |result: &i64| *result >= 0;
                    if let Some(result) = trace.calls[call].result.filter(succeeded) {
                        self.end(call, &trace.calls[call], result);
                    }
                }
            }
        }
        self.done = self.done.max(step);
    }

    /// A sync covers changes before its beginning; a response may arrive from its beginning on.
    fn begin(&mut self, index: usize, call: &Call) {
        if call.result.is_none() {
            self.note_unended(call);
        }
        match call.name.as_str() {
            // Another thread may get the same descriptor before the close has ended.
            "close" => {
                self.descriptors.remove(&descriptor(call, 0));
            }
            "fsync" | "fdatasync" => match self.open(call, 0) {
                Some(Open::File { node, .. } | Open::Folder(node)) => {
                    self.syncs.insert(index, self.disk.begin_sync(node));
                }
                Some(Open::Socket) | None => {}
            },
            "write" | "writev" | "sendto" | "sendmsg" => {
                if let Some(Open::Socket) = self.open(call, 0) {
                    self.note_acks(&call.arguments[1].bytes);
                }
            }
            _ => {}
        }
    }

    fn note_unended(&mut self, call: &Call) {
        match call.name.as_str() {
            "write" | "writev" | "pwrite64" | "ftruncate" => {
                if let Some(Open::File { node, .. }) = self.open(call, 0) {
                    self.unended.extend(self.disk.path(node));
                }
            }
            "sendto" | "sendmsg" => {}
            _ => {
                let named =
                    (0..call.arguments.len()).filter(|at| !call.arguments[*at].bytes.is_empty());
                for at in named {
                    let path = self.path(call, at);
                    let inside = path.strip_prefix(&self.disk.base);
                    self.unended.extend(inside.map(Path::to_owned));
                }
            }
        }
    }

    fn note_acks(&mut self, response: &[u8]) {
        let mut rest = response;
        while let Some(at) = find(rest, ACK.as_bytes()) {
            rest = &rest[at + ACK.len()..];
            let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
            let end = rest.iter().position(|byte| !is_part(byte)).unwrap();
            let text = std::str::from_utf8(&rest[..end]).unwrap();
            let (task, number) = text.split_once('_').unwrap();
            let count = number.parse::<usize>().unwrap() + 1;
            let before = self.acks.insert(task.parse().unwrap(), count);
            assert_eq!(
                before.unwrap_or_default() + 1,
                count,
                "acknowledged in order"
            );
        }
    }

    fn end(&mut self, index: usize, call: &Call, result: i64) {
        match call.name.as_str() {
            "fsync" | "fdatasync" => {
                if let Some(ticket) = self.syncs.remove(&index) {
                    self.disk.end_sync(ticket);
                }
            }
            "openat" | "open" => self.opened(call, result),
            "socket" | "accept" | "accept4" => self.add(result, Open::Socket),
            "dup" | "dup2" | "dup3" => self.duplicated(call, result),
            "fcntl" if call.arguments[1].word.starts_with("F_DUPFD") => {
                self.duplicated(call, result)
            }
            "close" | "fcntl" => {}
            "lseek" => self.sought(call, result),
            "write" | "writev" | "pwrite64" | "sendto" | "sendmsg" => self.written(call, result),
            "ftruncate" => {
                if let Some(Open::File { node, .. }) = self.open(call, 0) {
                    self.disk
                        .set_len(node, call.arguments[1].word.parse().unwrap());
                }
            }
            "mmap" => {
                let (protection, flags) = (&call.arguments[2].word, &call.arguments[3].word);
                let is_ours = self.is_on_disk(descriptor(call, 4));
                let writes = protection.contains("PROT_WRITE") && flags.contains("MAP_SHARED");
                assert!(!(is_ours && writes), "the replay does not follow {call:?}");
            }
            _ => self.changed_entries(call),
        }
    }

    fn changed_entries(&mut self, call: &Call) {
        let paths: Vec<_> = (0..call.arguments.len())
            .filter(|at| !call.arguments[*at].bytes.is_empty())
            .map(|at| self.path(call, at))
            .collect();
        let places: Vec<_> = paths.iter().map(|path| self.disk.place(path)).collect();
        match (call.name.as_str(), places.as_slice()) {
            ("mkdir" | "mkdirat", [Some(place)]) => {
                self.disk.create(place.clone(), true);
            }
            ("unlink" | "unlinkat" | "rmdir", [Some(place)]) => self.disk.unlink(place.clone()),
            ("rename" | "renameat" | "renameat2", [Some(from), Some(to)]) => {
                self.disk.rename(from.clone(), to.clone());
            }
            ("link" | "linkat", [Some(from), Some(to)]) => {
                let node = self.disk.entry(from).unwrap();
                self.disk.link(to.clone(), node);
            }
            (_, places) => {
                let is_ours = places.iter().any(Option::is_some)
                    || (0..call.arguments.len()).any(|at| self.is_on_disk(descriptor(call, at)));
                assert!(!is_ours, "the replay does not follow {call:?}");
            }
        }
    }

    fn opened(&mut self, call: &Call, result: i64) {
        let at = usize::from(call.name == "openat");
        let path = self.path(call, at);
        let flags: Vec<_> = call.arguments[at + 1].word.split('|').collect();
        let has = |flag| flags.contains(&flag);
        let node = self.disk.find(&path).or_else(|| {
            let place = self.disk.place(&path).filter(|_| has("O_CREAT"))?;
            Some(self.disk.create(place, false))
        });
        // The descriptor is a new one: an old entry of its number is stale.
        self.descriptors.remove(&result);
        let Some(node) = node else { return };
        if self.disk.is_folder(node) {
            return self.add(result, Open::Folder(node));
        }
        if has("O_TRUNC") && self.disk.len(node) > 0 {
            self.disk.set_len(node, 0);
        }
        let is_append = has("O_APPEND");
        let offset = 0;
        self.add(
            result,
            Open::File {
                node,
                offset,
                is_append,
            },
        );
    }

    fn duplicated(&mut self, call: &Call, result: i64) {
        if let Some(open) = self.descriptors.get(&descriptor(call, 0)) {
            self.descriptors.insert(result, *open);
        }
    }

    fn sought(&mut self, call: &Call, result: i64) {
        if let Some(Open::File { offset, .. }) = self.open_mut(call) {
            *offset = u64::try_from(result).unwrap();
        }
    }

    fn written(&mut self, call: &Call, result: i64) {
        let Some(Open::File {
            node,
            offset,
            is_append,
        }) = self.open(call, 0)
        else {
            return;
        };
        let count = usize::try_from(result).unwrap();
        let data = call.arguments[1].bytes[..count].to_vec();
        if call.name == "pwrite64" {
            let offset = call.arguments[3].word.parse().unwrap();
            return self.disk.write(node, offset, data);
        }
        let from = if is_append {
            self.disk.len(node)
        } else {
            offset
        };
        self.disk.write(node, from, data);
        if let Some(Open::File { offset, .. }) = self.open_mut(call) {
            *offset = from + count as u64;
        }
    }

    /// Path of an argument. The process works in the folder that the disk is mounted at.
    fn path(&self, call: &Call, at: usize) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(&call.arguments[at].bytes));
        let is_below_folder = at > 0 && self.is_on_disk(descriptor(call, at - 1));
        assert!(
            path.is_absolute() || !is_below_folder,
            "the replay does not follow {call:?}"
        );
        self.disk.base.join(path)
    }

    fn add(&mut self, descriptor: i64, open: Open) {
        self.opens.push(open);
        self.descriptors.insert(descriptor, self.opens.len() - 1);
    }

    fn open(&self, call: &Call, at: usize) -> Option<Open> {
        let open = self.descriptors.get(&descriptor(call, at))?;
        Some(self.opens[*open])
    }

    fn open_mut(&mut self, call: &Call) -> Option<&mut Open> {
        let open = self.descriptors.get(&descriptor(call, 0))?;
        Some(&mut self.opens[*open])
    }

    fn is_on_disk(&self, descriptor: i64) -> bool {
        let open = self.descriptors.get(&descriptor);
        open.is_some_and(|open| !matches!(self.opens[*open], Open::Socket))
    }
}

/// Descriptor in an argument, or -1.
fn descriptor(call: &Call, at: usize) -> i64 {
    let argument = call.arguments.get(at);
    argument.map_or(-1, |argument| argument.word.parse().unwrap_or(-1))
}

#[test]
fn calls_that_the_end_of_the_process_stopped_name_their_files() {
    // They write `/d/a` and delete `/d/b`; `/d/c` is not there.
    let lines = [
        r#"7 openat(AT_FDCWD, "\x2f\x64\x2f\x61", O_RDWR|O_CREAT, 0600) = 3"#,
        r#"7 unlink("\x2f\x64\x2f\x63")            = -1 ENOENT (No such file or directory)"#,
        r#"7 write(3, "\x61", 1 <unfinished ...>"#,
        r#"8 unlink("\x2f\x64\x2f\x62")            = ?"#,
    ];
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    std::fs::write(&calls, lines.join("\n") + "\n").unwrap();
    let trace = Trace::read(&calls);
    let mut replay = Replay::new(&trace, Disk::new(Path::new("/d")), Acks::new());
    replay.advance(2);
    assert!(replay.unended.is_empty());
    replay.advance(trace.steps.len());
    let unended: Vec<_> = replay.unended.iter().map(|path| path.to_str()).collect();
    assert_eq!(unended, [Some("a"), Some("b")]);
}
