//! Comprehensions: folds over a list or map, with variables of their own.

use super::assign::View;
use super::{Checker, ShownType, Step};
use crate::syntax::ast::{Comprehension, ExprId, ExprKind, Name};
use crate::types::Type;

/// A variable that a comprehension declares.
pub(super) struct LocalVariable<'a> {
    pub(super) name: &'a Name,
    pub(super) of: Type,
}

impl<'a> Checker<'a> {
    fn comprehension(&self, id: ExprId) -> Option<&'a Comprehension> {
        match &self.ast[id].kind {
            ExprKind::Comprehension(comprehension) => Some(comprehension),
            _ => None,
        }
    }

    /// Range and first value have their types: brings the variables into scope.
    pub(super) fn enter_loop(&mut self, id: ExprId) {
        let Some(it) = self.comprehension(id) else { return };
        let accumulator = self.type_of(it.init).clone();
        self.locals.push(LocalVariable { name: &it.accumulator, of: accumulator });
        let (first, second) = self.element_types(it);
        // Of two variables with one name, the first one is seen.
        if let Some(name) = &it.second_variable {
            self.locals.push(LocalVariable { name, of: second });
        }
        self.locals.push(LocalVariable { name: &it.variable, of: first });
        // cel-go forgets with the first comprehension which overloads are switched off.
        self.same_type_comparisons_only = false;
        self.seen.comprehensions = true;
        self.pending.push(Step::Condition(id));
        self.pending.push(Step::Visit(it.condition));
    }

    pub(super) fn finish_condition(&mut self, id: ExprId) {
        let Some(it) = self.comprehension(id) else { return };
        self.expect_type(it.condition, &Type::Bool);
        self.pending.push(Step::LeaveLoop(id));
        self.pending.push(Step::Visit(it.step));
    }

    /// The step has its type: the result sees the accumulator only.
    pub(super) fn leave_loop(&mut self, id: ExprId) {
        let Some(it) = self.comprehension(id) else { return };
        let accumulator = self.type_of(it.init).clone();
        self.expect_type(it.step, &accumulator);
        self.locals.pop();
        if it.second_variable.is_some() {
            self.locals.pop();
        }
        self.pending.push(Step::LoopResult(id));
        self.pending.push(Step::Visit(it.result));
    }

    pub(super) fn finish_comprehension(&mut self, id: ExprId) {
        let Some(it) = self.comprehension(id) else { return };
        self.locals.pop();
        let result = self.bindings.substitute(View::plain(self.type_of(it.result)));
        self.set_type(id, result);
    }

    /// The types of the variables; the second one's means nothing where there is none.
    fn element_types(&mut self, comprehension: &Comprehension) -> (Type, Type) {
        let has_second = comprehension.second_variable.is_some();
        let range = self.bindings.substitute(View::plain(self.type_of(comprehension.range)));
        match &range {
            Type::List(element) if has_second => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Var(_) | Type::Param(_) => {
                // From now on the range is dynamic, so that nothing is concluded from its other uses.
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    ShownType(other)
                );
                self.report(self.ast[comprehension.range].position, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn expect_type(&mut self, id: ExprId, expected: &Type) {
        let actual = self.types.get(id.index()).unwrap_or(&Type::Error);
        if !self.bindings.assignable(expected, actual) {
            let actual = actual.clone();
            self.report_mismatch(id, expected, &actual);
        }
    }
}
