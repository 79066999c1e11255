//! Node programs that drive the clients people use: `tests/clients`, installed by its lockfile outside the source tree.
//!
//! They want node and npm. Where one is absent a line says so and the test passes, except in CI.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::program::Running;

const INSTALLS_WITHIN: Duration = Duration::from_secs(600);
const RUNS_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOCK: &str = "package-lock.json";

/// The programs, with what they need beside them.
pub(crate) struct Node {
    folder: &'static Path,
}

impl Node {
    /// `None` where something is missing. Waits for whoever is installing.
    pub(crate) fn installed() -> Option<Self> {
        static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        match FOLDER.get_or_init(install) {
            Ok(folder) => Some(Self { folder }),
            Err(missing) => {
                assert!(
                    std::env::var_os("CI").is_none_or(|value| value != "true"),
                    "the clients cannot be tested: {missing}"
                );
                // Not eprintln!, which is kept from sight in a test that passes.
                let _ = writeln!(std::io::stderr(), "the clients are not tested: {missing}");
                None
            }
        }
    }

    /// Output of the compilers of client libraries, generated once for all tests.
    pub(crate) fn compiled() -> Option<Self> {
        static COMPILED: OnceLock<()> = OnceLock::new();
        let node = Self::installed()?;
        COMPILED.get_or_init(|| node.run("compile.js", &[]));
        Some(node)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Runs a program to its good end. What it says is seen.
    #[track_caller]
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        self.run_within(program, arguments, RUNS_WITHIN);
    }

    /// The same where it may take longer, or must not.
    #[track_caller]
    pub(crate) fn run_within(&self, program: &str, arguments: &[&str], time: Duration) {
        let mut command = Command::new("node");
        let mut node = Running::spawn(
            command
                .arg(program)
                .args(arguments)
                .current_dir(self.folder)
                .stdin(Stdio::null()),
        );
        assert!(ends_well_within(&mut node, time), "{program}: see above");
    }
}

fn install() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for tool in ["node", "npm"] {
        if !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()) {
            return Err(format!("{tool} is missing"));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (source, work) = (
        root.join("tests/clients"),
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"),
    );
    let is_installed = std::fs::read(work.join("node_modules/.installed")).ok()
        == std::fs::read(source.join(LOCK)).ok();
    let package = root.join("src/server/pages/client");
    let copied = copy(&source, &work)
        .and_then(|()| copy(&package, &work.join("wideroom-client")))
        .and_then(|()| std::fs::copy(root.join("schema.graphql"), work.join("schema.graphql")));
    copied.map_err(|error| error.to_string())?;
    if !is_installed {
        let install = [
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--fetch-retries=1",
            "--loglevel=error",
        ];
        let mut npm = Command::new("npm");
        let mut npm = Running::spawn(
            npm.args(install)
                .current_dir(&work)
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        if !ends_well_within(&mut npm, INSTALLS_WITHIN) {
            return Err("npm could not install the clients".to_owned());
        }
        std::fs::copy(source.join(LOCK), work.join("node_modules/.installed"))
            .map_err(|error| error.to_string())?;
    }
    Ok(work)
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (source, target) = (
            entry.as_ref().map(std::fs::DirEntry::path),
            entry.as_ref().map(|entry| to.join(entry.file_name())),
        );
        let (Ok(source), Ok(target)) = (source, target) else {
            continue;
        };
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Whether it ended, and well, in this time. If not, it is killed when it is dropped.
fn ends_well_within(process: &mut Running, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if let Some(status) = process.child.try_wait().unwrap() {
            return status.success();
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
