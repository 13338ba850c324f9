//! Construction of the tree: the nodes, macro expansions and balanced logic that both parsers build.
//!
//! The direct parser and the error-recovering one differ in how they read tokens, not in the trees they make.

use super::ast::{Ast, ExprId, ExprKind, Name};
use super::macros::{Expansion, MacroError, MacroTable};
use super::{NODES_MAX, Options};
use crate::source::{Source, Span};

/// A call as it was written, before it is known whether a macro takes it.
pub(crate) struct WrittenCall {
    pub(crate) position: u32,
    pub(crate) span: Span,
    pub(crate) target: Option<ExprId>,
    pub(crate) args: Vec<ExprId>,
}

/// A term of a chain of `&&` or `||`, with the operator in front of it.
#[derive(Clone, Copy)]
pub(crate) struct Term {
    pub(crate) value: ExprId,
    pub(crate) operator: u32,
    pub(crate) span: Span,
}

pub(crate) struct Builder<'a> {
    pub(crate) ast: Ast,
    pub(crate) macros: &'a MacroTable,
    pub(crate) options: &'a Options,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(source: &Source, macros: &'a MacroTable, options: &'a Options) -> Self {
        Builder { ast: Ast::new(source.clone()), macros, options }
    }

    /// Adds a call, or the expansion of the macro of that name.
    pub(crate) fn call_or_macro(&mut self, function: &str, call: WrittenCall) -> Result<ExprId, MacroError> {
        if let Some(expansion) = self.expand(function, &call)? {
            return Ok(expansion);
        }
        Ok(self.call(Name::from(function), call))
    }

    /// Adds an operator, or the expansion of its macro.
    pub(crate) fn operator_or_macro(&mut self, operator: Name, call: WrittenCall) -> Result<ExprId, MacroError> {
        if let Some(expansion) = self.expand(&operator, &call)? {
            return Ok(expansion);
        }
        Ok(self.call(operator, call))
    }

    fn call(&mut self, function: Name, call: WrittenCall) -> ExprId {
        let WrittenCall { position, span, target, args } = call;
        self.ast.add(ExprKind::Call { function, target, args }, position, span)
    }

    fn expand(&mut self, function: &str, call: &WrittenCall) -> Result<Option<ExprId>, MacroError> {
        let Some(found) = self.macros.find(function, call.args.len(), call.target.is_some()) else {
            return Ok(None);
        };
        let mut expansion = Expansion::new(&mut self.ast, call.position, call.span, NODES_MAX);
        let Some(id) = found.expand(&mut expansion, call.target, &call.args)? else {
            return Ok(None);
        };
        if self.options.keep_macro_calls {
            let function = found.name.clone();
            let kind = ExprKind::Call { function, target: call.target, args: call.args.clone() };
            let written = self.ast.add(kind, call.position, call.span);
            self.ast.set_macro_call(id, written);
        }
        Ok(Some(id))
    }

    /// A chain of one logical operator as a balanced tree, as cel-go builds it.
    pub(crate) fn balance(&mut self, function: &Name, terms: &[Term]) -> ExprId {
        match terms {
            [] => self.ast.add(ExprKind::List(Vec::new()), 0, Span::default()),
            [term] => term.value,
            _ => {
                // The operator in front of term `i + 1` is number `i`; the root is the middle one, and the left side is never shorter.
                let middle = terms.len().div_ceil(2);
                let (left, right) = terms.split_at_checked(middle).unwrap_or((terms, &[]));
                let (operator, start) = (right.first().map_or(0, |term| term.operator), left.first());
                let span = Span {
                    start: start.map_or(0, |term| term.span.start),
                    end: right.last().map_or(0, |term| term.span.end),
                };
                let args = vec![self.balance(function, left), self.balance(function, right)];
                self.ast.add(ExprKind::Call { function: function.clone(), target: None, args }, operator, span)
            }
        }
    }
}
