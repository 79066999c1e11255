//! Cost of an operation with its variables, computed before execution: for the complexity limit and
//! the rate limits.
//!
//! Each field costs one, or its price if it reads more. The fields inside a list count once for
//! each element that the list may have. The types of fragments are ignored. The computation is
//! linear in the merged operation, which the guard has bounded.

use std::borrow::Cow;
use std::convert::Infallible;

use async_graphql::parser::types::{Field, OperationDefinition, SelectionSet};
use async_graphql::{Value as ConstValue, Variables};

use super::document::Prepared;
use super::schema_types::IntrospectionSizes;
use super::selections::each_field;
use crate::model::PageRequest;

/// Lists without page arguments, with a typical length. A message may have 20 reactions, but rarely
/// has more than 3.
const LISTS: [(&str, usize); 5] = [
    ("mentions", 3),
    ("reactions", 3),
    ("recipients", 100),
    ("steps", 20),
    ("users", PageRequest::<()>::COUNT_DEFAULT),
];

/// Fields that read a page, whatever is selected of it.
const PAGES: [&str; 10] = [
    "inbox",
    "messages",
    "participants",
    "receipts",
    "blockedUsers",
    "searchMessages",
    "pinnedMessages",
    "bans",
    "reports",
    "conversations",
];

/// Prices of fields that read more than one row.
const PRICES: [(&str, usize); 10] = [
    ("presence", 2),
    ("deliveredToAllUpTo", 4),
    ("readByAllUpTo", 4),
    ("messageCount", 5),
    ("pinnedMessages", 5),
    ("unreadConversationCount", 20),
    ("inboxSummary", 100),
    ("summary", 100),
    ("unreadMessageCount", 100),
    ("searchMessages", 200),
];

/// Fields that share one count of unread messages, with the price of the count.
const UNREAD: [&str; 3] = ["unreadCount", "unreadCountIsCapped", "firstUnreadMessage"];
const UNREAD_PRICE: usize = 5;
/// The same for unread mentions.
const MENTIONS: [&str; 3] = [
    "unreadMentionCount",
    "unreadMentionCountIsCapped",
    "firstUnreadMention",
];
const MENTIONS_PRICE: usize = 3;

/// Price of a filtered inbox, which scans entries.
const FILTER_PRICE: usize = 100;

/// Fields of the root that scan a table. Other types have lists of these names.
const SCANS: [&str; 2] = ["conversations", "users"];
const SCAN_PRICE: usize = 100;

/// Mutation that writes a live message.
const LIVE_WRITE: &str = "writeLiveMessage";

/// List of a conversation's live messages, with its greatest length and its price. At the root the name is that of a stream, whose
/// payload is one.
const LIVE_MESSAGES: &str = "liveMessages";
const LIVE_MESSAGES_MAX: usize = 8;
const LIVE_MESSAGES_PRICE: usize = 5;

/// Cost of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationCost {
    /// Fields of the answer, each at its price and multiplied by the lengths of the lists around
    /// it.
    pub fields: usize,
    /// Root fields. Each root field of a mutation is a write.
    pub roots: usize,
    /// Root fields that write live messages, which have a rate of their own.
    pub live_writes: usize,
}

impl OperationCost {
    /// Whether the operation writes live messages, and does nothing else.
    pub fn is_live_write(&self) -> bool {
        self.live_writes > 0 && self.live_writes == self.roots
    }
}

impl Prepared {
    pub(in crate::graphql) fn cost(&self, variables: &Variables) -> OperationCost {
        let operation = self.definition();
        let counter = CostCounter {
            introspection: self.introspection(),
            operation,
            variables,
        };
        let root = &operation.selection_set.node;
        // Each field of the root costs one already.
        let scans = counter.roots(root, |name| SCANS.contains(&name)) * (SCAN_PRICE - 1);
        OperationCost {
            fields: counter.fields(root, true).saturating_add(scans),
            roots: counter.roots(root, |name| name != "__typename"),
            live_writes: counter.roots(root, |name| name == LIVE_WRITE),
        }
    }
}

struct CostCounter<'a> {
    introspection: &'a IntrospectionSizes,
    operation: &'a OperationDefinition,
    variables: &'a Variables,
}

