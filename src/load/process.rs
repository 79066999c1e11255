//! What the system says of the server's process, where it is on this machine: its time on the processor, and its memory.

use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use super::failure::Error;

/// A process of another program.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    id: u32,
}

/// What it has spent and has, at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Of the threads that live, exactly.
    living_micros: f64,
    /// Of all threads, those that have ended too, in the system's ticks.
    rounded_micros: f64,
    pub(super) resident_bytes: u64,
}

impl Process {
    /// Must be there, and on a system that tells.
    pub fn new(id: u32) -> Result<Self, Error> {
        let process = Self { id };
        match process.sample() {
            Some(_) => Ok(process),
            None if fs::exists("/proc/self/stat").unwrap_or(false) => Err(Error::Pid(format!("there is no process {id} here"))),
            None => Err(Error::Pid("it takes a Linux, whose /proc tells what a process spends".to_owned())),
        }
    }

    /// `None` once it is gone.
    pub(super) fn sample(&self) -> Option<Sample> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        // What stands before is the name, in which anything may be.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        let pages: u64 = fields.get(21)?.parse().ok()?;
        Some(Sample {
            living_micros: self.living_micros().unwrap_or(0.0),
            rounded_micros: ticks * tick_micros(),
            resident_bytes: pages * rustix::param::page_size() as u64,
        })
    }

    fn living_micros(&self) -> Option<f64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id)).ok()?;
        let spent = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<f64>().ok();
        Some(tasks.flatten().filter_map(spent).sum::<f64>() / 1e3)
    }
}

/// Looks at the time, and at the server's process where that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    process: Option<Process>,
    began: Instant,
    before: Option<Sample>,
}

/// What a load took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub(super) elapsed: Duration,
    /// Of the server, where it is known.
    pub(super) cpu_micros: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
}

impl Watch {
    pub(super) fn begin(process: Option<Process>) -> Self {
        Self { process, began: Instant::now(), before: process.as_ref().and_then(Process::sample) }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Until now.
    pub(super) fn spent(&self) -> Spent {
        let (elapsed, now) = (self.began.elapsed(), self.process.as_ref().and_then(Process::sample));
        let cpu_micros = self.before.zip(now).map(|(before, now)| now.cpu_micros_since(&before));
        Spent { elapsed, cpu_micros, resident_bytes: now.map(|now| now.resident_bytes) }
    }
}

impl Sample {
    /// On the processor, since an earlier sample. Where the two counts are further apart than rounding takes them, or one has gone back,
    /// threads have ended.
    fn cpu_micros_since(&self, earlier: &Self) -> f64 {
        let (living, rounded) = (self.living_micros - earlier.living_micros, self.rounded_micros - earlier.rounded_micros);
        if living < 0.0 || rounded - living > 2.0 * tick_micros() { rounded } else { living }
    }
}

fn tick_micros() -> f64 {
    1e6 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_spends_time() {
        let Ok(process) = Process::new(std::process::id()) else { return };
        let before = process.sample().unwrap();
        let start = Instant::now();
        let mut after = before;
        while after.cpu_micros_since(&before) < 10_000.0 {
            assert!(start.elapsed() < Duration::from_secs(30), "{before:?} {after:?}");
            after = process.sample().unwrap();
        }
        assert!(after.resident_bytes > 100_000, "{after:?}");
    }

    #[test]
    fn time_does_not_go_back_where_a_thread_has_ended() {
        let before = Sample { living_micros: 9_000.0, rounded_micros: 10_000.0, resident_bytes: 0 };
        let after = Sample { living_micros: 2_000.0, ..before };
        assert!(after.cpu_micros_since(&before) >= 0.0);
    }

    #[test]
    fn who_is_not_there_is_not_measured() {
        assert!(matches!(Process::new(u32::MAX), Err(Error::Pid(_))));
    }
}
