//! The jars of Cassandra, which Maven brings once for all runs, and the Java that they want.

use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::sync::OnceCell;

use super::super::program::Running;
use super::wait::Not;
use super::{say, wait};

/// Cassandra wants a security manager, which later ones have not.
const JAVA: RangeInclusive<u32> = 17..=23;

/// Path of `tests/cassandra`.
pub(super) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cassandra")
}

/// The folder with the jars. `None` where they cannot be had, or not be run, which is said once; in CI that is a failure.
pub(super) async fn jars() -> Option<&'static Path> {
    static JARS: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
    let found = JARS.get_or_init(async || {
        let found = find().await;
        if let Err(missing) = &found {
            say(&format!("the tests on Cassandra do not run: {missing}"));
        }
        found
    });
    match found.await {
        Ok(jars) => Some(jars),
        Err(missing) => {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "the tests on Cassandra cannot run: {missing}"
            );
            None
        }
    }
}

async fn find() -> Result<PathBuf, String> {
    match java_version() {
        Some(version) if JAVA.contains(&version) => {}
        Some(version) => {
            return Err(format!(
                "they want Java {}, and this is Java {version}",
                JAVA.start()
            ));
        }
        None => {
            return Err(format!(
                "Java is missing, install Java {} and Maven",
                JAVA.start()
            ));
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cassandra");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // Another run may be at it. The lock goes with the file, and with the process.
    let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    wait::until(
        "waiting for another run, which brings the jars of Cassandra",
        async || match lock.try_lock() {
            Ok(()) => Ok(()),
            Err(fs::TryLockError::WouldBlock) => Err(Not::Yet("it is locked".to_owned())),
            Err(fs::TryLockError::Error(error)) => Err(Not::Ever(error.to_string())),
        },
    )
    .await?;
    let jars = folder.join("jars");
    let (pom, copied_by) = (source().join("pom.xml"), jars.join("pom.xml"));
    // The copy is the last thing that is written there: what was cut off has none.
    if fs::read(&copied_by).ok() != fs::read(&pom).ok() {
        copy(&pom, &jars).await?;
        fs::copy(&pom, &copied_by).map_err(|error| error.to_string())?;
    }
    Ok(jars)
}

async fn copy(pom: &Path, jars: &Path) -> Result<(), String> {
    if jars.exists() {
        fs::remove_dir_all(jars).map_err(|error| error.to_string())?;
    }
    if Command::new("mvn").arg("--version").output().is_err() {
        return Err("Maven is missing, install it".to_owned());
    }
    say(&format!(
        "Maven brings the jars of Cassandra, 67 MB, once: {}",
        jars.display()
    ));
    let log = jars.with_extension("log");
    let mut maven = Command::new("mvn");
    maven
        .args([
            "--batch-mode",
            "--quiet",
            "dependency:copy-dependencies",
            "--file",
        ])
        .arg(pom);
    maven.arg(format!("-DoutputDirectory={}", jars.display()));
    let output = File::create(&log).map_err(|error| error.to_string())?;
    maven
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null());
    let mut maven = Running::spawn(&mut maven);
    let status = wait::until("Maven brings the jars of Cassandra", async || {
        match maven.child.try_wait() {
            Ok(status) => status.ok_or_else(|| Not::Yet("it runs".to_owned())),
            Err(error) => Err(Not::Ever(error.to_string())),
        }
    });
    if !status.await?.success() {
        return Err(format!(
            "Maven could not bring the jars, see {}",
            log.display()
        ));
    }
    Ok(())
}

/// The first number of it. `None` where there is no Java.
fn java_version() -> Option<u32> {
    let java = std::env::var_os("JAVA_HOME").map_or_else(
        || PathBuf::from("java"),
        |home| Path::new(&home).join("bin/java"),
    );
    let said = Command::new(java).arg("-version").output().ok()?.stderr;
    // As in `openjdk version "17.0.15" 2025-04-15`.
    let said = String::from_utf8_lossy(&said).into_owned();
    said.split('"')
        .nth(1)?
        .split(['.', '-', '+'])
        .next()?
        .parse()
        .ok()
}
