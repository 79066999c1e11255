//! Syntax of documents: their tokens, and the tree that async-graphql executes.

mod lexer;
mod parser;
mod string_literal;

pub(super) use parser::parse;
