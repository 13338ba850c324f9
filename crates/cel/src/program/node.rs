//! The plan: what the evaluator walks.
//!
//! Names of local variables have become slots, overloads code, constants values. The shape follows cel-go's
//! plan wherever that affects costs or errors: a variable with all its selections and indices is one attribute,
//! and so is a conditional.

use std::sync::Arc;

use crate::checker::OverloadSet;
use crate::cost::Price;
use crate::env::{
    Function, NativeFunction, PartialFunction, PreparedCall, PreparedTest, Singleton, TextTest, TypeProvider,
};
use crate::syntax::ast::{ExprId, Name};
use crate::value::{EvalError, Key, Str, Value};

/// A step of the plan, and its part of the expression.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: ExprId,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A constant: costs nothing.
    Constant(Value<'static>),
    /// Computed when the program was planned, with the cost of that computation.
    Computed(Box<ComputedValue>),
    /// A variable, selection, index or conditional.
    Attribute(Box<Attribute>),
    /// Two or more operands.
    And(Box<[Node]>),
    /// Two or more operands.
    Or(Box<[Node]>),
    /// `a == b`, `a != b`
    Equality(Box<Equality>),
    /// True for everything but false.
    NotStrictlyFalse(Box<Node>),
    /// `a in [constants]`
    Member(Box<Member>),
    /// A function.
    Call(Box<CallNode>),
    /// `a.or(b)`: the second operand is not evaluated if the first has a value.
    OptionalOr(Box<(Node, Node)>),
    /// `a.orValue(b)`: the second operand is not evaluated if the first has a value.
    OptionalOrValue(Box<(Node, Node)>),
    /// `[a, ?b]`
    List(Box<[Element]>),
    /// `{a: b, ?c: d}`
    Map(Box<[Entry]>),
    /// `Type{field: a}`
    Struct(Box<StructNode>),
    /// `all`, `exists`
    Quantifier(Box<Quantifier>),
    /// `map`, `filter`
    Collect(Box<CollectNode>),
    /// Any other comprehension.
    Fold(Box<Fold>),
}

#[derive(Debug)]
pub(super) struct ComputedValue {
    pub(super) result: Result<Value<'static>, EvalError>,
    pub(super) cost: u64,
}

/// A base with selections and indices applied to it.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Qualifier>,
    /// The keys, as long as all of them are constant texts.
    texts: Vec<Str<'static>>,
    /// Whether this is `has(…)`: the last qualifier only tests for presence.
    pub(super) presence_test: bool,
    /// Evaluation strategy.
    pub(super) way: AttributeStrategy,
}

/// Evaluation strategy of an attribute: most are variables, and most of these have fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeStrategy {
    /// A variable of a comprehension, and nothing else.
    Local,
    /// A variable of the environment, and nothing else.
    Variable,
    /// A variable of the environment and one constant text.
    Field,
    /// A variable and keys that are constants or variables of a comprehension.
    Path,
    /// Anything.
    Any,
}

impl Attribute {
    pub(super) fn new(base: Base) -> Self {
        let way = match base {
            Base::Local(_) => AttributeStrategy::Local,
            Base::Variable(_) => AttributeStrategy::Variable,
            _ => AttributeStrategy::Any,
        };
        Attribute { base, qualifiers: Vec::new(), texts: Vec::new(), presence_test: false, way }
    }

    pub(super) fn push(&mut self, key: QualifierKey, optional: bool) {
        let is_plain = match &key {
            QualifierKey::Constant(_) => true,
            QualifierKey::Attribute(key) => key.way == AttributeStrategy::Local,
        };
        let text = match &key {
            QualifierKey::Constant(Value::String(text)) => Some(text),
            _ => None,
        };
        self.way = match self.way {
            _ if optional || !is_plain => AttributeStrategy::Any,
            AttributeStrategy::Variable if text.is_some() => AttributeStrategy::Field,
            AttributeStrategy::Any => AttributeStrategy::Any,
            _ => AttributeStrategy::Path,
        };
        if let Some(text) = text
            && self.way != AttributeStrategy::Any
            && self.texts.len() == self.qualifiers.len()
        {
            self.texts.push(text.clone());
        }
        self.qualifiers.push(Qualifier { key, optional });
    }

    /// The keys, if all of them are constant texts.
    #[inline(always)]
    pub(super) fn text_path(&self) -> Option<&[Str<'static>]> {
        let is_complete = self.texts.len() == self.qualifiers.len() && !self.texts.is_empty();
        is_complete.then_some(self.texts.as_slice())
    }

    /// Cost of reading a path: 1 for each key, and 1 for the variable.
    pub(super) fn path_cost(&self) -> u64 {
        (self.qualifiers.len() as u64).saturating_add(1)
    }

    /// The first key, if it is the index of an element that must be there.
    pub(super) fn first_index(&self) -> Option<usize> {
        match self.qualifiers.as_slice() {
            [_] if self.presence_test => None,
            [Qualifier { key: QualifierKey::Constant(Value::Int(index)), optional: false }, ..] => {
                usize::try_from(*index).ok()
            }
            _ => None,
        }
    }

    /// Turns the attribute into a presence test of the last key.
    pub(super) fn test_presence(&mut self) {
        self.presence_test = true;
        self.way = AttributeStrategy::Any;
    }
}

#[derive(Debug)]
pub(super) enum Base {
    /// A variable of the environment.
    Variable(Name),
    /// A variable of a comprehension.
    Local(usize),
    /// An accumulator whose first value is computed when it is first read.
    LazyLocal { slot: usize, init: usize },
    /// The value of an expression.
    Value(Node),
    /// One of two attributes.
    Conditional(Box<ConditionalNode>),
}

