//! Messages: the partitions that they lie in, their rows, reactions and counts, and the heads of conversations.

pub(crate) mod bucket;
pub(crate) mod bucket_choice;
pub(crate) mod bucket_index;
pub(crate) mod bucket_merge;
pub(crate) mod count;
pub(crate) mod head_cache;
pub(crate) mod history;
pub(crate) mod id_range;
pub(crate) mod interval_set;
pub(crate) mod reaction;
pub(crate) mod register;
pub(crate) mod row;
