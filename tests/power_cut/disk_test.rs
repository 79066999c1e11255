//! Tests of the disk model: promises of POSIX, and what it leaves open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::disk::{Disk, NodeId};
use super::file::{BLOCK, Odds, SECTOR};
use crate::binary::Dice;

const CUTS: u64 = 300;

fn disk() -> Disk {
    Disk::new(Path::new("/disk"))
}

fn create(disk: &mut Disk, path: &str) -> NodeId {
    let place = disk.place(Path::new(path)).unwrap();
    disk.create(place, false)
}

fn sync(disk: &mut Disk, node: NodeId) {
    let ticket = disk.begin_sync(node);
    disk.end_sync(ticket);
}

fn sync_root(disk: &mut Disk) {
    let root = disk.find(Path::new("/disk")).unwrap();
    sync(disk, root);
}

fn rename(disk: &mut Disk, from: &str, to: &str) {
    let place = |path| disk.place(Path::new(path)).unwrap();
    let (from, to) = (place(from), place(to));
    disk.rename(from, to);
}

/// Contents of a file over many cuts with all odds. `None`: the file is not there.
fn outcomes(disk: &Disk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..CUTS)
        .map(|seed| {
            let mut dice = Dice::seeded(seed);
            let image = disk.cut(*dice.pick(&Odds::ALL), &mut dice);
            image
                .files
                .get(Path::new(path))
                .map(|content| content.bytes())
        })
        .collect()
}

#[test]
fn a_new_file_needs_a_sync_of_itself_and_of_its_folder() {
    let mut disk = disk();
    let file = create(&mut disk, "/disk/a");
    disk.write(file, 0, b"text".to_vec());
    let zeros = Some(vec![0; 4]);
    let all = BTreeSet::from([None, Some(vec![]), zeros, Some(b"text".to_vec())]);
    assert_eq!(outcomes(&disk, "a"), all);
    sync(&mut disk, file);
    let either = BTreeSet::from([None, Some(b"text".to_vec())]);
    assert_eq!(outcomes(&disk, "a"), either);
    sync_root(&mut disk);
    let there = BTreeSet::from([Some(b"text".to_vec())]);
    assert_eq!(outcomes(&disk, "a"), there);
}

#[test]
fn a_sync_covers_what_was_done_before_its_beginning_and_only_once_it_ends() {
    let mut disk = disk();
    let file = create(&mut disk, "/disk/a");
    sync_root(&mut disk);
    disk.write(file, 0, b"1".to_vec());
    let ticket = disk.begin_sync(file);
    disk.write(file, 1, b"2".to_vec());
    assert!(outcomes(&disk, "a").contains(&Some(vec![])));
    disk.end_sync(ticket);
    let lens: BTreeSet<_> = outcomes(&disk, "a")
        .into_iter()
        .map(|bytes| bytes.unwrap().len())
        .collect();
    assert_eq!(lens, BTreeSet::from([1, 2]));
    assert!(
        outcomes(&disk, "a")
            .iter()
            .flatten()
            .all(|bytes| bytes[0] == b'1')
    );
}

#[test]
fn pending_blocks_are_lost_reordered_and_torn_by_sector() {
    let mut disk = disk();
    let file = create(&mut disk, "/disk/a");
    disk.write(file, 0, vec![1; 2 * BLOCK]);
    sync(&mut disk, file);
    sync_root(&mut disk);
    disk.write(file, 0, vec![2; 2 * BLOCK]);
    let mut is_reordered = false;
    let mut is_torn = false;
    for bytes in outcomes(&disk, "a").into_iter().flatten() {
        assert_eq!(bytes.len(), 2 * BLOCK);
        let sectors: Vec<_> = bytes.chunks(SECTOR).collect();
        for sector in &sectors {
            assert!(
                [[1; SECTOR], [2; SECTOR]]
                    .iter()
                    .any(|whole| sector == whole)
            );
        }
        is_reordered |= bytes[..BLOCK] == [1; BLOCK] && bytes[BLOCK..] == [2; BLOCK];
        is_torn |= bytes[..SECTOR] == [1; SECTOR] && bytes[SECTOR..BLOCK] == [2; BLOCK - SECTOR];
    }
    assert!(
        is_reordered,
        "a later block is there without an earlier one"
    );
    let torn = outcomes(&disk, "a").into_iter().flatten();
    is_torn |= torn.into_iter().any(|bytes| {
        let first = &bytes[..BLOCK];
        first.contains(&1) && first.contains(&2)
    });
    assert!(is_torn, "a block is half there");
}

