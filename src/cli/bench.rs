//! `wideroom bench`: load on a running server, and a report of the measurements.

use clap::Subcommand;

use super::progress::Reporter;
use super::settings::{DATA, SettingFlags};
use super::signals;
use super::{Error, print};
use crate::auth::{Auth, KEY_FILE, TokenRules};
use crate::config::Config;
use crate::load::{
    FanoutLoad, IdleLoad, InboxLoad, LiveLoad, LoadProgress, LoadRun, LoadTarget, MarkReadLoad,
    PageLoad, Process, SendLoad, StormLoad, Workload,
};

const BAR: &str = "{bar:40} {msg}";

#[derive(clap::Args)]
#[command(
    disable_help_subcommand = true,
    subcommand_value_name = "WORKLOAD",
    subcommand_help_heading = "Workloads"
)]
pub(super) struct BenchFlags {
    #[command(subcommand)]
    workload: BenchWorkload,
}

#[derive(Subcommand)]
enum BenchWorkload {
    /// Send messages over HTTP with many clients. Each client sends its next message after the server has acknowledged, and
    /// thus persisted, the last one.
    ///
    /// --in-flight 1 measures the latency of a send without contention; higher values measure throughput. Concurrent sends
    /// share commits, so CPU for each send decreases as more are in flight.
    #[command(
        about = "Send messages",
        after_help = "\
Examples:
  wideroom bench send --in-flight 1 --conversations 1
  wideroom bench send --in-flight 256 --conversations 256 --key --duration 30s --pid 4711
  wideroom bench send --in-flight 64 --conversations 1 --participants 32     all in one group"
    )]
    Send(Bench<SendLoad>),
    /// Read pages of a conversation's history over HTTP: the newest messages with their senders, or with --deep pages
    /// spread over the whole history. The bench sends the messages first. A deep page should cost as much as the newest
    /// one.
    #[command(
        about = "Read pages of history",
        long_about,
        after_help = "\
Examples:
  wideroom bench page --messages 10000 --pid 4711
  wideroom bench page --messages 10000 --deep --pid 4711"
    )]
    Page(Bench<PageLoad>),
    /// Read the first page of an inbox over HTTP: the name, the newest message and the unread count of each conversation.
    #[command(
        about = "Read the first page of an inbox",
        long_about,
        after_help = "\
Examples:
  wideroom bench inbox --conversations 20 --first 20 --unread 5 --pid 4711
  wideroom bench inbox --conversations 500 --unread 100"
    )]
    Inbox(Bench<InboxLoad>),
    /// Advance read markers over HTTP: each reader marks every message of its conversation as read, oldest first. The bench
    /// sends the messages first, and ends when all are marked.
    #[command(
        about = "Advance read markers",
        long_about,
        after_help = "\
Examples:
  wideroom bench mark-read --in-flight 64 --messages 1000 --pid 4711"
    )]
    MarkRead(Bench<MarkReadLoad>),
    /// Deliver messages to all subscribers of one conversation over WebSockets. The bench sends them over HTTP at a rate,
    /// at times that are fixed in advance, so a slow server does not get fewer messages.
    ///
    /// An operation is a delivery: one message to one socket, timed from the scheduled send to the subscriber. CPU includes
    /// the sends. The report names missing deliveries, and the exit code is then 1.
    #[command(
        about = "Deliver messages to many subscribers",
        after_help = "\
Examples:
  wideroom bench fanout --subscribers 1000 --rate 20 --pid 4711
  wideroom bench fanout --subscribers 10000 --rate 1 --participants 32 --duration 1m"
    )]
    Fanout(Bench<FanoutLoad>),
    /// Write live messages over HTTP, as assistants do: services append to many live messages at a rate, each in its own
    /// conversation, and end each with its message. Write times are fixed in advance, so a slow server does not get fewer
    /// writes. Begins and ends are not measured.
    ///
    /// An operation is a write, timed from its scheduled time. With --viewers, sockets receive the texts, and the report
    /// says when. With --sends, ordinary sends go to other conversations, alone and beside the live messages in five turns;
    /// the report compares their p99. CPU includes viewers and sends. If a viewer lacks text, the exit code is 1.
    #[command(
        about = "Write live messages",
        after_help = "\
Examples:
  wideroom bench live --pid 4711
  wideroom bench live --answers 1000 --sends 200 --duration 30s     latency of other sends meanwhile
  wideroom bench live --answers 100 --viewers 1000 --rate 3 --pid 4711"
    )]
    Live(Bench<LiveLoad>),
    /// Hold sockets with a subscription that receives no messages. With --pid the report shows the memory and the CPU that
    /// each socket costs. Start the server anew before: memory that it has already allocated would be reused and not be
    /// measured.
    #[command(
        about = "Hold idle sockets",
        long_about,
        after_help = "\
Examples:
  wideroom bench idle --sockets 5000 --pid 4711
  wideroom bench idle --sockets 20000 --duration 5m --pid 4711"
    )]
    Idle(Bench<IdleLoad>),
    /// Reconnect many sockets at once: all sockets are connected, and at the same moment subscribe with a cursor. Each must
    /// receive the messages that it has missed, while further messages are sent.
    ///
    /// An operation is a reconnect: from that moment until the socket has received all missed messages. CPU covers the time
    /// until all sockets have caught up. Each socket must receive every message exactly once and in order; otherwise the
    /// report says so, and the exit code is 1.
    #[command(
        about = "Reconnect many subscribers at once",
        after_help = "\
Examples:
  wideroom bench storm --sockets 500 --missed 50 --pid 4711
  wideroom bench storm --sockets 5000 --missed 500 --send-rate 50 --participants 32"
    )]
    Storm(Bench<StormLoad>),
}

