//! The guard before execution: how much a document may ask for. Its work is linear in the document, whatever its fragments do.
//!
//! A fragment is measured once, and its measure added wherever it is spread; sums saturate. So a bomb of fragments, each spreading the
//! next one twice, is refused in the time it takes to read it.

use std::collections::{HashMap, HashSet};

use async_graphql::Name;
use async_graphql::parser::types::{ExecutableDocument, OperationDefinition, OperationType, Selection, SelectionSet};

use super::lexer;

/// How much one document may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentBounds {
    pub bytes: usize,
    pub tokens: usize,
    /// Brackets of any kind, open at once.
    pub nesting: usize,
    pub operations: usize,
    /// Fields of one operation with its fragments expanded, those of introspection apart.
    pub fields: usize,
    /// Fields one inside the other, leaves included.
    pub depth: usize,
    pub aliases: usize,
    pub directives: usize,
    /// Spreads and inline fragments, expanded.
    pub spreads: usize,
    pub root_fields: usize,
    /// Fields of an answer, each counted as often as the lists around it may have elements. Checked with the variables, when executed.
    pub complexity: usize,
    pub introspection_fields: usize,
    pub introspection_depth: usize,
    /// Lists of introspection one inside the other, such as the fields of the types of fields: each multiplies the answer.
    pub introspection_lists: usize,
}

impl Default for DocumentBounds {
    fn default() -> Self {
        Self {
            bytes: 16 * 1024,
            tokens: 2_000,
            nesting: 64,
            operations: 10,
            fields: 500,
            depth: 12,
            aliases: 30,
            directives: 50,
            spreads: 200,
            root_fields: 5,
            complexity: 10_000,
            introspection_fields: 500,
            introspection_depth: 20,
            introspection_lists: 2,
        }
    }
}

/// Why the guard refuses a document. Each is a sentence for whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    #[error("The document has more than {most} {what}.")]
    TooMuch { what: &'static str, most: usize },
    #[error("The fragment `{0}` spreads itself.")]
    Cycle(Name),
    #[error("The mutation asks for `{0}` twice; give one of them an alias.")]
    DuplicateMutation(Name),
    #[error("A subscription has exactly one root field.")]
    SubscriptionRoots,
    #[error("The root field of a subscription must not be `__typename` or introspection.")]
    SubscriptionIntrospection,
    #[error("`@skip` and `@include` do not go with the root of a subscription.")]
    SubscriptionDirective,
    #[error("A fragment at the root of a subscription must be on `Subscription`.")]
    SubscriptionFragment,
}

/// Before parsing: the size of the text.
pub(super) fn check_text(text: &str, bounds: &DocumentBounds) -> Result<(), GuardError> {
    within("bytes", text.len(), bounds.bytes)?;
    let census = lexer::census(text);
    within("tokens", census.tokens, bounds.tokens)?;
    within("brackets inside one another", census.nesting, bounds.nesting)
}

/// After parsing: every operation, with its fragments expanded.
pub(super) fn check(document: &ExecutableDocument, bounds: &DocumentBounds) -> Result<(), GuardError> {
    within("operations", document.operations.iter().count(), bounds.operations)?;
    let mut ruler = Ruler { document, measured: HashMap::with_capacity(document.fragments.len()), open: HashSet::new() };
    for (_, operation) in document.operations.iter() {
        let mut measure = ruler.measure(&operation.node.selection_set.node, 0)?;
        measure.directives = measure.directives.saturating_add(operation.node.directives.len());
        for variable in &operation.node.variable_definitions {
            measure.directives = measure.directives.saturating_add(variable.node.directives.len());
        }
        measure.check(bounds)?;
        if operation.node.ty == OperationType::Mutation {
            check_mutation(document, &operation.node)?;
        }
    }
    // What no operation spreads is refused later, by validation; a cycle must not get that far.
    for (name, fragment) in &document.fragments {
        ruler.fragment(name, &fragment.node.selection_set.node, 0)?;
    }
    Ok(())
}

/// A field that is asked for twice would be executed twice: the library merges answers, not fields.
fn check_mutation(document: &ExecutableDocument, operation: &OperationDefinition) -> Result<(), GuardError> {
    let mut keys = HashSet::new();
    // Bounded: `spreads` and `fields` were checked before.
    let mut open = vec![&operation.selection_set.node];
    while let Some(set) = open.pop() {
        for item in &set.items {
            match &item.node {
                Selection::Field(field) => {
                    let key = &field.node.response_key().node;
                    if field.node.name.node != "__typename" && !keys.insert(key) {
                        return Err(GuardError::DuplicateMutation(key.clone()));
                    }
                }
                Selection::InlineFragment(inline) => open.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(spread) => {
                    open.extend(document.fragments.get(&spread.node.fragment_name.node).map(|fragment| &fragment.node.selection_set.node));
                }
            }
        }
    }
    Ok(())
}

