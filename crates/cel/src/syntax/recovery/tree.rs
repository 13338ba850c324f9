//! The tree of grammar rules that the error-recovering parser reads a text into.
//!
//! Parts that an error left out are missing; the shapes are those of the grammar's labeled alternatives.

use crate::syntax::lexer::{Kind, Token};

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

/// A rule that was read, and where its text begins.
pub(super) struct Node {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) shape: Shape,
}

/// Two operands and the operator between them; or just the left one.
pub(super) struct Binary {
    pub(super) left: NodeId,
    /// The operator and where it stands.
    pub(super) operator: Option<Token>,
    pub(super) right: Option<NodeId>,
}

/// Terms joined by one logical operator.
pub(super) struct Chain {
    pub(super) first: NodeId,
    /// Each further term and where the operator in front of it stands.
    pub(super) rest: Vec<(u32, NodeId)>,
}

/// Signs in front of an operand.
pub(super) struct Signs {
    /// Position of the first sign.
    pub(super) position: u32,
    pub(super) count: usize,
    pub(super) operand: Option<NodeId>,
}

/// An entry of a list, map or message as far as it was read.
pub(super) struct Entry {
    /// Position of the `:`.
    pub(super) colon: Option<u32>,
    /// An optional expression, or a field.
    pub(super) key: NodeId,
    pub(super) value: Option<NodeId>,
}

pub(super) enum Shape {
    /// An alternative could not be chosen.
    Unknown,
    /// The signs or the operand of a unary expression could not be read.
    UnknownUnary,
    /// `condition ? then : otherwise`, or just the condition.
    Conditional {
        condition: NodeId,
        question: Option<u32>,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
    Or(Chain),
    And(Chain),
    Binary(Binary),
    Not(Signs),
    Negate(Signs),
    Select {
        operand: NodeId,
        dot: Option<u32>,
        optional: bool,
        field: Option<NodeId>,
    },
    MemberCall {
        operand: NodeId,
        name: Token,
        open: u32,
        args: Vec<NodeId>,
    },
    Index {
        operand: NodeId,
        open: u32,
        optional: bool,
        index: Option<NodeId>,
    },
    /// Any rule that stands for the one it holds.
    Nested(Option<NodeId>),
    Ident {
        leading_dot: bool,
        name: Token,
    },
    GlobalCall {
        leading_dot: bool,
        name: Token,
        open: u32,
        args: Vec<NodeId>,
    },
    List {
        open: u32,
        elements: Vec<NodeId>,
    },
    Map {
        open: u32,
        entries: Vec<Entry>,
    },
    Message {
        leading_dot: bool,
        names: Vec<Token>,
        open: u32,
        fields: Option<NodeId>,
    },
    /// The fields of a message.
    Fields(Vec<Entry>),
    /// `name`, or a name in backticks.
    FieldName(Token),
    /// `?field` or `field`.
    OptionalField {
        optional: bool,
        name: Option<NodeId>,
    },
    /// `?value` or `value`.
    OptionalExpr {
        question: Option<u32>,
        value: Option<NodeId>,
    },
    Literal {
        negative: bool,
        token: Token,
    },
}

/// The rules that were read.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    pub(super) fn add(&mut self, start: u32, end: u32, shape: Shape) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(Node { start, end, shape });
        id
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    /// The rule read last, which is the one that holds all others.
    pub(super) fn root(&self) -> Option<NodeId> {
        let last = self.nodes.len().checked_sub(1)?;
        u32::try_from(last).ok().map(NodeId)
    }
}

/// A token that stands for one that is not there.
pub(super) fn missing_token(kind: Kind, position: u32) -> Token {
    Token { kind, start: position, end: position }
}
