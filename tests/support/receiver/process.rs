//! Receiver as a process of its own, which is killed: it appends each request to a file before it answers.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Received, ReceiverState, Reply, serve};
use crate::support::port;
use crate::support::program::Running;
use crate::support::world::PATIENCE;

/// Address, file and behaviour of the receiver that this process is to be.
const RECEIVER: &str = "WIDEROOM_RECEIVER";
const PROCESS: &str = "support::receiver::process::receive_until_killed";

pub(crate) struct ReceiverProcess {
    pub(crate) address: SocketAddr,
    running: Option<Running>,
    folder: TempDir,
    /// Requests of the file, up to this byte.
    received: Vec<Received>,
    read_to: u64,
}

impl ReceiverProcess {
    pub(crate) async fn start() -> Self {
        let mut receiver = Self {
            address: SocketAddr::from(([127, 0, 0, 1], port::free())),
            running: None,
            folder: tempfile::tempdir().unwrap(),
            received: Vec::new(),
            read_to: 0,
        };
        receiver.restart(0).await;
        receiver
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("received")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
    }

    /// Listens at the same address. It closes one connection of so many requests without an answer; 0: none.
    pub(crate) async fn restart(&mut self, unlucky: u64) {
        self.kill();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let setting = format!("{}\n{}\n{unlucky}", self.address, self.file().display());
        command
            .args(["--exact", PROCESS, "--nocapture"])
            .env(RECEIVER, setting)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.running = Some(Running::spawn(&mut command));
        let began = Instant::now();
        while TcpStream::connect(self.address).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "the receiver does not start");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The requests of all its processes, in their order. A line that is cut was not answered.
    pub(crate) fn received(&mut self) -> &[Received] {
        let Ok(file) = std::fs::File::open(self.file()) else {
            return &self.received;
        };
        let mut file = BufReader::new(file);
        file.seek(SeekFrom::Start(self.read_to)).unwrap();
        let mut line = String::new();
        while file.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            self.read_to += line.len() as u64;
            // The cut line of a killed process is no JSON.
            if let Ok((headers, body)) = serde_json::from_str(&line) {
                self.received.push(Received {
                    headers,
                    body,
                    at: Instant::now(),
                    tries: 0,
                });
            }
            line.clear();
        }
        &self.received
    }
}

/// The process itself: it receives until it is killed. Without its setting it is no test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receive_until_killed() {
    let Ok(setting) = std::env::var(RECEIVER) else {
        return;
    };
    let [address, file, unlucky] = setting.splitn(3, '\n').collect::<Vec<_>>()[..] else {
        panic!("{setting}");
    };
    let address: SocketAddr = address.parse().unwrap();
    let unlucky: u64 = unlucky.parse().unwrap();
    let began = Instant::now();
    let listener = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let mut number = 0;
    let state = Arc::new(ReceiverState {
        received: Mutex::default(),
        record: Some(appends_to(Path::new(file))),
        tries: Mutex::default(),
        behaviour: Mutex::new(Box::new(move |_| {
            number += 1;
            if unlucky > 0 && number % unlucky == 0 {
                Reply::Close
            } else {
                Reply::Status(200)
            }
        })),
    });
    let _stop = serve(listener, &state);
    std::future::pending().await
}

fn appends_to(path: &Path) -> super::Record {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).open(path).unwrap();
    // Ends the line that an earlier process may have left.
    file.write_all(b"\n").unwrap();
    let file = Mutex::new(file);
    Box::new(move |request| {
        let line = json!([request.headers, request.body]).to_string() + "\n";
        file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    })
}
