//! Tests of the form of segments: whatever was put in is found, and damage is noticed.

use proptest::prelude::*;

use super::*;
use crate::model::{Content, ConversationId, MessageKind, TimeUuid, Timestamp, UserId};

fn message(number: u32, body: &str) -> Message {
    let moment = Timestamp::from_micros(1_700_000_000_000_000 + i64::from(number) * 7_000_003);
    let body = crate::model::Body::parse(body.to_owned(), 10_000, false).unwrap();
    Message::new(
        ConversationId::random(),
        TimeUuid::new(moment, [1, 2, 3, 4, 5, 6, 7, (number % 3) as u8]),
        UserId::parse(["alice", "bob"][number as usize % 2]).unwrap(),
        MessageKind::Text,
        Content {
            body,
            ..Content::default()
        },
    )
}

fn lookup(term: &str, is_prefix: bool) -> TermLookup {
    TermLookup {
        term: term.as_bytes().to_vec(),
        is_prefix,
    }
}

/// The numbers of a term's messages, by the blocks that the header names.
fn find(blocks: &[Vec<u8>], lookup: &TermLookup) -> Vec<u16> {
    let header = SegmentHeader::decode(&blocks[0]).unwrap();
    let mut found = Vec::new();
    for block in header.term_blocks(lookup) {
        find_term(&blocks[block as usize], lookup, &mut found).unwrap();
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_segment_of_many_blocks_finds_each_word_and_prefix() {
    let mut builder = SegmentBuilder::default();
    let messages: Vec<_> = (0..2_000)
        .map(|number| message(number, &format!("common word{number} tail{}", number % 7)))
        .collect();
    messages.iter().for_each(|message| builder.add(message));
    let blocks = builder.build();
    assert!(blocks.len() > 20, "{}", blocks.len());
    let header = SegmentHeader::decode(&blocks[0]).unwrap();
    assert_eq!(header.messages(), 0..2_000);
    assert_eq!(find(&blocks, &lookup("wcommon", false)).len(), 2_000);
    assert_eq!(find(&blocks, &lookup("wword1234", false)), [1234]);
    assert_eq!(find(&blocks, &lookup("wword123", true)).len(), 11);
    assert_eq!(find(&blocks, &lookup("wword", true)).len(), 2_000);
    assert_eq!(find(&blocks, &lookup("sbob", false)).len(), 1_000);
    assert_eq!(find(&blocks, &lookup("wabsent", true)), [0_u16; 0]);
    for number in [0, 127, 128, 1_999] {
        let (block, place) = header.id_block(number);
        let ids = decode_ids(&blocks[block as usize]).unwrap();
        assert_eq!(ids[place], messages[number as usize].id);
    }
    let between = header.between(messages[300].id.order_key(), messages[310].id.order_key());
    assert_eq!(between, 256..384);
}

#[test]
fn a_segment_without_messages_has_none() {
    let blocks = SegmentBuilder::default().build();
    let header = SegmentHeader::decode(&blocks[0]).unwrap();
    assert_eq!(header.messages(), 0..0);
    assert_eq!(header.term_blocks(&lookup("wany", true)), 1..1);
    assert_eq!(header.between(OrderKey::MIN, OrderKey::MAX), 0..0);
}

#[test]
fn segments_put_together_are_one_of_all_their_messages() {
    let messages: Vec<_> = (0..900)
        .map(|number| message(number, &format!("common word{number} tail{}", number % 7)))
        .collect();
    let mut all = SegmentBuilder::default();
    messages.iter().for_each(|message| all.add(message));
    let mut merged = SegmentBuilder::default();
    for messages in messages.chunks(200) {
        let mut part = SegmentBuilder::default();
        messages.iter().for_each(|message| part.add(message));
        let blocks = part.build();
        let header = SegmentHeader::decode(&blocks[0]).unwrap();
        merged.add_segment(&header, &blocks[1..]).unwrap();
    }
    assert_eq!(merged.bytes(), all.bytes());
    assert_eq!(merged.build(), all.build());
}

proptest! {
    #[test]
    fn damaged_blocks_are_errors_or_find_something_else(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = SegmentHeader::decode(&bytes);
        let _ = find_term(&bytes, &lookup("wa", true), &mut Vec::new());
        let _ = decode_ids(&bytes);
        let blocks = SegmentBuilder::default().build();
        let header = SegmentHeader::decode(&blocks[0]).unwrap();
        let _ = SegmentBuilder::default().add_segment(&header, &[bytes]);
    }

    #[test]
    fn terms_and_messages_come_back(words in prop::collection::vec("[a-c]{1,3}", 1..60)) {
        let mut builder = SegmentBuilder::default();
        for (number, word) in (0..).zip(&words) {
            builder.add(&message(number, word));
        }
        let blocks = builder.build();
        for prefix in ["a", "ab", "c", "abc"] {
            let expected: Vec<u16> = (0..).zip(&words)
                .filter(|(_, word)| word.starts_with(prefix))
                .map(|(number, _)| number)
                .collect();
            prop_assert_eq!(find(&blocks, &lookup(&format!("w{prefix}"), true)), expected);
        }
    }
}
