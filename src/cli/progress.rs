//! How far a long command is, on stderr: a bar on a terminal, else a line now and then.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines, where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Shorter commands show no progress bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
const DRAWS_A_SECOND: u8 = 10;

pub(super) struct Reporter {
    bar: Option<ProgressBar>,
    began: Instant,
    told: Instant,
    is_shown: bool,
}

impl Reporter {
    /// Towards so much, where that is known. The template is the bar's.
    pub(super) fn new(length: Option<u64>, template: &str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
            bar.with_style(
                ProgressStyle::with_template(template).expect("the templates are well-formed"),
            )
        });
        Self {
            bar,
            began: Instant::now(),
            told: Instant::now(),
            is_shown: false,
        }
    }

    /// So many, a second.
    pub(super) fn rate(&self, count: u64) -> String {
        format!(
            "{:.0}",
            count as f64 / self.began.elapsed().as_secs_f64().max(0.001)
        )
    }

    /// At this place, and what to say of it beside the bar or on a line.
    pub(super) fn progress(&mut self, place: u64, beside_bar: &str, line: &str) {
        if let Some(bar) = &self.bar {
            if !self.is_shown && self.began.elapsed() >= BAR_AFTER {
                self.is_shown = true;
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND));
            }
            bar.set_position(place);
            bar.set_message(beside_bar.to_owned());
        } else if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
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
