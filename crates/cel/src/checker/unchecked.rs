//! A tree that was not checked, made ready to run: names are resolved, types are left to run time.
//!
//! Every function has all its overloads with this number of operands; a missing function has none, which is an
//! error only when it is called. Follows cel-go's planner for parsed expressions.

use std::sync::Arc;

use super::{OverloadSet, Reference, TypedAst};
use crate::env::{Env, Function};
use crate::syntax::ast::{Ast, ExprId, ExprKind, Name};
use crate::types::Type;

impl TypedAst {
    /// Accepts a parsed expression unchecked: every part of it is `dyn`, and mismatches fail at evaluation.
    pub fn unchecked(env: &Env, ast: Ast) -> TypedAst {
        let count = ast.node_count();
        let mut references = Vec::with_capacity(count);
        references.resize_with(count, Reference::default);
        let mut resolver =
            Resolver { env, ast: &ast, references, locals: Vec::new(), pending: vec![Step::Visit(ast.root())] };
        while let Some(step) = resolver.pending.pop() {
            match step {
                Step::Visit(id) => resolver.visit(id),
                Step::Open(name) => resolver.locals.push(name),
                Step::Close => drop(resolver.locals.pop()),
            }
        }
        let references = resolver.references;
        TypedAst { env: env.clone(), types: vec![Type::Dyn; count], references, ast }
    }
}

struct Resolver<'a> {
    env: &'a Env,
    ast: &'a Ast,
    references: Vec<Reference>,
    /// The variables of comprehensions that are in scope, the innermost last.
    locals: Vec<&'a Name>,
    pending: Vec<Step<'a>>,
}

/// Pending work.
enum Step<'a> {
    Visit(ExprId),
    /// Opens the scope of a comprehension's variable.
    Open(&'a Name),
    /// Closes the innermost scope.
    Close,
}

impl<'a> Resolver<'a> {
    fn visit(&mut self, id: ExprId) {
        let ast = self.ast;
        match &ast[id].kind {
            ExprKind::Literal(_) => {}
            ExprKind::Ident(_) => {
                self.resolve_variable(id);
            }
            ExprKind::Select { operand, test_only, .. } => {
                if *test_only || !self.resolve_variable(id) {
                    self.pending.push(Step::Visit(*operand));
                }
            }
            ExprKind::Call { function, target, args } => {
                self.pending.extend(args.iter().map(|arg| Step::Visit(*arg)));
                self.resolve_function(id, function, *target, args.len());
            }
            ExprKind::List(elements) => self.pending.extend(elements.iter().map(|element| Step::Visit(element.value))),
            ExprKind::Map(entries) => {
                self.pending
                    .extend(entries.iter().flat_map(|entry| [Step::Visit(entry.key), Step::Visit(entry.value)]));
            }
            ExprKind::Struct { fields, .. } => {
                self.pending.extend(fields.iter().map(|field| Step::Visit(field.value)));
            }
            ExprKind::Comprehension(fold) => {
                // The last step pushed is taken first.
                self.pending.extend([Step::Close, Step::Visit(fold.result), Step::Close]);
                if let Some(second) = &fold.second_variable {
                    self.pending.extend([Step::Close, Step::Visit(fold.step), Step::Visit(fold.condition)]);
                    self.pending.push(Step::Open(second));
                } else {
                    self.pending.extend([Step::Visit(fold.step), Step::Visit(fold.condition)]);
                }
                self.pending.extend([Step::Open(&fold.variable), Step::Open(&fold.accumulator)]);
                self.pending.extend([Step::Visit(fold.init), Step::Visit(fold.range)]);
            }
        }
    }

    /// Resolves a name to a variable, constant or type, relative to the container; returns whether there is
    /// one.
    fn resolve_variable(&mut self, id: ExprId) -> bool {
        let Some(name) = self.global_name(id) else { return false };
        let env = self.env;
        let found = env.container().resolve(&name, |candidate| {
            if let Some((name, variable)) = env.declared_variable(candidate) {
                return Some(match &variable.constant {
                    Some(value) => Reference::Constant(value.clone()),
                    None => Reference::Variable { name: name.clone(), global: true },
                });
            }
            if let Some(of) = env.type_value(candidate) {
                return Some(Reference::Type { name: candidate.into(), value: Some(of) });
            }
            env.provider().find_constant(candidate).map(Reference::Constant)
        });
        match found {
            Some(reference) => {
                self.set_reference(id, reference);
                true
            }
            None => false,
        }
    }

    fn resolve_function(&mut self, id: ExprId, name: &'a Name, target: Option<ExprId>, arg_count: usize) {
        let env = self.env;
        let find = |name: &str| env.container().resolve(name, |candidate| env.function(candidate).cloned());
        let qualified = target.and_then(|target| self.global_name(target)).and_then(|it| find(&format!("{it}.{name}")));
        let is_qualified = qualified.is_some();
        let operand_count = if let (Some(target), false) = (target, is_qualified) {
            self.pending.push(Step::Visit(target));
            arg_count.saturating_add(1)
        } else {
            arg_count
        };
        let unknown =
            || Arc::new(Function { name: name.clone(), overloads: Vec::new(), singleton: None, partial: None });
        let function = qualified.or_else(|| find(name)).unwrap_or_else(unknown);
        let mut overloads = OverloadSet::default();
        for (index, overload) in function.overloads.iter().enumerate() {
            if overload.signature.parameters.len() == operand_count {
                overloads.insert(index);
            }
        }
        self.set_reference(id, Reference::Function { function, overloads, qualified: is_qualified });
    }

    /// The dotted name that a node is, unless it begins with a comprehension's variable.
    fn global_name(&self, id: ExprId) -> Option<String> {
        match &self.ast[id].kind {
            ExprKind::Ident(name) => (!self.locals.contains(&name)).then(|| name.to_string()),
            ExprKind::Select { operand, field, test_only: false } => {
                Some(format!("{}.{field}", self.global_name(*operand)?))
            }
            _ => None,
        }
    }

    fn set_reference(&mut self, id: ExprId, reference: Reference) {
        if let Some(place) = self.references.get_mut(id.index()) {
            *place = reference;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Bindings, Program};
    use crate::source::Source;

    #[track_caller]
    fn check(expression: &str, answer: &str) {
        let env = Env::builder().library(&crate::library::standard()).container("a").variable("a.y", Type::Int);
        let env = env.build().unwrap();
        let typed = TypedAst::unchecked(&env, env.parse(&Source::new(expression)).unwrap());
        let program = Program::new(&typed).unwrap();
        let input = Bindings::new().bind("a.y", 2_i64);
        let result = program.eval(&input).result;
        assert_eq!(result.map_or_else(|error| error.to_string(), |value| value.to_string()), answer);
    }

    #[test]
    fn container_resolves_names_except_comprehension_variables() {
        check("y + 1", "3");
        check("[7].exists(y, y == 7)", "true");
        check("[7].exists(y, .a.y == 2)", "true");
        check("[{'z': 5}].exists(y, y.z == 5)", "true");
    }

    #[test]
    fn mismatch_fails_at_evaluation() {
        check("unknown(1) || true", "true");
        check("true ? 'cows' : 17", "cows");
        check("1 + 'a'", "no such overload");
        check("x", "no such attribute(s): x");
    }
}
