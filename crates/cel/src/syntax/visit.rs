//! Ways through a tree: children, pre- and post-order, height, copies, and equality of two trees.
//!
//! Nothing here recurses, so that no tree is too deep for the stack.

use super::ast::{Ast, ExprId, ExprKind, Literal};

impl ExprKind {
    /// The child with that index, in the order in which children stand in the text.
    ///
    /// A comprehension's children are range, init, condition, step and result.
    pub fn child(&self, index: usize) -> Option<ExprId> {
        match self {
            ExprKind::Literal(_) | ExprKind::Ident(_) => None,
            ExprKind::Select { operand, .. } => (index == 0).then_some(*operand),
            ExprKind::Call { target: None, args, .. } => args.get(index).copied(),
            ExprKind::Call { target, args, .. } => match index.checked_sub(1) {
                None => *target,
                Some(index) => args.get(index).copied(),
            },
            ExprKind::List(elements) => elements.get(index).map(|element| element.value),
            ExprKind::Map(entries) => {
                entries.get(index / 2).map(|entry| if index.is_multiple_of(2) { entry.key } else { entry.value })
            }
            ExprKind::Struct { fields, .. } => fields.get(index).map(|field| field.value),
            ExprKind::Comprehension(it) => [it.range, it.init, it.condition, it.step, it.result].get(index).copied(),
        }
    }

    fn child_mut(&mut self, index: usize) -> Option<&mut ExprId> {
        match self {
            ExprKind::Literal(_) | ExprKind::Ident(_) => None,
            ExprKind::Select { operand, .. } => (index == 0).then_some(operand),
            ExprKind::Call { target: None, args, .. } => args.get_mut(index),
            ExprKind::Call { target, args, .. } => match index.checked_sub(1) {
                None => target.as_mut(),
                Some(index) => args.get_mut(index),
            },
            ExprKind::List(elements) => elements.get_mut(index).map(|element| &mut element.value),
            ExprKind::Map(entries) => entries
                .get_mut(index / 2)
                .map(|entry| if index.is_multiple_of(2) { &mut entry.key } else { &mut entry.value }),
            ExprKind::Struct { fields, .. } => fields.get_mut(index).map(|field| &mut field.value),
            ExprKind::Comprehension(it) => match index {
                0 => Some(&mut it.range),
                1 => Some(&mut it.init),
                2 => Some(&mut it.condition),
                3 => Some(&mut it.step),
                4 => Some(&mut it.result),
                _ => None,
            },
        }
    }

    /// The children, in the order in which they stand in the text.
    pub fn children(&self) -> impl Iterator<Item = ExprId> + '_ {
        (0..).map_while(|index| self.child(index))
    }

    /// Whether it is the same kind of node with the same names and values, regardless of its children.
    fn is_like(&self, other: &ExprKind) -> bool {
        match (self, other) {
            (ExprKind::Literal(Literal::Double(a)), ExprKind::Literal(Literal::Double(b))) => {
                a.to_bits() == b.to_bits()
            }
            (ExprKind::Literal(a), ExprKind::Literal(b)) => a == b,
            (ExprKind::Ident(a), ExprKind::Ident(b)) => a == b,
            (ExprKind::Select { field: a, test_only: c, .. }, ExprKind::Select { field: b, test_only: d, .. }) => {
                a == b && c == d
            }
            (
                ExprKind::Call { function: a, target: c, args: e },
                ExprKind::Call { function: b, target: d, args: f },
            ) => a == b && c.is_some() == d.is_some() && e.len() == f.len(),
            (ExprKind::List(a), ExprKind::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.optional == b.optional)
            }
            (ExprKind::Map(a), ExprKind::Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.optional == b.optional)
            }
            (ExprKind::Struct { type_name: a, fields: c }, ExprKind::Struct { type_name: b, fields: d }) => {
                let same_field = |(c, d): (&super::ast::StructField, &super::ast::StructField)| {
                    c.name == d.name && c.optional == d.optional
                };
                a == b && c.len() == d.len() && c.iter().zip(d).all(same_field)
            }
            (ExprKind::Comprehension(a), ExprKind::Comprehension(b)) => {
                a.variable == b.variable && a.second_variable == b.second_variable && a.accumulator == b.accumulator
            }
            _ => false,
        }
    }
}

