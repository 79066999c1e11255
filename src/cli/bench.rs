//! `wideroom bench`: puts a load on a running server, and prints what it took.

use clap::Subcommand;

use super::progress::Reporter;
use super::settings::{DATA, Given};
use super::stop;
use super::{Error, print};
use crate::auth::{Auth, KEY_FILE, TokenRules};
use crate::config::{self, Config, Source};
use crate::load::{Fanout, Idle, Inboxes, Marks, Pages, Process, Run, Sends, Shape, Storm, Target, Told};

const BAR: &str = "{bar:40} {msg}";
const SECRET_SETTING: &str = "token-secret-file";

pub(super) const BENCH: &str = "\
Put a load on a running server, embedded or on a cluster, and print what it took.

It WRITES into that server: people of its own, named bench-RUN-0001 and so on, with groups and messages that stay. Measure one whose data \
you can throw away. A user may do only so much in a second, and an address may open only so many sockets, so start it with `--rates off`.

Each shape prints how many operations were done and how many a second, in milliseconds how long half of them took at most (p50), 90 and 99 \
of a hundred (p90, p99) and the slowest (max), and what failed, by code. With `--pid`, on the server's machine: microseconds that each took \
of the server's processors, how many processors were busy, and its memory. This program takes processors too: on the same machine, CPU for \
each operation says more than operations a second. The exit code is 1 where anything failed.

`--json` prints shape, url, run, settings, seconds, operations and what they are (of), perSecond, p50Ms, p90Ms, p99Ms, maxMs, failed, failures \
by code, faults and interrupted; with --pid cpuMicrosEach, cpuCores and residentMib; and what only one shape has.";

pub(super) const BENCH_EXAMPLES: &str = "\
Examples:
  wideroom serve --data ./bench-data --rates off &      a server to measure, on a folder to throw away
  wideroom bench send --data ./bench-data --pid $!      what 64 senders at once get, and what each send costs
  wideroom bench fanout --subscribers 1000 --rate 20 --data ./bench-data --pid $!
  wideroom bench storm --data ./bench-data              500 come back at one moment: how long, and is anything lost?
  wideroom bench page --json --data ./bench-data | jq .p99Ms

`wideroom bench SHAPE --help` says more about each.";

const SEND: &str = "\
Messages sent by many at once, over HTTP: each sends the next one when the last is answered, which is when it is kept.

With --in-flight 1 it shows how long one send takes that waits for nobody; with more, what the server can do. Their writes share commits, \
so CPU for each send goes down as more are in flight.";
const SEND_EXAMPLES: &str = "\
Examples:
  wideroom bench send --in-flight 1 --conversations 1
  wideroom bench send --in-flight 256 --conversations 256 --key --duration 30s --pid 4711
  wideroom bench send --in-flight 64 --conversations 1 --participants 32     all in one group";
const PAGE: &str = "\
Pages of a conversation's history, over HTTP: the newest messages with their senders, or with --deep those at places all over it. The \
conversation is filled first. A page deep inside should cost what the newest does.";
const PAGE_EXAMPLES: &str = "\
Examples:
  wideroom bench page --messages 10000 --pid 4711
  wideroom bench page --messages 10000 --deep --pid 4711";
const INBOX: &str = "\
The first page of an inbox, over HTTP: for each conversation its name, its newest message and how many are unread.";
const INBOX_EXAMPLES: &str = "\
Examples:
  wideroom bench inbox --conversations 20 --first 20 --unread 5 --pid 4711
  wideroom bench inbox --conversations 500 --unread 100";
const MARK_READ: &str = "\
Read markers that go forward, over HTTP: each reader marks one message after the other, from the oldest to the newest. The conversations \
are filled first. It ends when all are read.";
const MARK_READ_EXAMPLES: &str = "\
Examples:
  wideroom bench mark-read --in-flight 64 --messages 1000 --pid 4711";
const FANOUT: &str = "\
Messages to all who listen to one conversation, over WebSockets. They are sent over HTTP at a rate, at moments that are fixed beforehand, \
so that a server that is late is asked no less. What is counted and timed are deliveries: one message to one socket, from the moment \
of the send to the client. CPU is that of sends and deliveries. Each delivery that does not come is told, and the exit code is 1.";
const FANOUT_EXAMPLES: &str = "\
Examples:
  wideroom bench fanout --subscribers 1000 --rate 20 --pid 4711
  wideroom bench fanout --subscribers 10000 --rate 1 --participants 32 --duration 1m";
const IDLE: &str = "\
Sockets that listen to one conversation and are told nothing. With --pid: how much memory each takes, and how much CPU to \
keep it open. A server keeps memory that it had before: measure one that was just started.";
const IDLE_EXAMPLES: &str = "\
Examples:
  wideroom bench idle --sockets 5000 --pid 4711
  wideroom bench idle --sockets 20000 --duration 5m --pid 4711";
const STORM: &str = "\
A crowd that comes back: all sockets are connected, and at one moment subscribe after a cursor behind which there are messages that they \
missed, while others are sent. Timed is each return, from that moment until the socket has what it missed. CPU is that of all until then.

