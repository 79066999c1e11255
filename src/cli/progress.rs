//! Progress of a long command on stderr: a bar on a terminal, else a line every few seconds.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Interval of the lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Shorter commands show no progress bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
const DRAWS_A_SECOND: u8 = 10;

pub(super) struct Reporter {
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
    is_shown: bool,
}

impl Reporter {
    /// Progress towards a length, if it is known. The template is for the bar.
    pub(super) fn new(length: Option<u64>, template: &str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
            bar.with_style(
                ProgressStyle::with_template(template).expect("the templates are well-formed"),
            )
        });
        Self {
            bar,
            started: Instant::now(),
            last_line: Instant::now(),
            is_shown: false,
        }
    }

    /// Rate of a count, per second, as text.
    pub(super) fn rate(&self, count: u64) -> String {
        format!(
            "{:.0}",
            count as f64 / self.started.elapsed().as_secs_f64().max(0.001)
        )
    }

    /// Shows a position: on the bar with a short message, or as a line.
    pub(super) fn progress(&mut self, position: u64, beside_bar: &str, line: &str) {
        if let Some(bar) = &self.bar {
            if !self.is_shown && self.started.elapsed() >= BAR_AFTER {
                self.is_shown = true;
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND));
            }
            bar.set_position(position);
            bar.set_message(beside_bar.to_owned());
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            self.line(&format!("wideroom: {line}"));
        }
    }

    pub(super) fn line(&self, text: &str) {
        let write = || {
            let _ = writeln!(io::stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
