//! Servers in processes of their own: the real program, and this one again as a bare one. So only their time counts, and not their clients'.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::operations::Ask;

pub const JSON: &str = "application/graphql-response+json";

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// CPU time of each thread at its last sample, in nanoseconds. Threads that have ended keep their entry.
    spent: Mutex<HashMap<OsString, u64>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// The real program on a data folder, without rates.
    pub fn wideroom(folder: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideroom"));
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--rates",
                "off",
                "--data",
            ])
            .arg(folder)
            .args(options);
        command.env("WIDEROOM_FREE_DISK_MIN", "0B");
        Self::start(command)
    }

    /// This program, as one of its bare servers.
    pub fn bare(arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--bench").args(arguments);
        Self::start(command)
    }

    /// The library's own handlers, over a data folder that no other server has open.
    pub fn library(folder: &Path) -> Self {
        Self::bare(&[crate::LIBRARY, folder.to_str().unwrap()])
    }

    /// The first line that it prints ends with where it listens.
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit_once('/').unwrap().1.parse().unwrap();
        Self {
            child,
            address,
            spent: Mutex::default(),
        }
    }

    /// CPU time of all threads of the server so far, user and kernel.
    pub fn cpu_micros(&self) -> f64 {
        let mut spent = self.spent.lock().unwrap();
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .unwrap()
            .flatten()
        {
            let Ok(stat) = std::fs::read_to_string(task.path().join("schedstat")) else {
                continue;
            };
            spent.insert(
                task.file_name(),
                stat.split(' ').next().unwrap().parse().unwrap(),
            );
        }
        spent.values().sum::<u64>() as f64 / 1e3
    }

    pub fn resident_kib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// A bare server's listener: what is accepted answers at once, as ours does.
pub fn listener() -> impl axum::serve::Listener<Addr = SocketAddr> {
    let listener = wideroom::server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    println!("bare on ws://{}", listener.local_addr().unwrap());
    axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)))
}

/// Reads each request to its end, and answers with the bytes of this file.
pub async fn serve_fixed(path: &str) {
    let answer = Bytes::from(std::fs::read(path).unwrap());
    let fixed = move |_asked: Bytes| async move { ([(CONTENT_TYPE, JSON)], answer) };
    axum::serve(
        listener(),
        axum::Router::new().route("/graphql", axum::routing::post(fixed)),
    )
    .await
    .unwrap();
}

/// One connection that is kept alive.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    authorization: String,
}

impl Client {
    pub async fn connect(server: &Server, token: &str) -> Self {
        let stream = TcpStream::connect(server.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self {
            sender,
            authorization: format!("Bearer {token}"),
        }
    }

    /// The answer as it comes.
    pub async fn post(&mut self, body: String) -> Bytes {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/graphql")
            .header(HOST, "localhost")
            .header(ACCEPT, JSON);
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, &self.authorization);
        self.sender.ready().await.unwrap();
        let answer = self
            .sender
            .send_request(request.body(Full::from(body)).unwrap())
            .await
            .unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().collect().await.unwrap().to_bytes()
    }
}

impl Ask for Client {
    async fn ask(&mut self, document: &str, variables: Value) -> Value {
        let answer = self.post(body(document, variables)).await;
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer.get("errors").is_none(), "{answer}");
        answer["data"].take()
    }
}

/// A request as clients write it.
pub fn body(document: &str, variables: Value) -> String {
    json!({"query": document, "variables": variables}).to_string()
}
