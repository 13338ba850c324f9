//! The parser with error reports and recovery.
//!
//! It reads the whole text into a tree of grammar rules, as cel-go's generated parser does: the same decisions,
//! the same repairs (a token dropped, a token supposed, tokens skipped until something can follow), the same
//! limits and the same words. `visitor` then turns that tree into nodes and finds what only meaning shows.
//! Slower than `parser`, so it reads only what that one does not.

mod rules;
mod sets;
mod strategy;
mod stream;
mod tree;
mod visitor;

use super::Options;
use super::ast::Ast;
use super::macros::MacroTable;
use crate::source::{Issues, Source};
use strategy::Abort;

/// The tree, or everything that is wrong with the text.
pub(crate) fn parse(source: &Source, macros: &MacroTable, options: &Options) -> Result<Ast, Issues> {
    let mut issues = Issues::new(source);
    let outcome = rules::read(source, options, &mut issues)
        .and_then(|tree| visitor::visit(&tree, source, macros, options, &mut issues));
    match outcome {
        Ok(ast) if issues.is_empty() => Ok(ast),
        Ok(_) | Err(Abort) => Err(issues),
    }
}
