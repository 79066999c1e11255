//! Words as people write them: a table of queries and texts, searched in history and by the index.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;
use wideroom::chat::{Bounds, IndexUpkeep};
use wideroom::clock::SystemClock;
use wideroom::model::{ConversationId, TimeUuid, Timestamp};

use crate::support::world::{Actor, World, text};

const FOUND: bool = true;
const ABSENT: bool = false;
/// Query, text, and whether the query finds the text.
#[rustfmt::skip]
const PAIRS: [(&str, &str, bool); 100] = [
    // Latin letters that a keyboard may lack.
    ("strasse", "Die Straße", FOUND), ("straße", "STRASSE", FOUND), ("STRAẞE", "strasse", FOUND),
    ("stras", "Straße", FOUND), ("strase", "Straße", ABSENT),
    ("isparta", "ISPARTA", FOUND), ("ısparta", "Isparta", FOUND), ("istanbul", "İSTANBUL", FOUND),
    ("kirmizi", "kırmızı", FOUND), ("KIRMIZI", "kırmızı elma", FOUND), ("kırmızı", "kirmizi", FOUND),
    ("lodz", "Łódź", FOUND), ("łódź", "lodz", FOUND), ("lodzi", "Łódź", ABSENT), ("zlot", "10 złotych", FOUND),
    ("smorrebrod", "Smørrebrød", FOUND), ("ø", "en ø", FOUND), ("kobenhavn", "København H", FOUND),
    ("dakovo", "Đakovo", FOUND), ("da nang", "Đà Nẵng", FOUND), ("nguyen", "Nguyễn Văn Đức", FOUND),
    ("aether", "æther", FOUND), ("oeuvre", "l'œuvre", FOUND), ("thorn", "Þorn", FOUND), ("ghajn", "għajn", FOUND),
    ("sami", "Sámi ŧ", FOUND), ("eth", "eð", ABSENT),
    ("ecole", "À l'École", FOUND), ("naive", "naïve", FOUND), ("final", "ﬁnal", FOUND), ("x2", "x²", FOUND), ("straßen", "Strasse", ABSENT),
    // Cyrillic: a letter with a breve is another letter, a stress or a dotted yo is not.
    ("мои", "мой дом", ABSENT), ("мой", "мои дома", ABSENT), ("мой", "МОЙ дом", FOUND), ("мой", "мои\u{306} дом", FOUND),
    ("йод", "йод", FOUND), ("иод", "йод", ABSENT), ("еж", "ёж", FOUND), ("ёлка", "елка", FOUND), ("замок", "за\u{301}мок", FOUND),
    ("київ", "КИЇВ", FOUND), ("киів", "Київ", ABSENT), ("двоу", "двоў", ABSENT),
    // The Ukrainian apostrophe in its spellings.
    ("м'ята", "м’ята", FOUND), ("м'ята", "мʼята", FOUND), ("мʼята", "м'ята", FOUND), ("м’ята", "м`ята", FOUND),
    ("п'ять", "пʼять", FOUND), ("ята", "мʼята", FOUND), ("hawai'i", "Hawaiʻi", FOUND), ("don‘t", "don't", FOUND),
    // Arabic: the tatweel, points, digits, and letters that writers interchange.
    ("محمد", "محـــمد", FOUND), ("محـمد", "محمد", FOUND), ("محمد", "مُحَمَّد", FOUND), ("مكتبه", "مكتبة", FOUND),
    ("کتاب", "كتاب", FOUND), ("علی", "علي", FOUND), ("احمد", "أحمد", FOUND), ("2024", "٢٠٢٤", FOUND), ("۱۴۰۳", "1403", FOUND),
    // Hebrew: acronyms with either mark, points, and a quotation beside them.
    ("צה\"ל", "צה\"ל הודיע", FOUND), ("צה\"ל", "צה״ל", FOUND), ("צה״ל", "צה\"ל", FOUND), ("צה”ל", "צה״ל", FOUND),
    ("צהל", "צה\"ל", FOUND), ("ארה\"ב וצה\"ל", "צה״ל וארה״ב", ABSENT), ("צה\"ל ארה\"ב", "ארה״ב עם צה״ל", FOUND),
    ("\"דובר צה\"ל\"", "דובר צה״ל", FOUND), ("\"צה\"ל דובר\"", "דובר צה״ל", ABSENT), ("שלום", "שָׁלוֹם", FOUND),
    ("ג'ירפה", "ג׳ירפה", FOUND),
    // Signs beside words.
    ("wideroom", "Wideroom™", FOUND), ("wideroom chat", "Wideroom™ chat", FOUND), ("wideroom™", "Wideroom", FOUND),
    ("acme", "Acme®️ Ltd", FOUND), ("\"acme ltd\"", "Acme® Ltd", FOUND), ("wideroomtm", "Wideroom™", ABSENT),
    // Names with signs.
    ("C++", "We use C++ here", FOUND), ("C++", "a C compiler", ABSENT), ("C++", "see c", ABSENT), ("c#", "C# 12", FOUND),
    ("c#", "c++", ABSENT), ("c", "C++", FOUND), ("c code", "C++ code", FOUND), ("c++11", "C++11", FOUND), ("C＋＋", "c++", FOUND),
    ("F#", "in F♯ minor", FOUND), ("user+tag@example.com", "to user+tag@example.com", FOUND), ("f#", "F-16", ABSENT),
    // Queries of many parts: the first are looked up, all are judged.
    ("https://www.example.com/a/b/c/d/e/f/g?x=1&y=2#end", "see https://www.example.com/a/b/c/d/e/f/g?x=1&y=2#end!", FOUND),
    ("https://www.example.com/a/b/c/d/e/f/g?x=1&y=2#end", "see https://www.example.com/a/b/c/d/e/f/g?x=1&y=3#end!", ABSENT),
    ("it was the best of times it was the worst of times", "It was the best of times, it was the worst of times.", FOUND),
    ("\"it was the best of times it was the worst of days\"", "It was the best of times, it was the worst of times", ABSENT),
    ("全文搜索支持中文日文韩文和泰文", "我们的全文搜索支持中文日文韩文和泰文。", FOUND),
    ("全文搜索支持中文日文韩文和泰语", "我们的全文搜索支持中文日文韩文和泰文！", ABSENT),
    // Scripts without spaces, as before.
    ("文", "中文", FOUND), ("コーヒ", "熱いコーヒー", FOUND), ("か", "が", ABSENT), ("ガ", "ｶﾞ", FOUND),
];

