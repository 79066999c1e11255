//! Keys of the search index: a directory lies before the blocks of its conversation.

use super::{Key, Span, Table};
use crate::model::ConversationId;
use crate::store::SearchSegmentKey;

pub(crate) fn search_directory(conversation: ConversationId) -> Key {
    Key {
        table: Table::Search,
        bytes: conversation.0.as_bytes().to_vec(),
    }
}

// Blocks: conversation ‖ segment ‖ number.

pub(crate) fn search_block(segment: SearchSegmentKey, block: u32) -> Key {
    let mut bytes = prefix(segment);
    bytes.extend_from_slice(&block.to_be_bytes());
    Key {
        table: Table::Search,
        bytes,
    }
}

pub(crate) fn search_segment(segment: SearchSegmentKey) -> Span {
    Span::of_prefix(Table::Search, prefix(segment))
}

fn prefix(segment: SearchSegmentKey) -> Vec<u8> {
    [
        *segment.conversation.0.as_bytes(),
        *segment.segment.as_bytes(),
    ]
    .concat()
}
