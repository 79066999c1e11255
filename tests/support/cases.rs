//! Cases that hold under other conditions, too: this program once more, with variables that say so.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::program::Running;
use super::size::is_gate;

/// Deadline against a hang. The cases took ten minutes beside a compiler.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Set where cases run once more.
const AGAIN: &str = "WIDEROOM_TEST_AGAIN";
/// Modules whose cases have a server of their own and no world: they are the same under every condition.
const WITHOUT_A_WORLD: [&str; 2] = ["api::clock::", "api::removed_text::"];

/// The length of a random case. Where it runs once more, under another condition, a shorter one meets the difference: the
/// rules are those of the first time.
pub(crate) fn length<T>(usual: T, again: T) -> T {
    match std::env::var_os(AGAIN) {
        Some(_) => again,
        None => usual,
    }
}

/// Names of a module's cases in their order, without some, which may be names of modules: all in the gate, otherwise the
/// first of each module inside.
pub(crate) fn cases_of(module: &str, without: &[&str]) -> Vec<String> {
    let listed = this_program()
        .args([module, "--list", "--format", "terse"])
        .output()
        .unwrap();
    let mut cases: Vec<_> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|case| {
            let mut left_out = without.iter().chain(&WITHOUT_A_WORLD);
            !left_out.any(|left_out| case.starts_with(left_out))
        })
        .map(str::to_owned)
        .collect();
    assert!(cases.len() > 100, "{cases:?}");
    if !is_gate() {
        cases.dedup_by(|one, before| module_of(one) == module_of(before));
    }
    cases
}

/// Module of a case.
fn module_of(case: &str) -> &str {
    case.rsplit_once("::").map_or(case, |(module, _)| module)
}

/// Runs cases with a variable, so many at once.
pub(crate) async fn assert_hold(cases: &[String], variable: (&str, &str), at_once: usize) {
    let mut program = this_program();
    program
        .args(["--exact", "--test-threads", &at_once.to_string()])
        .args(cases)
        .env(variable.0, variable.1)
        .env(AGAIN, "1");
    let mut running = Running::spawn(program.stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut stdout = running.child.stdout.take().unwrap();
    let said = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        stdout.read_to_string(&mut said).map(|_| said)
    });
    let said = tokio::time::timeout(PATIENCE, said)
        .await
        .expect("the cases end")
        .unwrap()
        .unwrap();
    assert!(running.child.wait().unwrap().success(), "{said}");
    let passed = format!("test result: ok. {} passed;", cases.len());
    assert!(said.contains(&passed), "all {} cases: {said}", cases.len());
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}
