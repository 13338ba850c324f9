//! What names refer to: variables of comprehensions, then what the environment declares, seen from its container.

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

    /// Sees a chain of selections as the qualified name of a variable or type, if there is one.
    pub(super) fn check_qualified_ident(&mut self, id: ExprId) -> bool {
        let Some(root) = self.qualified_name(id, None) else { return false };
        let is_local = self.locals.iter().any(|local| local.name == without_dot(root));
        if is_local && !root.starts_with('.') {
            return false;
        }
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
        self.qualified_name(target, Some(name))?;
        self.find_function(&self.scratch)
    }

    /// A function, seen from the environment's container.
    pub(super) fn find_function(&self, name: &str) -> Option<&'a Arc<Function>> {
        let env = self.env;
        env.container().resolve(name, |candidate| env.function(candidate))
    }

    /// Puts a chain of selections into `scratch` as a dotted name; answers the variable that it begins with.
    fn qualified_name(&mut self, id: ExprId, last: Option<&'a Name>) -> Option<&'a Name> {
        let ast = self.ast;
        let mut root = None;
        let mut length = last.map_or(0, |name| name.len().saturating_add(1));
        let mut depth = 0_usize;
        let mut next = Some(id);
        while let Some(id) = next {
            let (part, operand) = qualified_part(&ast[id].kind)?;
            length = length.saturating_add(part.len()).saturating_add(1);
            depth = depth.saturating_add(1);
            root = Some(part);
            next = operand;
        }
        self.scratch.clear();
        self.scratch.reserve(length);
        // Names are short: each further part is found by going down again, which needs no room of its own.
        for level in (0..depth).rev() {
            let mut at = id;
            for _ in 0..level {
                at = qualified_part(&ast[at].kind).and_then(|(_, operand)| operand)?;
            }
            if !self.scratch.is_empty() {
                self.scratch.push('.');
            }
            self.scratch.push_str(qualified_part(&ast[at].kind)?.0);
        }
        if let Some(last) = last {
            self.scratch.push('.');
            self.scratch.push_str(last);
        }
        root
    }

    /// What the environment means by a name. `shadowed` says that a comprehension has a variable of this name.
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
