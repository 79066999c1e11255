//! Fields of a line that stand before its `type`: they are read again once the type is known.

use std::vec::IntoIter;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess};
use serde_json::value::RawValue;

use super::plain;

/// A map whose first entries were read already.
pub(super) struct HeldFirst<A> {
    held: IntoIter<(String, Box<RawValue>)>,
    value: Option<Box<RawValue>>,
    rest: A,
}

/// Deserializer of the fields of a line but its `type`.
pub(super) fn fields<'de, A: MapAccess<'de>>(
    held: Vec<(String, Box<RawValue>)>,
    rest: A,
) -> MapAccessDeserializer<HeldFirst<A>> {
    MapAccessDeserializer::new(HeldFirst {
        held: held.into_iter(),
        value: None,
        rest,
    })
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for HeldFirst<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some((key, value)) = self.held.next() else {
            return self.rest.next_key_seed(seed);
        };
        self.value = Some(value);
        let key: StringDeserializer<A::Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let Some(value) = self.value.take() else {
            return self.rest.next_value_seed(seed);
        };
        // An owned reader, because the value does not live as long as the line.
        let mut value = serde_json::Deserializer::from_reader(value.get().as_bytes());
        seed.deserialize(&mut value)
            .map_err(|error| A::Error::custom(plain(&error)))
    }
}
