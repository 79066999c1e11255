//! The real program as a server: where it listens, and how it ends.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::port;
use super::program::{Program, Running};
use super::world::PATIENCE;

/// As `--log` has it: all warnings but those of slow requests, which a busy machine has.
pub(crate) const WARNINGS: &str = "warn,wideroom::server::operation=error";
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(crate) struct Server {
    process: Running,
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    stdout: JoinHandle<String>,
    log: JoinHandle<String>,
    logged: mpsc::Receiver<String>,
}

impl Server {
    /// Started on a port that stays free where it is killed; it answers already.
    pub(crate) fn start(program: &Program, arguments: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", port::free());
        Self::start_on(&address, program, arguments)
    }

    /// The same where it is to be found at the address of one before it.
    pub(crate) fn start_on(address: &str, program: &Program, arguments: &[&str]) -> Self {
        let arguments = [&["serve", "--listen", address], arguments].concat();
        Self::spawn(&mut program.command(&arguments))
    }

    /// The same by a command of one's own.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::try_spawn(command).unwrap_or_else(|log| panic!("the server did not start: {log}"))
    }

    /// The same, where it may end instead. The error has what it said.
    pub(crate) fn try_spawn(command: &mut Command) -> Result<Self, String> {
        let mut process = Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let stderr = BufReader::new(process.child.stderr.take().unwrap());
        let (lines, logged) = mpsc::channel();
        // Both are read to their end, so that the server never waits for a full pipe.
        let log = std::thread::spawn(move || {
            let tell = |line: &String| drop(lines.send(line.clone()));
            stderr
                .lines()
                .map_while(Result::ok)
                .inspect(tell)
                .map(|line| line + "\n")
                .collect()
        });
        let mut stdout = BufReader::new(process.child.stdout.take().unwrap());
        let (sender, first_line) = mpsc::channel();
        let stdout = std::thread::spawn(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let _ = sender.send(line);
            read_on(&mut stdout)
        });
        let line = first_line.recv_timeout(PATIENCE).unwrap_or_default();
        match line.trim().strip_prefix("Wideroom listens on ") {
            Some(url) => Ok(Self {
                process,
                url: url.to_owned(),
                stdout,
                log,
                logged,
            }),
            None => {
                process.kill();
                Err(line + &log.join().unwrap())
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Resident memory of the server's process.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .unwrap()
            * 1_024
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits until its log says this: the whole line.
    pub(crate) fn logs(&self, part: &str) -> String {
        loop {
            let line = self
                .logged
                .recv_timeout(PATIENCE)
                .expect("the log says it in time");
            if line.contains(part) {
                return line;
            }
        }
    }

    /// SIGKILL. Answers with the log.
    pub(crate) fn kill(self) -> String {
        self.process.kill();
        self.log.join().unwrap()
    }

    /// Waits for its end: its exit code, the rest of stdout, and its log.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(LOOK_EVERY);
        };
        (
            status.code(),
            self.stdout.join().unwrap(),
            self.log.join().unwrap(),
        )
    }
}

fn read_on(pipe: &mut impl Read) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}
