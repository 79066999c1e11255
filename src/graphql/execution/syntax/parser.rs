//! Parser of executable documents, by the September 2025 edition of the specification, into the
//! syntax tree that async-graphql executes. The lexer bounds its tokens and its recursion.
//!
//! The tree has no place for a repeated name of an operation, a fragment or an input field, so that
//! the parser refuses those.

use std::collections::HashMap;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{
    BaseType, Directive, DocumentOperations, ExecutableDocument, Field, FragmentDefinition,
    FragmentSpread, InlineFragment, OperationDefinition, OperationType, Selection, SelectionSet,
    Type, TypeCondition, VariableDefinition,
};
use async_graphql::{Name, Number, Pos, Positioned};
use async_graphql_value::Value;

use super::lexer::{Lexer, SyntaxToken};
use crate::graphql::execution::{DocumentBounds, RequestError};

type Parsed<T> = Result<T, RequestError>;
type Arguments = Vec<(Positioned<Name>, Positioned<Value>)>;

pub(in crate::graphql::execution) fn parse(
    text: &str,
    bounds: &DocumentBounds,
) -> Parsed<ExecutableDocument> {
    let mut lexer = Lexer::new(text, bounds)?;
    let (token, position) = lexer.token()?;
    let mut parser = Parser {
        lexer,
        token,
        position,
    };
    parser.document()
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token to read next, and its position.
    token: SyntaxToken<'a>,
    position: Pos,
}

impl<'a> Parser<'a> {
    fn document(&mut self) -> Parsed<ExecutableDocument> {
        let mut anonymous = None;
        let mut named = HashMap::new();
        let mut fragments = HashMap::new();
        while self.token != SyntaxToken::End {
            let position = self.position;
            let is_described = self.skip_description()?;
            if self.token == SyntaxToken::Name("fragment") {
                let (name, fragment) = self.fragment()?;
                let fragment = Positioned::new(fragment, position);
                if fragments.insert(name.node.clone(), fragment).is_some() {
                    return Err(repeated("fragment", &name));
                }
                continue;
            }
            let (name, operation) = self.operation(is_described)?;
            let operation = Positioned::new(operation, position);
            match name {
                Some(name) => {
                    if named.insert(name.node.clone(), operation).is_some() {
                        return Err(repeated("operation", &name));
                    }
                }
                None if anonymous.is_none() => anonymous = Some(operation),
                None => return Err(alone(position)),
            }
        }
        let operations = match anonymous {
            Some(operation) if named.is_empty() => DocumentOperations::Single(operation),
            Some(operation) => return Err(alone(operation.pos)),
            None if named.is_empty() => return self.unexpected("an operation"),
            None => DocumentOperations::Multiple(named),
        };
        Ok(ExecutableDocument {
            operations,
            fragments,
        })
    }

    fn operation(
        &mut self,
        is_described: bool,
    ) -> Parsed<(Option<Positioned<Name>>, OperationDefinition)> {
        let ty = match self.token {
            // The short form of a query has neither a name nor a description.
            SyntaxToken::Punctuator(b'{') if !is_described => {
                let operation = OperationDefinition {
                    ty: OperationType::Query,
                    variable_definitions: Vec::new(),
                    directives: Vec::new(),
                    selection_set: self.selection_set()?,
                };
                return Ok((None, operation));
            }
            SyntaxToken::Name("query") => OperationType::Query,
            SyntaxToken::Name("mutation") => OperationType::Mutation,
            SyntaxToken::Name("subscription") => OperationType::Subscription,
            SyntaxToken::Punctuator(_)
            | SyntaxToken::Name(_)
            | SyntaxToken::Number(_)
            | SyntaxToken::String(_)
            | SyntaxToken::End => return self.unexpected("an operation or a fragment"),
        };
        self.advance()?;
        let name = self.is_name().then(|| self.name()).transpose()?;
        let operation = OperationDefinition {
            ty,
            variable_definitions: self.list(b'(', b')', Self::variable_definition)?,
            directives: self.directives(false)?,
            selection_set: self.selection_set()?,
        };
        Ok((name, operation))
    }

