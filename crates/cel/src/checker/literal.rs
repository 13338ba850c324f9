//! List, map and message literals.

use super::assign::more_general;
use super::{Checker, Reference, ShownType, Step};
use crate::syntax::ast::{ExprId, ExprKind, ListElement, MapEntry, Name, StructField};
use crate::types::Type;

impl<'a> Checker<'a> {
    pub(super) fn start_list(&mut self, id: ExprId, elements: &[ListElement]) {
        match elements.first() {
            Some(first) => {
                self.joined.push(None);
                self.seen.mixable_literals |= elements.len() > 1;
                self.pending.push(Step::Element(id, 0));
                self.pending.push(Step::Visit(first.value));
            }
            None => {
                let element = self.bindings.fresh_variable();
                self.set_type(id, Type::list(element));
            }
        }
    }

    pub(super) fn finish_element(&mut self, id: ExprId, index: usize) {
        let ExprKind::List(elements) = &self.ast[id].kind else { return };
        let Some(element) = elements.get(index) else { return };
        let of = self.entry_type(element.value, element.optional);
        let earlier = self.joined.pop().flatten();
        let joined = self.join(element.value, earlier, of);
        let next = index.saturating_add(1);
        match elements.get(next) {
            Some(element) => {
                self.joined.push(Some(joined));
                self.pending.push(Step::Element(id, next));
                self.pending.push(Step::Visit(element.value));
            }
            None => self.set_type(id, Type::list(joined)),
        }
    }

    pub(super) fn start_map(&mut self, id: ExprId, entries: &[MapEntry]) {
        match entries.first() {
            Some(first) => {
                self.joined.extend([None, None]);
                self.seen.mixable_literals |= entries.len() > 1;
                self.pending.push(Step::Key(id, 0));
                self.pending.push(Step::Visit(first.key));
            }
            None => {
                let key = self.bindings.fresh_variable();
                let value = self.bindings.fresh_variable();
                self.set_type(id, Type::map(key, value));
            }
        }
    }

    pub(super) fn finish_key(&mut self, id: ExprId, index: usize) {
        let ExprKind::Map(entries) = &self.ast[id].kind else { return };
        let Some(entry) = entries.get(index) else { return };
        // The values' type so far is above the keys' on the stack.
        let values = self.joined.pop().flatten();
        let earlier = self.joined.pop().flatten();
        let of = self.type_of(entry.key).clone();
        let keys = self.join(entry.key, earlier, of);
        self.joined.extend([Some(keys), values]);
        self.pending.push(Step::Value(id, index));
        self.pending.push(Step::Visit(entry.value));
    }

    pub(super) fn finish_value(&mut self, id: ExprId, index: usize) {
        let ExprKind::Map(entries) = &self.ast[id].kind else { return };
        let Some(entry) = entries.get(index) else { return };
        let of = self.entry_type(entry.value, entry.optional);
        let earlier = self.joined.pop().flatten();
        let values = self.join(entry.value, earlier, of);
        let next = index.saturating_add(1);
        match entries.get(next) {
            Some(entry) => {
                self.joined.push(Some(values));
                self.pending.push(Step::Key(id, next));
                self.pending.push(Step::Visit(entry.key));
            }
            None => {
                let keys = self.joined.pop().flatten().unwrap_or(Type::Dyn);
                self.set_type(id, Type::map(keys, values));
            }
        }
    }

    pub(super) fn start_struct(&mut self, id: ExprId, name: &'a Name) {
        let found = self.env.container().resolve(name, |candidate| self.find_type(candidate));
        let Some((of, reference)) = found else {
            self.set_type(id, Type::Error);
            return self.report_undeclared(id, name);
        };
        // The name `list` denotes lists of anything, which can be built.
        let of = self.bindings.substitute_or_dyn(&of);
        let is_message = message_name(&of).is_some();
        if !is_message {
            let message = format!("'{}' is not a message type", of.name());
            self.report(self.ast[id].position, message);
        }
        self.set_type(id, if is_message { of } else { Type::Error });
        self.set_reference(id, reference);
        self.next_field(id, 0);
    }

    fn next_field(&mut self, id: ExprId, index: usize) {
        let ExprKind::Struct { fields, .. } = &self.ast[id].kind else { return };
        if let Some(field) = fields.get(index) {
            self.pending.push(Step::Field(id, index));
            self.pending.push(Step::Visit(field.value));
        }
    }

    pub(super) fn finish_field(&mut self, id: ExprId, index: usize) {
        let ExprKind::Struct { fields, .. } = &self.ast[id].kind else { return };
        let Some(StructField { position, name, value, optional }) = fields.get(index) else { return };
        let type_name = match (message_name(self.type_of(id)), self.references.get(id.index())) {
            (Some(name), _) => name,
            (None, Some(Reference::Type { name, .. })) => name.clone(),
            _ => return,
        };
        let expected = self.field_type(*position, &type_name, name).unwrap_or(Type::Error);
        let actual = self.entry_type(*value, *optional);
        if !self.bindings.assignable(&expected, &actual) {
            let (expected, actual) = (ShownType(&expected), ShownType(&actual));
            let message = format!("expected type of field '{name}' is '{expected}' but provided type is '{actual}'");
            self.report(*position, message);
        }
        self.next_field(id, index.saturating_add(1));
    }

    /// The type of a value in a literal. A value with `?` must be optional, and has the type of its content.
    fn entry_type(&mut self, id: ExprId, optional: bool) -> Type {
        let of = self.type_of(id).clone();
        if !optional {
            return of;
        }
        if let Some(held) = of.as_optional() {
            return held.clone();
        }
        if !of.is_dyn() {
            self.report_mismatch(id, &Type::optional(of.clone()), &of);
        }
        of
    }

    /// The common type of the entries so far and one more.
    fn join(&mut self, id: ExprId, earlier: Option<Type>, current: Type) -> Type {
        let Some(earlier) = earlier else { return current };
        if self.bindings.assignable(&earlier, &current) {
            return more_general(&earlier, &current).clone();
        }
        if !self.env.options().homogeneous_literals {
            return Type::Dyn;
        }
        self.report_mismatch(id, &earlier, &current);
        Type::Error
    }
}

/// The name under which a type's fields are declared, if it can be built from fields.
fn message_name(value_type: &Type) -> Option<Name> {
    Some(Name::from_static(match value_type {
        Type::Object(name) => return Some(name.clone()),
        Type::Wrapper(primitive) => primitive.wrapper_name(),
        Type::Any => "google.protobuf.Any",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Duration => "google.protobuf.Duration",
        Type::Dyn => "google.protobuf.Value",
        Type::Null => "google.protobuf.NullValue",
        Type::List(element) if **element == Type::Dyn => "google.protobuf.ListValue",
        Type::Map(entry) if **entry == (Type::String, Type::Dyn) => "google.protobuf.Struct",
        _ => return None,
    }))
}
