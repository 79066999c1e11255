//! A real `nats-server`, that can be killed and started again at the same place.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::port;
use super::program::Running;
use super::world::PATIENCE;

pub(crate) struct Nats {
    port: u16,
    /// Address of the monitoring endpoint.
    pub(crate) monitor: SocketAddr,
    running: Option<Running>,
}

impl Nats {
    /// `None` where there is no program of this name, which fails a landing.
    pub(crate) fn start() -> Option<Self> {
        if Command::new("nats-server")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            assert!(
                std::env::var("CI").is_err(),
                "nats-server is missing: apt-get install nats-server"
            );
            println!("SKIPPED: nats-server is not installed (apt-get install nats-server)");
            return None;
        }
        let mut nats = Self {
            port: port::free(),
            monitor: SocketAddr::from((Ipv4Addr::LOCALHOST, port::free())),
            running: None,
        };
        nats.start_again();
        Some(nats)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// It keeps its connections, and does nothing.
    pub(crate) fn freeze(&self) {
        self.running.as_ref().unwrap().signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.running.as_ref().unwrap().signal("-CONT");
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new("nats-server");
        command.args([
            "-a",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-m",
            &self.monitor.port().to_string(),
        ]);
        self.running = Some(Running::spawn(
            command.stdout(Stdio::null()).stderr(Stdio::null()),
        ));
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
