//! Operating system's view of this process: CPU time, memory, open files, and the mode of new files.

use std::fs;

use rustix::fs::Mode;
use rustix::process::umask;
use rustix::time::{ClockId, clock_gettime};

use crate::clock::{Clock as _, SystemClock};
use crate::metrics::{Metrics, gauge_of};

/// Makes every new file and folder private to its user (umask 077): they hold messages and keys.
pub(super) fn make_private_files() {
    umask(Mode::RWXG | Mode::RWXO);
}

pub(super) fn register(metrics: &Metrics) {
    let version = env!("CARGO_PKG_VERSION");
    metrics.add(gauge_of(
        "wideroom_build_info",
        "Version of the running program: always 1.",
        ("version", version),
        1,
    ));
    let started = SystemClock.now().micros() as f64 / 1e6;
    metrics.read(
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970.",
        move || started,
    );
    metrics.read_counter(
        "process_cpu_seconds_total",
        "CPU time of the process, user and system.",
        cpu_seconds,
    );
    metrics.read(
        "process_resident_memory_bytes",
        "Resident memory of the process.",
        || resident_bytes().unwrap_or(0.0),
    );
    metrics.read(
        "process_open_fds",
        "Open files and sockets of the process.",
        || open_files().unwrap_or(0.0),
    );
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory; `None` on a system without /proc.
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
