//! Kotlin programs that drive clients of the JVM: `tests/clients`, built by Maven in a folder outside the source tree.
//!
//! They want Java and Maven. Where one is absent a line says so and the test passes, except in CI.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::tool;

/// Runs the class `MainKt` of a program of `tests/clients` to its good end. False where it cannot be run.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> bool {
    if !["java", "mvn"].into_iter().all(is_installed) {
        assert!(
            std::env::var_os("CI").is_none_or(|value| value != "true"),
            "{program}: java or mvn is missing"
        );
        // Not eprintln!, which is kept from sight in a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "LEFT OUT: {program}: java or mvn is missing"
        );
        return false;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(program);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("java")
        .join(program);
    std::fs::create_dir_all(&folder).unwrap();
    let class_path = folder.join("classpath");
    let mut build = Command::new("mvn");
    build
        .args(["--batch-mode", "--quiet", "compile"])
        .arg("dependency:build-classpath")
        .arg(format!("-Dbuild.folder={}", folder.display()))
        .arg(format!("-Dmdep.outputFile={}", class_path.display()))
        .current_dir(source);
    tool::run(&mut build);
    let libraries = std::fs::read_to_string(class_path).unwrap();
    let classes = folder.join("classes");
    let mut run = Command::new("java");
    run.arg("-cp")
        .arg(format!("{}:{}", classes.display(), libraries.trim()))
        .arg("MainKt")
        .args(arguments);
    tool::run(&mut run);
    true
}

fn is_installed(tool: &str) -> bool {
    let mut version = Command::new(tool);
    version
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
