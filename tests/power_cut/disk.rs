//! Model of a disk under a power cut: durable and pending entries of its folders, and its files.
//!
//! A write or a truncation is pending until a sync of its file ends that began after it. An entry
//! of a folder is pending until such a sync of the folder. The model is stricter than any one file
//! system: like POSIX it promises no order among pending changes. It does promise that a rename is
//! atomic, that a sector is written whole, and that a block holds only bytes written there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::file::{Content, FileState, Odds};
use crate::binary::Dice;

/// Index of a file or folder, never reused.
pub(super) type NodeId = usize;
const ROOT: NodeId = 0;

/// Folder and name of an entry.
type Place = (NodeId, String);
type Entries = BTreeMap<Place, NodeId>;

/// Atomic change of folder entries: one, or the two of a rename.
#[derive(Clone)]
struct EntryChange {
    number: usize,
    /// `None` removes the entry.
    edits: Vec<(Place, Option<NodeId>)>,
}

impl EntryChange {
    fn apply(&self, entries: &mut Entries) {
        for (place, node) in &self.edits {
            match node {
                Some(node) => entries.insert(place.clone(), *node),
                None => entries.remove(place),
            };
        }
    }
}

/// Beginning of a sync. Its end makes durable what was done before its beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyncStart {
    node: NodeId,
    changes: usize,
}

#[derive(Clone)]
pub(super) struct Disk {
    /// Folder of the real system that stands for the root of the model.
    pub(super) base: PathBuf,
    /// `None` is a folder.
    nodes: Vec<Option<FileState>>,
    cached: Entries,
    durable: Entries,
    pending: Vec<EntryChange>,
    entry_changes: usize,
    /// Fault injection: a disk that acknowledges syncs and does nothing.
    pub(super) ignores_syncs: bool,
}