#[test]
fn a_pending_truncation_may_be_lost_and_a_synced_one_is_not() {
    let mut disk = disk();
    let file = create(&mut disk, "/disk/a");
    disk.write(file, 0, vec![7; 3 * BLOCK]);
    sync(&mut disk, file);
    sync_root(&mut disk);
    disk.set_len(file, 10);
    let lens: BTreeSet<_> = outcomes(&disk, "a")
        .into_iter()
        .map(|bytes| bytes.unwrap().len())
        .collect();
    assert_eq!(lens, BTreeSet::from([10, 3 * BLOCK]));
    sync(&mut disk, file);
    disk.set_len(file, 20);
    sync(&mut disk, file);
    let mut expected = vec![7; 10];
    expected.resize(20, 0);
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(expected)]));
}

#[test]
fn a_rename_is_atomic_and_may_be_lost() {
    let mut disk = disk();
    for (path, text) in [("/disk/current", "old"), ("/disk/new", "new")] {
        let file = create(&mut disk, path);
        disk.write(file, 0, text.into());
        sync(&mut disk, file);
    }
    sync_root(&mut disk);
    rename(&mut disk, "/disk/new", "/disk/current");
    let either = BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]);
    assert_eq!(outcomes(&disk, "current"), either);
    for seed in 0..CUTS {
        let image = disk.cut(Odds { kept: 50, lost: 50 }, &mut Dice::seeded(seed));
        let is_old = image.files[Path::new("current")].bytes() == b"old";
        assert_eq!(is_old, image.files.contains_key(Path::new("new")));
    }
    sync_root(&mut disk);
    let renamed = BTreeSet::from([Some(b"new".to_vec())]);
    assert_eq!(outcomes(&disk, "current"), renamed);
}

#[test]
fn later_changes_of_an_entry_do_not_survive_earlier_ones() {
    let mut disk = disk();
    create(&mut disk, "/disk/a");
    rename(&mut disk, "/disk/a", "/disk/b");
    rename(&mut disk, "/disk/b", "/disk/c");
    for seed in 0..CUTS {
        let image = disk.cut(Odds { kept: 50, lost: 50 }, &mut Dice::seeded(seed));
        assert!(image.files.len() <= 1, "one file has one name");
    }
    let place = disk.place(Path::new("/disk/c")).unwrap();
    disk.unlink(place);
    sync_root(&mut disk);
    assert_eq!(outcomes(&disk, "c"), BTreeSet::from([None]));
}

#[test]
fn a_disk_that_ignores_syncs_loses_what_was_synced() {
    let mut disk = disk();
    disk.ignores_syncs = true;
    let file = create(&mut disk, "/disk/a");
    disk.write(file, 0, b"text".to_vec());
    sync(&mut disk, file);
    sync_root(&mut disk);
    assert!(outcomes(&disk, "a").contains(&None));
}

#[test]
fn an_image_is_written_and_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(folder.path());
    let place = disk.place(&folder.path().join("sub")).unwrap();
    disk.create(place, true);
    let place = disk.place(&folder.path().join("sub/../sub/a")).unwrap();
    let file = disk.create(place, false);
    disk.set_len(file, 10 * BLOCK as u64);
    disk.write(file, 5_000, vec![3; 6_000]);
    disk.view().write_to(folder.path());
    let loaded = Disk::load(folder.path());
    assert!(disk.view().differences(&loaded.view()).is_empty());
    disk.write(file, 1, vec![9]);
    let other = BTreeSet::from([PathBuf::from("sub/a")]);
    assert_eq!(disk.view().differences(&loaded.view()), other);
}
