//! This process to the system: its time on the processor, its memory, its files, and the mode of the files it makes.

use std::fs;

use rustix::fs::Mode;
use rustix::process::umask;
use rustix::time::{ClockId, clock_gettime};

use crate::metrics::Metrics;

/// Every file and folder that the program makes from now on is its user's alone: they hold messages and keys.
pub(super) fn make_private_files() {
    umask(Mode::RWXG | Mode::RWXO);
}

pub(super) fn register(metrics: &Metrics) {
    metrics.read_counter(
        "process_cpu_seconds_total",
        "Time on the processor, of user and system.",
        cpu_seconds,
    );
    metrics.read(
        "process_resident_memory_bytes",
        "Memory that is in use.",
        || resident_bytes().unwrap_or(0.0),
    );
    metrics.read(
        "process_open_fds",
        "Files and sockets that are open.",
        || open_files().unwrap_or(0.0),
    );
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `None` on a system that keeps it elsewhere.
fn resident_bytes() -> Option<f64> {
    let pages: f64 = fs::read_to_string("/proc/self/statm")
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(pages * rustix::param::page_size() as f64)
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}
