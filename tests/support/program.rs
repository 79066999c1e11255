//! The real program: a data folder of its own, and what it says when it is run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

/// The program, its data folder, and nothing of the environment of whoever runs the tests.
pub(crate) struct Program {
    pub(crate) dir: TempDir,
    /// As `--store` has it. `None`: in the data folder.
    store: Option<String>,
    path: PathBuf,
    /// Lives as long as the store is in use.
    _lease: Option<Box<dyn Send + Sync>>,
}

/// Free bytes of a file system in memory from which folders are made there.
const MEMORY_MIN: u64 = 2 << 30;

/// A folder in memory, where there is room for it: a test of kills, or of virtual time, does not wait for a disk.
pub(crate) fn memory_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map(|disk| disk.f_bavail * disk.f_frsize);
    match free.is_ok_and(|bytes| bytes >= MEMORY_MIN) {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            store: None,
            path: env!("CARGO_BIN_EXE_wideroom").into(),
            _lease: None,
        }
    }

    /// With a data folder in memory, which outlives the process as a disk does.
    pub(crate) fn in_memory() -> Self {
        Self {
            dir: memory_folder(),
            ..Self::new()
        }
    }

    /// On a store that others may share.
    pub(crate) fn on(store: String) -> Self {
        Self {
            store: Some(store),
            ..Self::new()
        }
    }

    /// On a store that another test has once this value is gone.
    pub(crate) fn on_leased(store: String, lease: impl Send + Sync + 'static) -> Self {
        Self {
            _lease: Some(Box::new(lease)),
            ..Self::on(store)
        }
    }

    /// The program of another release.
    pub(crate) fn released(self, path: PathBuf) -> Self {
        Self { path, ..self }
    }

    /// As `--store` has it.
    pub(crate) fn store(&self) -> &str {
        self.store.as_deref().expect("it is not in the data folder")
    }

    pub(crate) fn is_on_cluster(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command that has not begun, in a folder of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(&self.path, arguments)
    }

    /// The same, of the program of another release.
    pub(crate) fn command_of(&self, path: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(path);
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env_clear()
            .env("WIDEROOM_DATA", self.data());
        // How much disk the machine that runs the tests has left is not what is tested.
        command
            .env("WIDEROOM_FREE_DISK_MIN", "0B")
            .stdin(Stdio::null());
        // Many servers run here at once.
        command.env("WIDEROOM_ADMIN_LISTEN", "off");
        // No balancer waits for their end.
        command.env("WIDEROOM_DRAIN_DELAY", "0s");
        if let Some(store) = &self.store {
            command.env("WIDEROOM_STORE", store);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that is refused does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap().into()
    }

    /// A token as `wideroom token` prints it, without a process for each. It outlives an hour of chaos.
    pub(crate) fn token(&self, name: &str) -> String {
        self.token_for(name, Duration::from_secs(24 * 3_600))
    }

    /// The same with a life of its own.
    pub(crate) fn token_for(&self, name: &str, life: Duration) -> String {
        let user = UserId::parse(name).unwrap();
        Auth::open(&self.data())
            .unwrap()
            .issue(&user, life, SystemClock.now())
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Ended {
    /// Failed with this exit code and this one line on stderr.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, line: &str) {
        assert_eq!(
            (self.code, self.stderr.as_str()),
            (Some(code), format!("wideroom: {line}\n").as_str()),
            "{}",
            self.stdout
        );
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        &self.stdout
    }
}

/// A process that does not outlive its test, however the test ends.
pub(crate) struct Running {
    pub(crate) child: Child,
    /// Waits for the end of its input, which comes with the end of this process, and kills the child then.
    guard: Child,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.spawn().unwrap();
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r _; kill -9 \"$0\"", &child.id().to_string()]);
        let guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, guard }
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args([name, &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Whole log of a process that ends.
    pub(crate) fn read_stderr(&mut self) -> String {
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut log).unwrap();
        log
    }

    /// SIGKILL, and nothing of it is left.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The guard first: it must not find another process under the child's number.
        for process in [&mut self.guard, &mut self.child] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
