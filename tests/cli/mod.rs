//! The command line, as one types it: the real program, its output and its exit codes.

mod config;
mod help;
mod import;
mod serve;
mod token;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The program, its data folder, and nothing of the environment of whoever runs the tests.
struct Program {
    dir: TempDir,
}

/// How a command ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Program {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command that has not begun, in a folder of its own.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideroom"));
        command.args(arguments).current_dir(self.dir.path()).env_clear().env("WIDEROOM_DATA", self.data());
        // How much disk the machine that runs the tests has left is not what is tested.
        command.env("WIDEROOM_FREE_DISK_MIN", "1MiB").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that is refused does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap().into()
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ended {
    /// Failed with this exit code and this one line on stderr.
    #[track_caller]
    fn failed(&self, code: i32, line: &str) {
        assert_eq!((self.code, self.stderr.as_str()), (Some(code), format!("wideroom: {line}\n").as_str()), "{}", self.stdout);
    }

    #[track_caller]
    fn succeeded(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        &self.stdout
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
