//! Log lines of operations: which are written, and a quota for each code of answers.

use tokio::time::{MissedTickBehavior, interval};

use crate::log_quota::{self, LogQuota};

/// Lines of one code in a minute: a thousand a second of those that succeed, and few of those that are refused.
const LINES_MAX: u32 = 60_000;
const REFUSAL_LINES_MAX: u32 = 60;
/// Codes of operations that succeeded, or whose client disconnected.
const USUAL_CODES: [&str; 2] = ["OK", "GONE"];

/// Operations that have a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestLines {
    All,
    /// Those that take longer than `--slow-request`.
    Slow,
    Off,
}

/// Quota of lines by the code of the answer.
pub(super) struct RequestLog {
    lines: RequestLines,
    quota: LogQuota<String>,
}

impl RequestLog {
    pub(super) fn new(lines: RequestLines) -> Self {
        Self {
            lines,
            quota: LogQuota::default(),
        }
    }

    /// Whether an operation gets a line. Those of slow ones are warnings, whose quota is the log's own.
    pub(super) fn admits(&self, code: &str, is_slow: bool) -> bool {
        match self.lines {
            RequestLines::Off => false,
            RequestLines::All | RequestLines::Slow if is_slow => true,
            RequestLines::Slow => false,
            RequestLines::All => {
                let is_usual = USUAL_CODES.contains(&code);
                let lines_max = if is_usual {
                    LINES_MAX
                } else {
                    REFUSAL_LINES_MAX
                };
                self.quota.admits(code, lines_max)
            }
        }
    }

    /// Renews the quota, and logs how many lines were left out. Runs until it is dropped.
    pub(super) async fn renew(&self) {
        let mut periods = interval(log_quota::PERIOD);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            periods.tick().await;
            self.log_left_out();
        }
    }

    /// Logs how many lines were left out since the last renewal.
    pub(super) fn log_left_out(&self) {
        for (code, lines) in self.quota.renew() {
            tracing::info!(
                code,
                lines,
                "the log left out further lines of requests with this code"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_costs_few_lines_and_leaves_those_of_other_requests() {
        let log = RequestLog::new(RequestLines::All);
        let written = |code| (0..1_000).filter(|_| log.admits(code, false)).count();
        assert_eq!(written("RATE_LIMITED"), 60);
        assert_eq!((written("OK"), written("GONE")), (1_000, 1_000));
        assert_eq!(written("UNAVAILABLE"), 60);
        assert!(log.admits("RATE_LIMITED", true));
        let mut left_out = log.quota.renew();
        left_out.sort();
        let expected = ["RATE_LIMITED", "UNAVAILABLE"].map(|code| (code.to_owned(), 940));
        assert_eq!(left_out, expected);
        for (lines, is_slow, is_logged) in [
            (RequestLines::Slow, true, true),
            (RequestLines::Slow, false, false),
            (RequestLines::Off, true, false),
        ] {
            assert_eq!(RequestLog::new(lines).admits("OK", is_slow), is_logged);
        }
    }
}
