//! The syntax tree: an arena of nodes, each with its place in the text.
//!
//! Macros are expanded while parsing; the original calls are kept with the expansion, so that a tree can be
//! converted back into text. The shape of the expansions is cel-go's, because costs and messages depend on it.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, Index, IndexMut};
use std::sync::Arc;

use crate::source::{Source, Span};

/// The name of a variable, field, function or type: static text, or shared text.
#[derive(Clone)]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Name {
    /// A name known when the program is built.
    pub const fn from_static(text: &'static str) -> Self {
        Name(Repr::Static(text))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Static(text) => text,
            Repr::Shared(text) => text,
        }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(Repr::Shared(text.into()))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name(Repr::Shared(text.into()))
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The mangled names of operators, as cel-go and the CEL specification have them.
pub mod operator {
    use super::Name;

    macro_rules! operators {
        ($($(#[$doc:meta])* $constant:ident = $text:literal;)*) => {
            $($(#[$doc])* pub const $constant: Name = Name::from_static($text);)*
        };
    }

    operators! {
        /// `c ? t : f`
        CONDITIONAL = "_?_:_";
        /// `a && b`
        LOGICAL_AND = "_&&_";
        /// `a || b`
        LOGICAL_OR = "_||_";
        /// `!a`
        LOGICAL_NOT = "!_";
        /// `a == b`
        EQUALS = "_==_";
        /// `a != b`
        NOT_EQUALS = "_!=_";
        /// `a < b`
        LESS = "_<_";
        /// `a <= b`
        LESS_EQUALS = "_<=_";
        /// `a > b`
        GREATER = "_>_";
        /// `a >= b`
        GREATER_EQUALS = "_>=_";
        /// `a + b`
        ADD = "_+_";
        /// `a - b`
        SUBTRACT = "_-_";
        /// `a * b`
        MULTIPLY = "_*_";
        /// `a / b`
        DIVIDE = "_/_";
        /// `a % b`
        MODULO = "_%_";
        /// `-a`
        NEGATE = "-_";
        /// `a[b]`
        INDEX = "_[_]";
        /// `a[?b]`
        OPTIONAL_INDEX = "_[?_]";
        /// `a.?b`
        OPTIONAL_SELECT = "_?._";
        /// `a in b`
        IN = "@in";
        /// The loop condition of `all`, `exists` and their like: false only for `false`, also true for errors.
        NOT_STRICTLY_FALSE = "@not_strictly_false";
    }
}

/// The accumulator variable of expanded macros.
pub const ACCUMULATOR: Name = Name::from_static("@result");

/// A node of an [`Ast`]: its index in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExprId(u32);

impl ExprId {
    /// The index, for tables parallel to the tree.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node: its kind, and its position in the text.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Kind of the node.
    pub kind: ExprKind,
    /// The byte offset at which issues with this node are shown (an operator's own place, not its operand's).
    pub position: u32,
    /// The text from the node's first to its last token.
    pub span: Span,
}

/// The kinds of nodes.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// `1`, `'text'`, `null`, …
    Literal(Literal),
    /// `x`, or `.x` with its leading dot.
    Ident(Name),
    /// `operand.field`, or `has(operand.field)` when `test_only`.
    Select {
        /// Operand of the selection.
        operand: ExprId,
        /// The field's name, without backticks.
        field: Name,
        /// Whether the selection only tests for the presence of the field.
        test_only: bool,
    },
    /// A function, an operator (see [`operator`]) or a member function.
    Call {
        /// The function's name.
        function: Name,
        /// The receiver of a member call.
        target: Option<ExprId>,
        /// The arguments, without the receiver.
        args: Vec<ExprId>,
    },
    /// `[a, ?b]`
    List(Vec<ListElement>),
    /// `{k: v, ?k: v}`
    Map(Vec<MapEntry>),
    /// `Type{field: value, ?field: value}`
    Struct {
        /// The type's name as written, with a leading dot if there was one.
        type_name: Name,
        /// The fields that are set.
        fields: Vec<StructField>,
    },
    /// A fold over a list or map: the expansion of macros.
    Comprehension(Box<Comprehension>),
}

/// A constant in the text.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// `-1`, `0x7f`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.5`, `1e3`
    Double(f64),
    /// `'text'`
    String(Arc<str>),
    /// `b'text'`
    Bytes(Arc<[u8]>),
}

/// An element of a list literal.
#[derive(Clone, Copy, Debug)]
pub struct ListElement {
    /// The element's value.
    pub value: ExprId,
    /// Whether it is written with `?`: omitted when its optional value is absent.
    pub optional: bool,
}

/// An entry of a map literal.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry {
    /// The byte offset at which issues with the entry are shown.
    pub position: u32,
    /// The key.
    pub key: ExprId,
    /// The value.
    pub value: ExprId,
    /// Whether it is written with `?`: omitted when its optional value is absent.
    pub optional: bool,
}

/// A field of a message literal.
#[derive(Clone, Debug)]
pub struct StructField {
    /// The byte offset at which issues with the field are shown.
    pub position: u32,
    /// The field's name.
    pub name: Name,
    /// The value.
    pub value: ExprId,
    /// Whether it is written with `?`: omitted when its optional value is absent.
    pub optional: bool,
}

/// A fold: `accu = init; for var in range { if !condition break; accu = step }; result`.
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// Range of the iteration.
    pub range: ExprId,
    /// The element (list), the key (map); with a second variable the index or the key.
    pub variable: Name,
    /// The element or the value, in two-variable forms.
    pub second_variable: Option<Name>,
    /// The accumulator's name.
    pub accumulator: Name,
    /// The accumulator's first value.
    pub init: ExprId,
    /// Loop condition: the loop continues while it is not false.
    pub condition: ExprId,
    /// The accumulator's next value.
    pub step: ExprId,
    /// The value of the whole; sees the accumulator, not the iteration variables.
    pub result: ExprId,
}

