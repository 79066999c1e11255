//! What comes in with a dependency stands under a licence that `.deny.toml` allows. (That file is read by cargo-deny too.)

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use spdx::Expression;

#[test]
fn every_dependency_has_an_allowed_licence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules: toml::Table = std::fs::read_to_string(root.join(".deny.toml")).unwrap().parse().unwrap();
    let allowed: HashSet<_> = rules["licenses"]["allow"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the dependencies were not found");
    let mut refused = Vec::new();
    for package in packages {
        // The older way to write "or".
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        let is_allowed = Expression::parse(&licence)
            .is_ok_and(|expression| expression.evaluate(|requirement| allowed.contains(&requirement.to_string())));
        if !is_allowed {
            refused.push(format!("{}: {licence}", package["name"].as_str().unwrap()));
        }
    }
    assert!(refused.is_empty(), "not allowed in .deny.toml:\n{}", refused.join("\n"));
}
