//! Servers in processes of their own: the real program, and this one again as a bare one. So only their time counts, and not their clients'.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::body::Bytes;
use hyper::header::CONTENT_TYPE;
use serde_json::Value;
use tempfile::TempDir;
use wideroom::auth::Auth;
use wideroom::load::{Document, HttpClient, LoadTarget, Process, UsageMeter};

use crate::operations::Ask;

pub const JSON: &str = "application/graphql-response+json";

pub struct Server {
    child: Child,
    pub target: Arc<LoadTarget>,
    /// Data folder that is deleted with the server. `None` for a folder of the caller.
    _folder: Option<TempDir>,
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
        Self::start(command, folder)
    }

    /// The real program on a new data folder.
    pub fn empty(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self::wideroom(folder.path(), options);
        server._folder = Some(folder);
        server
    }

    /// This program, as one of its bare servers. It accepts the tokens of a data folder.
    pub fn bare(arguments: &[&str], folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--bench").args(arguments);
        Self::start(command, folder)
    }

    /// The library's own handlers, over a data folder that no other server has open.
    pub fn library(folder: &Path) -> Self {
        Self::bare(&[crate::LIBRARY, folder.to_str().unwrap()], folder)
    }

    /// The first line that it prints ends with where it listens.
    fn start(mut command: Command, folder: &Path) -> Self {
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
        let address = line.trim().rsplit_once('/').unwrap().1;
        let auth = Auth::open(folder).unwrap();
        let target = LoadTarget::new(&format!("http://{address}"), auth).unwrap();
        Self {
            child,
            target: Arc::new(target),
            _folder: None,
        }
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Measures the CPU time and the memory of the server from now on.
    pub fn meter(&self) -> UsageMeter {
        UsageMeter::start(Some(Process::new(self.child.id()).unwrap()))
    }

    pub fn resident_mib(&self) -> f64 {
        self.meter().usage().resident_bytes.unwrap() as f64 / f64::from(1 << 20)
    }

    pub fn clients(&self, users: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<HttpClient> {
        let users = users.into_iter();
        users
            .map(|user| HttpClient::new(&self.target, user.as_ref()))
            .collect()
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

impl Ask for HttpClient {
    async fn ask(&mut self, document: &str, variables: Value) -> Value {
        let request = body(document, variables);
        self.query(request).await.unwrap()
    }
}

/// A request as clients write it.
pub fn body(document: &str, variables: Value) -> Bytes {
    Document::new(document).request_body(&variables)
}
