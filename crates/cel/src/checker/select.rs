//! Field selection: `a.b`, `has(a.b)`, `a.?b`.

use super::assign::View;
use super::{Checker, OverloadSet, Reference, ShownType, Step};
use crate::syntax::ast::{ExprId, ExprKind, Literal, operator};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn start_select(&mut self, id: ExprId, operand: ExprId, test_only: bool) {
        if test_only || !self.check_qualified_ident(id) {
            self.pending.push(Step::Select(id));
            self.pending.push(Step::Visit(operand));
        }
    }

    pub(super) fn finish_select(&mut self, id: ExprId) {
        let ExprKind::Select { operand, field, test_only } = &self.ast[id].kind else { return };
        let of = self.field_of(id, *operand, field, false);
        self.set_type(id, if *test_only { Type::Bool } else { of });
    }

    pub(super) fn start_optional_select(&mut self, id: ExprId, target: Option<ExprId>, args: &[ExprId]) {
        let problem = match (target, args) {
            (None, [operand, field]) => match &self.ast[*field].kind {
                ExprKind::Literal(Literal::String(_)) => {
                    self.pending.push(Step::OptionalSelect(id));
                    self.pending.push(Step::Visit(*operand));
                    self.set_type(*field, Type::String);
                    return;
                }
                _ => (*field, "the field is not a string".to_owned()),
            },
            (None, args) => (id, format!("incorrect signature. argument count: {}", args.len())),
            (Some(_), args) => (id, format!("incorrect signature. member call with argument count: {}", args.len())),
        };
        self.set_type(id, Type::Error);
        let position = self.ast[problem.0].position;
        self.report(position, format!("unsupported optional field selection: {}", problem.1));
    }

    pub(super) fn finish_optional_select(&mut self, id: ExprId) {
        let ExprKind::Call { args, .. } = &self.ast[id].kind else { return };
        let [operand, field] = args.as_slice() else { return };
        let ExprKind::Literal(Literal::String(field)) = &self.ast[*field].kind else { return };
        let of = self.field_of(id, *operand, field, true);
        self.set_type(id, of);
        if let Some(function) = self.env.function(&operator::OPTIONAL_SELECT) {
            let mut overloads = OverloadSet::default();
            overloads.insert(0);
            let function = function.clone();
            self.set_reference(id, Reference::Function { function, overloads, qualified: false });
        }
    }

    /// The type of a field of an operand that has its type. A field of an optional is itself optional.
    fn field_of(&mut self, id: ExprId, operand: ExprId, field: &str, optional: bool) -> Type {
        let operand_type = self.bindings.substitute(View::plain(self.type_of(operand)));
        let unwrapped = operand_type.as_optional();
        let optional = optional || unwrapped.is_some();
        let found = match unwrapped.unwrap_or(&operand_type) {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(name) => self.field_type(self.ast[id].position, name, field).unwrap_or(Type::Error),
            variable @ (Type::Var(_) | Type::Param(_)) => {
                // From now on the operand is dynamic, so that nothing is concluded from its other uses.
                self.bindings.assignable(&Type::Dyn, variable);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", ShownType(other));
                self.report(self.ast[id].position, message);
                Type::Dyn
            }
        };
        if optional { Type::optional(found) } else { found }
    }

    /// The declared type of an object's field; reports a missing field.
    pub(super) fn field_type(&mut self, position: u32, type_name: &str, field: &str) -> Option<Type> {
        let provider = self.env.provider();
        if let Some(found) = provider.find_field(type_name, field) {
            return Some(found.field_type);
        }
        let message = match provider.find_type(type_name) {
            Some(_) => format!("undefined field '{field}'"),
            None => format!("unexpected failed resolution of '{type_name}'"),
        };
        self.report(position, message);
        None
    }
}
