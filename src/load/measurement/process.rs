//! CPU time and resident memory of the server's process, read from `/proc` if the server runs on this machine.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use crate::load::failure::Error;

#[derive(Debug, Clone, Copy)]
pub struct Process {
    id: u32,
}

/// Resources of a process at one moment.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSample {
    /// CPU time of each running thread in nanoseconds, exact.
    running_threads: HashMap<OsString, u64>,
    /// CPU time of all threads, ended ones included, rounded to clock ticks.
    all_threads_micros: f64,
    pub(crate) resident_bytes: u64,
}

impl Process {
    /// Fails if the process does not exist, or if this system has no `/proc`.
    pub fn new(id: u32) -> Result<Self, Error> {
        let process = Self { id };
        match process.sample() {
            Some(_) => Ok(process),
            None if fs::exists("/proc/self/stat").unwrap_or(false) => Err(Error::Pid(format!(
                "process {id} does not exist on this machine"
            ))),
            None => Err(Error::Pid(
                "measuring a process needs Linux with /proc; run the bench without --pid"
                    .to_owned(),
            )),
        }
    }

    /// `None` after the process has ended.
    pub(crate) fn sample(&self) -> Option<ProcessSample> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        // The name of the program precedes these fields in parentheses, and can contain spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        let pages: u64 = fields.get(21)?.parse().ok()?;
        Some(ProcessSample {
            running_threads: self.running_threads().unwrap_or_default(),
            all_threads_micros: ticks * tick_micros(),
            resident_bytes: pages * rustix::param::page_size() as u64,
        })
    }

    fn running_threads(&self) -> Option<HashMap<OsString, u64>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id)).ok()?;
        let spent = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((task.file_name(), stat.split(' ').next()?.parse().ok()?))
        };
        Some(tasks.flatten().filter_map(spent).collect())
    }
}

/// Measures the time and the server's resources from its start on.
#[derive(Debug, Clone)]
pub struct UsageMeter {
    process: Option<Process>,
    started_at: Instant,
    before: Option<ProcessSample>,
}

/// Time and resources that a load took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub elapsed: Duration,
    /// CPU time of the server. `None` without `--pid`.
    pub cpu_micros: Option<f64>,
    pub resident_bytes: Option<u64>,
}

impl UsageMeter {
    pub fn start(process: Option<Process>) -> Self {
        Self {
            process,
            started_at: Instant::now(),
            before: process.as_ref().and_then(Process::sample),
        }
    }

    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    pub fn usage(&self) -> Usage {
        let (elapsed, now) = (
            self.started_at.elapsed(),
            self.process.as_ref().and_then(Process::sample),
        );
        let cpu_micros = self
            .before
            .as_ref()
            .zip(now.as_ref())
            .map(|(before, now)| now.cpu_micros_since(before));
        Usage {
            elapsed,
            cpu_micros,
            resident_bytes: now.map(|now| now.resident_bytes),
        }
    }
}

impl Usage {
    /// Adds a later part of the same load.
    pub(crate) fn add(&mut self, later: Self) {
        let cpu_micros = later.cpu_micros;
        self.cpu_micros = cpu_micros.map(|micros| self.cpu_micros.unwrap_or(0.0) + micros);
        self.elapsed += later.elapsed;
        self.resident_bytes = later.resident_bytes;
    }
}

impl ProcessSample {
    /// CPU time since an earlier sample. The exact count misses threads that have ended: it then falls behind the rounded count by more
    /// than rounding explains. In that case the rounded count is used.
    fn cpu_micros_since(&self, earlier: &Self) -> f64 {
        let spent = |(thread, nanos): (&OsString, &u64)| {
            let earlier = earlier.running_threads.get(thread);
            nanos.saturating_sub(earlier.copied().unwrap_or(0))
        };
        let exact = self.running_threads.iter().map(spent).sum::<u64>() as f64 / 1e3;
        let rounded = self.all_threads_micros - earlier.all_threads_micros;
        if rounded - exact > 2.0 * tick_micros() {
            rounded
        } else {
            exact
        }
    }
}

fn tick_micros() -> f64 {
    1e6 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_spends_cpu_time() {
        let Ok(process) = Process::new(std::process::id()) else {
            return;
        };
        let before = process.sample().unwrap();
        let start = Instant::now();
        let mut after = before.clone();
        while after.cpu_micros_since(&before) < 10_000.0 {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{before:?} {after:?}"
            );
            after = process.sample().unwrap();
        }
        assert!(after.resident_bytes > 100_000, "{after:?}");
    }

    #[test]
    fn a_thread_that_ends_takes_no_cpu_time_of_others() {
        let sample = |threads: &[(&str, u64)]| ProcessSample {
            running_threads: threads
                .iter()
                .map(|(id, nanos)| (OsString::from(id), *nanos))
                .collect(),
            all_threads_micros: 10_000.0,
            resident_bytes: 0,
        };
        let before = sample(&[("1", 2_000_000), ("2", 7_000_000)]);
        let after = sample(&[("1", 3_000_000), ("3", 500_000)]);
        assert_eq!(after.cpu_micros_since(&before), 1_500.0);
    }

    #[test]
    fn a_process_that_does_not_exist_is_refused() {
        assert!(matches!(Process::new(u32::MAX), Err(Error::Pid(_))));
    }
}