fn within(what: &'static str, found: usize, most: usize) -> Result<(), GuardError> {
    if found > most { Err(GuardError::TooMuch { what, most }) } else { Ok(()) }
}

/// The lists of the introspection types that lead on to further types.
const INTROSPECTION_LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// Selection sets and spreads one inside the other. The library stops at 32; this keeps our own walk within its stack.
const LEVELS_MAX: usize = 32;
const STACK_MAX: usize = 256;

/// What a selection set comes to, its fragments expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Measure {
    root_fields: usize,
    fields: usize,
    depth: usize,
    /// Like `depth`, with fragments counted.
    levels: usize,
    aliases: usize,
    directives: usize,
    spreads: usize,
    /// Introspection lists inside one another, should this lie in introspection.
    lists: usize,
    introspection_fields: usize,
    introspection_depth: usize,
    introspection_lists: usize,
}

impl Measure {
    /// This, and beside it that.
    fn add(&mut self, other: &Self) {
        self.root_fields = self.root_fields.saturating_add(other.root_fields);
        self.fields = self.fields.saturating_add(other.fields);
        self.depth = self.depth.max(other.depth);
        self.levels = self.levels.max(other.levels);
        self.aliases = self.aliases.saturating_add(other.aliases);
        self.directives = self.directives.saturating_add(other.directives);
        self.spreads = self.spreads.saturating_add(other.spreads);
        self.lists = self.lists.max(other.lists);
        self.introspection_fields = self.introspection_fields.saturating_add(other.introspection_fields);
        self.introspection_depth = self.introspection_depth.max(other.introspection_depth);
        self.introspection_lists = self.introspection_lists.max(other.introspection_lists);
    }

    /// The same, one field further down.
    fn inside(mut self, name: &str) -> Self {
        if matches!(name, "__schema" | "__type") {
            self.introspection_fields = self.introspection_fields.saturating_add(self.fields);
            self.introspection_depth = self.introspection_depth.max(self.depth.saturating_add(1));
            self.introspection_lists = self.introspection_lists.max(self.lists);
            (self.fields, self.depth, self.lists) = (0, 0, 0);
        }
        self.root_fields = usize::from(name != "__typename");
        self.fields = self.fields.saturating_add(1);
        self.depth = self.depth.saturating_add(1);
        self.levels = self.levels.saturating_add(1);
        self.lists = self.lists.saturating_add(usize::from(INTROSPECTION_LISTS.contains(&name)));
        self
    }

    fn check(&self, bounds: &DocumentBounds) -> Result<(), GuardError> {
        within("fields, fragments expanded", self.fields, bounds.fields)?;
        within("fields inside one another", self.depth, bounds.depth)?;
        within("aliases, fragments expanded", self.aliases, bounds.aliases)?;
        within("directives, fragments expanded", self.directives, bounds.directives)?;
        within("fragment spreads, fragments expanded", self.spreads, bounds.spreads)?;
        within("root fields in one operation", self.root_fields, bounds.root_fields)?;
        within("fields of introspection", self.introspection_fields, bounds.introspection_fields)?;
        within("fields of introspection inside one another", self.introspection_depth, bounds.introspection_depth)?;
        within("lists of introspection inside one another", self.introspection_lists, bounds.introspection_lists)?;
        within("fields and fragments inside one another", self.levels, LEVELS_MAX)
    }
}

struct Ruler<'a> {
    document: &'a ExecutableDocument,
    measured: HashMap<&'a Name, Measure>,
    /// The fragments being measured: who meets one of these again has found a cycle.
    open: HashSet<&'a Name>,
}

