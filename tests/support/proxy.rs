//! Proxies in front of a server, with the files for operators: nginx, also with gzip for every type, and Caddy. Each has a pool of idle
//! connections, and passes WebSockets and streams.
//!
//! A line says that one is absent, and the test passes, except in CI.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::port;
use super::program::{Program, Running};
use super::world::PATIENCE;

const NGINX: [&str; 2] = ["/usr/sbin/nginx", "/usr/bin/nginx"];
const CADDY: [&str; 1] = ["/usr/bin/caddy"];
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) struct Proxy {
    _process: Running,
    address: SocketAddr,
}

impl Proxy {
    /// Starts nginx in the folder of a program. `None` where it is missing.
    pub(crate) fn nginx(program: &Program, upstream: SocketAddr) -> Option<Self> {
        Self::nginx_with_pool(program, upstream, "60s")
    }

    /// The same, whose pool closes connections that are idle for so long.
    pub(crate) fn nginx_with_pool(
        program: &Program,
        upstream: SocketAddr,
        idle: &str,
    ) -> Option<Self> {
        Self::start(&NGINX, |command, address| {
            let folder = program.dir.path().join("nginx");
            std::fs::create_dir_all(&folder).unwrap();
            let pool = format!("keepalive_timeout {idle};");
            let config = of_nginx(&folder, address, upstream);
            let config = config.replace("keepalive_timeout 60s;", &pool);
            assert!(config.contains(&pool));
            let path = program.write("nginx.conf", &config);
            command.arg("-p").arg(&folder);
            command.args(["-e", "stderr", "-c", &path]);
        })
    }

    /// Starts Caddy in the folder of a program. `None` where it is missing.
    pub(crate) fn caddy(program: &Program, upstream: SocketAddr) -> Option<Self> {
        Self::start(&CADDY, |command, address| {
            let path = program.write("Caddyfile", &of_caddy(address, upstream));
            command
                .args(["run", "--adapter", "caddyfile", "--config", &path])
                .env("HOME", program.dir.path())
                .stderr(Stdio::null());
        })
    }

    fn start(places: &[&str], configure: impl FnOnce(&mut Command, SocketAddr)) -> Option<Self> {
        let Some(place) = places.iter().find(|place| Path::new(place).is_file()) else {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "{places:?} is missing"
            );
            // Not eprintln!, which is kept from sight in a test that passes.
            let _ = writeln!(std::io::stderr(), "LEFT OUT: {places:?} is missing");
            return None;
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let mut command = Command::new(place);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        configure(&mut command, address);
        let process = Running::spawn(&mut command);
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "{place} does not listen");
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

fn of_nginx(folder: &Path, address: SocketAddr, upstream: SocketAddr) -> String {
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

fn of_caddy(address: SocketAddr, upstream: SocketAddr) -> String {
    let site = include_str!("../../docker/Caddyfile")
        .replace("127.0.0.1:8080", &upstream.to_string())
        .replace("chat.example.org", &format!("http://{address}"));
    // No certificate is fetched for an address with http.
    format!("{{\n\tadmin off\n}}\n{site}")
}
