//! Exports of other systems: the converters of `tests/clients/imports`, each on a sample in the format of its vendor, imported by the
//! program and read through the API.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::client::Caller;
use crate::support::program::Program;
use crate::support::server::Server;

const INBOX: &str = "{ inbox(first: 10) { edges { node { unreadCount conversation { kind name viewerParticipant { role }
    messages(last: 10) { edges { node { sender { username } body editedAt deletedAt isPinned mentionsEveryone mentions { username }
        replyTo { body } attachments { url } reactions { emoji count } } } } } } } } }";

/// The lines that a converter prints. `None` without Python.
fn converted(program: &str, arguments: &[&str]) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/imports");
    let mut python = Command::new("python3");
    python.args(["-B", program]).args(arguments);
    let output = python.current_dir(folder).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"));
        // Not eprintln!, which is kept from sight in a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "Python is not tested: python3 is missing"
        );
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "nothing is left out of the sample");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A message, with the parts of it that a sample has.
fn shown(message: &Value) -> String {
    let mut shown = format!(
        "{}: {}",
        text(&message["sender"]["username"]),
        text(&message["body"])
    );
    let mut add = |label: &str, is_there: bool| {
        if is_there {
            shown.push_str(label);
        }
    };
    add(" (edited)", message["editedAt"].is_string());
    add(" (deleted)", message["deletedAt"].is_string());
    add(" (pinned)", message["isPinned"] == true);
    add(" (everyone)", message["mentionsEveryone"] == true);
    for user in list(&message["mentions"]) {
        add(&format!(" (to {})", text(&user["username"])), true);
    }
    add(
        &format!(" < {}", text(&message["replyTo"]["body"])),
        message["replyTo"].is_object(),
    );
    for file in list(&message["attachments"]) {
        add(&format!(" [{}]", text(&file["url"])), true);
    }
    for reaction in list(&message["reactions"]) {
        add(
            &format!(" {}{}", text(&reaction["emoji"]), reaction["count"]),
            true,
        );
    }
    shown
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The inbox of a user after the import of these lines: each conversation with its messages, the oldest first.
async fn imported(lines: &str, losses: &str, username: &str) -> Vec<String> {
    let program = Program::new();
    let import = ["import", "-", "--lossy"];
    let first = program
        .run_with_input(&import, lines)
        .succeeded()
        .to_owned();
    assert!(first.contains("broken lines: 0"), "{first}");
    assert!(first.ends_with(losses), "{first}");
    let again = program
        .run_with_input(&import, lines)
        .succeeded()
        .to_owned();
    assert!(again.contains("messages 0 / "), "{again}");
    let server = Server::start(&program, &["--log", "warn"]);
    let token = program.token(username);
    let mut caller = Caller::connect(server.address(), &token).await.unwrap();
    let inbox = caller.data(INBOX, &json!({})).await.unwrap();
    let mut all = Vec::new();
    for edge in list(&inbox["inbox"]["edges"]) {
        let (entry, conversation) = (&edge["node"], &edge["node"]["conversation"]);
        all.push(format!(
            "{} {} {} unread {}",
            text(&conversation["kind"]),
            text(&conversation["name"]),
            text(&conversation["viewerParticipant"]["role"]),
            entry["unreadCount"]
        ));
        let messages = list(&conversation["messages"]["edges"]).iter().rev();
        all.extend(messages.map(|edge| shown(&edge["node"])));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_of_slack_is_imported() {
    let Some(lines) = converted("slack.py", &["samples/slack"]) else {
        return;
    };
    let losses = "kept in another way: 0 messages in 0 further ones, 2 reactions by the name of a custom emoji\n";
    assert_eq!(
        imported(&lines, losses, "alice").await,
        [
            "GROUP general OWNER unread 0",
            "alice: Lunch & soup at the menu (https://example.com/menu), @bob? (edited) (pinned) (to bob) :party_parrot:2 🎉1 👍🏻1",
            "bob: @here yes (everyone) < Lunch & soup at the menu (https://example.com/menu), @bob?",
            "bob:  [https://files.slack.com/files-pri/T01-F01/menu.pdf]",
            "USLACKBOT:  (deleted)",
            "bob: still here < ",
            "alice: Tasty [https://files.slack.com/files-pri/T01-F01/menu.pdf]",
            "DIRECT  MEMBER unread 0",
            "alice: note to self",
            "DIRECT  MEMBER unread 0",
            "bob: psst",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_of_mattermost_is_imported() {
    let arguments = ["samples/mattermost.jsonl", "https://files.example/"];
    let Some(lines) = converted("mattermost.py", &arguments) else {
        return;
    };
    let losses = "kept in another way: 0 messages in 0 further ones, 0 reactions by the name of a custom emoji\n";
    assert_eq!(
        imported(&lines, losses, "bob").await,
        [
            "DIRECT  MEMBER unread 0",
            "bob: psst",
            "GROUP Town Square MEMBER unread 2",
            "alice: Lunch? (edited) (pinned) 🎉1",
            "bob: Yes < Lunch?",
            "alice: At noon, @bob. (to bob) < Lunch? [https://files.example/20260301/teams/noteam/channels/c/users/u/f/menu%20list.pdf]",
            "reminder: Stand-up",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_of_matrix_are_imported() {
    let arguments = ["samples/matrix.json", "https://matrix.example.org"];
    let Some(lines) = converted("matrix.py", &arguments) else {
        return;
    };
    let losses = "kept in another way: 0 messages in 0 further ones, 0 reactions by the name of a custom emoji\n";
    let mut inbox = imported(&lines, losses, "@alice:example.org").await;
    // Both were last active in the same millisecond.
    if inbox[0].starts_with("DIRECT") {
        inbox.rotate_left(2);
    }
    assert_eq!(
        inbox,
        [
            "GROUP Lunch OWNER unread 1",
            "@alice:example.org: Lunch? (edited) (pinned) 🎉1",
            "@bob:example.org: Yes (to @alice:example.org) < Lunch?",
            "@bob:example.org:  (deleted)",
            "@bob:example.org:  [https://matrix.example.org/_matrix/client/v1/media/download/example.org/media1]",
            "DIRECT  MEMBER unread 0",
            "@bob:example.org: psst",
        ]
    );
}

/// An answer of `/messages` and a chat that Element exported have less: no roles, and perhaps no members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_a_room_of_matrix_is_imported() {
    let losses = "kept in another way: 0 messages in 0 further ones, 0 reactions by the name of a custom emoji\n";
    for (sample, second) in [
        ("samples/matrix_messages.json", "Yes 👍1"),
        ("samples/element.json", "Yes < Lunch?"),
    ] {
        let Some(lines) = converted("matrix.py", &[sample]) else {
            return;
        };
        assert_eq!(
            imported(&lines, losses, "@alice:example.org").await,
            [
                "GROUP Lunch OWNER unread 0".to_owned(),
                "@alice:example.org: Lunch?".to_owned(),
                format!("@bob:example.org: {second}"),
            ]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_read_a_message_that_is_split_has_read_all_of_it() {
    let ids = [
        "a3e39830-e29b-11ef-8001-000000000001",
        "a3e3bf40-e29b-11ef-8001-000000000001",
    ];
    let body = "word ".repeat(10_000);
    let mut lines = String::new();
    for (number, order) in [[0, 1, 2], [0, 2, 1]].into_iter().enumerate() {
        let on = format!(r#""conversationId":"0190a7c4-7a1d-4c3e-8f2b-00000000000{number}""#);
        let conversation = format!(
            "{{{},\"type\":\"conversation\"}}",
            on.replace("conversationId", "id")
        );
        let people = [("alice", ids[1]), ("bob", ids[0])].map(|(username, read)| {
            format!(r#"{{"type":"participant",{on},"username":"{username}","readUpTo":"{read}"}}"#)
        });
        let messages = ids.map(|id| {
            format!(r#"{{"type":"message",{on},"id":"{id}","sender":"cara","body":"{body}"}}"#)
        });
        let parts = [conversation, people.join("\n"), messages.join("\n")];
        for part in order {
            lines += &format!("{}\n", parts[part]);
        }
    }
    let losses = "kept in another way: 4 messages in 8 further ones, 0 reactions by the name of a custom emoji\n";
    // Without an OWNER in the file, the first user is one by succession.
    for (username, role, unread) in [("alice", "OWNER", 0), ("bob", "MEMBER", 3)] {
        let inbox = imported(&lines, losses, username).await;
        let entries = inbox.into_iter().filter(|line| line.starts_with("GROUP"));
        let expected = format!("GROUP  {role} unread {unread}");
        assert_eq!(entries.collect::<Vec<_>>(), [expected.clone(), expected]);
    }
}
