//! Tree + environment → typed tree.
//!
//! Follows cel-go's checker in its rules, in the order and the wording of its messages. A stack of pending steps takes
//! the place of recursion, so that no tree is too deep for the machine's stack.

mod assign;
mod call;
mod comprehension;
mod format;
mod literal;
mod name;
mod select;
mod unchecked;
mod validate;

pub use crate::env::{CustomValidator, OverloadSet, Reference, TypedAst, Validator};
pub use format::ShownType;

use assign::Bindings;
use comprehension::LocalVariable;
use validate::VisitedKinds;

use crate::env::Env;
use crate::source::{Issues, Location, Source};
use crate::syntax::ast::{Ast, ExprId, ExprKind, Literal, operator};
use crate::types::Type;

/// Maximum height of a tree, so that it can be planned and evaluated on a stack of 2 MiB. Everything that the
/// parser accepts stays below it, macros included, except two hundred nested `sortBy`; trees built by hand may
/// exceed it.
const HEIGHT_MAX: usize = 1_000;

/// Checks an expression against the declarations of the environment, then runs the environment's validators.
///
/// Reports all errors in one pass: a part that does not type-check gets a type that is compatible with
/// everything.
pub fn check(env: &Env, ast: Ast) -> Result<TypedAst, Issues> {
    if ast.node_count() > HEIGHT_MAX && ast.height(ast.root()) > HEIGHT_MAX {
        let mut issues = Issues::new(ast.source());
        issues.report_at(Location::NONE, "max recursion depth exceeded");
        return Err(issues);
    }
    let mut checker = Checker::new(env, &ast);
    checker.visit(ast.root());
    while let Some(step) = checker.pending.pop() {
        checker.take(step);
    }
    let Checker { mut types, references, bindings, issues, seen, .. } = checker;
    if let Some(issues) = issues {
        return Err(issues);
    }
    for of in &mut types {
        if assign::has_variable(of) {
            *of = bindings.substitute_or_dyn(of);
        }
    }
    validate::validate(TypedAst { env: env.clone(), ast, types, references }, seen)
}

impl Env {
    /// Parses and checks an expression: all that is wrong with it, or the tree with its types.
    pub fn compile(&self, text: &str) -> Result<TypedAst, Issues> {
        self.compile_source(&Source::new(text))
    }

    /// Parses and checks an expression whose source has a name.
    pub fn compile_source(&self, source: &Source) -> Result<TypedAst, Issues> {
        check(self, self.parse(source)?)
    }
}

struct Checker<'a> {
    env: &'a Env,
    ast: &'a Ast,
    types: Vec<Type>,
    references: Vec<Reference>,
    bindings: Bindings,
    /// The variables of comprehensions that are in scope, the innermost last.
    locals: Vec<LocalVariable<'a>>,
    pending: Vec<Step>,
    /// The common types so far of the elements, or keys and values, of the literals that are being checked.
    joined: Vec<Option<Type>>,
    /// Whether overloads that compare numbers of different types are excluded.
    same_type_comparisons_only: bool,
    issues: Option<Issues>,
    /// Room for names that are put together, and for their parts.
    scratch: String,
    parts: Vec<&'a str>,
    seen: VisitedKinds,
}

/// Pending work. The step of a node is taken once the children that it needs have their types.
#[derive(Clone, Copy, Debug)]
enum Step {
    Visit(ExprId),
    Select(ExprId),
    OptionalSelect(ExprId),
    Call(ExprId),
    MemberCall(ExprId),
    Receiver(ExprId),
    Element(ExprId, usize),
    Key(ExprId, usize),
    Value(ExprId, usize),
    Field(ExprId, usize),
    EnterLoop(ExprId),
    Condition(ExprId),
    LeaveLoop(ExprId),
    LoopResult(ExprId),
}