impl<'a> Ruler<'a> {
    fn measure(&mut self, set: &'a SelectionSet, stack: usize) -> Result<Measure, GuardError> {
        within("fields and fragments inside one another", stack, STACK_MAX)?;
        let mut whole = Measure::default();
        for item in &set.items {
            let mut part = match &item.node {
                Selection::Field(field) => {
                    let mut inner = self.measure(&field.node.selection_set.node, stack + 1)?.inside(&field.node.name.node);
                    inner.aliases = inner.aliases.saturating_add(usize::from(field.node.alias.is_some()));
                    inner
                }
                Selection::InlineFragment(inline) => self.measure(&inline.node.selection_set.node, stack + 1)?.spread(),
                Selection::FragmentSpread(spread) => {
                    // An unknown fragment is for validation to name.
                    match self.document.fragments.get_key_value(&spread.node.fragment_name.node) {
                        Some((name, fragment)) => self.fragment(name, &fragment.node.selection_set.node, stack + 1)?.spread(),
                        None => Measure::default().spread(),
                    }
                }
            };
            part.directives = part.directives.saturating_add(item.node.directives().len());
            whole.add(&part);
        }
        Ok(whole)
    }

    fn fragment(&mut self, name: &'a Name, set: &'a SelectionSet, stack: usize) -> Result<Measure, GuardError> {
        if let Some(measure) = self.measured.get(name) {
            return Ok(*measure);
        }
        if !self.open.insert(name) {
            return Err(GuardError::Cycle(name.clone()));
        }
        let measure = self.measure(set, stack)?;
        self.open.remove(name);
        self.measured.insert(name, measure);
        Ok(measure)
    }
}

