//! Memory size of a plan.

#![expect(clippy::arithmetic_side_effects, reason = "sums of the sizes of things that are in memory at once")]

use super::node::{
    Attribute, Base, CallNode, CollectNode, ComputedValue, ConditionalNode, Element, Entry, Equality, Fold,
    FoldCondition, FoldStep, Kind, Member, Node, Qualifier, QualifierKey, Quantifier, StructNode,
};
use crate::value::{Key, Value};

impl Node {
    /// Number of bytes that the node owns on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        fn nodes(nodes: &[Node]) -> usize {
            size_of_val(nodes) + nodes.iter().map(Node::memory_bytes).sum::<usize>()
        }
        fn attribute(it: &Attribute) -> usize {
            let base = match &it.base {
                Base::Value(node) => node.memory_bytes(),
                Base::Conditional(it) => {
                    size_of::<ConditionalNode>()
                        + it.condition.memory_bytes()
                        + attribute(&it.truthy)
                        + attribute(&it.falsy)
                }
                Base::Variable(name) => name.len(),
                Base::Local(_) | Base::LazyLocal { .. } => 0,
            };
            let keys: usize = it
                .qualifiers
                .iter()
                .map(|qualifier| match &qualifier.key {
                    QualifierKey::Constant(value) => constant(value),
                    QualifierKey::Attribute(key) => attribute(key),
                })
                .sum();
            let texts = it.text_path().map_or(0, size_of_val);
            base + it.qualifiers.capacity() * size_of::<Qualifier>() + keys + texts
        }
        fn constant(value: &Value<'_>) -> usize {
            match value {
                Value::String(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                Value::List(list) => list.iter().map(|element| size_of::<Value<'_>>() + constant(&element)).sum(),
                Value::Map(map) => map
                    .entries()
                    .iter()
                    .map(|(key, value)| 2 * size_of::<Value<'_>>() + constant(key) + constant(value))
                    .sum(),
                _ => 0,
            }
        }
        fn pair(pair: &(Node, Node)) -> usize {
            size_of::<(Node, Node)>() + pair.0.memory_bytes() + pair.1.memory_bytes()
        }
        match &self.kind {
            Kind::Constant(value) => constant(value),
            Kind::Computed(it) => size_of::<ComputedValue>() + it.result.as_ref().map_or(0, constant),
            Kind::Attribute(it) => size_of::<Attribute>() + attribute(it),
            Kind::And(terms) | Kind::Or(terms) => nodes(terms),
            Kind::Equality(it) => size_of::<Equality>() + it.left.memory_bytes() + it.right.memory_bytes(),
            Kind::OptionalOr(it) | Kind::OptionalOrValue(it) => pair(it),
            Kind::NotStrictlyFalse(it) => size_of::<Node>() + it.memory_bytes(),
            Kind::Member(it) => {
                size_of::<Member>()
                    + it.operand.memory_bytes()
                    + it.set.iter().map(|key| size_of::<Key<'_>>() + constant(key.value())).sum::<usize>()
            }
            Kind::Call(it) => size_of::<CallNode>() + it.name.len() + nodes(&it.operands),
            Kind::List(elements) => elements.iter().map(|it| size_of::<Element>() + it.value.memory_bytes()).sum(),
            Kind::Map(entries) => {
                entries.iter().map(|it| size_of::<Entry>() + it.key.memory_bytes() + it.value.memory_bytes()).sum()
            }
            Kind::Struct(it) => {
                size_of::<StructNode>()
                    + it.fields.iter().map(|(_, it)| size_of::<Element>() + it.value.memory_bytes()).sum::<usize>()
            }
            Kind::Quantifier(it) => size_of::<Quantifier>() + it.range.memory_bytes() + it.predicate.memory_bytes(),
            Kind::Collect(it) => {
                let condition = it.condition.as_ref().map_or(0, Node::memory_bytes);
                size_of::<CollectNode>() + it.range.memory_bytes() + condition + it.list.memory_bytes()
            }
            Kind::Fold(it) => {
                let step = match &it.step {
                    FoldStep::Assign(node) | FoldStep::Append(node) => node.memory_bytes(),
                    FoldStep::AppendIf(condition, list) => condition.memory_bytes() + list.memory_bytes(),
                };
                let condition = match &it.condition {
                    FoldCondition::While(node) => node.memory_bytes(),
                    FoldCondition::Always => 0,
                };
                size_of::<Fold>() + it.range.memory_bytes() + condition + step + it.result.memory_bytes()
            }
        }
    }
}
