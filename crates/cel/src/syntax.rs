//! Text → tree: lexer, parser, macros, and back from the tree to text.
//!
//! Follows the grammar, the limits, the positions and the messages of cel-go 0.29. Valid text takes the direct
//! parser; text in which it finds anything wrong or deeply nested is read again by the one that reports and recovers.

pub mod ast;
mod builder;
mod lexer;
mod literal;
pub mod macros;
mod parser;
mod recovery;
mod unparser;
mod visit;

#[cfg(test)]
mod tests;

use crate::source::{Issues, Location, Source};
use ast::Ast;
use macros::MacroTable;

pub use unparser::{unparse, unparse_node, unparse_wrapped};
pub use visit::{Postorder, Preorder};

/// Maximum number of nodes of a tree. Copies that macros create are counted, so that they cannot grow without
/// bound.
const NODES_MAX: usize = 1_000_000;

/// The highest [`Options::recursion_max`].
const RECURSION_MAX: usize = 250;

/// Limits and options of the parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the syntax `a.?b`, `a[?b]`, `[?a]`, `{?a: b}` is enabled.
    pub optional_syntax: bool,
    /// Whether field names in backticks are enabled.
    pub quoted_fields: bool,
    /// Maximum nesting depth of grammar rules, and of the resulting tree.
    ///
    /// Values above 250 are treated as 250, so that no text is too deep for a stack of 2 MiB.
    pub recursion_max: usize,
    /// Maximum number of code points in the text.
    pub code_points_max: usize,
    /// Number of syntax errors after which parsing stops.
    pub errors_max: usize,
    /// Number of attempts to recover from a syntax error.
    pub recoveries_max: usize,
    /// Number of tokens that one such attempt may skip.
    pub recovery_tokens_max: usize,
    /// Whether the calls that macros replaced are kept, so that the tree can be converted back to the original
    /// text.
    pub keep_macro_calls: bool,
}

impl Options {
    fn recursion_limit(&self) -> usize {
        self.recursion_max.min(RECURSION_MAX)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            optional_syntax: false,
            quoted_fields: true,
            recursion_max: RECURSION_MAX,
            code_points_max: 100_000,
            errors_max: 100,
            recoveries_max: 30,
            recovery_tokens_max: 256,
            keep_macro_calls: false,
        }
    }
}

/// Parses an expression and expands its macros.
pub fn parse(source: &Source, macros: &MacroTable, options: &Options) -> Result<Ast, Issues> {
    let text = source.text();
    if text.len() > options.code_points_max {
        let size = text.chars().count();
        let limit = options.code_points_max;
        if size > limit {
            let message = format!("expression code point size exceeds limit: size: {size}, limit {limit}");
            return Err(whole_expression_issue(source, message));
        }
    }
    match parser::parse(source, macros, options) {
        Ok(ast) => Ok(ast),
        Err(parser::DirectParseFailure) => recovery::parse(source, macros, options),
    }
}

fn whole_expression_issue(source: &Source, message: String) -> Issues {
    let mut issues = Issues::new(source);
    issues.report_at(Location::NONE, message);
    issues
}

/// Whether a word is reserved: an identifier to the grammar, but not a valid variable.
fn is_reserved(word: &str) -> bool {
    matches!(
        word,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "false"
            | "for"
            | "function"
            | "if"
            | "import"
            | "in"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "null"
            | "return"
            | "true"
            | "var"
            | "void"
            | "while"
    )
}