Each socket must be told every message once and in order, those sent meanwhile included. Otherwise it says so, and the exit code is 1.";
const STORM_EXAMPLES: &str = "\
Examples:
  wideroom bench storm --sockets 500 --missed 50 --pid 4711
  wideroom bench storm --sockets 5000 --missed 500 --send-rate 50 --participants 32";

#[derive(clap::Args)]
#[command(disable_help_subcommand = true, subcommand_value_name = "SHAPE", subcommand_help_heading = "Shapes")]
pub(super) struct BenchFlags {
    #[command(subcommand)]
    shape: BenchShape,
}

#[derive(Subcommand)]
enum BenchShape {
    #[command(about = "Send messages", long_about = SEND, after_help = SEND_EXAMPLES)]
    Send(Load<Sends>),
    #[command(about = "Read pages of history", long_about = PAGE, after_help = PAGE_EXAMPLES)]
    Page(Load<Pages>),
    #[command(about = "Read the first page of an inbox", long_about = INBOX, after_help = INBOX_EXAMPLES)]
    Inbox(Load<Inboxes>),
    #[command(about = "Move read markers", long_about = MARK_READ, after_help = MARK_READ_EXAMPLES)]
    MarkRead(Load<Marks>),
    #[command(about = "Tell many sockets of each message", long_about = FANOUT, after_help = FANOUT_EXAMPLES)]
    Fanout(Load<Fanout>),
    #[command(about = "Hold sockets that are told nothing", long_about = IDLE, after_help = IDLE_EXAMPLES)]
    Idle(Load<Idle>),
    #[command(about = "Have a crowd come back at one moment", long_about = STORM, after_help = STORM_EXAMPLES)]
    Storm(Load<Storm>),
}

#[derive(clap::Args)]
struct Load<S: clap::Args> {
    #[command(flatten)]
    shape: S,
    #[command(flatten)]
    on: On,
}

/// On which server, and how it is told.
#[derive(clap::Args)]
struct On {
    /// Where the server listens
    #[arg(long, env = "WIDEROOM_URL", hide_env_values = true, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The server's process on this machine, whose CPU and memory are to be measured (Linux)
    #[arg(long, value_name = "NUMBER")]
    pid: Option<u32>,
    /// Print one JSON object instead of text; what is said meanwhile goes to stderr in any case
    #[arg(long)]
    json: bool,
    /// The secret that the server has for tokens, where it does not take the key in its data folder
    #[arg(long, env = "WIDEROOM_TOKEN_SECRET_FILE", hide_env_values = true, value_name = "FILE")]
    token_secret_file: Option<String>,
    #[command(flatten)]
    given: Given<DATA>,
}

pub(super) fn run(flags: &BenchFlags) -> Result<(), Error> {
    match &flags.shape {
        BenchShape::Send(load) => load.run(),
        BenchShape::Page(load) => load.run(),
        BenchShape::Inbox(load) => load.run(),
        BenchShape::MarkRead(load) => load.run(),
        BenchShape::Fanout(load) => load.run(),
        BenchShape::Idle(load) => load.run(),
        BenchShape::Storm(load) => load.run(),
    }
}

impl<S: Shape + clap::Args> Load<S> {
    fn run(&self) -> Result<(), Error> {
        let On { url, pid, json, token_secret_file, given } = &self.on;
        let mut config = given.config()?;
        // An empty variable is one that is not set.
        if let Some(text) = token_secret_file.as_deref().filter(|text| !text.is_empty()) {
            let setting = config::settings().find(|setting| setting.name == SECRET_SETTING).expect("it is one of the settings");
            config.set(setting, text, &Source::Flag)?;
        }
        let target = Target::new(url, signing(config)?)?;
        let process = pid.map(Process::new).transpose()?;
        stop::run(async move |stop| {
            let mut teller = Teller::default();
            let mut tell = |told: &Told<'_>| teller.tell(told);
            let reported = self.shape.run(&mut Run::new(target, process, stop, &mut tell)).await;
            teller.end();
            let report = reported?;
            print(&if *json { report.json().to_string() } else { report.text() })?;
            Ok(report.verdict()?)
        })
    }
}

/// As the server's own tokens are signed. No key is made here: the wrong folder has none.
fn signing(config: Config) -> Result<Auth, Error> {
    let auth = match &config.tokens.secret {
        Some(path) => Auth::open_secret(path)?,
        None if config.data.join(KEY_FILE).exists() => Auth::open(&config.data)?,
        None => return Err(Error::NoKey(config.data)),
    };
    Ok(auth.with_rules(TokenRules { secret: None, keys: None, ..config.tokens })?)
}

/// One bar after the other.
#[derive(Default)]
struct Teller {
    now: Option<(String, Reporter)>,
}

impl Teller {
    fn tell(&mut self, told: &Told<'_>) {
        if self.now.as_ref().is_none_or(|(what, _)| what != told.what) {
            self.end();
            self.now = Some((told.what.to_owned(), Reporter::new(Some(told.of), BAR)));
        }
        if let Some((_, reporter)) = &mut self.now {
            reporter.progress(told.place, told.line, told.line);
        }
    }

    fn end(&mut self) {
        if let Some((_, reporter)) = self.now.take() {
            reporter.end();
        }
    }
}
