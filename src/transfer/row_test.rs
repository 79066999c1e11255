//! Tests of the rows of lines, and of their way back.

use super::*;
use crate::model::{Body, Message};

const NOW: &str = "2026-03-15T13:00:00Z";
const CONVERSATION: &str = r#""conversationId":"550e8400-e29b-41d4-a716-446655440001""#;
const MESSAGE: &str = r#""id":"a3e39830-e29b-11ef-8001-000000000001","sender":"alice""#;

fn context(is_lossy: bool, is_export: bool) -> LineContext {
    LineContext {
        number: 17,
        now: Timestamp::parse(NOW).unwrap(),
        rules: ImportRules {
            is_lossy,
            is_export,
        },
    }
}

fn read_by(text: &str, context: &LineContext) -> Result<LineRows> {
    rows(Line::parse(text.as_bytes())?, context)
}

fn read(text: &str) -> Result<Vec<ImportRow>> {
    read_by(text, &context(false, false)).map(|read| read.rows)
}

fn message(rest: &str) -> Result<Message> {
    let rows = read(&format!(
        r#"{{"type":"message",{CONVERSATION},{MESSAGE}{rest}}}"#
    ))?;
    let [ImportRow::Message(message)] = &rows[..] else {
        panic!("one message: {rows:?}")
    };
    Ok(Message::clone(message))
}

fn participant(rest: &str) -> Result<(Membership, ImportPositions)> {
    let rows = read(&format!(
        r#"{{"type":"participant",{CONVERSATION},"username":"alice"{rest}}}"#
    ))?;
    let [
        ImportRow::Participant {
            membership,
            positions,
            ..
        },
    ] = rows[..]
    else {
        panic!("one participant: {rows:?}")
    };
    Ok((membership, positions))
}

#[test]
fn the_sample_is_in_order() {
    let sample = include_str!("../cli/demo.jsonl");
    for (number, line) in (1..).zip(sample.lines()) {
        let context = LineContext {
            number,
            ..context(false, false)
        };
        read_by(line, &context).unwrap();
    }
}

#[test]
fn a_conversation_with_its_participants_is_one_unit() {
    let rows = read(
        r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","participants":[{"username":"alice","role":"OWNER"},{"username":"bob"}]}"#,
    );
    let rows = rows.unwrap();
    assert!(
        matches!(&rows[0], ImportRow::Conversation { conversation, last_activity: None, .. } if conversation.created_at.to_string().starts_with("2026-03-15T13"))
    );
    assert!(
        matches!(&rows[1], ImportRow::Participant { membership, .. } if membership.role == Role::Owner)
    );
    assert_eq!(rows.len(), 3);
}

#[test]
fn nobody_takes_part_twice() {
    let line = r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","participants":[{"username":"a"},{"username":"a"}]}"#;
    assert_eq!(read(line).unwrap_err(), "`participants` has \"a\" twice");
}

#[test]
fn a_direct_conversation_has_two_at_most() {
    let line = r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"DIRECT","participants":[{"username":"a"},{"username":"b"},{"username":"c"}]}"#;
    assert_eq!(
        read(line).unwrap_err(),
        "`participants` has 3 entries, and 2 is the most"
    );
}

