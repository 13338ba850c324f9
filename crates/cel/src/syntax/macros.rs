//! Macros: calls that become other trees while parsing.
//!
//! A [`Macro`] says which calls it takes and how it expands them with an [`Expansion`]; a [`MacroTable`] holds
//! those of an environment. The families of macros are separate lists, so that an environment chooses.
//! The shapes of the expansions follow cel-go, because costs and messages depend on them.

pub mod bindings;
pub mod optional;
pub mod sort_by;
pub mod standard;
pub mod two_variable;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::ast::{ACCUMULATOR, Ast, Comprehension, ExprId, ExprKind, ListElement, Literal, MapEntry, Name};
use crate::source::Span;

pub use bindings::BINDINGS;
pub use optional::OPTIONAL;
pub use sort_by::SORT_BY;
pub use standard::{EXISTS_ONE, STANDARD};
pub use two_variable::TWO_VARIABLE;

/// Number of arguments of a macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arity {
    /// Exactly this many.
    Exact(usize),
    /// Any number for which there is no macro with exactly that number.
    Variadic,
}

/// Result of an expander: the expansion, `None` if the call is not a macro after all, or an error.
pub type ExpandResult = Result<Option<ExprId>, MacroError>;

/// Turns a call, given by its receiver and its arguments, into another tree.
pub type ExpandFn = fn(&mut Expansion<'_>, Option<ExprId>, &[ExprId]) -> ExpandResult;

/// An expander as a closure, which can capture values.
pub type ExpandClosure = dyn Fn(&mut Expansion<'_>, Option<ExprId>, &[ExprId]) -> ExpandResult + Send + Sync;

/// The code of a macro.
#[derive(Clone)]
pub enum Expander {
    /// A plain function.
    Function(ExpandFn),
    /// A closure.
    Shared(Arc<ExpandClosure>),
}

impl fmt::Debug for Expander {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expander")
    }
}

/// An error in the arguments of a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacroError {
    /// The byte offset at which the error is shown.
    pub position: u32,
    /// Text of the error.
    pub message: Cow<'static, str>,
}

/// A macro: which calls it takes, and its code.
#[derive(Clone, Debug)]
pub struct Macro {
    /// The name of the calls it takes.
    pub name: Name,
    /// Number of arguments.
    pub arity: Arity,
    /// Whether they are member calls, `receiver.name(…)`.
    pub receiver: bool,
    /// Expander of the macro.
    pub expander: Expander,
}

impl Macro {
    /// A macro for calls `name(…)`.
    pub const fn global(name: &'static str, arity: Arity, expand: ExpandFn) -> Self {
        Macro { name: Name::from_static(name), arity, receiver: false, expander: Expander::Function(expand) }
    }

    /// A macro for calls `receiver.name(…)`.
    pub const fn member(name: &'static str, arity: Arity, expand: ExpandFn) -> Self {
        Macro { name: Name::from_static(name), arity, receiver: true, expander: Expander::Function(expand) }
    }

    /// A macro whose code is a closure.
    pub fn from_closure(
        name: impl Into<Name>,
        arity: Arity,
        receiver: bool,
        expand: impl Fn(&mut Expansion<'_>, Option<ExprId>, &[ExprId]) -> ExpandResult + Send + Sync + 'static,
    ) -> Self {
        Macro { name: name.into(), arity, receiver, expander: Expander::Shared(Arc::new(expand)) }
    }

    pub(crate) fn expand(
        &self,
        expansion: &mut Expansion<'_>,
        target: Option<ExprId>,
        args: &[ExprId],
    ) -> ExpandResult {
        match &self.expander {
            Expander::Function(expand) => expand(expansion, target, args),
            Expander::Shared(expand) => expand(expansion, target, args),
        }
    }

    fn key(&self) -> (&str, bool, Arity) {
        (&self.name, self.receiver, self.arity)
    }
}

/// The macros of an environment. Cloning it is cheap.
#[derive(Clone, Debug, Default)]
pub struct MacroTable(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    /// INVARIANT: sorted by key, and each key once.
    macros: Vec<Macro>,
    /// One bit for each [`fingerprint`] that occurs, so that most calls are known not to be macros at once.
    fingerprints: u64,
}

fn fingerprint(name: &str, receiver: bool) -> u64 {
    let first = name.as_bytes().first().map_or(0, |byte| usize::from(*byte));
    let index = first.wrapping_add(name.len().wrapping_mul(5)).wrapping_add(usize::from(receiver)) & 63;
    1u64.wrapping_shl(u32::try_from(index).unwrap_or(0))
}

impl MacroTable {
    /// No macros.
    pub fn empty() -> Self {
        MacroTable::default()
    }

    /// A table of these macros; of two for the same calls the later one counts.
    pub fn new<'a>(macros: impl IntoIterator<Item = &'a Macro>) -> Self {
        MacroTable::empty().with(macros)
    }

    /// This table and further macros, which replace those for the same calls.
    #[must_use]
    pub fn with<'a>(&self, macros: impl IntoIterator<Item = &'a Macro>) -> Self {
        let mut table = Table { macros: self.0.macros.clone(), fingerprints: self.0.fingerprints };
        for added in macros {
            table.fingerprints |= fingerprint(&added.name, added.receiver);
            match table.macros.binary_search_by(|known| known.key().cmp(&added.key())) {
                Ok(at) => {
                    if let Some(known) = table.macros.get_mut(at) {
                        known.clone_from(added);
                    }
                }
                Err(at) => table.macros.insert(at, added.clone()),
            }
        }
        MacroTable(Arc::new(table))
    }

    /// The macro that takes such a call: one with exactly that number of arguments, or else a variadic one.
    pub fn find(&self, name: &str, args: usize, receiver: bool) -> Option<&Macro> {
        let table = &*self.0;
        if table.fingerprints & fingerprint(name, receiver) == 0 {
            return None;
        }
        let find = |arity| {
            let key = (name, receiver, arity);
            table.macros.binary_search_by(|known| known.key().cmp(&key)).ok().and_then(|at| table.macros.get(at))
        };
        find(Arity::Exact(args)).or_else(|| find(Arity::Variadic))
    }

    /// All macros, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Macro> {
        self.0.macros.iter()
    }
}

