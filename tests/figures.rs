//! Figures of the page for operators, each beside the line of code that it speaks of: who changes one, changes both.

use std::collections::HashMap;
use std::path::Path;

/// A part of the page, a file below `src`, and a part of that file.
const FIGURES: &[(&str, &str, &str)] = &[
    (
        "`--drain-delay` (5 s)",
        "config/mod.rs",
        "drain_delay: Duration::from_secs(5)",
    ),
    (
        "(`--drain 10s`)",
        "server/bounds.rs",
        "drain: Duration::from_secs(10)",
    ),
    (
        "`--idle-wait 75s`",
        "server/connection/transport.rs",
        "idle: Duration::from_secs(75)",
    ),
    (
        "`--slow-request 1s`",
        "server/bounds.rs",
        "slow_request: Some(Duration::from_secs(1))",
    ),
    (
        "`--token-leeway 5s`",
        "auth/mod.rs",
        "LEEWAY: Duration = Duration::from_secs(5)",
    ),
    (
        "Below 1 GiB of free space",
        "store/embedded/mod.rs",
        "FREE_BYTES_MIN: u64 = 1 << 30",
    ),
    (
        "up to 60 s for a folder that another process has locked",
        "store/embedded/open.rs",
        "LOCK_WAIT_MAX: Duration = Duration::from_secs(60)",
    ),
    (
        "a line at first and one each minute",
        "cli/serve/store_opening.rs",
        "LOG_EVERY: Duration = Duration::from_secs(60)",
    ),
    (
        "leave 64 descriptors",
        "cli/serve/descriptors.rs",
        "RESERVED: u64 = 64",
    ),
    (
        "a minute has at most 60 warnings",
        "telemetry.rs",
        "LINES_MAX: u32 = 60;",
    ),
    (
        "60 lines of requests with one code",
        "server/request_log.rs",
        "REFUSAL_LINES_MAX: u32 = 60;",
    ),
    (
        "60,000 of those that succeed",
        "server/request_log.rs",
        "LINES_MAX: u32 = 60_000",
    ),
    (
        "one to three hours after nobody sees",
        "store/rules/expiry.rs",
        "REMOVAL_DELAY_MICROS: i64 = HOUR_MICROS",
    ),
    (
        "in segments of 64 to 4,096 messages",
        "chat/index/directory.rs",
        "[64, 512, 4_096]",
    ),
    (
        "compacts the index twice a day",
        "store/embedded/admin/compaction.rs",
        "SEARCH_EVERY_MICROS: i64 = 12 * HOUR_MICROS",
    ),
    (
        "keep every event for 7 days",
        "store/outbox.rs",
        "OUTBOX_KEEP: Duration = Duration::from_secs(7 * 24 * 3_600)",
    ),
    (
        "follow within 15 seconds",
        "store/outbox.rs",
        "OUTBOX_SWITCH_AGE_MAX: Duration = Duration::from_secs(10)",
    ),
    (
        "from one that ends within 20 s",
        "chat/outbox/lease.rs",
        "LEASE_FOR: Duration = Duration::from_secs(15)",
    ),
    (
        "from one that ends within 20 s",
        "webhook/coordinator.rs",
        "POLL_EVERY: Duration = Duration::from_secs(3)",
    ),
    (
        "at the rate of a user, 10 times a second in all",
        "server/admission/mod.rs",
        "USER_LIVE: Rate = Rate::per_second(10, 20)",
    ),
    (
        "sends four reads a second while the",
        "chat/live_feed/schedule.rs",
        "GROWING_EVERY: Duration = Duration::from_millis(250)",
    ),
    (
        "with two reads a second beside them and two rows a minute",
        "chat/live/writing.rs",
        "REREAD_AFTER: Duration = Duration::from_secs(1)",
    ),
    ("| 8, 4; 60 |", "chat/live/mod.rs", "AT_ONCE_MAX: usize = 8"),
    (
        "| 8, 4; 60 |",
        "chat/live/mod.rs",
        "AT_ONCE_OF_USER_MAX: usize = 4",
    ),
    ("| 8, 4; 60 |", "chat/live/mod.rs", "count: 60"),
    (
        "| 4 KiB; 128 bytes |",
        "model/live/text.rs",
        "BYTES_MAX: usize = 4 * 1024",
    ),
    (
        "| 4 KiB; 128 bytes |",
        "model/live/text.rs",
        "BYTES_MAX: usize = 128",
    ),
    (
        "`timeout` (1.5 s)",
        "chat/safety/send_hook.rs",
        "TIMEOUT_DEFAULT: Duration = Duration::from_millis(1_500)",
    ),
    (
        "asks about 64 messages at once",
        "chat/safety/send_hook.rs",
        "AT_ONCE_MAX: usize = 64",
    ),
    (
        "at once, 8 of a user",
        "chat/safety/send_hook.rs",
        "USER_AT_ONCE_MAX: usize = 8",
    ),
    (
        "has waited 2 s for that",
        "chat/safety/send_hook.rs",
        "WAIT_MAX: Duration = Duration::from_secs(2)",
    ),
    (
        "After 20 failures in a row",
        "chat/safety/hook_breaker.rs",
        "FAILURES_MAX: u32 = 20",
    ),
    (
        "about that user or about anybody for 5 s",
        "chat/safety/hook_breaker.rs",
        "OPEN_FOR: Duration = Duration::from_secs(5)",
    ),
    (
        "at most 500 messages a second",
        "chat/erasure/steps.rs",
        "READ_PER_SECOND: f64 = 500.0",
    ),
    (
        "the job names it for 400 days",
        "model/job.rs",
        "ENDED_LIFETIME_MICROS: i64 = 400 * 24 * 3_600 * 1_000_000",
    ),
    (
        "up to 35 days in logs of changes",
        "store/inbox.rs",
        "CHANGE_LIFETIME_MICROS: i64 = 35 * 24 * 3_600 * 1_000_000",
    ),
    (
        "for a day in keys of sends",
        "model/message/mod.rs",
        "LIFETIME_MICROS: i64 = 24 * 3_600 * 1_000_000",
    ),
    (
        "ten minutes later and at most once an hour",
        "store/embedded/admin/compaction.rs",
        "SETTLE_MICROS: i64 = 10 * MINUTE_MICROS",
    ),
    (
        "once a day for tables over 4 GiB",
        "store/embedded/admin/compaction.rs",
        "LARGE_BYTES: u64 = 4 << 30",
    ),
    (
        "at least 32 bytes",
        "auth/keys.rs",
        "SECRET_BYTES_MIN: usize = 32",
    ),
    (
        "RSA of at least 2,048 bits",
        "auth/keys.rs",
        "RSA_MODULUS_BYTES_MIN: usize = 256",
    ),
    (
        "every ten minutes, and at most once a minute",
        "auth/jwks.rs",
        "REFRESH_EVERY: Duration = Duration::from_secs(600)",
    ),
    (
        "every ten minutes, and at most once a minute",
        "auth/jwks.rs",
        "ASK_AGAIN: Duration = Duration::from_secs(60)",
    ),
    (
        "waits 5 s, reads 64 KiB",
        "auth/jwks.rs",
        "deadline: Duration::from_secs(5), answer_bytes: 64 * 1024",
    ),
    (
        "the last keys verify for 24 hours",
        "auth/jwks.rs",
        "KEEP: Duration = Duration::from_secs(24 * 3_600)",
    ),
    (
        "reads the files again every 5 s, and within a second",
        "auth/keyring.rs",
        "POLL_EVERY: Duration = Duration::from_secs(5)",
    ),
    (
        "reads the files again every 5 s, and within a second",
        "auth/keyring.rs",
        "POLLS_APART: Duration = Duration::from_secs(1)",
    ),
    (
        "at most 100,000 revocations",
        "chat/access/restrictions.rs",
        "REVOCATIONS_MAX: usize = 100_000",
    ),
    (
        "a suspension within 4 s",
        "chat/access/restrictions.rs",
        "KNOWN_WITHIN: Duration = Duration::from_secs(2 * POLL_EVERY.as_secs())",
    ),
    (
        "a suspension within 4 s",
        "chat/access/restrictions.rs",
        "POLL_EVERY: Duration = Duration::from_secs(2)",
    ),
    (
        "Beyond 64 connections a new one evicts",
        "server/admin.rs",
        "CONNECTIONS_MAX: usize = 64",
    ),
    (
        "It is 100 ms to 10 s",
        "store/cql/driver/address.rs",
        "TIMEOUT_MAX: Duration = Duration::from_secs(10)",
    ),
    (
        "It is 100 ms to 10 s",
        "store/cql/driver/address.rs",
        "Duration::from_millis(100)..=Address::TIMEOUT_MAX",
    ),
    (
        "timeout=2s]",
        "store/cql/driver/address.rs",
        "TIMEOUT: Duration = Duration::from_secs(2)",
    ),
    (
        "after a tenth of `timeout` (200 ms)",
        "store/cql/driver/request/hedging.rs",
        "attempt_max / 10",
    ),
    (
        "every two seconds and corrects",
        "store/cql/driver/nodes/clocks.rs",
        "COMPARE_EVERY: Duration = Duration::from_secs(2)",
    ),
    (
        "corrects a difference of up to 2 s",
        "store/cluster.rs",
        "SKEW_MAX: Duration = Duration::from_secs(2)",
    ),
    (
        "the ten seconds before its cursor",
        "store/cluster.rs",
        "READ_BACK: Duration = Duration::from_secs(10)",
    ),
    (
        "polls every three seconds instead of each second",
        "cluster/tasks.rs",
        "POLL_EVERY_WITH_NATS: Duration = Duration::from_secs(3)",
    ),
    (
        "polls every three seconds instead of each second",
        "cluster/tasks.rs",
        "POLL_EVERY: Duration = Duration::from_secs(1)",
    ),
    (
        "| 10, together 8 KiB; 2,048, 255, 127 bytes; 0 or more |",
        "model/content.rs",
        "COUNT_MAX: usize = 10",
    ),
    (
        "| 10, together 8 KiB; 2,048, 255, 127 bytes; 0 or more |",
        "model/content.rs",
        "BYTES_MAX: usize = 8 * 1024",
    ),
    (
        "| 10, together 8 KiB; 2,048, 255, 127 bytes; 0 or more |",
        "model/content.rs",
        "URL_BYTES_MAX: usize = 2_048",
    ),
    (
        "| 10, together 8 KiB; 2,048, 255, 127 bytes; 0 or more |",
        "model/content.rs",
        "NAME_BYTES_MAX: usize = 255",
    ),
    (
        "| 10, together 8 KiB; 2,048, 255, 127 bytes; 0 or more |",
        "model/content.rs",
        "MIME_TYPE_BYTES_MAX: usize = 127",
    ),
    (
        "| 100; 100; 50; 100 |",
        "model/page.rs",
        "COUNT_MAX: usize = 100",
    ),
    (
        "| 100; 100; 50; 100 |",
        "model/conversation.rs",
        "USERNAMES_MAX: usize = 50",
    ),
    (
        "| 100; 100; 50; 100 |",
        "chat/stream/presence_updates.rs",
        "USERS_MAX: usize = 100",
    ),
    (
        "200 characters; 10; 1 MiB of text",
        "chat/search/criteria.rs",
        "NAMES_MAX: usize = 10",
    ),
    (
        "200 characters; 10; 1 MiB of text",
        "chat/search/walk.rs",
        "BYTES_MAX: usize = 1 << 20",
    ),
    (
        "the 1,000 most recently active",
        "chat/search/across.rs",
        "CONVERSATIONS_MAX: usize = 1_000",
    ),
    (
        "| participants of a group | 20,000 |",
        "model/conversation.rs",
        "PARTICIPANTS_MAX: usize = 20_000",
    ),
    (
        "| 80,000 or 40 MiB |",
        "store/cql/message/bucket/mod.rs",
        "messages: 80_000, bytes: 40 << 20",
    ),
    (
        "| 128, 128, 256, 2,048 bytes; 64 bytes |",
        "model/user.rs",
        "BYTES_MAX: usize = 128",
    ),
    (
        "| 128, 128, 256, 2,048 bytes; 64 bytes |",
        "model/user.rs",
        "DISPLAY_NAME_BYTES_MAX: usize = 128",
    ),
    (
        "| 128, 128, 256, 2,048 bytes; 64 bytes |",
        "model/user.rs",
        "AVATAR_URL_BYTES_MAX: usize = 2_048",
    ),
    (
        "| 128, 128, 256, 2,048 bytes; 64 bytes |",
        "model/conversation.rs",
        "BYTES_MAX: usize = 256",
    ),
    (
        "| 64; no key twice in an object",
        "model/metadata.rs",
        "DEPTH_MAX: usize = 64",
    ),
    (
        "20, 5; 100; 1,000 |",
        "model/reaction.rs",
        "KINDS_MAX: usize = 20",
    ),
    (
        "20, 5; 100; 1,000 |",
        "model/reaction.rs",
        "KINDS_OF_USER_MAX: usize = 5",
    ),
    (
        "20, 5; 100; 1,000 |",
        "model/reaction.rs",
        "COUNT_MAX: u32 = 1_000",
    ),
    (
        "| 30 days; 24 hours |",
        "chat/stream/mod.rs",
        "CURSOR_LIFETIME_MICROS: i64 = 30 * 24 * 3_600 * 1_000_000",
    ),
    (
        "| 4,096 or 16 MiB |",
        "store/embedded/engine/committer.rs",
        "QUEUE_MAX: usize = 4_096",
    ),
    (
        "| 4,096 or 16 MiB |",
        "store/embedded/engine/committer.rs",
        "QUEUE_BYTES_MAX: usize = 16 << 20",
    ),
];

/// Text with one blank where lines end.
fn flat(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace(", }", " }")
}

#[test]
fn the_page_for_operators_has_the_figures_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| flat(&std::fs::read_to_string(root.join(path)).unwrap());
    let page = read("docker/README.md");
    let mut files = HashMap::new();
    let mut missing = Vec::new();
    for (figure, file, code) in FIGURES {
        let text = files
            .entry(file)
            .or_insert_with(|| read(&format!("src/{file}")));
        if !page.contains(figure) {
            missing.push(format!("docker/README.md: {figure}"));
        }
        if !text.contains(code) {
            missing.push(format!("src/{file}: {code} ({figure})"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
