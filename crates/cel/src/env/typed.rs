//! A checked expression: the tree, with each node's type and reference.

use std::sync::Arc;

use super::{Env, Function, ResolvedOverload};
use crate::syntax::ast::{Ast, ExprId, ExprKind, Name};
use crate::types::Type;
use crate::value::Value;

/// A checked expression.
#[derive(Clone, Debug)]
pub struct TypedAst {
    pub(crate) env: Env,
    pub(crate) ast: Ast,
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Reference>,
}

/// Target of a name or call.
#[derive(Clone, Debug, Default)]
pub enum Reference {
    /// Nothing: a literal, a field selection, a node that is not part of the expression.
    #[default]
    None,
    /// A variable of the environment or of a comprehension, by its full name.
    Variable {
        /// The full name, without a leading dot.
        name: Name,
        /// Whether the variable of the environment is meant, although a comprehension has one of this name
        /// (written `.x`).
        global: bool,
    },
    /// A constant.
    Constant(Value<'static>),
    /// A type as a value. `defined` is false where it has a name but no value at run time.
    Type {
        /// The type's name.
        name: Name,
        /// The value, if there is one.
        value: Option<Type>,
    },
    /// A function and those of its overloads that can be meant.
    Function {
        /// The function.
        function: Arc<Function>,
        /// The overloads.
        overloads: OverloadSet,
        /// Whether the call's target is part of the function's name, as in `math.abs(x)`, and not an operand.
        qualified: bool,
    },
}

/// Some of a function's overloads, in the order of their declaration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverloadSet(u64);

impl OverloadSet {
    /// Adds the overload with this index.
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1_u64.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0);
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of overloads in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The overloads' indices.
    pub fn indices(self) -> impl Iterator<Item = usize> {
        (0..64_usize).filter(move |index| self.0 >> index & 1 == 1)
    }

    /// The overloads of a function.
    pub fn of(self, function: &Function) -> impl Iterator<Item = &ResolvedOverload> {
        self.indices().filter_map(|index| function.overloads.get(index))
    }

    /// The one overload that is meant, if there is only one.
    pub fn single(self, function: &Function) -> Option<&ResolvedOverload> {
        if self.len() == 1 { function.overloads.get(self.0.trailing_zeros() as usize) } else { None }
    }
}

impl TypedAst {
    /// The tree.
    pub fn ast(&self) -> &Ast {
        &self.ast
    }

    /// The environment it was checked in.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The type of the whole expression.
    pub fn result_type(&self) -> &Type {
        self.type_of(self.ast.root())
    }

    /// The type of a node.
    pub fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id.index()).unwrap_or(&Type::Dyn)
    }

    /// The full name of the function that a node calls, if it is a call.
    pub fn called_name(&self, id: ExprId) -> Option<&str> {
        match (&self.ast[id].kind, self.reference(id)) {
            (ExprKind::Call { .. }, Reference::Function { function, .. }) => Some(&function.name),
            (ExprKind::Call { function, .. }, _) => Some(function),
            _ => None,
        }
    }

    /// Target of the name or call at a node.
    pub fn reference(&self, id: ExprId) -> &Reference {
        self.references.get(id.index()).unwrap_or(&Reference::None)
    }
}