impl<'a> Checker<'a> {
    fn new(env: &'a Env, ast: &'a Ast) -> Self {
        let count = ast.node_count();
        let mut references = Vec::with_capacity(count);
        references.resize_with(count, Reference::default);
        Checker {
            env,
            ast,
            types: vec![Type::Dyn; count],
            references,
            bindings: Bindings::default(),
            locals: Vec::new(),
            pending: Vec::with_capacity(16),
            joined: Vec::new(),
            same_type_comparisons_only: !env.options().cross_type_comparisons,
            issues: None,
            scratch: String::new(),
            parts: Vec::new(),
            seen: VisitedKinds::default(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Visit(id) => self.visit(id),
            Step::Select(id) => self.finish_select(id),
            Step::OptionalSelect(id) => self.finish_optional_select(id),
            Step::Call(id) => self.finish_call(id),
            Step::MemberCall(id) => self.finish_member_call(id),
            Step::Receiver(id) => self.finish_receiver(id),
            Step::Element(id, index) => self.finish_element(id, index),
            Step::Key(id, index) => self.finish_key(id, index),
            Step::Value(id, index) => self.finish_value(id, index),
            Step::Field(id, index) => self.finish_field(id, index),
            Step::EnterLoop(id) => self.enter_loop(id),
            Step::Condition(id) => self.finish_condition(id),
            Step::LeaveLoop(id) => self.leave_loop(id),
            Step::LoopResult(id) => self.finish_comprehension(id),
        }
    }

    /// Checks a node, at once or by steps still to be taken.
    fn visit(&mut self, id: ExprId) {
        match &self.ast[id].kind {
            ExprKind::Literal(literal) => self.set_type(id, literal_type(literal)),
            ExprKind::Ident(name) => self.check_ident(id, name),
            ExprKind::Select { operand, test_only, .. } => self.start_select(id, *operand, *test_only),
            ExprKind::Call { function, target, args } => {
                if *function == operator::OPTIONAL_SELECT {
                    return self.start_optional_select(id, *target, args);
                }
                self.pending.push(if target.is_some() { Step::MemberCall(id) } else { Step::Call(id) });
                self.visit_all(args);
            }
            ExprKind::List(elements) => self.start_list(id, elements),
            ExprKind::Map(entries) => self.start_map(id, entries),
            ExprKind::Struct { type_name, .. } => self.start_struct(id, type_name),
            ExprKind::Comprehension(comprehension) => {
                self.pending.push(Step::EnterLoop(id));
                self.visit_all(&[comprehension.range, comprehension.init]);
            }
        }
    }

    /// Checks nodes in their order: those in front that need no further steps at once.
    fn visit_all(&mut self, ids: &[ExprId]) {
        let is_leaf = |id: &ExprId| matches!(self.ast[*id].kind, ExprKind::Literal(_) | ExprKind::Ident(_));
        let leaves = ids.iter().take_while(|id| is_leaf(id)).count();
        let (leaves, rest) = ids.split_at_checked(leaves).unwrap_or((ids, &[]));
        for id in leaves {
            self.visit(*id);
        }
        self.pending.extend(rest.iter().rev().map(|id| Step::Visit(*id)));
    }

    fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id.index()).unwrap_or(&Type::Error)
    }

    fn set_type(&mut self, id: ExprId, value_type: Type) {
        if let Some(held) = self.types.get_mut(id.index()) {
            *held = value_type;
        }
    }

    fn set_reference(&mut self, id: ExprId, reference: Reference) {
        if let Some(held) = self.references.get_mut(id.index()) {
            *held = reference;
        }
    }

    fn report(&mut self, position: u32, message: String) {
        self.issues.get_or_insert_with(|| Issues::new(self.ast.source())).report(position, message);
    }

    /// Reports that a node has another type than the one expected.
    fn report_mismatch(&mut self, id: ExprId, expected: &Type, actual: &Type) {
        let message = format!("expected type '{}' but found '{}'", ShownType(expected), ShownType(actual));
        self.report(self.ast[id].position, message);
    }

    fn report_undeclared(&mut self, id: ExprId, name: &str) {
        let message = format!("undeclared reference to '{name}' (in container '{}')", self.env.container().name());
        self.report(self.ast[id].position, message);
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

#[cfg(test)]
mod tests;