impl<'a> CostCounter<'a> {
    fn fields(&self, set: &'a SelectionSet, is_root: bool) -> usize {
        let (mut sum, mut has_unread, mut has_mentions) = (0_usize, false, false);
        each_field(set, &mut |field| {
            let cost = match field.name.node.as_str() {
                name @ ("__schema" | "__type") => self
                    .introspection_fields(&field.selection_set.node, name == "__type", 0)
                    .ceil() as usize,
                name => {
                    let is_counted = UNREAD.contains(&name)
                        && std::mem::replace(&mut has_unread, true)
                        || MENTIONS.contains(&name) && std::mem::replace(&mut has_mentions, true);
                    let own = if is_counted {
                        1
                    } else {
                        self.price(field, name)
                    };
                    let (count, own) = match name {
                        LIVE_MESSAGES if is_root => (1, 1),
                        LIVE_MESSAGES => (LIVE_MESSAGES_MAX, LIVE_MESSAGES_PRICE),
                        _ => (self.count(field), own),
                    };
                    self.fields(&field.selection_set.node, false)
                        .saturating_mul(count)
                        .saturating_add(own)
                }
            };
            sum = sum.saturating_add(cost);
        });
        sum
    }

    /// Price of a field without the fields inside it.
    fn price(&self, field: &'a Field, name: &str) -> usize {
        if UNREAD.contains(&name) {
            return UNREAD_PRICE;
        }
        if MENTIONS.contains(&name) {
            return MENTIONS_PRICE;
        }
        if name == "inbox"
            && self
                .argument(field, "filter")
                .is_some_and(|filter| *filter != ConstValue::Null)
        {
            return FILTER_PRICE;
        }
        PRICES
            .iter()
            .find_map(|(field, price)| (*field == name).then_some(*price))
            .unwrap_or(1)
    }

    /// Fields of an introspection answer, including the field around it. List lengths are the means
    /// over all types of the schema.
    fn introspection_fields(&self, set: &'a SelectionSet, is_one: bool, wrappers: usize) -> f64 {
        let mut sum = 1.0;
        each_field(set, &mut |field| {
            let name = field.name.node.as_str();
            let wrappers_inside = if name == "ofType" { wrappers + 1 } else { 0 };
            let inside =
                self.introspection_fields(&field.selection_set.node, false, wrappers_inside) - 1.0;
            sum += 1.0 + inside * self.introspection.count(name, is_one, wrappers);
        });
        sum
    }

    /// Number of the fields with such a name.
    fn roots(&self, set: &'a SelectionSet, is_counted: impl Fn(&str) -> bool) -> usize {
        let mut roots = 0;
        each_field(set, &mut |field| {
            roots += usize::from(is_counted(field.name.node.as_str()));
        });
        roots
    }

    /// Number of elements that a field may have: its page size, or its number of ids.
    fn count(&self, field: &'a Field) -> usize {
        let number = |name| match self.argument(field, name).as_deref() {
            Some(ConstValue::Number(number)) => number.as_i64(),
            _ => None,
        };
        let page = |count: i64| {
            usize::try_from(count)
                .unwrap_or(0)
                .min(PageRequest::<()>::COUNT_MAX)
        };
        if let Some(count) = number("first").or_else(|| number("last")) {
            return page(count);
        }
        if let Some(ConstValue::List(ids)) = self.argument(field, "ids").as_deref() {
            return ids.len();
        }
        if let Some(count) = LISTS
            .iter()
            .find_map(|(name, count)| (field.name.node == *name).then_some(*count))
        {
            return count;
        }
        let mut is_page = PAGES.contains(&field.name.node.as_str());
        each_field(&field.selection_set.node, &mut |inner| {
            is_page |= inner.name.node == "edges"
        });
        if is_page {
            PageRequest::<()>::COUNT_DEFAULT
        } else {
            1
        }
    }

