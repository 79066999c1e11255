//! Wrong clocks: libfaketime before a process, with an offset that may change while it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::cassandra::say;

/// Path of the library on Debian.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Clock of one process. Its monotonic clock stays right.
#[derive(Debug)]
pub(crate) struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// Whether clocks can be set here. In a landing they must.
    pub(crate) fn is_available() -> bool {
        let is_available = Path::new(LIBRARY).exists();
        if !is_available {
            assert!(
                std::env::var_os("CI").is_none(),
                "a landing sets clocks: install libfaketime"
            );
            say("no clock is set, because libfaketime is missing");
        }
        is_available
    }

    /// A right clock, whose offset lies in this file.
    pub(crate) fn new(file: PathBuf) -> Self {
        let clock = Self { file };
        clock.set("+0");
        clock
    }

    /// Seconds ahead, as `+60` or `-1.9`. The process sees them within a second.
    pub(crate) fn set(&self, offset: &str) {
        std::fs::write(&self.file, offset).unwrap();
    }

    /// The process of a command will have this clock, if clocks can be set here.
    pub(crate) fn put_before(&self, command: &mut Command) {
        if Path::new(LIBRARY).exists() {
            command
                .env("LD_PRELOAD", LIBRARY)
                .env("FAKETIME_TIMESTAMP_FILE", &self.file)
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        }
    }
}