#[derive(Debug)]
pub(super) struct ConditionalNode {
    pub(super) condition: Node,
    pub(super) truthy: Attribute,
    pub(super) falsy: Attribute,
}

#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) key: QualifierKey,
    /// Whether the qualifier is optional: `.?field`, `[?index]`.
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) enum QualifierKey {
    /// A field, a constant key or index.
    Constant(Value<'static>),
    /// A key or index that is itself an attribute or an expression.
    Attribute(Attribute),
}

/// A sorted set of constants; numbers are also contained as the other numeric kinds.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) operand: Node,
    pub(super) set: Vec<Key<'static>>,
}

#[derive(Debug)]
pub(super) struct CallNode {
    pub(super) name: Name,
    pub(super) code: Code,
    pub(super) operands: Box<[Node]>,
    pub(super) price: Price,
    /// Whether the call stops at the first failing operand, and then costs nothing, as cel-go's calls with a
    /// slice of operands do.
    pub(super) stops_early: bool,
    /// Predicate that evaluates the call if its first operand is text and the others are constant.
    pub(super) question: Option<Question>,
    /// Implementation for unknown operands.
    pub(super) partial: Option<PartialFunction>,
}

/// A question about a text.
pub(super) struct Question {
    pub(super) test: QuestionTest,
    /// Cost of the call, if it does not depend on the text.
    pub(super) fixed_cost: Option<u64>,
}

pub(super) enum QuestionTest {
    /// About this other text.
    Texts(TextTest, Str<'static>),
    /// Made for this call.
    Prepared(PreparedTest),
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question").field("fixed_cost", &self.fixed_cost).finish_non_exhaustive()
    }
}

/// `a == b`, `a != b`
#[derive(Debug)]
pub(super) struct Equality {
    pub(super) left: Node,
    pub(super) right: Node,
    pub(super) negated: bool,
    /// The operand that is not constant, and the other one, if that is text.
    pub(super) text: Option<EqualityText>,
}

/// A text that another one is compared with.
#[derive(Debug)]
pub(super) struct EqualityText {
    pub(super) text: Str<'static>,
    /// Cost of reading the constant from end to end.
    pub(super) cost: u64,
    /// Whether the text is the left operand.
    pub(super) on_the_left: bool,
}

pub(super) enum Code {
    /// A single overload, whose operands certainly have the right types.
    Native(NativeFunction),
    /// A single overload; the types of the operands are checked at run time.
    Guarded(Arc<Function>, usize),
    /// The function dispatches on its first operand.
    Singleton(Singleton),
    /// Made for this call.
    Prepared(PreparedCall),
    /// Several overloads are possible.
    Dispatch(Arc<Function>, OverloadSet),
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Code::Native(_) => "Native",
            Code::Guarded(..) => "Guarded",
            Code::Singleton(_) => "Singleton",
            Code::Prepared(_) => "Prepared",
            Code::Dispatch(..) => "Dispatch",
        })
    }
}

#[derive(Debug)]
pub(super) struct Element {
    pub(super) value: Node,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Node,
    pub(super) value: Node,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct StructNode {
    pub(super) type_name: Name,
    pub(super) fields: Box<[(Name, Element)]>,
    pub(super) provider: Arc<dyn TypeProvider>,
}

/// `all` and `exists`, whose accumulator is a truth value that nothing but the loop sees.
#[derive(Debug)]
pub(super) struct Quantifier {
    pub(super) range: Node,
    pub(super) variable: usize,
    pub(super) second_variable: Option<usize>,
    /// Value that ends the loop: true for `exists`, false for `all`.
    pub(super) decisive: bool,
    pub(super) predicate: Node,
}

/// `map` and `filter`, whose accumulator is a list that nothing but the loop sees.
#[derive(Debug)]
pub(super) struct CollectNode {
    pub(super) range: Node,
    pub(super) variable: usize,
    pub(super) second_variable: Option<usize>,
    /// Filter for the rounds; without it, all rounds add an element.
    pub(super) condition: Option<Node>,
    /// The list of one element that a round adds, and the cost of creating it.
    pub(super) list: Node,
    pub(super) list_cost: u64,
    /// Whether that element is the variable itself.
    pub(super) adds_variable: bool,
}

impl CollectNode {
    /// The element that a round adds.
    pub(super) fn element(&self) -> Option<&Node> {
        match &self.list.kind {
            Kind::List(elements) => elements.first().map(|element| &element.value),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) accumulator: usize,
    pub(super) variable: usize,
    pub(super) second_variable: Option<usize>,
    /// The accumulator's first value, if it is a constant; else the accumulator is lazy.
    pub(super) init: Option<Value<'static>>,
    pub(super) condition: FoldCondition,
    pub(super) step: FoldStep,
    pub(super) result: Node,
    /// Whether the loop counts the elements that satisfy a condition and tests for exactly one.
    pub(super) counts: bool,
}

/// Loop condition.
#[derive(Debug)]
pub(super) enum FoldCondition {
    /// To its end.
    Always,
    /// Continue while this is not false.
    While(Node),
}

/// Update of the accumulator in a round.
#[derive(Debug)]
pub(super) enum FoldStep {
    /// The accumulator becomes the value of an expression.
    Assign(Node),
    /// `accumulator + list`, in place.
    Append(Node),
    /// `condition ? accumulator + list : accumulator`, in place.
    AppendIf(Node, Node),
}

impl Node {
    /// The value, if it is a constant.
    pub(super) fn constant(&self) -> Option<&Value<'static>> {
        match &self.kind {
            Kind::Constant(value) => Some(value),
            _ => None,
        }
    }
}
