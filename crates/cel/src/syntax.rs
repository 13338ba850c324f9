//! Text → tree: lexer, parser, macros, and back from the tree to text.

pub mod ast;
