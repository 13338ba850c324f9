//! Operators that are steps of their own: logic, equality, indexing, conditionals, membership in a constant list.

use super::super::node::{Attribute, Base, ConditionalNode, Equality, EqualityText, Kind, Member, Node, QualifierKey};
use crate::checker::OverloadSet;
use crate::cost::traversal_cost;
use crate::env::{Function, Implementation, ResolvedOverload};
use crate::syntax::ast::{Name, operator};
use crate::value::{Key, List, Value};

/// `a == b`, `a != b`
fn plan_equality((left, right): (Node, Node), negated: bool) -> Kind {
    let text = match (left.constant(), right.constant()) {
        (Some(Value::String(text)), None) => Some((text, true)),
        (None, Some(Value::String(text))) => Some((text, false)),
        _ => None,
    };
    let text = text.map(|(text, on_the_left)| EqualityText {
        text: text.clone(),
        cost: traversal_cost(text.code_points() as u64),
        on_the_left,
    });
    Kind::Equality(Box::new(Equality { left, right, negated, text }))
}

/// Operators that are steps of their own.
pub(super) fn plan_builtin(function: &Function, overloads: OverloadSet, operands: &mut Vec<Node>) -> Option<Kind> {
    let name = &function.name;
    if *name == operator::IN {
        return plan_membership(function, overloads, operands);
    }
    let is_builtin = |overload: &ResolvedOverload| matches!(overload.implementation, Implementation::Builtin);
    if !overloads.of(function).all(is_builtin) {
        return None;
    }
    if *name == operator::LOGICAL_AND {
        return Some(Kind::And(flatten(operands, |kind| match kind {
            Kind::And(terms) => Ok(terms),
            other => Err(other),
        })));
    }
    if *name == operator::LOGICAL_OR {
        return Some(Kind::Or(flatten(operands, |kind| match kind {
            Kind::Or(terms) => Ok(terms),
            other => Err(other),
        })));
    }
    if let Some(kind) = plan_index(name, operands) {
        return Some(kind);
    }
    match operands.len() {
        1 => {
            let operand = Box::new(operands.pop()?);
            (*name == operator::NOT_STRICTLY_FALSE).then_some(Kind::NotStrictlyFalse(operand))
        }
        2 => {
            let right = operands.pop()?;
            let pair = Box::new((operands.pop()?, right));
            match name.as_str() {
                "_==_" => Some(plan_equality(*pair, false)),
                "_!=_" => Some(plan_equality(*pair, true)),
                "or" => Some(Kind::OptionalOr(pair)),
                "orValue" => Some(Kind::OptionalOrValue(pair)),
                _ => None,
            }
        }
        3 => {
            let falsy = into_attribute(operands.pop()?);
            let truthy = into_attribute(operands.pop()?);
            let condition = operands.pop()?;
            let base = Base::Conditional(Box::new(ConditionalNode { condition, truthy, falsy }));
            Some(Kind::Attribute(Box::new(Attribute::new(base))))
        }
        _ => None,
    }
}

/// `a[b]`, `a[?b]`, `a.?b`
pub(super) fn plan_index(name: &Name, operands: &mut Vec<Node>) -> Option<Kind> {
    let optional = *name != operator::INDEX;
    if optional && *name != operator::OPTIONAL_INDEX && *name != operator::OPTIONAL_SELECT {
        return None;
    }
    let key = operands.pop()?;
    let mut attribute = into_qualified(operands.pop()?);
    let key = match key.kind {
        Kind::Constant(value) => QualifierKey::Constant(value),
        _ => QualifierKey::Attribute(into_attribute(key)),
    };
    attribute.push(key, optional);
    Some(Kind::Attribute(Box::new(attribute)))
}

/// The terms of a chain of one operator: the parser's balanced tree is irrelevant.
fn flatten(operands: &mut Vec<Node>, terms_of: impl Fn(Kind) -> Result<Box<[Node]>, Kind>) -> Box<[Node]> {
    let mut terms = Vec::with_capacity(operands.len());
    for Node { id, kind } in operands.drain(..) {
        match terms_of(kind) {
            Ok(inner) => terms.extend(inner),
            Err(kind) => terms.push(Node { id, kind }),
        }
    }
    terms.into()
}

/// The attribute that selections and indices are added to.
pub(super) fn into_qualified(node: Node) -> Attribute {
    match node.kind {
        Kind::Attribute(attribute) if !attribute.presence_test => *attribute,
        kind => Attribute::new(Base::Value(Node { id: node.id, kind })),
    }
}

/// The attribute that a branch or a key is.
fn into_attribute(node: Node) -> Attribute {
    match node.kind {
        Kind::Attribute(attribute) => *attribute,
        kind => Attribute::new(Base::Value(Node { id: node.id, kind })),
    }
}

/// `x in [constants]` looks up a set; with other lists it is a call like any other.
fn plan_membership(function: &Function, overloads: OverloadSet, operands: &mut Vec<Node>) -> Option<Kind> {
    let single = overloads.single(function)?;
    if single.id != "in_list" {
        return None;
    }
    let [_, Node { kind: Kind::Constant(Value::List(list)), .. }] = operands.as_slice() else {
        return None;
    };
    if list.is_empty() {
        return Some(Kind::Constant(Value::Bool(false)));
    }
    let set = constant_set(list)?;
    operands.truncate(1);
    let operand = operands.pop()?;
    Some(Kind::Member(Box::new(Member { operand, set })))
}

fn constant_set(list: &List<'static>) -> Option<Vec<Key<'static>>> {
    let mut set = Vec::with_capacity(list.len());
    for element in list.iter() {
        match element {
            Value::Int(number) => {
                set.push(Value::Double(number as f64));
                set.extend(u64::try_from(number).ok().map(Value::Uint));
            }
            Value::Uint(number) => {
                set.push(Value::Double(number as f64));
                set.extend(i64::try_from(number).ok().map(Value::Int));
            }
            Value::Double(number) => {
                set.extend(crate::value::double_to_int_lossless(number).map(Value::Int));
                set.extend(crate::value::double_to_uint_lossless(number).map(Value::Uint));
            }
            Value::Bool(_) | Value::String(_) => {}
            _ => return None,
        }
        if !matches!(element, Value::Double(number) if number.is_nan()) {
            set.push(element);
        }
    }
    let mut set = set.into_iter().map(Key::new).collect::<Result<Vec<_>, _>>().ok()?;
    set.sort();
    Some(set)
}