/// An import with one message for each text.
fn lines(conversation: Uuid) -> &'static [u8] {
    let mut lines = vec![
        json!({"type": "user", "username": "alice"}),
        json!({"type": "conversation", "id": conversation, "kind": "GROUP", "name": "Words",
            "createdAt": "2025-01-01T00:00:00Z", "participants": [{"username": "alice", "role": "OWNER"}]}),
    ];
    for (number, (_, body, _)) in PAIRS.iter().enumerate() {
        lines.push(
            json!({"type": "message", "conversationId": conversation, "id": message_id(number),
            "sender": "alice", "body": body}),
        );
    }
    let lines: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
    Vec::leak(lines.concat().into_bytes())
}

fn message_id(number: usize) -> Uuid {
    let moment = Timestamp::from_micros(1_750_000_000_000_000 + number as i64 * 1_000_003);
    TimeUuid::new(moment, [9; 8]).uuid()
}

/// The pairs whose query finds its text, or not, against the table.
async fn differences(alice: &Actor) -> Vec<&'static (&'static str, &'static str, bool)> {
    let search =
        "query($q: String) { searchMessages(query: $q, first: 100) { edges { node { uuid } }
        pageInfo { hasNextPage } } }";
    let mut different = Vec::new();
    for (number, pair) in PAIRS.iter().enumerate() {
        let page = alice.data(search, json!({"q": pair.0})).await["searchMessages"].clone();
        assert_eq!(page["pageInfo"]["hasNextPage"], false, "{pair:?}");
        let mut edges = page["edges"].as_array().unwrap().iter();
        let id = message_id(number).to_string();
        if edges.any(|edge| text(&edge["node"]["uuid"]) == id) != pair.2 {
            different.push(pair);
        }
    }
    different
}

#[tokio::test]
async fn words_are_found_as_people_write_them() {
    let conversation = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001);
    let bounds = Bounds {
        search_segments: [4, 12, 36],
        ..Bounds::default()
    };
    let world = World::with_import_and_bounds(lines(conversation), bounds.clone()).await;
    let alice = world.user("alice");
    let different = differences(&alice).await;
    assert!(different.is_empty(), "history: {different:?}");
    let upkeep = IndexUpkeep::open(world.store.clone(), Arc::new(SystemClock), &bounds);
    let upkeep = upkeep.await.unwrap();
    let indexed = upkeep.rebuild(ConversationId(conversation)).await.unwrap();
    assert!(indexed > 90, "{indexed} messages are indexed");
    let different = differences(&alice).await;
    assert!(different.is_empty(), "the index: {different:?}");
}
