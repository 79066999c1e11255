//! Build script: installs GraphiQL, React and the WebSocket client from npm into `OUT_DIR`, for the binary to embed.
//!
//! It writes nothing into the source tree. Without npm or a network it leaves the files empty and prints a warning; the
//! page then loads them from a pinned CDN. `WIDEROOM_BUILD_PAGES=embed` makes that an error, `cdn` skips npm.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "vendored.rs"]
#[expect(dead_code, reason = "versions and integrity are for the page")]
mod vendored;

const SOURCE: &str = "src/server/pages";
/// Longest wait for npm, and that of a build which is nothing without its answer: a machine may be busy.
const NPM_TIME: Duration = Duration::from_secs(120);
const NPM_TIME_OF_EMBED: Duration = Duration::from_secs(600);

fn main() -> Result<(), String> {
    for path in [
        "src/server/pages/build.rs",
        "src/server/pages/vendored.rs",
        "src/server/pages/package.json",
        "src/server/pages/package-lock.json",
    ] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=WIDEROOM_BUILD_PAGES");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?).join("pages");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;

    let mode = std::env::var("WIDEROOM_BUILD_PAGES").unwrap_or_default();
    if mode == "cdn" {
        return leave_empty(&out);
    }
    let patience = if mode == "embed" {
        NPM_TIME_OF_EMBED
    } else {
        NPM_TIME
    };
    match embed(&out, patience) {
        Ok(()) => Ok(()),
        Err(reason) if mode == "embed" => Err(format!("GraphiQL could not be embedded: {reason}")),
        Err(reason) => {
            println!(
                "cargo:warning=GraphiQL is not in this build ({reason}): the page at / will load it from a CDN."
            );
            println!(
                "cargo:warning=To try again: touch src/server/pages/build.rs. To have this as an error: WIDEROOM_BUILD_PAGES=embed."
            );
            leave_empty(&out)
        }
    }
}

/// Installs by the lockfile in a working folder, and copies the files of the page and the licences.
fn embed(out: &Path, patience: Duration) -> Result<(), String> {
    let work = out.with_file_name("npm");
    // Remove the rest of an interrupted run.
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(|error| error.to_string())?;
    for name in ["package.json", "package-lock.json"] {
        copy(&Path::new(SOURCE).join(name), &work.join(name))?;
    }
    npm_ci(&work, patience)?;
    let modules = work.join("node_modules");
    for file in &vendored::VENDORED {
        copy(
            &modules.join(file.package).join(file.path),
            &out.join(file.name),
        )?;
    }
    let mut licences = String::from(
        "GraphiQL and its parts, as they are in this binary, stand under these licences.\n",
    );
    gather_licences(&modules, &modules, &mut licences)?;
    fs::write(out.join("licences.txt"), licences).map_err(|error| error.to_string())?;
    // The page needs two of its fifty megabytes.
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

fn npm_ci(work: &Path, patience: Duration) -> Result<(), String> {
    let log = work.join("npm.log");
    let output = File::create(&log).map_err(|error| error.to_string())?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" })
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--fetch-retries=1",
            "--loglevel=error",
        ])
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("npm did not start: {error}"))?;
    let deadline = Instant::now() + patience;
    loop {
        match npm.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let line = said
                    .lines()
                    .find(|line| line.starts_with("npm error"))
                    .unwrap_or_default();
                return Err(format!("npm ci ended with {status} {line}"));
            }
            None if Instant::now() > deadline => {
                let _ = npm.kill();
                let _ = npm.wait();
                return Err(format!("npm ci took longer than {} s", patience.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Gathers the licences of the bundled dependencies, which require it.
fn gather_licences(folder: &Path, modules: &Path, text: &mut String) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort();
    for path in paths {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_ascii_lowercase();
        if path.is_dir() && !path.is_symlink() {
            gather_licences(&path, modules, text)?;
        } else if name.starts_with("license") || name.starts_with("licence") {
            let package = folder.strip_prefix(modules).unwrap_or(folder).display();
            let licence =
                String::from_utf8_lossy(&fs::read(&path).map_err(|error| error.to_string())?)
                    .into_owned();
            text.push_str(&format!("\n\n---- {package}\n\n{}", licence.trim()));
        }
    }
    Ok(())
}

fn leave_empty(out: &Path) -> Result<(), String> {
    let mut names = vendored::VENDORED
        .iter()
        .map(|file| file.name)
        .chain(["licences.txt"]);
    names.try_for_each(|name| {
        fs::write(out.join(name), "").map_err(|error| format!("{name}: {error}"))
    })
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| format!("{}: {error}", from.display()))
}