#[test]
fn one_who_left_has_left() {
    let left = participant(r#","joinedAt":"2026-01-01T00:00:00Z","leftAt":"2026-02-01T00:00:00Z""#)
        .unwrap()
        .0;
    assert_eq!(
        (left.state, left.since),
        (
            MembershipState::Left,
            Timestamp::parse("2026-02-01T00:00:00Z")
        )
    );
    assert!(
        participant(r#","state":"JOINED","leftAt":"2026-02-01T00:00:00Z""#)
            .unwrap_err()
            .contains("LEFT")
    );
}

#[test]
fn ids_are_timeuuids_between_1970_and_now() {
    assert!(message(r#","body":"hello""#).is_ok());
    let id = |id: &str| participant(&format!(r#","readUpTo":"{id}""#)).unwrap_err();
    assert_eq!(
        id("550e8400-e29b-41d4-a716-446655440001"),
        "`readUpTo` must be a timeuuid (a UUID of version 1) from 1970 on"
    );
    assert_eq!(
        id("00000000-0000-1000-8000-000000000000"),
        "`readUpTo` must be a timeuuid (a UUID of version 1) from 1970 on"
    );
    let at = |micros| MessageId::new(Timestamp::parse(NOW).unwrap().plus_micros(micros), [0; 8]);
    assert!(participant(&format!(r#","readUpTo":"{}""#, at(2_000_000))).is_ok());
    assert!(id(&at(2_000_001).to_string()).starts_with("`readUpTo` lies in the future"));
}

#[test]
fn floors_and_times_do_not_lie_ahead() {
    let key = |micros| {
        let moment = Timestamp::parse(NOW).unwrap().plus_micros(micros);
        OrderKey::first_at(moment)
            .0
            .map(|byte| format!("{byte:02x}"))
            .concat()
    };
    let (soon, ahead) = ("2026-03-15T13:00:02Z", "2099-01-01T00:00:00Z");
    for field in ["visibleFrom", "clearedUpTo"] {
        assert!(participant(&format!(r#","{field}":"{}""#, key(2_000_000))).is_ok());
        let refused = participant(&format!(r#","{field}":"{}""#, key(2_000_001))).unwrap_err();
        assert!(
            refused.starts_with(&format!("`{field}` lies in the future")),
            "{refused}"
        );
    }
    for (field, other) in [
        ("joinedAt", ""),
        ("archivedAt", ""),
        ("leftAt", r#","state":"LEFT""#),
        ("silencedSince", ""),
    ] {
        let refused = participant(&format!(r#"{other},"{field}":"{ahead}""#)).unwrap_err();
        let line = format!("`{field}` lies in the future, at 2099-01-01T00:00:00");
        assert!(refused.starts_with(&line), "{refused}");
    }
    assert!(participant(&format!(r#","joinedAt":"{soon}""#)).is_ok());
    // An end may lie ahead.
    let silenced = format!(r#","silencedSince":"2026-02-01T00:00:00Z","silencedUntil":"{ahead}""#);
    assert!(participant(&silenced).is_ok());
    let deleted = message(&format!(r#","body":"a","editedAt":"{ahead}""#));
    assert!(
        deleted
            .unwrap_err()
            .starts_with("`editedAt` lies in the future")
    );
}

#[test]
fn a_deletion_clears_the_content() {
    let deleted = message(r#","body":"regretted","deletedAt":"2026-02-01T00:00:00Z""#).unwrap();
    assert_eq!(deleted.content, None);
    assert_eq!(deleted.deleted_at, Timestamp::parse("2026-02-01T00:00:00Z"));
}

#[test]
fn a_message_is_within_its_bounds() {
    assert_eq!(message("").unwrap_err(), "`body` must not be blank");
    assert!(
        message(&format!(r#","body":"{}""#, "x".repeat(20 * 1024 + 1)))
            .unwrap_err()
            .starts_with("`body` has 20481 bytes")
    );
    assert!(message(r#","kind":"SYSTEM","metadata":{"event":"left"}"#).is_ok());
    // One SYSTEM message names as many users as one call may name.
    assert!(
        message(&format!(
            r#","kind":"SYSTEM","metadata":"{}""#,
            "x".repeat(2_047)
        ))
        .is_ok()
    );
    assert!(message(r#","body":"x","clientKey":"ü""#).is_err());
    assert!(
        message(&format!(
            r#","body":"x","metadata":"{}""#,
            "x".repeat(2_047)
        ))
        .unwrap_err()
        .starts_with("`metadata` has 2049 bytes")
    );
}

#[test]
fn attachments_are_within_their_bounds() {
    let with = |attachment: &str, count| {
        let list = vec![attachment; count].join(",");
        message(&format!(r#","attachments":[{list}]"#))
    };
    let fine =
        r#"{"url":"https://a.example/b.png","mimeType":"image/png","sizeBytes":9007199254740992}"#;
    assert_eq!(
        with(fine, 10).unwrap().content.unwrap().attachments.len(),
        10
    );
    assert_eq!(
        with(fine, 11).unwrap_err(),
        "`attachments` has 11 entries, and 10 is the most"
    );
    for wrong in [
        r#"{"url":"javascript:alert(1)","mimeType":"x/y"}"#,
        r#"{"url":"https://","mimeType":"x/y"}"#,
        r#"{"url":"https://a.example","mimeType":""}"#,
        r#"{"url":"https://a.example","mimeType":"x/y","sizeBytes":9007199254740993}"#,
        r#"{"url":"https://a.example","mimeType":"x/y","name":"a\nb"}"#,
    ] {
        assert!(with(wrong, 1).is_err(), "{wrong}");
    }
    let long = format!(
        r#"{{"url":"https://a.example/{}","mimeType":"x/y"}}"#,
        "x".repeat(2_000)
    );
    assert!(with(&long, 3).is_ok());
    assert!(
        with(&long, 4)
            .unwrap_err()
            .contains("bytes, and 8192 is the most")
    );
}

#[test]
fn a_file_that_lost_lines_is_told_from_a_whole_one() {
    assert!(read(r#"{"type":"end","lines":16}"#).unwrap().is_empty());
    assert_eq!(
        read(r#"{"type":"end","lines":20}"#).unwrap_err(),
        "the file is not whole: it has 16 lines before this one, and should have 20"
    );
    assert!(read(r#"{"type":"header","format":4}"#).is_err());
    for format in [1, 2, 3] {
        let header = format!(r#"{{"type":"header","format":{format}}}"#);
        assert!(read(&header).unwrap().is_empty());
    }
}

#[test]
fn a_restriction_survives_its_line() {
    let line = r#"{"type":"user","username":"alice","metadata":{"a":1},"lastSeenAt":"2026-03-15T09:00:00.000000Z","suspension":{"since":"2026-03-15T09:00:00.000000Z","until":"2027-03-15T09:00:00.000000Z","reason":"spam"},"tokensFrom":"2026-03-15T09:00:01.000000Z"}"#;
    let rows = read(line).unwrap();
    let again = serde_json::to_string(&Line::of(&rows[0]).unwrap()).unwrap();
    assert_eq!(again, line);
    let header = r#"{"type":"header","format":3,"tokensFrom":"2026-03-15T09:00:01.000000Z"}"#;
    let rows = read(header).unwrap();
    assert_eq!(
        serde_json::to_string(&Line::of(&rows[0]).unwrap()).unwrap(),
        header
    );
    for broken in [
        r#"{"type":"user","username":"a","suspension":{}}"#,
        r#"{"type":"user","username":"a","suspension":{"since":"yesterday"}}"#,
        r#"{"type":"user","username":"a","suspension":{"since":"2026-03-15T09:00:00Z","by":"b"}}"#,
        r#"{"type":"user","username":"a","tokensFrom":7}"#,
    ] {
        assert!(read(broken).is_err(), "{broken}");
    }
}

#[test]
fn a_reaction_is_one_emoji_to_a_message() {
    let line = |message: &str, emoji: &str| {
        read(&format!(
            r#"{{"type":"reaction",{CONVERSATION},"messageId":"{message}","emoji":"{emoji}","username":"alice"}}"#
        ))
    };
    let id = "a3e39830-e29b-11ef-8001-000000000001";
    assert!(
        matches!(&line(id, "❤").unwrap()[..], [ImportRow::Reaction { emoji, .. }] if emoji.as_str() == "❤\u{fe0f}")
    );
    assert_eq!(
        line(id, "o k").unwrap_err(),
        "`emoji` must be one emoji of Unicode, as 👍"
    );
    assert!(
        line("x", "👍")
            .unwrap_err()
            .starts_with("`messageId` must be a timeuuid")
    );
}

#[test]
fn what_is_written_means_what_it_was_written_of() {
    let lines = [
        r#"{"type":"user","username":"alice","displayName":"Alice","avatarUrl":"https://a.example/a.png","lastSeenAt":"2026-01-01T00:00:00.000001Z"}"#,
        r#"{"type":"user","username":"bob"}"#,
        &format!(
            r#"{{"type":"participant",{CONVERSATION},"username":"alice","role":"OWNER","joinedAt":"2026-01-01T00:00:00.000000Z","readUpTo":"a3e39830-e29b-11ef-8001-000000000001","unreadFrom":"a3e39830-e29b-11ef-8001-000000000001","deliveredUpTo":"a3e39830-e29b-11ef-8001-000000000002","muted":true,"pinned":true,"archivedAt":"2026-01-01T00:00:00.000000Z"}}"#
        ),
        &format!(
            r#"{{"type":"participant",{CONVERSATION},"username":"bob","state":"LEFT","role":"MEMBER","leftAt":"2026-01-01T00:00:00.000000Z"}}"#
        ),
        &format!(
            r#"{{"type":"message",{CONVERSATION},{MESSAGE},"body":"a\n\u0001","attachments":[{{"url":"https://a.example/b.png","mimeType":"image/png","name":"b","sizeBytes":9007199254740992,"width":1,"height":2,"durationMs":3,"thumbnailUrl":"https://a.example/s.png"}}],"metadata":{{"a":[0.1,1e+300,-7,123456789.12345679,null]}},"replyTo":"a3e39830-e29b-11ef-8001-000000000000","steps":[{{"key":"1","title":"Read","state":"WAITING","detail":"a\nb"}}],"isInterrupted":true,"clientKey":"k","editedAt":"2026-01-01T00:00:00.000000Z","parts":{{"7":"AQID"}}}}"#
        ),
        &format!(
            r#"{{"type":"message",{CONVERSATION},{MESSAGE},"kind":"SYSTEM","metadata":{{"event":"left"}}}}"#
        ),
        &format!(
            r#"{{"type":"message",{CONVERSATION},{MESSAGE},"clientKey":"k","deletedAt":"2026-01-01T00:00:00.000000Z"}}"#
        ),
        &format!(
            r#"{{"type":"reaction",{CONVERSATION},"messageId":"a3e39830-e29b-11ef-8001-000000000001","emoji":"👍","username":"alice"}}"#
        ),
        r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"DIRECT","createdAt":"2026-01-01T00:00:00.000000Z"}"#,
        r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"GROUP","createdAt":"2026-01-01T00:00:00.000000Z","description":"About\nus","avatarUrl":"https://a.example/g.png","metadata":{"order":42},"appKey":"order:42","sendRole":"ADMIN","addRole":"MEMBER","pinRole":"OWNER"}"#,
        r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"GROUP","name":"n","createdAt":"2026-01-01T00:00:00.000000Z","createdBy":"alice","lastActivityAt":"2026-01-01T00:00:00.000000Z","inputHash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#,
    ];
    for text in lines {
        let rows = read(text).unwrap();
        let [row] = &rows[..] else {
            panic!("one row of {text}")
        };
        assert_eq!(
            serde_json::to_string(&Line::of(row).unwrap()).unwrap(),
            text
        );
    }
}

fn lossy(rest: &str) -> (Vec<Message>, Losses) {
    let line = format!(r#"{{"type":"message",{CONVERSATION},{MESSAGE}{rest}}}"#);
    let LineRows { rows, losses } = read_by(&line, &context(true, false)).unwrap();
    let messages = rows.into_iter().map(|row| {
        let ImportRow::Message(message) = row else {
            panic!("a message: {row:?}")
        };
        Message::clone(&message)
    });
    (messages.collect(), losses)
}

#[test]
fn a_message_that_is_too_large_becomes_several_behind_it() {
    let words = "Zoë wrote much. ".repeat(4_000);
    let file = r#"{"url":"https://files.example/1","mimeType":"image/png"}"#;
    let files = vec![file; 23].join(",");
    let rest = format!(
        r#","body":"{words}","attachments":[{files}],"replyTo":"a3e39830-e29b-11ef-8001-000000000001","mentions":["bob"],"editedAt":"2026-01-01T00:00:00Z""#
    );
    let (messages, losses) = lossy(&rest);
    let body = |message: &Message| message.content.as_ref().unwrap().body.as_str().to_owned();
    let bodies: Vec<_> = messages.iter().map(body).collect();
    assert_eq!(bodies.concat(), words, "nothing is lost");
    assert!(
        bodies
            .iter()
            .all(|body| body.len() <= Body::BYTES_MAX && body.ends_with(' '))
    );
    let files = |message: &Message| message.content.as_ref().unwrap().attachments.len();
    assert_eq!(
        messages.iter().map(files).collect::<Vec<_>>(),
        [10, 10, 3, 0]
    );
    assert_eq!((losses.split_messages, losses.added_messages), (1, 3));
    let first = &messages[0];
    assert_eq!(first.id.to_string(), "a3e39830-e29b-11ef-8001-000000000001");
    assert!(first.reply_to.is_some() && messages[1].reply_to.is_none());
    assert!(
        messages
            .iter()
            .all(|one| one.content.as_ref().unwrap().edited_at.is_some())
    );
    let next = MessageId::parse("a3e39831-e29b-11ef-8001-000000000001").unwrap();
    let ids: Vec<_> = messages.iter().map(|one| one.id).chain([next]).collect();
    assert!(ids.is_sorted() && ids.iter().collect::<HashSet<_>>().len() == 5);
    assert_eq!(lossy(&rest).0, messages, "again the same");
    let last = MessageId::parse("a3e39830-e29b-11ef-bf7f-7f7f7f7f7f7f").unwrap();
    assert!(last.part(1) > last && last.part(1) < next.part(1));
    let refusal = message(&format!(r#","body":"{words}""#)).unwrap_err();
    assert!(refusal.ends_with("an import with --lossy keeps it in several messages"));
    assert!(message(&rest.replace(&words, "")).is_err());
    assert_eq!(lossy(r#","body":"short""#).1, Losses::default());
}

#[test]
fn an_emoji_has_its_short_name_and_a_custom_one_is_kept_by_name() {
    let read = |emoji: &str, is_lossy, is_export| {
        let line = format!(
            r#"{{"type":"reaction",{CONVERSATION},"messageId":"a3e39830-e29b-11ef-8001-000000000001","emoji":"{emoji}","username":"bob"}}"#
        );
        let read = read_by(&line, &context(is_lossy, is_export))?;
        let [ImportRow::Reaction { emoji, .. }] = &read.rows[..] else {
            panic!("one reaction: {read:?}")
        };
        Ok::<_, String>((emoji.to_string(), read.losses.named_emoji))
    };
    assert_eq!(read("tada", false, false), Ok(("🎉".to_owned(), 0)));
    assert_eq!(
        read(":+1::skin-tone-2:", false, false),
        Ok(("👍🏻".to_owned(), 0))
    );
    let refusal = read("party_parrot", false, false).unwrap_err();
    assert!(
        refusal.ends_with("an import with --lossy keeps the name of a custom one"),
        "{refusal}"
    );
    assert_eq!(
        read("party_parrot", true, false),
        Ok((":party_parrot:".to_owned(), 1))
    );
    assert_eq!(
        read(":party_parrot:", false, true),
        Ok((":party_parrot:".to_owned(), 0))
    );
    assert!(read("a b", true, true).is_err());
}

#[test]
fn a_conversation_with_oneself_of_another_system_is_told_its_id() {
    let line = |id: &str| {
        format!(
            r#"{{"type":"conversation","id":"{id}","kind":"DIRECT","participants":[{{"username":"alice"}}]}}"#
        )
    };
    let refusal = read(&line("550e8400-e29b-41d4-a716-446655440001")).unwrap_err();
    let (_, id) = refusal.split_once("write ").unwrap();
    let id = id.split(' ').next().unwrap();
    assert!(id.starts_with("550e8400-e29b-8"), "{id}");
    assert!(read(&line(id)).is_ok());
}

#[test]
fn parts_that_only_a_later_version_knows_are_kept_within_bounds() {
    let line = |parts: &str| {
        read(&format!(
            r#"{{"type":"message",{CONVERSATION},{MESSAGE},"body":"a","parts":{parts}}}"#
        ))
    };
    assert!(line(r#"{"7":"AQID","4000000000":""}"#).is_ok());
    for (parts, why) in [
        (r#"{"1":"AQID"}"#.to_owned(), "is a field of the line"),
        (r#"{"3":"AQ"}"#.to_owned(), "is a field of the line"),
        (r#"{"7":"="}"#.to_owned(), "base64url"),
        (
            format!(r#"{{"7":"{}"}}"#, "A".repeat(6_000)),
            "at most 4096 bytes",
        ),
    ] {
        let refused = line(&parts).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let many: Vec<_> = (4..=20).map(|number| format!(r#""{number}":"""#)).collect();
    assert!(line(&format!("{{{}}}", many.join(","))).is_err());
}

#[test]
fn steps_of_a_line_have_the_bounds_of_a_send() {
    let line = |steps: &str| message(&format!(r#","body":"a","steps":{steps}"#));
    let read = line(r#"[{"key":"1","title":"Read","state":"DONE"}]"#).unwrap();
    assert_eq!(read.content.unwrap().steps.as_slice()[0].title, "Read");
    for (steps, why) in [
        (
            r#"[{"key":"1","title":"","state":"DONE"}]"#.to_owned(),
            "the title",
        ),
        (
            r#"[{"key":"1","title":"a","state":"DONE"},{"key":"1","title":"b","state":"DONE"}]"#
                .to_owned(),
            "the same key",
        ),
        (
            r#"[{"key":"1","title":"a","state":"LOST"}]"#.to_owned(),
            "LOST",
        ),
    ] {
        let refused = line(&steps).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}
