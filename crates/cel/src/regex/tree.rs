//! The parsed pattern: an arena of nodes, cheap to build and free of recursion.
//!
//! INVARIANT: a node's children precede it, and every node has one parent at most. So a walk over the arena
//! visits children first, and siblings can be chained through `Node::next`.

use regex_syntax::hir::Look;

use super::unicode::Property;

pub(super) type NodeId = usize;

/// All nodes of one pattern, with the text and the class items they refer to.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// The characters of all literals, one after the other.
    pub(super) literals: String,
    /// The items of all classes, one after the other.
    pub(super) items: Vec<ClassItem>,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// The next sibling inside a concatenation or an alternation.
    pub(super) next: Option<NodeId>,
    /// The levels of nesting, as Go counts them.
    pub(super) height: u32,
    /// The instructions of the compiled program, as Go counts them.
    pub(super) size: u64,
    /// The largest product of nested counts on any path downwards.
    pub(super) repeats: u32,
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    /// Became part of another node.
    Absorbed,
    Empty,
    /// Matches nothing: a surrogate, which no text contains.
    Never,
    /// Bytes `start..end` of `Tree::literals`.
    Literal {
        start: usize,
        end: usize,
        fold: bool,
    },
    AnyChar,
    AnyCharNotNewline,
    /// Items `start..end` of `Tree::items`.
    Class {
        start: usize,
        end: usize,
        negated: bool,
        fold: bool,
    },
    Look(Look),
    Repeat {
        sub: NodeId,
        min: u32,
        max: Option<u32>,
        greedy: bool,
    },
    Capture {
        sub: NodeId,
        index: u32,
    },
    Concat {
        first: NodeId,
        last: NodeId,
    },
    Alternate {
        first: NodeId,
        last: NodeId,
    },
}

/// One element of a bracket expression, or a class escape on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClassItem {
    /// From, to; both inclusive, surrogates included.
    Range(u32, u32),
    Ascii {
        ranges: &'static [(u8, u8)],
        negated: bool,
    },
    Unicode {
        property: Property,
        negated: bool,
    },
}

impl Tree {
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// The children of a concatenation or an alternation.
    pub(super) fn siblings(&self, first: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(first), |&id| self.get(id)?.next)
    }
}
