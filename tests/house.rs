//! House rules: the layers and their directions, the names of types, and the form of comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules that each module may use. Every module of the crate must be listed.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("analysis", &[]),
    ("clock", &["model"]),
    ("metrics", &[]),
    ("log_quota", &[]),
    ("weak_map", &[]),
    ("weighted_cache", &[]),
    ("watched_file", &[]),
    ("signed_post", &["watched_file"]),
    ("store", &["clock", "metrics", "model", "weak_map"]),
    ("bus", &["metrics", "model"]),
    ("rate", &["metrics"]),
    ("cluster", &["bus", "clock", "metrics", "model", "store"]),
    (
        "chat",
        &[
            "analysis",
            "bus",
            "clock",
            "cluster",
            "metrics",
            "model",
            "rate",
            "signed_post",
            "store",
            "weak_map",
            "weighted_cache",
        ],
    ),
    // graphql maps the store's errors to the codes of the API.
    (
        "graphql",
        &[
            "analysis",
            "chat",
            "metrics",
            "model",
            "rate",
            "store",
            "weak_map",
            "weighted_cache",
        ],
    ),
    ("auth", &["clock", "model", "signed_post", "watched_file"]),
    (
        "server",
        &[
            "auth",
            "clock",
            "graphql",
            "log_quota",
            "metrics",
            "model",
            "rate",
            "weak_map",
        ],
    ),
    (
        "webhook",
        &[
            "chat",
            "graphql",
            "metrics",
            "model",
            "signed_post",
            "store",
        ],
    ),
    (
        "config",
        &[
            "auth",
            "bus",
            "chat",
            "graphql",
            "model",
            "server",
            "signed_post",
            "store",
            "webhook",
        ],
    ),
    ("telemetry", &["config", "log_quota"]),
    ("transfer", &["clock", "model", "store"]),
    // A client that uses only the public API.
    ("load", &["auth", "clock", "config", "model"]),
    (
        "cli",
        &[
            "auth",
            "bus",
            "chat",
            "clock",
            "config",
            "graphql",
            "load",
            "metrics",
            "model",
            "server",
            "store",
            "telemetry",
            "transfer",
            "webhook",
        ],
    ),
];

/// Folders whose sub-folders point one way: a sub-folder may use those after it, and never one before it.
/// Modules of one file are listed too: sub-folders use those below them.
const DIRECTIONS: &[(&str, &[&str])] = &[
    (
        "chat",
        &[
            "remote_notices",
            "outbox",
            "stream",
            "erasure",
            "live",
            "write",
            "inbox",
            "search",
            "safety",
            "presence",
            "removal",
            "components",
            "due_shards",
            "listing",
            "participants",
            "history",
            "access",
            "index",
            "write_tasks",
            "late_rule",
            "publisher",
            "agent_sends",
            "live_feed",
            "in_flight_ids",
            "rate_limit",
            "replay_limiter",
            "single_flight",
            "recent_ids",
            "bounds",
            "error",
        ],
    ),
    (
        "chat/write",
        &[
            "conversation_queue",
            "send_batch",
            "group_change",
            "completed_change",
            "group_policy",
            "conversation_writer",
            "outgoing",
            "write_context",
            "introduction",
            "unknown_outcome",
            "backlog",
            "command",
        ],
    ),
    (
        "graphql",
        &[
            "subscription",
            "mutation",
            "fanout",
            "types",
            "scope",
            "execution",
            "connection",
            "loader",
            "scalar",
            "cursor",
            "id",
            "error",
        ],
    ),
    (
        "server",
        &[
            "ws",
            "http",
            "pages",
            "operation",
            "identification",
            "context",
            "bounds",
            "connection",
            "admission",
            "request",
            "answer",
            "chunks",
            "metrics",
            "request_log",
            "token_expiry",
            "trace_context",
            "trusted_documents",
            "origin",
        ],
    ),
    (
        "store/cql",
        &[
            "admin",
            "send",
            "inbox",
            "participant",
            "message",
            "cluster",
            "outbox",
            "driver",
        ],
    ),
];

/// Files of one folder, `mod.rs` included.
const FILES_MAX: usize = 16;

/// Folders that have more files yet. The list only ever becomes shorter.
const CROWDED: &[&str] = &[];

