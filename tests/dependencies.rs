//! Dependencies against `.deny.toml`, which cargo-deny reads too: licences, banned crates, sources; and images that are pinned.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use spdx::Expression;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn table(name: &str) -> toml::Table {
    std::fs::read_to_string(root().join(name))
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn no_banned_crate_and_no_other_registry_is_in_the_lockfile() {
    let (rules, lock) = (table(".deny.toml"), table("Cargo.lock"));
    let banned: Vec<_> = rules["bans"]["deny"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ban| ban["crate"].as_str().unwrap())
        .collect();
    assert!(banned.contains(&"openssl") && banned.contains(&"rsa"));
    let packages = lock["package"].as_array().unwrap();
    assert!(packages.len() > 50, "the dependencies were not found");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.contains(&name), "{name} is banned in .deny.toml");
        let source = package.get("source").and_then(toml::Value::as_str);
        let is_known = match source {
            None => name == "wideroom",
            Some(source) => source == "registry+https://github.com/rust-lang/crates.io-index",
        };
        assert!(is_known, "{name} is from {source:?}");
    }
}

/// A tag of one or two numbers moves from day to day.
#[test]
fn images_are_pinned_by_digest_or_by_their_full_version() {
    let text = |name: &str| std::fs::read_to_string(root().join("docker").join(name)).unwrap();
    let (dockerfile, compose) = (text("Dockerfile"), text("compose.yaml"));
    let bases: Vec<_> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "))
        .collect();
    assert_eq!(bases.len(), 2);
    for base in bases {
        let (_, digest) = base
            .split_once("@sha256:")
            .unwrap_or_else(|| panic!("{base}"));
        assert!(digest.split(' ').next().unwrap().len() == 64, "{base}");
    }
    let images = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "))
        .filter(|image| *image != "wideroom");
    let images: Vec<_> = images.collect();
    assert_eq!(images.len(), 3);
    for image in images {
        let version = image.split_once(':').unwrap().1.split('-').next().unwrap();
        assert_eq!(
            version
                .split('.')
                .filter(|part| part.parse::<u32>().is_ok())
                .count(),
            3,
            "{image}"
        );
    }
}

/// `.ci/run` runs the tests with the version that the manifest promises: the README must promise the same.
#[test]
fn the_readme_promises_the_version_of_rust_that_is_checked() {
    let manifest = table("Cargo.toml");
    let promised = manifest["package"]["rust-version"].as_str().unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.contains(&format!(
            "You need [Rust](https://rustup.rs) {promised} or later."
        )),
        "{promised}"
    );
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    // Unit tests, and two runs of which each takes what the other one leaves.
    let run = "cargo test --locked --test tests -- --include-ignored --skip nightly";
    for line in [
        "export RUSTUP_TOOLCHAIN=\"$promised\" CI=true\n",
        "begin_beside unit-tests cargo test --locked --lib -- --include-ignored\n",
        &format!("{run} \"${{rings[@]}}\"\n"),
        "for name in \"${rings[@]}\"; do skips+=(--skip \"$name\"); done\n",
        &format!("{run} \"${{skips[@]}}\" "),
    ] {
        assert!(ci.contains(line), "CI runs the tests with it: {line}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let rules = table(".deny.toml");
    let allowed: HashSet<_> = rules["licenses"]["allow"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the dependencies were not found");
    let mut refused = Vec::new();
    for package in packages {
        // The older way to write "or".
        let licence = package["license"]
            .as_str()
            .unwrap_or_default()
            .replace('/', " OR ");
        let is_allowed = Expression::parse(&licence).is_ok_and(|expression| {
            expression.evaluate(|requirement| allowed.contains(&requirement.to_string()))
        });
        if !is_allowed {
            refused.push(format!("{}: {licence}", package["name"].as_str().unwrap()));
        }
    }
    assert!(
        refused.is_empty(),
        "not allowed in .deny.toml:\n{}",
        refused.join("\n")
    );
}
