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

pub(super) const BENCH: &str = "\
Put load on a running server, embedded or on a cluster, and print the measurements.

The command WRITES to that server: it creates users named bench-RUN-0001 and so on, groups and messages, and deletes none of them. Use a \
server whose data you can throw away. Servers limit the rate of each user and the sockets of each address, so start it with `--rates off`.

Each workload prints the number of operations and their rate, latencies in milliseconds (p50, p90, p99, p99.9 and max), and failures by code. With \
`--pid`, on the server's machine, it also prints the server's CPU time for each operation, busy cores and memory. The bench uses CPU too: on \
the same machine, CPU time for each operation says more than operations a second. The exit code is 1 if an operation failed.

`--json` prints the keys workload, url, run, settings, seconds, operations, of (name of the operation), perSecond, p50Ms, p90Ms, p99Ms, p999Ms, maxMs, \
failed, failures (by code), faults and interrupted; with --pid also cpuMicrosEach, cpuCores and residentMib. A workload may add its own keys.";

pub(super) const BENCH_EXAMPLES: &str = "\
Examples:
  wideroom serve --data ./bench-data --rates off &      start a server on a folder to throw away
  wideroom bench send --data ./bench-data --pid $!      64 concurrent senders: rate, latency, and CPU for each send
  wideroom bench fanout --subscribers 1000 --rate 20 --data ./bench-data --pid $!
  wideroom bench storm --data ./bench-data              500 sockets reconnect at once: time to catch up, lost messages
  wideroom bench page --json --data ./bench-data | jq .p99Ms

`wideroom bench WORKLOAD --help` describes each workload.";

const SEND: &str = "\
Send messages over HTTP with many clients. Each client sends its next message after the server has acknowledged, and thus persisted, the \
last one.

--in-flight 1 measures the latency of a send without contention; higher values measure throughput. Concurrent sends share commits, so \
CPU for each send decreases as more are in flight.";
const SEND_EXAMPLES: &str = "\
Examples:
  wideroom bench send --in-flight 1 --conversations 1
  wideroom bench send --in-flight 256 --conversations 256 --key --duration 30s --pid 4711
  wideroom bench send --in-flight 64 --conversations 1 --participants 32     all in one group";
const PAGE: &str = "\
Read pages of a conversation's history over HTTP: the newest messages with their senders, or with --deep pages spread over the whole \
history. The bench sends the messages first. A deep page should cost as much as the newest one.";
const PAGE_EXAMPLES: &str = "\
Examples:
  wideroom bench page --messages 10000 --pid 4711
  wideroom bench page --messages 10000 --deep --pid 4711";
const INBOX: &str = "\
Read the first page of an inbox over HTTP: the name, the newest message and the unread count of each conversation.";
const INBOX_EXAMPLES: &str = "\
Examples:
  wideroom bench inbox --conversations 20 --first 20 --unread 5 --pid 4711
  wideroom bench inbox --conversations 500 --unread 100";
const MARK_READ: &str = "\
Advance read markers over HTTP: each reader marks every message of its conversation as read, oldest first. The bench sends the messages \
first, and ends when all are marked.";
const MARK_READ_EXAMPLES: &str = "\
Examples:
  wideroom bench mark-read --in-flight 64 --messages 1000 --pid 4711";
const FANOUT: &str = "\
Deliver messages to all subscribers of one conversation over WebSockets. The bench sends them over HTTP at a rate, at times that are fixed \
in advance, so a slow server does not get fewer messages.

An operation is a delivery: one message to one socket, timed from the scheduled send to the subscriber. CPU includes the sends. The report \
names missing deliveries, and the exit code is then 1.";
const FANOUT_EXAMPLES: &str = "\
Examples:
  wideroom bench fanout --subscribers 1000 --rate 20 --pid 4711
  wideroom bench fanout --subscribers 10000 --rate 1 --participants 32 --duration 1m";
const LIVE: &str = "\
Write live messages over HTTP, as assistants do: services append to many live messages at a rate, each in its own conversation, and end \
each with its message. Write times are fixed in advance, so a slow server does not get fewer writes. Begins and ends are not measured.

An operation is a write, timed from its scheduled time. With --viewers, sockets receive the texts, and the report says when. With --sends, \
ordinary sends go to other conversations, alone and beside the live messages in five turns; the report compares their p99. CPU includes \
viewers and sends. If a viewer lacks text, the exit code is 1.";
const LIVE_EXAMPLES: &str = "\
Examples:
  wideroom bench live --pid 4711
  wideroom bench live --answers 1000 --sends 200 --duration 30s     latency of other sends meanwhile
  wideroom bench live --answers 100 --viewers 1000 --rate 3 --pid 4711";
const IDLE: &str = "\
Hold sockets with a subscription that receives no messages. With --pid the report shows the memory and the CPU that each socket costs. \
Start the server anew before: memory that it has already allocated would be reused and not be measured.";
const IDLE_EXAMPLES: &str = "\
Examples:
  wideroom bench idle --sockets 5000 --pid 4711
  wideroom bench idle --sockets 20000 --duration 5m --pid 4711";
const STORM: &str = "\
Reconnect many sockets at once: all sockets are connected, and at the same moment subscribe with a cursor. Each must receive the messages \
that it has missed, while further messages are sent.

An operation is a reconnect: from that moment until the socket has received all missed messages. CPU covers the time until all sockets have \
caught up. Each socket must receive every message exactly once and in order; otherwise the report says so, and the exit code is 1.";
const STORM_EXAMPLES: &str = "\
Examples:
  wideroom bench storm --sockets 500 --missed 50 --pid 4711
  wideroom bench storm --sockets 5000 --missed 500 --send-rate 50 --participants 32";

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
    #[command(about = "Send messages", long_about = SEND, after_help = SEND_EXAMPLES)]
    Send(Bench<SendLoad>),
    #[command(about = "Read pages of history", long_about = PAGE, after_help = PAGE_EXAMPLES)]
    Page(Bench<PageLoad>),
    #[command(about = "Read the first page of an inbox", long_about = INBOX, after_help = INBOX_EXAMPLES)]
    Inbox(Bench<InboxLoad>),
    #[command(about = "Advance read markers", long_about = MARK_READ, after_help = MARK_READ_EXAMPLES)]
    MarkRead(Bench<MarkReadLoad>),
    #[command(about = "Deliver messages to many subscribers", long_about = FANOUT, after_help = FANOUT_EXAMPLES)]
    Fanout(Bench<FanoutLoad>),
    #[command(about = "Write live messages", long_about = LIVE, after_help = LIVE_EXAMPLES)]
    Live(Bench<LiveLoad>),
    #[command(about = "Hold idle sockets", long_about = IDLE, after_help = IDLE_EXAMPLES)]
    Idle(Bench<IdleLoad>),
    #[command(about = "Reconnect many subscribers at once", long_about = STORM, after_help = STORM_EXAMPLES)]
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