    fn variable_definition(&mut self) -> Parsed<Positioned<VariableDefinition>> {
        let position = self.position;
        self.skip_description()?;
        self.expect(b'$')?;
        let name = self.name()?;
        self.expect(b':')?;
        let var_type = self.ty()?;
        let mut default_value = None;
        if self.accept(b'=')? {
            let value = self.value(true)?;
            default_value = value
                .node
                .into_const()
                .map(|node| Positioned::new(node, value.pos));
        }
        let definition = VariableDefinition {
            name,
            var_type,
            directives: self.directives(true)?,
            default_value,
        };
        Ok(Positioned::new(definition, position))
    }

    fn ty(&mut self) -> Parsed<Positioned<Type>> {
        let position = self.position;
        let base = if self.accept(b'[')? {
            let inner = self.ty()?;
            self.expect(b']')?;
            BaseType::List(Box::new(inner.node))
        } else {
            BaseType::Named(self.name()?.node)
        };
        let nullable = !self.accept(b'!')?;
        Ok(Positioned::new(Type { base, nullable }, position))
    }

    fn fragment(&mut self) -> Parsed<(Positioned<Name>, FragmentDefinition)> {
        self.advance()?;
        if self.token == SyntaxToken::Name("on") {
            return self.unexpected("the name of a fragment");
        }
        let name = self.name()?;
        if self.token != SyntaxToken::Name("on") {
            return self.unexpected("`on`");
        }
        let fragment = FragmentDefinition {
            type_condition: self.type_condition()?,
            directives: self.directives(false)?,
            selection_set: self.selection_set()?,
        };
        Ok((name, fragment))
    }

    /// Reads `on` and the type after it.
    fn type_condition(&mut self) -> Parsed<Positioned<TypeCondition>> {
        let position = self.position;
        self.advance()?;
        let on = self.name()?;
        Ok(Positioned::new(TypeCondition { on }, position))
    }

    fn selection_set(&mut self) -> Parsed<Positioned<SelectionSet>> {
        let position = self.position;
        if self.token != SyntaxToken::Punctuator(b'{') {
            return self.unexpected("`{`");
        }
        let items = self.list(b'{', b'}', Self::selection)?;
        Ok(Positioned::new(SelectionSet { items }, position))
    }

    fn selection(&mut self) -> Parsed<Positioned<Selection>> {
        let position = self.position;
        if !self.accept(b'.')? {
            let field = Positioned::new(self.field()?, position);
            return Ok(Positioned::new(Selection::Field(field), position));
        }
        let is_spread = matches!(self.token, SyntaxToken::Name(name) if name != "on");
        let selection = if is_spread {
            let spread = FragmentSpread {
                fragment_name: self.name()?,
                directives: self.directives(false)?,
            };
            Selection::FragmentSpread(Positioned::new(spread, position))
        } else {
            let condition = self.is_name().then(|| self.type_condition()).transpose()?;
            let inline = InlineFragment {
                type_condition: condition,
                directives: self.directives(false)?,
                selection_set: self.selection_set()?,
            };
            Selection::InlineFragment(Positioned::new(inline, position))
        };
        Ok(Positioned::new(selection, position))
    }

    fn is_name(&self) -> bool {
        matches!(self.token, SyntaxToken::Name(_))
    }

    fn field(&mut self) -> Parsed<Field> {
        let first = self.name()?;
        let (alias, name) = if self.accept(b':')? {
            (Some(first), self.name()?)
        } else {
            (None, first)
        };
        let arguments = self.arguments(false)?;
        let directives = self.directives(false)?;
        let selection_set = if let SyntaxToken::Punctuator(b'{') = self.token {
            self.selection_set()?
        } else {
            Positioned::default()
        };
        Ok(Field {
            alias,
            name,
            arguments,
            directives,
            selection_set,
        })
    }

    fn arguments(&mut self, is_const: bool) -> Parsed<Arguments> {
        self.list(b'(', b')', |parser| parser.argument(is_const))
    }

    fn argument(&mut self, is_const: bool) -> Parsed<(Positioned<Name>, Positioned<Value>)> {
        let name = self.name()?;
        self.expect(b':')?;
        Ok((name, self.value(is_const)?))
    }

    fn directives(&mut self, is_const: bool) -> Parsed<Vec<Positioned<Directive>>> {
        let mut directives = Vec::new();
        loop {
            let position = self.position;
            if !self.accept(b'@')? {
                return Ok(directives);
            }
            let directive = Directive {
                name: self.name()?,
                arguments: self.arguments(is_const)?,
            };
            directives.push(Positioned::new(directive, position));
        }
    }

