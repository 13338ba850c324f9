//! Name resolution: variables of comprehensions, then the declarations of the environment, relative to its
//! container.

use std::sync::Arc;

use super::{Checker, Reference};
use crate::env::Function;
use crate::syntax::ast::{ExprId, ExprKind, Name};
use crate::types::Type;

impl<'a> Checker<'a> {
    pub(super) fn check_ident(&mut self, id: ExprId, name: &'a Name) {
        let local = self.locals.iter().rev().find(|local| local.name == without_dot(name));
        let found = match local {
            Some(local) if !name.starts_with('.') => {
                Some((local.of.clone(), Reference::Variable { name: local.name.clone(), global: false }))
            }
            _ => self.find_global(name, local.is_some()),
        };
        match found {
            Some((of, reference)) => {
                self.set_type(id, of);
                self.set_reference(id, reference);
            }
            None => {
                self.set_type(id, Type::Error);
                self.report_undeclared(id, name);
            }
        }
    }

    /// Interprets a chain of selections as the qualified name of a variable or type; returns whether there is
    /// one.
    pub(super) fn check_qualified_ident(&mut self, id: ExprId) -> bool {
        let Some(root) = self.qualified_root(id) else { return false };
        let is_local = self.locals.iter().any(|local| local.name == without_dot(root));
        if is_local && !root.starts_with('.') {
            return false;
        }
        self.put_qualified_name(id);
        let name = std::mem::take(&mut self.scratch);
        let found = self.find_global(&name, is_local);
        self.scratch = name;
        match found {
            Some((of, reference)) => {
                self.set_type(id, of);
                self.set_reference(id, reference);
                true
            }
            None => false,
        }
    }

    /// The function that a member call names together with its target, such as `math.abs`.
    pub(super) fn find_qualified_function(&mut self, target: ExprId, name: &'a Name) -> Option<&'a Arc<Function>> {
        let root = self.qualified_root(target)?;
        if !self.env.may_qualify_function(without_dot(root)) {
            return None;
        }
        self.put_qualified_name(target);
        self.scratch.push('.');
        self.scratch.push_str(name);
        self.find_function(&self.scratch)
    }

    /// A function, seen from the environment's container.
    pub(super) fn find_function(&self, name: &str) -> Option<&'a Arc<Function>> {
        let env = self.env;
        env.container().resolve(name, |candidate| env.function(candidate))
    }

    /// The variable that a chain of selections begins with.
    fn qualified_root(&self, id: ExprId) -> Option<&'a Name> {
        let mut next = id;
        loop {
            match qualified_part(&self.ast[next].kind)? {
                (part, None) => return Some(part),
                (_, Some(operand)) => next = operand,
            }
        }
    }

    /// Writes a chain of selections into `scratch` as a dotted name.
    fn put_qualified_name(&mut self, id: ExprId) {
        self.scratch.clear();
        self.scratch.reserve(64);
        let mut next = Some(id);
        while let Some((part, operand)) = next.and_then(|id| qualified_part(&self.ast[id].kind)) {
            self.parts.push(part);
            next = operand;
        }
        while let Some(part) = self.parts.pop() {
            if !self.scratch.is_empty() {
                self.scratch.push('.');
            }
            self.scratch.push_str(part);
        }
    }

    /// Returns the declaration that a name resolves to in the environment. `shadowed` is true if a
    /// comprehension has a variable of this name.
    fn find_global(&self, name: &str, shadowed: bool) -> Option<(Type, Reference)> {
        let env = self.env;
        env.container().resolve(name, |candidate| {
            if let Some((name, variable)) = env.declared_variable(candidate) {
                let reference = match &variable.constant {
                    Some(value) => Reference::Constant(value.clone()),
                    None => Reference::Variable { name: name.clone(), global: shadowed },
                };
                return Some((variable.variable_type.clone(), reference));
            }
            if let Some((of, reference)) = self.find_type(candidate) {
                return Some((Type::type_of(of), reference));
            }
            let constant = env.provider().find_constant(candidate)?;
            Some((constant.type_of(), Reference::Constant(constant)))
        })
    }

    /// A type by its full name.
    pub(super) fn find_type(&self, name: &str) -> Option<(Type, Reference)> {
        if let Some(of) = self.env.type_value(name) {
            return Some((of.clone(), Reference::Type { name: name.into(), value: Some(of) }));
        }
        let of = self.env.provider().find_type(name)?;
        Some((of, Reference::Type { name: name.into(), value: None }))
    }
}

/// A part of a qualified name, and the operand that holds the parts before it.
fn qualified_part(kind: &ExprKind) -> Option<(&Name, Option<ExprId>)> {
    match kind {
        ExprKind::Ident(name) => Some((name, None)),
        ExprKind::Select { operand, field, test_only: false } => Some((field, Some(*operand))),
        _ => None,
    }
}

fn without_dot(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}