/// Builds the tree of an expansion; every node that it adds has the position of the call.
#[derive(Debug)]
pub struct Expansion<'a> {
    ast: &'a mut Ast,
    position: u32,
    span: Span,
    nodes_max: usize,
}

impl<'a> Expansion<'a> {
    pub(crate) fn new(ast: &'a mut Ast, position: u32, span: Span, nodes_max: usize) -> Self {
        Expansion { ast, position, span, nodes_max }
    }

    /// The tree so far: the receiver and the arguments stand in it.
    pub fn ast(&self) -> &Ast {
        self.ast
    }

    /// The byte offset at which issues with the call are shown.
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Adds any node.
    pub fn node(&mut self, kind: ExprKind) -> ExprId {
        self.ast.add(kind, self.position, self.span)
    }

    /// A variable.
    pub fn ident(&mut self, name: Name) -> ExprId {
        self.node(ExprKind::Ident(name))
    }

    /// The variable that holds the accumulator.
    pub fn accumulator(&mut self) -> ExprId {
        self.ident(ACCUMULATOR)
    }

    /// A constant.
    pub fn literal(&mut self, literal: Literal) -> ExprId {
        self.node(ExprKind::Literal(literal))
    }

    /// `true` or `false`.
    pub fn bool(&mut self, value: bool) -> ExprId {
        self.literal(Literal::Bool(value))
    }

    /// `function(args…)`; operators have their names in [`super::ast::operator`].
    pub fn call(&mut self, function: Name, args: impl Into<Vec<ExprId>>) -> ExprId {
        self.node(ExprKind::Call { function, target: None, args: args.into() })
    }

    /// `target.function(args…)`
    pub fn member_call(&mut self, function: Name, target: ExprId, args: impl Into<Vec<ExprId>>) -> ExprId {
        self.node(ExprKind::Call { function, target: Some(target), args: args.into() })
    }

    /// `operand.field`
    pub fn select(&mut self, operand: ExprId, field: Name) -> ExprId {
        self.node(ExprKind::Select { operand, field, test_only: false })
    }

    /// `has(operand.field)`
    pub fn presence_test(&mut self, operand: ExprId, field: Name) -> ExprId {
        self.node(ExprKind::Select { operand, field, test_only: true })
    }

    /// `[elements…]`
    pub fn list(&mut self, elements: &[ExprId]) -> ExprId {
        let elements = elements.iter().map(|value| ListElement { value: *value, optional: false });
        self.node(ExprKind::List(elements.collect()))
    }

    /// `{key: value, …}`
    pub fn map(&mut self, entries: &[(ExprId, ExprId)]) -> ExprId {
        let position = self.position;
        let entries =
            entries.iter().map(|(key, value)| MapEntry { position, key: *key, value: *value, optional: false });
        self.node(ExprKind::Map(entries.collect()))
    }

    /// A fold.
    pub fn comprehension(&mut self, comprehension: Comprehension) -> ExprId {
        self.node(ExprKind::Comprehension(Box::new(comprehension)))
    }

    /// `init` under the name `variable` within `result`: a fold over nothing.
    pub fn bind(&mut self, variable: Name, init: ExprId, result: ExprId) -> ExprId {
        let range = self.list(&[]);
        let condition = self.bool(false);
        let step = self.ident(variable.clone());
        self.comprehension(Comprehension {
            range,
            variable: Name::from_static("#unused"),
            second_variable: None,
            accumulator: variable,
            init,
            condition,
            step,
            result,
        })
    }

    /// A copy of a whole tree, for an expression that the expansion needs twice.
    ///
    /// Fails where the copies of copies outgrow what an expression may hold.
    pub fn copy(&mut self, id: ExprId) -> Result<ExprId, MacroError> {
        let nodes_max = self.nodes_max;
        self.ast.copy_tree(id, self.position, nodes_max).ok_or_else(|| MacroError {
            position: self.position,
            message: format!("expression node count exceeds limit: {nodes_max}").into(),
        })
    }

    /// The name, if the node is a variable.
    pub fn ident_name(&self, id: ExprId) -> Option<&Name> {
        match &self.ast[id].kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// An error shown at a node.
    pub fn error(&self, id: ExprId, message: impl Into<Cow<'static, str>>) -> MacroError {
        MacroError { position: self.ast[id].position, message: message.into() }
    }

    /// Returns the name of an iteration variable, or the given error.
    pub(crate) fn iteration_variable(&self, id: ExprId, otherwise: &'static str) -> Result<Name, MacroError> {
        let name = self.ident_name(id).cloned().ok_or_else(|| self.error(id, otherwise))?;
        self.check_iteration_variable(id, &name)?;
        Ok(name)
    }

    pub(crate) fn check_iteration_variable(&self, id: ExprId, name: &Name) -> Result<(), MacroError> {
        if *name == ACCUMULATOR || *name == "__result__" {
            return Err(self.error(id, "iteration variable overwrites accumulator variable"));
        }
        Ok(())
    }
}
