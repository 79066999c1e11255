//! Changes of one small record that others change too: read, changed, and written on the condition that nobody was faster.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::committer::{Condition, Op, Outcome, Write};
use super::db::corrupt;
use super::key::Key;
use super::{Embedded, TRIES_MAX, contended, record};
use crate::store::Result;

impl Embedded {
    /// Changes a record, and writes what belongs to the change in the same batch. Answers with the record as it is then; where it stays as it
    /// was, nothing is written: `None`. One that is not there is the default one.
    pub(super) async fn change<T>(&self, key: Key, apply: impl Fn(T) -> T + Sync, beside: impl Fn() -> Write + Sync) -> Result<Option<T>>
    where
        T: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send,
    {
        for _ in 0..TRIES_MAX {
            let at = key.clone();
            let bytes = self.read(move |core| Ok(core.view().get(&at)?.map(|bytes| bytes.to_vec()))).await?;
            let decoded = bytes.as_deref().map(record::decode).transpose();
            let before: T = decoded.map_err(|error| corrupt(key.table_name(), error))?.unwrap_or_default();
            let after = apply(before.clone());
            if after == before {
                return Ok(None);
            }
            let mut write = beside();
            write.ops.push(Op::Put(key.clone(), record::encode(&after)));
            write.conditions.push(match bytes {
                Some(bytes) => Condition::Is(key.clone(), bytes),
                None => Condition::Absent(key.clone()),
            });
            if self.write(write).await? == Outcome::Done {
                return Ok(Some(after));
            }
        }
        Err(contended())
    }
}
