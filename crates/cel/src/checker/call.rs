//! Calls: which function a name means, and which of its overloads take the operands.

use std::sync::Arc;

use super::assign::{View, is_same};
use super::format::Operands;
use super::{Checker, OverloadSet, Reference, Step};
use crate::env::{Function, ResolvedOverload};
use crate::syntax::ast::{ExprId, ExprKind, operator};
use crate::types::Type;

impl<'a> Checker<'a> {
    /// A call without receiver, whose arguments have their types.
    pub(super) fn finish_call(&mut self, id: ExprId) {
        let ExprKind::Call { function: name, args, .. } = &self.ast[id].kind else { return };
        match self.find_function(name) {
            Some(function) => self.resolve(id, function, None, args, false),
            None => self.undeclared_function(id, name),
        }
    }

    /// A call with something before its name, whose arguments have their types: a qualified name or a receiver.
    pub(super) fn finish_member_call(&mut self, id: ExprId) {
        let ExprKind::Call { function: name, target: Some(target), args } = &self.ast[id].kind else { return };
        if let Some(function) = self.find_qualified_function(*target, name) {
            return self.resolve(id, function, None, args, true);
        }
        self.pending.push(Step::Receiver(id));
        self.pending.push(Step::Visit(*target));
    }

    /// A call whose arguments and receiver have their types.
    pub(super) fn finish_receiver(&mut self, id: ExprId) {
        let ExprKind::Call { function: name, target, args } = &self.ast[id].kind else { return };
        match self.find_function(name) {
            Some(function) => self.resolve(id, function, *target, args, false),
            None => self.undeclared_function(id, name),
        }
    }

    fn undeclared_function(&mut self, id: ExprId, name: &str) {
        self.set_type(id, Type::Error);
        self.report_undeclared(id, name);
    }

    fn resolve(
        &mut self,
        id: ExprId,
        function: &'a Arc<Function>,
        receiver: Option<ExprId>,
        args: &'a [ExprId],
        qualified: bool,
    ) {
        let is_logical = function.name == operator::LOGICAL_AND || function.name == operator::LOGICAL_OR;
        let found = if is_logical {
            self.logical_overload(function, receiver, args)
        } else {
            self.matching_overloads(function, receiver, args)
        };
        match found {
            Resolution::Found { overloads, result } => {
                self.set_type(id, result);
                let first_is_literal =
                    args.first().is_some_and(|first| matches!(self.ast[*first].kind, ExprKind::Literal(_)));
                self.seen.call(function, first_is_literal);
                let function = function.clone();
                self.set_reference(id, Reference::Function { function, overloads, qualified });
            }
            Resolution::Reported => self.set_type(id, Type::Error),
            Resolution::None => {
                self.set_type(id, Type::Error);
                let operands = receiver.iter().chain(args);
                let types: Vec<Type> =
                    operands.map(|operand| self.bindings.substitute_or_dyn(self.type_of(*operand))).collect();
                let operands = Operands { types: &types, receiver: receiver.is_some() };
                let message = format!("found no matching overload for '{}' applied to '{operands}'", function.name);
                self.report(self.ast[id].position, message);
            }
        }
    }

    /// The overloads that take the operands. Where they differ in their results, the result is dynamic.
    fn matching_overloads(&mut self, function: &Function, receiver: Option<ExprId>, args: &[ExprId]) -> Resolution {
        let mut overloads = OverloadSet::default();
        let mut result: Option<Type> = None;
        let types = &self.types;
        let operands = || receiver.iter().chain(args).map(|id| types.get(id.index()).unwrap_or(&Type::Error));
        let operand_count = args.len().saturating_add(usize::from(receiver.is_some()));
        for (index, overload) in function.overloads.iter().enumerate() {
            if overload.signature.receiver != receiver.is_some()
                || (self.same_type_comparisons_only && compares_different_numbers(overload))
            {
                continue;
            }
            // Variables are counted for overloads that cannot match, too: their numbers show in messages.
            let base = overload.pattern.as_ref().map_or(0, |pattern| self.bindings.fresh(pattern.variable_count));
            let (parameters, of) = match &overload.pattern {
                Some(pattern) => (&pattern.parameters, &pattern.result),
                None => (&overload.signature.parameters, &overload.signature.result),
            };
            if parameters.len() != operand_count {
                continue;
            }
            let pairs = operands().map(View::plain).zip(parameters.iter().map(|of| View::generic(of, base)));
            if !self.bindings.all_assignable(pairs) {
                continue;
            }
            overloads.insert(index);
            let of = View::generic(of, base);
            match &result {
                None => result = Some(self.bindings.substitute(of)),
                Some(first) if first.is_dyn() => {}
                Some(first) => {
                    if !is_same(&self.bindings.substitute(of), first) {
                        result = Some(Type::Dyn);
                    }
                }
            }
        }
        match result {
            Some(result) => Resolution::Found { overloads, result },
            None => Resolution::None,
        }
    }

    /// `&&` and `||` take any number of operands, and each that is not bool is reported on its own.
    fn logical_overload(&mut self, function: &Function, receiver: Option<ExprId>, args: &[ExprId]) -> Resolution {
        let is_eligible = |overload: &ResolvedOverload| overload.signature.receiver == receiver.is_some();
        let Some(index) = function.overloads.iter().position(is_eligible) else { return Resolution::None };
        let mut reported = false;
        for operand in receiver.iter().chain(args) {
            let of = self.types.get(operand.index()).unwrap_or(&Type::Error);
            if !self.bindings.assignable(of, &Type::Bool) {
                let of = of.clone();
                self.report_mismatch(*operand, &Type::Bool, &of);
                reported = true;
            }
        }
        if reported {
            return Resolution::Reported;
        }
        let mut overloads = OverloadSet::default();
        overloads.insert(index);
        Resolution::Found { overloads, result: Type::Bool }
    }
}

enum Resolution {
    Found {
        overloads: OverloadSet,
        result: Type,
    },
    None,
    /// No overload matches, and the error was reported.
    Reported,
}

/// Whether an overload compares different numeric types, such as `int < double`.
fn compares_different_numbers(overload: &ResolvedOverload) -> bool {
    let is_number = |of: &Type| matches!(of, Type::Int | Type::Uint | Type::Double);
    let name = &overload.signature.function;
    let compares = [operator::LESS, operator::LESS_EQUALS, operator::GREATER, operator::GREATER_EQUALS].contains(name);
    match overload.signature.parameters.as_slice() {
        [a, b] => compares && a != b && is_number(a) && is_number(b),
        _ => false,
    }
}