    fn value(&mut self, is_const: bool) -> Parsed<Positioned<Value>> {
        let position = self.position;
        let value = match &mut self.token {
            SyntaxToken::Punctuator(b'$') if !is_const => {
                self.advance()?;
                Value::Variable(self.name()?.node)
            }
            SyntaxToken::Punctuator(b'[') => {
                self.advance()?;
                let mut values = Vec::new();
                while !self.accept(b']')? {
                    values.push(self.value(is_const)?.node);
                }
                Value::List(values)
            }
            SyntaxToken::Punctuator(b'{') => {
                self.advance()?;
                let mut fields = IndexMap::new();
                while !self.accept(b'}')? {
                    let (name, value) = self.argument(is_const)?;
                    if fields.insert(name.node.clone(), value.node).is_some() {
                        return Err(repeated("input field", &name));
                    }
                }
                Value::Object(fields)
            }
            SyntaxToken::Number(text) => {
                // The library would read `-0` as a fraction.
                let number = if *text == "-0" { "0" } else { text };
                let is_integer = number
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'-');
                let number = number.parse().ok();
                let number = number.filter(|number: &Number| !is_integer || !number.is_f64());
                let number = number.ok_or_else(|| {
                    let problem =
                        "an integer has at most 64 bits, and a fraction the range of a double";
                    RequestError::syntax(problem.to_owned(), position)
                })?;
                self.advance()?;
                Value::Number(number)
            }
            SyntaxToken::String(text) => {
                let text = std::mem::take(text).into_owned();
                self.advance()?;
                Value::String(text)
            }
            SyntaxToken::Name(name) => {
                let value = match *name {
                    "true" => Value::Boolean(true),
                    "false" => Value::Boolean(false),
                    "null" => Value::Null,
                    name => Value::Enum(Name::new(name)),
                };
                self.advance()?;
                value
            }
            SyntaxToken::Punctuator(_) | SyntaxToken::End => return self.unexpected("a value"),
        };
        Ok(Positioned::new(value, position))
    }

    /// Elements between brackets, at least one. None if the opening bracket is absent.
    fn list<T>(
        &mut self,
        open: u8,
        close: u8,
        mut element: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut elements = Vec::new();
        if self.accept(open)? {
            elements.push(element(self)?);
            while !self.accept(close)? {
                elements.push(element(self)?);
            }
        }
        Ok(elements)
    }

    fn skip_description(&mut self) -> Parsed<bool> {
        let is_description = matches!(self.token, SyntaxToken::String(_));
        if is_description {
            self.advance()?;
        }
        Ok(is_description)
    }

    fn name(&mut self) -> Parsed<Positioned<Name>> {
        let SyntaxToken::Name(name) = self.token else {
            return self.unexpected("a name");
        };
        let name = Positioned::new(Name::new(name), self.position);
        self.advance()?;
        Ok(name)
    }

    fn expect(&mut self, punctuator: u8) -> Parsed<()> {
        if self.accept(punctuator)? {
            Ok(())
        } else {
            self.unexpected(&format!("`{}`", char::from(punctuator)))
        }
    }

    fn accept(&mut self, punctuator: u8) -> Parsed<bool> {
        let is_next = self.token == SyntaxToken::Punctuator(punctuator);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn advance(&mut self) -> Parsed<()> {
        (self.token, self.position) = self.lexer.token()?;
        Ok(())
    }

    fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        let found = match &self.token {
            SyntaxToken::Punctuator(b'.') => "`...`".to_owned(),
            SyntaxToken::Punctuator(byte) => format!("`{}`", char::from(*byte)),
            SyntaxToken::Name(_) => "a name".to_owned(),
            SyntaxToken::Number(_) => "a number".to_owned(),
            SyntaxToken::String(_) => "a string".to_owned(),
            SyntaxToken::End => "the end".to_owned(),
        };
        let problem = format!("expected {expected}, found {found}");
        Err(RequestError::syntax(problem, self.position))
    }
}

fn repeated(what: &str, name: &Positioned<Name>) -> RequestError {
    RequestError::invalid_at(
        format!("The name `{}` belongs to more than one {what}.", name.node),
        name.pos,
    )
}

fn alone(position: Pos) -> RequestError {
    RequestError::invalid_at(
        "An operation without a name must be the only one in its document.".to_owned(),
        position,
    )
}