    /// Value of an argument. A variable is borrowed, as it may be large. Variables inside a literal
    /// count as null.
    fn argument(&self, field: &'a Field, name: &str) -> Option<Cow<'a, ConstValue>> {
        let mut variable = None;
        let written = field
            .get_argument(name)?
            .node
            .clone()
            .into_const_with(|name| {
                variable.get_or_insert(name);
                Ok::<_, Infallible>(ConstValue::Null)
            });
        let Ok(written) = written;
        match variable {
            Some(name) if written == ConstValue::Null => self.variable(&name).map(Cow::Borrowed),
            _ => Some(Cow::Owned(written)),
        }
    }

    fn variable(&self, name: &str) -> Option<&'a ConstValue> {
        let default = || {
            let definitions = &self.operation.variable_definitions;
            let definition = definitions
                .iter()
                .find(|definition| definition.node.name.node == name)?;
            Some(&definition.node.default_value.as_ref()?.node)
        };
        self.variables.get(name).or_else(default)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::graphql::execution::{DocumentBounds, DocumentCache, SchemaTypes};
    use crate::graphql::schema;

    /// Every field that a price names, beside others.
    const SDL: &str = "schema { query: Q mutation: Q subscription: Q }
        input F { unreadOnly: Boolean }
        type Q {
          viewer: Q user: Q conversation: Q entry: Q node: Q id: ID username: ID b: ID x: ID cursor: ID endCursor: ID emoji: ID
          inbox(first: Int, last: Int, filter: F): Q messages: Q a(first: Int): Q edges: [Q] pageInfo: Q markRead: Q
          reactions: [Q] users(first: Int): [Q] nodes(ids: [ID!]!): [Q] presence: Q isOnline: ID isCapped: ID messageCount: ID
          unreadCount: ID unreadCountIsCapped: ID firstUnreadMessage: Q inboxSummary: Q unreadConversationCount: ID
          unreadMessageCount: ID inboxUpdated: Q isLive: ID summary: Q deliveredToAllUpTo: Q readByAllUpTo: Q orderKey: ID
          conversations: Q liveMessages: [Q] steps: [Q] sendMessage: Q writeLiveMessage: Q
        }";

    fn cost(text: &str, variables: serde_json::Value) -> OperationCost {
        let prepared = DocumentCache::new(DocumentBounds::default(), SchemaTypes::of(SDL).into())
            .prepare(text, None)
            .unwrap();
        prepared.cost(&Variables::from_json(variables))
    }

    #[test]
    fn a_page_counts_as_often_as_it_may_have_edges() {
        let fields = |text: &str| cost(text, json!({})).fields;
        assert_eq!(fields("{ viewer { username } }"), 2);
        assert_eq!(fields("{ inbox { edges { cursor } } }"), 1 + 20 * 2);
        assert_eq!(
            fields("{ inbox(first: 5) { edges { cursor } } }"),
            1 + 5 * 2
        );
        assert_eq!(
            fields("{ inbox(last: 1000000) { edges { cursor } } }"),
            1 + 100 * 2
        );
        assert_eq!(fields("{ inbox(first: -1) { edges { cursor } } }"), 1);
        assert_eq!(
            fields("{ reactions { emoji users { id } more: users(first: 2) { id } } }"),
            1 + 3 * (1 + 1 + 20 + 1 + 2)
        );
        assert_eq!(fields(r#"{ nodes(ids: ["a", "b", "c"]) { id } }"#), 1 + 3);
        assert_eq!(
            fields(r#"query($a: ID!) { nodes(ids: [$a, "b"]) { id } }"#),
            1 + 2
        );
        assert_eq!(
            fields(
                "{ inbox(first: 3) { ...page } } fragment page on Q { edges { node { a(first: 7) { edges { b } } } } }"
            ),
            1 + 3 * (2 + 1 + 7 * 2)
        );
    }

    #[test]
    fn variables_and_their_defaults_count() {
        let text = "query($n: Int = 7) { inbox(first: $n) { edges { cursor } } }";
        assert_eq!(cost(text, json!({})).fields, 1 + 7 * 2);
        assert_eq!(cost(text, json!({ "n": 9 })).fields, 1 + 9 * 2);
        assert_eq!(cost(text, json!({ "n": null })).fields, 1 + 20 * 2);
        assert_eq!(
            cost(
                "query($ids: [ID!]!) { nodes(ids: $ids) { id } }",
                json!({ "ids": ["a", "b", "c"] })
            )
            .fields,
            1 + 3
        );
    }

    #[test]
    fn a_field_that_reads_more_costs_more() {
        let fields = |text: &str| cost(text, json!({})).fields;
        assert_eq!(fields("{ user { presence { isOnline } } }"), 1 + 2 + 1);
        assert_eq!(fields("{ conversation { messageCount } }"), 1 + 5);
        assert_eq!(
            fields("{ entry { unreadCount unreadCountIsCapped firstUnreadMessage { id } } }"),
            1 + 5 + 1 + 1 + 1
        );
        assert_eq!(
            fields("{ entry { a: firstUnreadMessage { id } b: firstUnreadMessage { id } } }"),
            1 + 5 + 1 + 1 + 1
        );
        assert_eq!(
            fields("{ inboxSummary { isCapped unreadConversationCount } }"),
            100 + 1 + 20
        );
        assert_eq!(
            fields("{ inboxSummary { isCapped unreadMessageCount } }"),
            100 + 1 + 100
        );
        assert_eq!(
            fields(
                "subscription { inboxUpdated { cursor isLive summary { unreadMessageCount } } }"
            ),
            1 + 2 + 100 + 100
        );
        assert_eq!(
            fields(
                "{ conversation { deliveredToAllUpTo { orderKey } readByAllUpTo { orderKey } } }"
            ),
            1 + 4 + 1 + 4 + 1
        );
        assert_eq!(
            fields("{ inbox(first: 5, filter: {unreadOnly: true}) { edges { cursor } } }"),
            100 + 5 * 2
        );
        assert_eq!(
            fields("{ inbox(first: 5, filter: null) { edges { cursor } } }"),
            1 + 5 * 2
        );
        assert_eq!(
            fields("{ conversation { messages { pageInfo { endCursor } } } }"),
            1 + 1 + 20 * 2,
            "a page is read for it"
        );
        assert_eq!(
            fields("{ users(first: 5) { edges { cursor } } conversations { edges { cursor } } }"),
            100 + 5 * 2 + 100 + 20 * 2
        );
    }

    #[test]
    fn live_messages_are_a_list_of_a_conversation_and_a_stream_of_the_root() {
        let fields = |text: &str| cost(text, json!({})).fields;
        assert_eq!(
            fields("{ conversation { liveMessages { id steps { id } } } }"),
            1 + 5 + 8 * (1 + 1 + 20)
        );
        assert_eq!(fields("subscription { liveMessages { cursor id } }"), 1 + 2);
        let price = cost(
            "mutation { writeLiveMessage { id } again: writeLiveMessage { id } __typename }",
            json!({}),
        );
        assert_eq!((price.roots, price.live_writes), (2, 2));
        assert!(price.is_live_write());
        let price = cost(
            "mutation { writeLiveMessage { id } sendMessage { id } }",
            json!({}),
        );
        assert_eq!((price.roots, price.live_writes), (2, 1));
        assert!(!price.is_live_write() && !cost("{ id }", json!({})).is_live_write());
    }

    /// Introspection query of common tools, with short names.
    const SCHEMA: &str = "{ __schema { queryType { name } mutationType { name } subscriptionType { name } types { ...T } directives {
        name description locations args { ...I } } } }
        fragment T on __Type { kind name description specifiedByURL fields(includeDeprecated: true) { name description args { ...I }
        type { ...R } isDeprecated deprecationReason } inputFields { ...I } interfaces { ...R } enumValues(includeDeprecated: true) { name
        description isDeprecated deprecationReason } possibleTypes { ...R } }
        fragment I on __InputValue { name description type { ...R } defaultValue }
        fragment R on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
        ofType { kind name ofType { kind name } } } } } } } }";

    fn count_fields(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Object(fields) => {
                fields.len() + fields.values().map(count_fields).sum::<usize>()
            }
            serde_json::Value::Array(elements) => elements.iter().map(count_fields).sum(),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => 0,
        }
    }

    #[tokio::test]
    async fn introspection_costs_about_its_number_of_fields() {
        let schema = &schema::SCHEMA;
        let documents = DocumentCache::new(DocumentBounds::default(), Arc::clone(&schema::TYPES));
        for text in [
            SCHEMA,
            "{ __schema { types { fields { name } } } }",
            "{ __schema { types { name enumValues { name } inputFields { name } } } }",
        ] {
            let cost = documents
                .prepare(text, None)
                .unwrap()
                .coerce(Variables::default())
                .unwrap()
                .cost
                .fields;
            let answer = schema.execute(text).await;
            assert!(answer.errors.is_empty(), "{:?}", answer.errors);
            let count = count_fields(&answer.data.into_json().unwrap());
            assert!(
                cost * 10 > count * 8 && cost * 8 < count * 10,
                "{cost} for {count}: {text}"
            );
        }
        let one = documents
            .prepare("{ __type(name: \"Mutation\") { fields { name } } }", None)
            .unwrap();
        assert!(one.coerce(Variables::default()).unwrap().cost.fields > 15);
        let again: String = (0..29)
            .map(|number| format!("a{number}: types {{ fields {{ name }} }} "))
            .collect();
        let refused = documents
            .prepare(&format!("{{ __schema {{ {again} }} }}"), None)
            .unwrap()
            .coerce(Variables::default())
            .unwrap_err();
        assert!(
            refused.message.contains("at most 10000"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn each_root_field_of_a_mutation_counts() {
        let text = "mutation { a: markRead { x } ...more __typename } fragment more on Q { b: markRead { x } c: markRead { x } }";
        assert_eq!(cost(text, json!({})).roots, 3);
    }
}