#[test]
fn layers_point_one_way() {
    let mut wrong = Vec::new();
    for file in sources() {
        let relative = file.strip_prefix(source_dir()).unwrap().to_owned();
        let first = relative
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs")
            .to_owned();
        if ["lib", "main"].contains(&first.as_str()) {
            continue;
        }
        let Some((_, may_use)) = MAY_USE.iter().find(|(module, _)| *module == first) else {
            wrong.push(format!(
                "{} belongs to no module of tests/house.rs",
                relative.display()
            ));
            continue;
        };
        for used in modules_used(&fs::read_to_string(&file).unwrap()) {
            if used != first && !may_use.contains(&used.as_str()) {
                wrong.push(format!("{} uses crate::{used}", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sub_folders_point_one_way() {
    for (folder, order) in DIRECTIONS {
        let (root, path) = (
            source_dir().join(folder),
            format!("crate::{}", folder.replace('/', "::")),
        );
        let mut upward = Vec::new();
        for file in files_in(&root) {
            let relative = file.strip_prefix(&root).unwrap();
            let first = relative.components().next().unwrap().as_os_str();
            let own = first.to_str().unwrap().trim_end_matches(".rs");
            let is_single = relative.components().count() == 1;
            let level = order.iter().position(|name| *name == own);
            let Some(level) = level else {
                // Single files at the top of the folder may use everything in it.
                assert!(
                    is_single,
                    "{folder}/{own} is not in the table of directions in tests/house.rs"
                );
                continue;
            };
            let source = fs::read_to_string(&file).unwrap();
            // Unit tests may use anything.
            let source = source.split("#[cfg(test)]").next().unwrap();
            let above = |name: &String| {
                order
                    .iter()
                    .position(|other| other == name)
                    .is_none_or(|other| other < level)
            };
            let used = used_below(source, &path);
            upward.extend(
                used.into_iter()
                    .filter(above)
                    .map(|name| format!("{} uses {path}::{name}", relative.display())),
            );
            // In a single file, and in `mod.rs` of a sub-folder, `super` is the folder itself.
            let is_root =
                is_single || relative.components().count() == 2 && relative.ends_with("mod.rs");
            if is_root {
                let named = source
                    .lines()
                    .filter_map(|line| line.strip_prefix("use super::"))
                    .filter_map(first_name);
                upward.extend(
                    named
                        .filter(above)
                        .map(|name| format!("{} uses super::{name}", relative.display())),
                );
            } else if source.contains("super::super") {
                upward.push(format!("{} uses super::super", relative.display()));
            }
        }
        assert!(
            upward.is_empty(),
            "imports that run up in {folder}:\n{}",
            upward.join("\n")
        );
    }
}

#[test]
fn a_folder_has_few_files() {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for file in sources() {
        *folders
            .entry(
                file.parent()
                    .unwrap()
                    .strip_prefix(source_dir())
                    .unwrap()
                    .to_owned(),
            )
            .or_default() += 1;
    }
    let crowded: Vec<_> = folders
        .iter()
        .filter(|(_, files)| **files > FILES_MAX)
        .map(|(folder, _)| folder.to_str().unwrap())
        .collect();
    assert_eq!(
        crowded, CROWDED,
        "folders with more than {FILES_MAX} files, and those that tests/house.rs still allows"
    );
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|file| !fs::read_to_string(file).unwrap().starts_with("//! "))
        .collect();
    assert!(
        silent.is_empty(),
        "without a first line of `//! `: {silent:?}"
    );
}

/// First words that a line of a comment must not have: comments begin with the noun or the verb.
const FORBIDDEN_OPENINGS: [&str; 8] = [
    "What", "Who", "Whoever", "Whom", "Where", "Of", "By", "That",
];

#[test]
fn comments_begin_with_the_noun_or_the_verb() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for file in ["src", "tests"]
        .iter()
        .flat_map(|folder| files_in(&root.join(folder)))
    {
        let relative = file.strip_prefix(root).unwrap();
        let source = fs::read_to_string(&file).unwrap();
        for (number, line) in source.lines().enumerate() {
            if let Some(comment) = line.trim_start().strip_prefix("//")
                && let Some(opening) = first_name(comment.trim_start_matches(['/', '!', ' ']))
                && FORBIDDEN_OPENINGS.contains(&opening.as_str())
            {
                wrong.push(format!(
                    "{}:{}: {}",
                    relative.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "comments that do not begin with the noun or the verb:\n{}",
        wrong.join("\n")
    );
}

/// Type names that several modules define, each with the reason.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[
    (
        "Error",
        "each layer has its own, and is named with its module",
    ),
    ("Result", "the alias of a module's own Error"),
];

/// A GraphQL type has the name of the type that it shows.
const SCHEMA_TYPES: &str = "graphql";
const SHOWN_BY_THE_SCHEMA: &[&str] = &["model", "chat"];

/// Tests that ask a real clock, or wait for one. The list only shrinks: time passes in virtual time (`start_paused`, a manual clock), and
/// processes are waited for through `support`.
const REAL_CLOCKS: &[&str] = &[
    "api/floor.rs",
    "api/moderation.rs",
    "api/pace.rs",
    "api/removed_text.rs",
    "auth/reload.rs",
    "binary/backup.rs",
    "binary/crash.rs",
    "binary/descriptors.rs",
    "binary/export.rs",
    "binary/follower.rs",
    "binary/import.rs",
    "binary/ledger.rs",
    "binary/live/agent.rs",
    "binary/live/mod.rs",
    "binary/live/viewer.rs",
    "binary/nats.rs",
    "binary/outbox.rs",
    "binary/read.rs",
    "binary/removal.rs",
    "binary/webhook.rs",
    "browser/mod.rs",
    "cli/access.rs",
    "cli/store_away.rs",
    "clients/mod.rs",
    "cluster/answers.rs",
    "cluster/chaos.rs",
    "cluster/club.rs",
    "cluster/crowd.rs",
    "cluster/faults.rs",
    "cluster/hung.rs",
    "cluster/load.rs",
    "cluster/outbox.rs",
    "cluster/ranges.rs",
    "cluster/restriction.rs",
    "cluster/slow_nodes.rs",
    "cluster/webhook.rs",
    "cluster/wrong_clocks.rs",
    "delivery/directory.rs",
    "delivery/world.rs",
    "fuzz/tape.rs",
    "fuzz/worst.rs",
    "live/before_send.rs",
    "live/event_pace.rs",
    "live/notification.rs",
    "live/prices.rs",
    "live/rates.rs",
    "live/schema.rs",
    "live/webhook.rs",
    "quiet/world.rs",
    "servers/block.rs",
    "servers/clocks.rs",
    "servers/cost.rs",
    "servers/ended.rs",
    "servers/floor.rs",
    "servers/large.rs",
    "servers/moderation.rs",
    "servers/nats.rs",
    "servers/outbox.rs",
    "servers/outcome.rs",
    "servers/random.rs",
    "servers/restriction.rs",
    "servers/seam.rs",
    "servers/slow.rs",
    "servers/storm.rs",
    "servers/upgrade.rs",
    "servers/versions.rs",
    "servers/watcher.rs",
    "store/cql_bounds.rs",
    "store/expiry.rs",
    "support/admin.rs",
    "support/cassandra/wait.rs",
    "support/cost.rs",
    "support/nats.rs",
    "support/proxy.rs",
    "support/receiver/mod.rs",
    "support/receiver/process.rs",
    "support/server.rs",
    "support/tool.rs",
];

#[test]
fn no_further_test_waits_for_a_real_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = BTreeSet::new();
    for file in files_in(&root) {
        let relative = file.strip_prefix(&root).unwrap().to_str().unwrap();
        let source = fs::read_to_string(&file).unwrap();
        let is_virtual = source.contains("start_paused");
        let is_real = [
            "std::time::Instant",
            "time::{Duration, Instant}",
            "SystemTime::now",
            "thread::sleep",
        ]
        .iter()
        .any(|word| source.contains(word))
            || !is_virtual && source.contains("sleep(");
        if is_real
            && !["bench/", "house.rs"]
                .iter()
                .any(|left_out| relative.starts_with(left_out))
        {
            found.insert(relative.to_owned());
        }
    }
    let listed: BTreeSet<_> = REAL_CLOCKS.iter().map(|file| (*file).to_owned()).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let ended: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty(), "use virtual time, or an event: {new:?}");
    assert!(
        ended.is_empty(),
        "take these off the list of tests/house.rs: {ended:?}"
    );
}

/// A mutation is executed without the arguments that have no value (`graphql::execution`); elsewhere null
/// and left out must be the same.
#[test]
fn only_mutations_tell_null_from_left_out() {
    let folder = source_dir().join("graphql/mutation");
    let others: Vec<_> = sources()
        .into_iter()
        .filter(|file| !file.starts_with(&folder))
        .filter(|file| fs::read_to_string(file).unwrap().contains("MaybeUndefined"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_type_name_is_defined_once() {
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in sources() {
        let relative = file.strip_prefix(source_dir()).unwrap().to_owned();
        for name in types_defined(&fs::read_to_string(&file).unwrap()) {
            modules.entry(name).or_default().push(relative.clone());
        }
    }
    assert!(modules.len() > 200, "the types were not found");
    let unused: Vec<_> = SHARED_TYPE_NAMES
        .iter()
        .filter(|(name, _)| modules.get(*name).is_none_or(|files| files.len() < 2))
        .collect();
    assert!(unused.is_empty(), "not shared any more: {unused:?}");
    let is_shared = |name: &str| SHARED_TYPE_NAMES.iter().any(|(shared, _)| *shared == name);
    let is_shown = |files: &[PathBuf]| {
        let (schema, shown): (Vec<_>, Vec<_>) = files
            .iter()
            .partition(|file| file.starts_with(SCHEMA_TYPES));
        let shows = |file: &&PathBuf| SHOWN_BY_THE_SCHEMA.iter().any(|one| file.starts_with(one));
        matches!((&schema[..], &shown[..]), ([_], [one]) if shows(one))
    };
    let twice: Vec<_> = modules
        .iter()
        .filter(|(name, files)| files.len() > 1 && !is_shared(name) && !is_shown(files))
        .map(|(name, files)| format!("{name}: {files:?}"))
        .collect();
    assert!(
        twice.is_empty(),
        "types that several modules define:\n{}",
        twice.join("\n")
    );
}

/// The types that a file defines at its top level, those of its tests left out.
fn types_defined(source: &str) -> BTreeSet<String> {
    let code = source.find("\n#[cfg(test)]\nmod tests {");
    let definition = |line: &str| {
        let public = line.strip_prefix("pub").map_or(line, |rest| {
            let rest = rest.strip_prefix('(').map_or(rest, |scope| {
                scope.split_once(')').map_or(scope, |(_, rest)| rest)
            });
            rest.trim_start()
        });
        let (keyword, rest) = public.split_once(' ')?;
        ["struct", "enum", "trait", "type"]
            .contains(&keyword)
            .then(|| first_name(rest))
            .flatten()
    };
    source[..code.unwrap_or(source.len())]
        .lines()
        .filter_map(definition)
        .collect()
}

/// Modules that follow `crate::`, alone or in a group.
fn modules_used(source: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (place, path) in source.match_indices("crate::") {
        // A longer name that ends in `crate` is another crate.
        if source[..place].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &source[place + path.len()..];
        match rest.strip_prefix('{') {
            Some(group) => {
                let group = &group[..group.find("};").unwrap_or(group.len())];
                used.extend(top_level_names(group));
            }
            None => used.extend(first_name(rest)),
        }
    }
    used.retain(|name| name.chars().next().is_some_and(char::is_lowercase));
    used
}

/// The names behind `path::`, alone or in a group.
fn used_below(source: &str, path: &str) -> BTreeSet<String> {
    let prefix = format!("{path}::");
    let mut used = BTreeSet::new();
    for (place, _) in source.match_indices(&prefix) {
        // `$crate::` in a macro is a path of ours, too.
        let rest = &source[place + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => used.extend(top_level_names(
                &group[..group.find("};").unwrap_or(group.len())],
            )),
            None => used.extend(first_name(rest)),
        }
    }
    used
}

fn top_level_names(group: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut names = Vec::new();
    for part in group.split_inclusive(['{', '}', ',']) {
        if depth == 0 {
            names.extend(first_name(part.trim_start()));
        }
        match part.chars().last() {
            Some('{') => depth += 1,
            Some('}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    names
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources() -> Vec<PathBuf> {
    let found = files_in(&source_dir());
    assert!(found.len() > 10, "the sources were not found");
    found
}

/// Rust files of a folder and its sub-folders.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}