/// A parsed expression: an arena of nodes, its root and its source.
#[derive(Clone, Debug)]
pub struct Ast {
    source: Source,
    nodes: Vec<Expr>,
    root: ExprId,
    /// Expansion → the call that was written. The call's arguments may be expansions themselves.
    macro_calls: HashMap<ExprId, ExprId>,
}

impl Ast {
    /// A tree without nodes; the first one that is added is its root until another is set.
    pub fn new(source: Source) -> Self {
        // Most expressions have three bytes of text or more for each node, macros included.
        let nodes = (source.text().len() / 3).clamp(8, 64);
        Ast { source, nodes: Vec::with_capacity(nodes), root: ExprId(0), macro_calls: HashMap::new() }
    }

    /// Adds a node.
    pub fn add(&mut self, kind: ExprKind, position: u32, span: Span) -> ExprId {
        let id = ExprId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(Expr { kind, position, span });
        id
    }

    /// The root node of the expression.
    pub fn root(&self) -> ExprId {
        self.root
    }

    /// Sets the node that represents the whole expression.
    pub fn set_root(&mut self, root: ExprId) {
        self.root = root;
    }

    /// The text that was parsed.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Number of nodes in the arena, unreachable ones included; every [`ExprId`] is below it.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The call that was written, if the node is a macro's expansion.
    pub fn macro_call(&self, expansion: ExprId) -> Option<ExprId> {
        if self.macro_calls.is_empty() { None } else { self.macro_calls.get(&expansion).copied() }
    }

    /// Records the call from which a macro was expanded.
    pub fn set_macro_call(&mut self, expansion: ExprId, call: ExprId) {
        self.macro_calls.insert(expansion, call);
    }
}

impl Index<ExprId> for Ast {
    type Output = Expr;
    #[expect(clippy::indexing_slicing, reason = "ids are handed out by `add` of the same tree")]
    fn index(&self, id: ExprId) -> &Expr {
        &self.nodes[id.index()]
    }
}

impl IndexMut<ExprId> for Ast {
    #[expect(clippy::indexing_slicing, reason = "ids are handed out by `add` of the same tree")]
    fn index_mut(&mut self, id: ExprId) -> &mut Expr {
        &mut self.nodes[id.index()]
    }
}