impl Ast {
    /// The node's children, in the order in which they stand in the text.
    pub fn children(&self, id: ExprId) -> impl Iterator<Item = ExprId> + '_ {
        self[id].kind.children()
    }

    /// The node and all below it, each before its children.
    pub fn preorder(&self, id: ExprId) -> Preorder<'_> {
        Preorder { ast: self, pending: vec![id] }
    }

    /// The node and all below it, each after its children.
    pub fn postorder(&self, id: ExprId) -> Postorder<'_> {
        Postorder { ast: self, path: vec![(id, 0)] }
    }

    /// Number of nodes on the longest path down, including the node itself.
    pub fn height(&self, id: ExprId) -> usize {
        let mut path = vec![(id, 0usize)];
        let mut height = 0;
        while let Some((id, next)) = path.last_mut() {
            let child = self[*id].kind.child(*next);
            *next = next.saturating_add(1);
            height = height.max(path.len());
            match child {
                Some(child) => path.push((child, 0)),
                None => {
                    path.pop();
                }
            }
        }
        height
    }

    /// A copy of the node and all below it; `None` if the arena would then hold more than `nodes_max` nodes.
    ///
    /// The copies keep their positions, but map entries and fields stand at `entry_position`, as in cel-go.
    pub(crate) fn copy_tree(&mut self, id: ExprId, entry_position: u32, nodes_max: usize) -> Option<ExprId> {
        let copy_node = |ast: &mut Ast, id: ExprId| {
            if ast.node_count() >= nodes_max {
                return None;
            }
            let mut node = ast[id].clone();
            match &mut node.kind {
                ExprKind::Map(entries) => entries.iter_mut().for_each(|entry| entry.position = entry_position),
                ExprKind::Struct { fields, .. } => fields.iter_mut().for_each(|field| field.position = entry_position),
                _ => {}
            }
            Some(ast.add(node.kind, node.position, node.span))
        };
        let root = copy_node(self, id)?;
        let mut pending = vec![root];
        while let Some(parent) = pending.pop() {
            let mut index = 0usize;
            while let Some(child) = self[parent].kind.child(index) {
                let copy = copy_node(self, child)?;
                if let Some(slot) = self[parent].kind.child_mut(index) {
                    *slot = copy;
                }
                pending.push(copy);
                index = index.saturating_add(1);
            }
        }
        Some(root)
    }

    /// Whether the trees are equal except for positions. Macros are compared by their expansions.
    pub fn same_tree(&self, other: &Ast) -> bool {
        self.same_subtree(self.root(), other, other.root())
    }

    /// Whether the trees below two nodes are equal except for positions. Macros are compared by their
    /// expansions.
    pub fn same_subtree(&self, id: ExprId, other: &Ast, other_id: ExprId) -> bool {
        let mut pending = vec![(id, other_id)];
        while let Some((a, b)) = pending.pop() {
            let (a, b) = (&self[a].kind, &other[b].kind);
            if !a.is_like(b) {
                return false;
            }
            pending.extend(a.children().zip(b.children()));
        }
        true
    }
}

/// See [`Ast::preorder`].
#[derive(Debug)]
pub struct Preorder<'a> {
    ast: &'a Ast,
    pending: Vec<ExprId>,
}

impl Iterator for Preorder<'_> {
    type Item = ExprId;

    fn next(&mut self) -> Option<ExprId> {
        let id = self.pending.pop()?;
        let first = self.pending.len();
        self.pending.extend(self.ast.children(id));
        if let Some(added) = self.pending.get_mut(first..) {
            added.reverse();
        }
        Some(id)
    }
}

/// See [`Ast::postorder`].
#[derive(Debug)]
pub struct Postorder<'a> {
    ast: &'a Ast,
    path: Vec<(ExprId, usize)>,
}

impl Iterator for Postorder<'_> {
    type Item = ExprId;

    fn next(&mut self) -> Option<ExprId> {
        loop {
            let (id, next) = self.path.last_mut()?;
            let child = self.ast[*id].kind.child(*next);
            *next = next.saturating_add(1);
            match child {
                Some(child) => self.path.push((child, 0)),
                None => return self.path.pop().map(|(id, _)| id),
            }
        }
    }
}
