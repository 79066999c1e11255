//! Operator of a server: requests to its admin listener.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::program::Program;
use super::server::Server;
use super::world::PATIENCE;

const LOOK_EVERY: Duration = Duration::from_millis(20);
pub(crate) const ON: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];

pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Started with an operators' door on a free port.
    pub(crate) fn start_with_admin(program: &Program, arguments: &[&str]) -> (Self, Admin) {
        Self::start_with(program, &[&ON, arguments].concat())
    }

    /// The same, on an address that the arguments name.
    pub(crate) fn start_with(program: &Program, arguments: &[&str]) -> (Self, Admin) {
        let server = Self::start(program, arguments);
        let admin = Admin::of(&server);
        (server, admin)
    }
}

impl Admin {
    /// Operator of a server whose arguments have [`ON`].
    pub(crate) fn of(server: &Server) -> Self {
        let line = server.logs("listens for metrics, health and backups");
        let (_, address) = line.split_once("address").unwrap();
        let address = address.trim_matches(|char: char| !char.is_ascii_digit());
        Self {
            address: address.parse().unwrap_or_else(|_| panic!("{line}")),
        }
    }

    /// The status and the body.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> (u16, String) {
        self.exchange(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    /// The same, under another name.
    pub(crate) fn ask_of(&self, host: &str, method: &str, path: &str) -> (u16, String) {
        self.exchange(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
    }

    fn exchange(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            body.to_owned(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "")
    }

    /// The value of one series, as it is named in the text.
    pub(crate) fn series(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics");
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until the body is so.
    pub(crate) fn wait_until(&self, path: &str, is_so: impl Fn(&str) -> bool) -> (u16, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (status, body) = self.get(path);
            if is_so(&body) {
                return (status, body);
            }
            assert!(
                Instant::now() < deadline,
                "{path} still answers {status}: {body}"
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until it answers so.
    pub(crate) fn wait_for(&self, path: &str, status: u16) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (found, body) = self.get(path);
            if found == status {
                return body;
            }
            assert!(
                Instant::now() < deadline,
                "{path} still answers {found}: {body}"
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
