//! Clock of a node that can be set while it runs: a small library before its process, which `cc`
//! makes.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("clock.c");

#[derive(Debug)]
pub(crate) struct NodeClock {
    library: PathBuf,
    /// Microseconds ahead of the real time. The process has it in its memory.
    file: PathBuf,
}

impl NodeClock {
    /// A right clock, with files in this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let (source, clock) = (
            folder.join("clock.c"),
            Self {
                library: folder.join("clock.so"),
                file: folder.join("clock"),
            },
        );
        std::fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&clock.library)
            .arg(&source)
            .arg("-ldl");
        assert!(compiler.status().unwrap().success(), "cc makes a library");
        std::fs::write(&clock.file, [0; 8]).unwrap();
        clock
    }

    pub(crate) fn put_before(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("CLOCK_AHEAD_FILE", &self.file);
    }

    /// In place, as the process has mapped the file.
    pub(crate) fn set(&self, seconds_ahead: i64) {
        let mut file = File::options().write(true).open(&self.file).unwrap();
        let micros = seconds_ahead * 1_000_000;
        file.write_all(&micros.to_ne_bytes()).unwrap();
    }
}
