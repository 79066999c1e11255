//! nginx in front of a server, with the file for operators: a pool of idle connections, and WebSockets; and with gzip for every type.
//!
//! A line says that it is absent, and the test passes, except in CI.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::{Program, Running};

const PLACES: [&str; 2] = ["/usr/sbin/nginx", "/usr/bin/nginx"];
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) struct Nginx {
    _process: Running,
    address: SocketAddr,
}

impl Nginx {
    /// Started in the folder of a program. `None` where it is missing.
    pub(crate) fn start(program: &Program, upstream: SocketAddr) -> Option<Self> {
        Self::with_pool(program, upstream, "60s")
    }

    /// The same, whose pool closes connections that are idle for so long.
    pub(crate) fn with_pool(program: &Program, upstream: SocketAddr, idle: &str) -> Option<Self> {
        let Some(nginx) = PLACES.iter().find(|place| Path::new(place).is_file()) else {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "nginx is missing"
            );
            // Not eprintln!, which is kept from sight in a test that passes.
            let _ = writeln!(std::io::stderr(), "LEFT OUT: nginx is missing");
            return None;
        };
        let folder = program.dir.path().join("nginx");
        std::fs::create_dir_all(&folder).unwrap();
        // Free now, and taken by nobody else in the moment until nginx has it.
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let pool = format!("keepalive_timeout {idle};");
        let config = configuration(&folder, address, upstream);
        let config = config.replace("keepalive_timeout 60s;", &pool);
        assert!(config.contains(&pool));
        let path = program.write("nginx.conf", &config);
        let mut command = Command::new(nginx);
        command
            .args(["-p"])
            .arg(&folder)
            .args(["-e", "stderr", "-c", &path]);
        let process = Running::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()));
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < STARTS_WITHIN, "nginx does not listen");
            std::thread::sleep(LOOK_EVERY);
        }
        Some(Self {
            _process: process,
            address,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/graphql", self.address)
    }
}

fn configuration(folder: &Path, address: SocketAddr, upstream: SocketAddr) -> String {
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {}/{name};\n", folder.display()))
        .collect();
    let server = include_str!("../../docker/nginx.conf")
        .replace("127.0.0.1:8080", &upstream.to_string())
        .replace("listen 80;", &format!("listen {address};"));
    // One process: nothing of it outlives the one that is killed.
    format!(
        "daemon off; master_process off; pid {}/pid;
events {{}}
http {{
{paths}access_log off;
gzip on; gzip_min_length 0; gzip_proxied any; gzip_types *;
{server}}}
",
        folder.display()
    )
}
