//! Node programs that drive the clients people use: `tests/clients`, installed by its lockfile outside the source tree.
//!
//! They want node and npm. Where one is absent a line says so and the test passes, except in CI.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::tool::{self, Tool};

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

    /// Runs a program to its good end.
    #[track_caller]
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new("node");
        command.arg(program).args(arguments);
        tool::run(command.current_dir(self.folder));
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
    let package = root.join("src/server/pages/client");
    let copied = copy(&source, &work)
        .and_then(|()| copy(&package, &work.join("wideroom-client")))
        .and_then(|()| std::fs::copy(root.join("schema.graphql"), work.join("schema.graphql")));
    copied.map_err(|error| error.to_string())?;
    install_packages(&work)?;
    Ok(work)
}

/// Installs the packages that the lockfile of a folder names, unless they are there.
pub(crate) fn install_packages(folder: &Path) -> Result<(), String> {
    let (lock, installed) = (folder.join(LOCK), folder.join("node_modules/.installed"));
    if std::fs::read(&installed).ok() == std::fs::read(&lock).ok() {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--fetch-retries=1",
        "--loglevel=error",
    ]);
    Tool::spawn(npm.current_dir(folder))
        .end(tool::ENDS_WITHIN)
        .map_err(|said| format!("npm could not install {}: {said}", lock.display()))?;
    std::fs::copy(lock, installed)
        .map(drop)
        .map_err(|error| error.to_string())
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