#[derive(clap::Args)]
struct Bench<W: clap::Args> {
    #[command(flatten)]
    workload: W,
    #[command(flatten)]
    options: BenchOptions,
}

/// The server under load, and the output.
#[derive(clap::Args)]
struct BenchOptions {
    /// URL of the server
    #[arg(
        long,
        env = "WIDEROOM_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,
    /// Process id of the server on this machine, to measure its CPU and memory (Linux)
    #[arg(long, value_name = "NUMBER")]
    pid: Option<u32>,
    /// Print the report as one JSON object instead of text; progress goes to stderr in any case
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    given: SettingFlags<DATA>,
}

pub(super) fn run(flags: &BenchFlags) -> Result<(), Error> {
    match &flags.workload {
        BenchWorkload::Send(bench) => bench.run(),
        BenchWorkload::Page(bench) => bench.run(),
        BenchWorkload::Inbox(bench) => bench.run(),
        BenchWorkload::MarkRead(bench) => bench.run(),
        BenchWorkload::Fanout(bench) => bench.run(),
        BenchWorkload::Live(bench) => bench.run(),
        BenchWorkload::Idle(bench) => bench.run(),
        BenchWorkload::Storm(bench) => bench.run(),
    }
}

impl<W: Workload + clap::Args> Bench<W> {
    fn run(&self) -> Result<(), Error> {
        let BenchOptions {
            url,
            pid,
            json,
            given,
        } = &self.options;
        let target = LoadTarget::new(url, signing(given.config()?)?)?;
        let process = pid.map(Process::new).transpose()?;
        signals::run(async move |stop| {
            let mut bars = ProgressBars::default();
            let mut on_progress = |progress: &LoadProgress<'_>| bars.show(progress);
            let result = self
                .workload
                .run(&mut LoadRun::new(target, process, stop, &mut on_progress))
                .await;
            bars.end();
            let report = result?;
            print(&if *json {
                report.json().to_string()
            } else {
                report.text()
            })?;
            Ok(report.verdict()?)
        })
    }
}

/// Signs tokens with the server's secret or key. A data folder without a key is an error: a new key would sign tokens that no server accepts.
fn signing(config: Config) -> Result<Auth, Error> {
    let auth = match &config.tokens.secret {
        Some(path) => Auth::open_secret(path)?,
        None if config.data.join(KEY_FILE).exists() => Auth::open(&config.data)?,
        None => return Err(Error::NoKey(config.data)),
    };
    Ok(auth.with_rules(TokenRules {
        secret: None,
        keys: None,
        ..config.tokens
    })?)
}

/// Progress bars of the activities of a run, one after the other.
#[derive(Default)]
struct ProgressBars {
    current: Option<(String, Reporter)>,
}

impl ProgressBars {
    fn show(&mut self, progress: &LoadProgress<'_>) {
        if self
            .current
            .as_ref()
            .is_none_or(|(activity, _)| activity != progress.activity)
        {
            self.end();
            self.current = Some((
                progress.activity.to_owned(),
                Reporter::new(Some(progress.total), BAR),
            ));
        }
        if let Some((_, reporter)) = &mut self.current {
            reporter.progress(progress.done, progress.line, progress.line);
        }
    }

    fn end(&mut self) {
        if let Some((_, reporter)) = self.current.take() {
            reporter.end();
        }
    }
}