impl Measure {
    fn spread(mut self) -> Self {
        self.spreads = self.spreads.saturating_add(1);
        self.levels = self.levels.saturating_add(1);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use async_graphql::parser::parse_query;

    use super::*;

    fn guard(text: &str) -> Result<(), GuardError> {
        let bounds = DocumentBounds::default();
        check_text(text, &bounds)?;
        check(&parse_query(text).unwrap(), &bounds)
    }

    /// What the guard says there is too much of.
    fn excess(text: &str) -> &'static str {
        match guard(text) {
            Err(GuardError::TooMuch { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    /// Each fragment spreads the next one twice.
    fn bomb(fragments: usize) -> String {
        let mut text = "query{...a0}".to_owned();
        for number in 0..fragments {
            text += &format!("fragment a{number} on Query{{...a{next} ...a{next}}}", next = number + 1);
        }
        text + &format!("fragment a{fragments} on Query{{b}}")
    }

    #[test]
    fn an_ordinary_document_passes() {
        guard("query Q($id: ID!, $n: Int = 20) { conversation(id: $id) { ...C messages(first: $n) { edges { node { id body sender { username } } } } } } fragment C on Conversation { id name }").unwrap();
    }

    #[test]
    fn each_bound_holds_at_its_value_and_not_beyond() {
        let fields = |count: usize| format!("{{ a {{ {} }} }}", "b ".repeat(count - 1));
        let nested = |depth: usize| "{a".repeat(depth) + &"}".repeat(depth);
        let aliases = |count: usize| format!("{{ a {{ {} }} }}", (0..count).map(|n| format!("x{n}: b ")).collect::<String>());
        let directives = |count: usize| format!("{{ a {{ {} }} }}", "b @x ".repeat(count));
        let roots = |count: usize| format!("{{ __typename {} }}", "b ".repeat(count));
        let spreads = |count: usize| format!("{{ a {{ {} }} }} fragment F on T {{ b }}", "...F ".repeat(count));
        let operations = |count: usize| (0..count).map(|n| format!("query q{n} {{ a }} ")).collect::<String>();
        let tokens = |count: usize| format!("{{ a(b: [{}]) }}", "1 ".repeat(count - 9));
        let bytes = |count: usize| format!("{{ a }}#{}", "x".repeat(count - 6));
        let introspection = |count: usize| format!("{{ __schema {{ {} }} }}", "description ".repeat(count));
        let deep = |depth: usize| format!("{{ __type(name: \"T\") {} {}", "{ ofType ".repeat(depth - 1), "}".repeat(depth));
        type Make<'a> = &'a dyn Fn(usize) -> String;
        for (what, make, most) in [
            ("fields, fragments expanded", &fields as Make<'_>, 500),
            ("fields inside one another", &nested, 12),
            ("aliases, fragments expanded", &aliases, 30),
            ("directives, fragments expanded", &directives, 50),
            ("root fields in one operation", &roots, 5),
            ("fragment spreads, fragments expanded", &spreads, 200),
            ("operations", &operations, 10),
            ("tokens", &tokens, 2_000),
            ("bytes", &bytes, 16 * 1024),
            ("fields of introspection", &introspection, 500),
            ("fields of introspection inside one another", &deep, 20),
        ] {
            assert_eq!(guard(&make(most)), Ok(()), "{what}");
            assert_eq!(excess(&make(most + 1)), what);
        }
    }

    #[test]
    fn brackets_have_an_end_before_the_parser_sees_them() {
        let bounds = DocumentBounds::default();
        let text = format!("{{ a(b: {}{}) }}", "[".repeat(1_000), "]".repeat(900));
        assert!(matches!(check_text(&text, &bounds), Err(GuardError::TooMuch { what: "brackets inside one another", .. })));
    }

    #[test]
    fn a_bomb_of_fragments_is_refused_within_a_millisecond() {
        let text = bomb(20);
        assert!(text.len() > 600 && text.len() < 900, "{}", text.len());
        let refuse = || {
            let start = Instant::now();
            assert!(matches!(guard(&text), Err(GuardError::TooMuch { .. })));
            start.elapsed()
        };
        // The best of several: the machine may be busy, and without optimisation all of it is slower.
        let best = (0..50).map(|_| refuse()).min().unwrap();
        let most = if cfg!(debug_assertions) { Duration::from_millis(20) } else { Duration::from_millis(1) };
        assert!(best < most, "{best:?}");
    }

    #[test]
    fn the_guard_costs_twice_as_much_for_twice_as_many_fragments_and_no_more() {
        // 2^n would not end in the life of this machine, and saturates on the way.
        assert!(guard(&bomb(100)).is_err());
        assert!(guard(&bomb(180)).is_err());
    }

    #[test]
    fn a_fragment_that_spreads_itself_is_refused_used_or_not() {
        for text in [
            "{ ...A } fragment A on Q { ...A }",
            "{ ...A } fragment A on Q { b { ...B } } fragment B on Q { ...A }",
            "{ a } fragment A on Q { ...B } fragment B on Q { ... on Q { ...A } }",
        ] {
            assert!(matches!(guard(text), Err(GuardError::Cycle(_))), "{text}");
        }
    }

    #[test]
    fn a_chain_of_fragments_has_an_end() {
        let chain: String = (0..300).map(|n| format!("fragment a{n} on Q{{...a{}}}", n + 1)).collect();
        assert_eq!(excess(&format!("{{...a0}}{chain}")), "tokens");
        let chain: String = (0..100).map(|n| format!("fragment a{n} on Q{{...a{}}}", n + 1)).collect();
        assert_eq!(excess(&format!("{{...a0}}{chain}fragment a100 on Q{{b}}")), "fields and fragments inside one another");
    }

    #[test]
    fn introspection_does_not_multiply_itself() {
        assert_eq!(guard("{ __schema { types { fields { type { fields { name } } } } } }"), Ok(()));
        let text = "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }";
        assert_eq!(excess(text), "lists of introspection inside one another");
        let hidden = "{ __type(name: \"T\") { ...A } } fragment A on __Type { fields { type { ...B } } } fragment B on __Type { fields { type { interfaces { name } } } }";
        assert_eq!(excess(hidden), "lists of introspection inside one another");
    }

    #[test]
    fn the_introspection_of_graphiql_and_graphql_js_passes() {
        guard(INTROSPECTION).unwrap();
    }

    #[test]
    fn a_mutation_does_not_name_one_root_field_twice() {
        for text in [
            "mutation { send(a: 1) { id } send(a: 1) { body } }",
            "mutation { send { id } ...F } fragment F on Mutation { ... on Mutation { send { body } } }",
            "mutation { x: send { id } x: send { id } }",
        ] {
            assert!(matches!(guard(text), Err(GuardError::DuplicateMutation(_))), "{text}");
        }
        guard("mutation { __typename a: send { id } b: send { id } ... on Mutation { __typename } }").unwrap();
        guard("{ a { id } a { body } }").unwrap();
    }

    /// `getIntrospectionQuery()` of graphql-js with every option on, which GraphiQL sends with fewer.
    const INTROSPECTION: &str = "query IntrospectionQuery { __schema { description queryType { name kind } mutationType { name kind } subscriptionType { name kind }
        types { ...FullType } directives { name description isRepeatable locations args(includeDeprecated: true) { ...InputValue } } } }
        fragment FullType on __Type { kind name description specifiedByURL isOneOf
          fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue } type { ...TypeRef } isDeprecated deprecationReason }
          inputFields(includeDeprecated: true) { ...InputValue } interfaces { ...TypeRef }
          enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...TypeRef } }
        fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated deprecationReason }
        fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
          ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } } }";
}
