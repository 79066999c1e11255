//! System calls of a traced process, as strace writes them: in the order of their beginnings and
//! ends.
//!
//! strace stops a thread before and after each call, and writes the lines of all threads in one
//! order. A call on a later line therefore did not begin, or end, before one on an earlier line,
//! whatever the clocks say.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Calls that change files, and calls that write to sockets.
/// Calls that the replay does not know are here too, so that it fails instead of missing a change.
const CALLS: &[&str] = &[
    "openat",
    "open",
    "creat",
    "close",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "socket",
    "accept",
    "accept4",
    "lseek",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "ftruncate",
    "truncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "mmap",
    "copy_file_range",
    "sendfile",
    "splice",
    "io_uring_setup",
];
/// Longest text that strace writes out: more than the engine writes at once.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// One argument: its text without quotes, and the bytes of all strings in it.
#[derive(Debug, Default)]
pub(super) struct Argument {
    pub(super) word: String,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<Argument>,
    /// `None`: the process ended before the call did.
    pub(super) result: Option<i64>,
}

/// Beginning or end of a call, by its index.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Begin(usize),
    End(usize),
}

#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) calls: Vec<Call>,
    pub(super) steps: Vec<Step>,
}

/// Whether strace is installed. A landing fails without it.
pub(super) fn is_strace_there() -> bool {
    let mut command = Command::new("strace");
    let is_there = command
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_there {
        assert!(
            std::env::var_os("CI").is_none(),
            "strace is missing: apt-get install strace"
        );
        println!("SKIPPED: strace is not installed (apt-get install strace)");
    }
    is_there
}

/// The same command under strace. The process keeps its parent, so that signals reach it; the
/// tracer ends after it.
pub(super) fn traced(command: &Command, output: &Path) -> Command {
    let mut traced = Command::new("strace");
    // `?` allows a call that this machine does not have.
    let calls: Vec<_> = CALLS.iter().map(|call| format!("?{call}")).collect();
    traced
        .args([
            "-D",
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-xx",
            "-e",
            "signal=none",
            "-s",
        ])
        .arg(TEXT_BYTES_MAX.to_string())
        .arg("-e")
        .arg(format!("trace={}", calls.join(",")))
        .arg("-o")
        .arg(output)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        traced.current_dir(folder);
    }
    traced
}

impl Trace {
    pub(super) fn read(path: &Path) -> Self {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path).unwrap());
        let mut trace = Self::default();
        let mut unfinished = HashMap::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).unwrap() == 0 {
                return trace;
            }
            trace.read_line(line.trim_ascii_end(), &mut unfinished);
        }
    }

    /// Reads one line. `unfinished` maps a thread to its running call and the text of its begin.
    fn read_line(&mut self, line: &[u8], unfinished: &mut HashMap<u32, (usize, Vec<u8>)>) {
        let space = line.iter().position(|byte| *byte == b' ').unwrap();
        let thread = std::str::from_utf8(&line[..space])
            .unwrap()
            .parse()
            .unwrap();
        let text = line[space..].trim_ascii_start();
        if text.starts_with(b"---") || text.starts_with(b"+++") {
            return;
        }
        if let Some(begun) = text.strip_suffix(b"<unfinished ...>") {
            let begun = begun.trim_ascii_end().to_vec();
            let call = self.calls.len();
            self.calls.push(Call::parse(&begun, b""));
            self.steps.push(Step::Begin(call));
            unfinished.insert(thread, (call, begun));
        } else if text.starts_with(b"<... ") {
            let (call, begun) = unfinished.remove(&thread).expect("it has begun");
            let from = find(text, b" resumed>").unwrap() + b" resumed>".len();
            self.calls[call] = Call::parse(&begun, &text[from..]);
            self.steps.push(Step::End(call));
        } else {
            let call = self.calls.len();
            self.calls.push(Call::parse(text, b""));
            self.steps.extend([Step::Begin(call), Step::End(call)]);
        }
    }
}