impl Disk {
    /// An empty disk, mounted at a folder.
    pub(super) fn new(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
            nodes: vec![None],
            cached: Entries::new(),
            durable: Entries::new(),
            pending: Vec::new(),
            entry_changes: 0,
            ignores_syncs: false,
        }
    }

    /// The content of a real folder, all of it durable.
    pub(super) fn load(base: &Path) -> Self {
        let mut disk = Self::new(base);
        disk.load_folder(base, ROOT);
        disk.durable = disk.cached.clone();
        disk.pending.clear();
        disk
    }

    fn load_folder(&mut self, path: &Path, folder: NodeId) {
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let is_folder = entry.file_type().unwrap().is_dir();
            let node = self.create((folder, name), is_folder);
            match &mut self.nodes[node] {
                None => self.load_folder(&entry.path(), node),
                Some(file) => {
                    file.cached = Content::load(&entry.path());
                    file.durable = file.cached.clone();
                }
            }
        }
    }

    /// Folder and name of a path; `None` outside of this disk.
    pub(super) fn place(&self, path: &Path) -> Option<Place> {
        let path = without_dots(path);
        let inside = path.strip_prefix(&self.base).ok()?;
        let name = inside.file_name()?.to_str().unwrap().to_owned();
        Some((self.find(&self.base.join(inside.parent()?))?, name))
    }

    pub(super) fn find(&self, path: &Path) -> Option<NodeId> {
        let path = without_dots(path);
        let inside = path.strip_prefix(&self.base).ok()?;
        inside.iter().try_fold(ROOT, |folder, name| {
            self.entry(&(folder, name.to_str().unwrap().to_owned()))
        })
    }

    /// Path of a file or folder below the root. `None`: it is deleted.
    pub(super) fn path(&self, node: NodeId) -> Option<PathBuf> {
        let (mut names, mut node) = (Vec::new(), node);
        while node != ROOT {
            let entry = self.cached.iter().find(|(_, named)| **named == node)?;
            let ((folder, name), _) = entry;
            names.push(name);
            node = *folder;
        }
        Some(names.into_iter().rev().collect())
    }

    pub(super) fn entry(&self, place: &Place) -> Option<NodeId> {
        self.cached.get(place).copied()
    }

    pub(super) fn is_folder(&self, node: NodeId) -> bool {
        self.nodes[node].is_none()
    }

    pub(super) fn len(&self, node: NodeId) -> u64 {
        self.nodes[node].as_ref().unwrap().len()
    }

    pub(super) fn create(&mut self, place: Place, is_folder: bool) -> NodeId {
        self.nodes.push((!is_folder).then(FileState::default));
        let node = self.nodes.len() - 1;
        self.link(place, node);
        node
    }

    pub(super) fn link(&mut self, place: Place, node: NodeId) {
        self.change_entries(vec![(place, Some(node))]);
    }

    pub(super) fn unlink(&mut self, place: Place) {
        self.change_entries(vec![(place, None)]);
    }

    pub(super) fn rename(&mut self, from: Place, to: Place) {
        let node = self.entry(&from).unwrap();
        self.change_entries(vec![(from, None), (to, Some(node))]);
    }

    fn change_entries(&mut self, edits: Vec<(Place, Option<NodeId>)>) {
        let number = self.entry_changes;
        self.entry_changes += 1;
        let change = EntryChange { number, edits };
        change.apply(&mut self.cached);
        self.pending.push(change);
    }

    pub(super) fn write(&mut self, node: NodeId, offset: u64, data: Vec<u8>) {
        self.file(node).write(offset, data);
    }

    pub(super) fn set_len(&mut self, node: NodeId, len: u64) {
        self.file(node).set_len(len);
    }

    fn file(&mut self, node: NodeId) -> &mut FileState {
        self.nodes[node].as_mut().expect("it is a file")
    }

    pub(super) fn begin_sync(&self, node: NodeId) -> SyncStart {
        let changes = match &self.nodes[node] {
            Some(file) => file.changes(),
            None => self.entry_changes,
        };
        SyncStart { node, changes }
    }

    pub(super) fn end_sync(&mut self, SyncStart { node, changes }: SyncStart) {
        if self.ignores_syncs {
            return;
        }
        match &mut self.nodes[node] {
            Some(file) => file.sync(changes),
            None => self.sync_folder(node, changes),
        }
    }

    fn sync_folder(&mut self, folder: NodeId, changes: usize) {
        let is_synced = |change: &EntryChange| {
            let mut places = change.edits.iter().map(|(place, _)| place);
            change.number < changes && places.any(|(of, _)| *of == folder)
        };
        let chosen = self.pending.iter().map(is_synced).collect();
        let chosen = self.with_earlier(chosen);
        let mut chosen = chosen.into_iter();
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            let is_synced = chosen.next().unwrap();
            if is_synced {
                change.apply(durable);
            }
            !is_synced
        });
    }

    /// Adds the earlier pending changes of the same entries: the later ones build on them.
    fn with_earlier(&self, mut chosen: Vec<bool>) -> Vec<bool> {
        let mut places: BTreeSet<&Place> = BTreeSet::new();
        for (index, change) in self.pending.iter().enumerate().rev() {
            chosen[index] |= change.edits.iter().any(|(place, _)| places.contains(place));
            if chosen[index] {
                places.extend(change.edits.iter().map(|(place, _)| place));
            }
        }
        chosen
    }

    /// Content of the disk after a power cut at this moment.
    pub(super) fn cut(&self, odds: Odds, dice: &mut Dice) -> Image {
        let chosen = self
            .pending
            .iter()
            .map(|_| *odds.version(&[false, true], dice));
        let chosen = self.with_earlier(chosen.collect());
        let mut entries = self.durable.clone();
        for (change, _) in self
            .pending
            .iter()
            .zip(chosen)
            .filter(|(_, is_kept)| *is_kept)
        {
            change.apply(&mut entries);
        }
        self.image(&entries, |file| file.cut(odds, dice))
    }

    /// Content that a running program sees.
    pub(super) fn view(&self) -> Image {
        self.image(&self.cached, |file| file.cached.clone())
    }

    fn image(&self, entries: &Entries, mut content: impl FnMut(&FileState) -> Content) -> Image {
        let mut image = Image::default();
        let mut folders = vec![(ROOT, PathBuf::new())];
        while let Some((folder, path)) = folders.pop() {
            let from = (folder, String::new());
            let here = entries
                .range(from..)
                .take_while(|((of, _), _)| *of == folder);
            for ((_, name), node) in here {
                let path = path.join(name);
                match &self.nodes[*node] {
                    Some(file) => {
                        image.files.insert(path, content(file));
                    }
                    None => {
                        image.folders.insert(path.clone());
                        folders.push((*node, path));
                    }
                }
            }
        }
        image
    }
}

/// Resolves `.` and `..` in an absolute path. There are no symbolic links in a data folder.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                plain.push(component);
            }
        }
    }
    plain
}

/// Folders and files, by their path below the root.
#[derive(Default, PartialEq)]
pub(super) struct Image {
    folders: BTreeSet<PathBuf>,
    pub(super) files: BTreeMap<PathBuf, Content>,
}

impl Image {
    pub(super) fn write_to(&self, base: &Path) {
        for folder in &self.folders {
            fs::create_dir(base.join(folder)).unwrap();
        }
        for (path, content) in &self.files {
            content.write_to(&base.join(path));
        }
    }

    /// Names the paths in which two images differ.
    pub(super) fn differences(&self, other: &Self) -> BTreeSet<PathBuf> {
        let files = self.files.keys().chain(other.files.keys());
        let files = files.filter(|path| self.files.get(*path) != other.files.get(*path));
        let folders = self.folders.symmetric_difference(&other.folders);
        files.chain(folders).cloned().collect()
    }
}