impl Call {
    fn parse(text: &[u8], rest: &[u8]) -> Self {
        let open = text.iter().position(|byte| *byte == b'(').unwrap();
        let name = String::from_utf8(text[..open].to_vec()).unwrap();
        let mut parser = Parser::default();
        parser.read(&text[open + 1..]);
        let end = parser.read(rest);
        let result = std::str::from_utf8(&end).unwrap().trim_start();
        let number = result
            .strip_prefix("= ")
            .and_then(|result| result.split(' ').next());
        let result = number.filter(|number| *number != "?").map(|number| {
            let hexadecimal = number.strip_prefix("0x");
            hexadecimal.map_or_else(
                || {
                    number
                        .parse()
                        .unwrap_or_else(|_| panic!("not a result: {result}"))
                },
                |digits| i64::from_str_radix(digits, 16).unwrap_or(i64::MAX),
            )
        });
        Self {
            name,
            arguments: parser.arguments,
            result,
        }
    }
}

/// Parser of a call's arguments, which may come in two pieces.
#[derive(Default)]
struct Parser {
    arguments: Vec<Argument>,
    /// Open brackets. The one around the arguments is not counted.
    depth: usize,
    is_closed: bool,
    after: Vec<u8>,
}

impl Parser {
    /// Reads a piece. Returns the text behind the closing bracket, once it is there.
    fn read(&mut self, text: &[u8]) -> Vec<u8> {
        let mut at = 0;
        while at < text.len() && !self.is_closed {
            match text[at] {
                b'"' => at = self.string(text, at + 1),
                b',' if self.depth == 0 => self.arguments.push(Argument::default()),
                b')' if self.depth == 0 => self.is_closed = true,
                byte => {
                    match byte {
                        b'(' | b'[' | b'{' => self.depth += 1,
                        b')' | b']' | b'}' => self.depth -= 1,
                        _ => {}
                    }
                    let word = &mut self.argument().word;
                    if byte != b' ' || !word.is_empty() {
                        word.push(char::from(byte));
                    }
                }
            }
            at += 1;
        }
        self.after.extend_from_slice(&text[at..]);
        self.after.clone()
    }

    fn argument(&mut self) -> &mut Argument {
        if self.arguments.is_empty() {
            self.arguments.push(Argument::default());
        }
        self.arguments.last_mut().unwrap()
    }

    /// Reads a string of `\x` escapes. Returns the place of its closing quote.
    fn string(&mut self, text: &[u8], mut at: usize) -> usize {
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
        let bytes = &mut self.argument().bytes;
        while text[at] != b'"' {
            assert_eq!(&text[at..at + 2], b"\\x", "every byte is escaped");
            bytes.push(digit(text[at + 2]) << 4 | digit(text[at + 3]));
            at += 4;
        }
        assert!(
            !text[at + 1..].starts_with(b"..."),
            "strace cut a text short"
        );
        at
    }
}

pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[test]
fn calls_of_two_threads_are_read_in_their_order() {
    let lines: [&[u8]; 6] = [
        br#"7 openat(AT_FDCWD, "\x2f\x61", O_RDWR|O_CREAT, 0600) = 3"#,
        b"7 fsync(3 <unfinished ...>",
        br#"8 writev(4, [{iov_base="\x61\x22", iov_len=2}, {iov_base="\x2c", iov_len=1}], 2) = 3"#,
        b"9 +++ exited with 0 +++",
        b"7 <... fsync resumed>)              = 0",
        br#"8 write(5, "\x29\x3d", 2) = -1 EPIPE (Broken pipe)"#,
    ];
    let (mut trace, mut unfinished) = (Trace::default(), HashMap::new());
    for line in lines {
        trace.read_line(line, &mut unfinished);
    }
    let names: Vec<_> = trace
        .calls
        .iter()
        .map(|call| (call.name.as_str(), call.result))
        .collect();
    let expected = [("openat", 3), ("fsync", 0), ("writev", 3), ("write", -1)];
    assert_eq!(names, expected.map(|(name, result)| (name, Some(result))));
    assert_eq!(trace.calls[0].arguments[1].bytes, b"/a");
    assert_eq!(trace.calls[0].arguments[2].word, "O_RDWR|O_CREAT");
    assert_eq!(trace.calls[2].arguments[0].word, "4");
    assert_eq!(trace.calls[2].arguments[1].bytes, b"a\",");
    assert_eq!(trace.calls[3].arguments[1].bytes, b")=");
    let order: Vec<_> = trace.steps.iter().map(|step| format!("{step:?}")).collect();
    let expected = "Begin(0) End(0) Begin(1) Begin(2) End(2) End(1) Begin(3) End(3)";
    assert_eq!(order.join(" "), expected);
}
