//! Prices that several functions share.
//!
//! Kubernetes prices calls by the name of the function, so all of these prices also apply to overloads chosen
//! at run time. Follows `EstimateCallCost` and `CallCost` in Kubernetes `apiserver/pkg/cel/library/cost.go`.

use cel::cost::{CallSite, Cost, Price, STRING_TRAVERSAL_FACTOR, Size};
use cel::value::Value;
use std::ops::ControlFlow;

/// Cost of one code point of a regular expression, for each tenth of the text.
pub(super) const REGEX_FACTOR: f64 = 0.25;

/// The text of operand 0 is read once: parsers of all kinds.
pub(super) const PARSE: Price = Price::Sized {
    estimate: |site| site.size(0).times_factor(STRING_TRAVERSAL_FACTOR).into(),
    actual: |operands, _| read(size(operands, 0)),
    when_dynamic: true,
};

/// The size of an operand of a call that was made; one that failed has size 1.
pub(super) fn size(operands: &[Value<'_>], operand: usize) -> u64 {
    operands.get(operand).map_or(1, Value::size)
}

/// Cost of reading text of this size.
pub(super) fn read(size: u64) -> u64 {
    scaled(size, STRING_TRAVERSAL_FACTOR)
}

/// A size times a factor, rounded up; goes through floating point as the reference does.
pub(super) fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Cost of matching a regular expression of this length against a text.
pub(super) fn regex(text_size: u64, pattern_size: u64) -> u64 {
    // One is added so that an empty text does not make an expensive expression free.
    read(text_size.saturating_add(1)).saturating_mul(scaled(pattern_size, REGEX_FACTOR))
}

/// Price of visiting every element of the list in operand 0.
pub(super) const LIST_TRAVERSAL: Price = Price::Sized {
    estimate: |site| estimate_traversal(site, false).into(),
    actual: |operands, _| operands.first().map_or(0, traversal),
    when_dynamic: true,
};

/// Like [`LIST_TRAVERSAL`], but a value of unknown type may be a list.
pub(super) const INCLUDES: Price = Price::Sized {
    estimate: |site| estimate_traversal(site, true).into(),
    actual: |operands, _| operands.first().map_or(0, traversal),
    when_dynamic: true,
};

fn estimate_traversal(site: &dyn CallSite, may_be_list: bool) -> Cost {
    use cel::types::Type;
    let mut each = Cost::exactly(1);
    let receiver = site.operand_type(0);
    let element = match &receiver {
        Type::List(element) => Some(element.as_ref()),
        Type::Map(entry) => Some(&entry.0),
        Type::Opaque(opaque) => opaque.parameters.first(),
        Type::Type(of) => of.as_deref(),
        _ => None,
    };
    match element {
        Some(Type::String | Type::Bytes) => {
            let text = site.known_element_size(0).unwrap_or(Size::UNKNOWN);
            each = each.plus(text.times_factor(STRING_TRAVERSAL_FACTOR));
        }
        None if !may_be_list => return site.size(0).times_factor(STRING_TRAVERSAL_FACTOR),
        _ => {}
    }
    site.size(0).times_cost(each)
}

/// Maximum number of values to visit; beyond it, the cost is infinite.
///
/// The reference walks on; values that share their parts many times over then take it forever.
const STEPS_MAX: u32 = 16 << 20;

/// Cost of traversing a value with all its parts: a tenth of the octets of text, rounded down for each text; 1
/// for every other value that is not a container.
fn traversal(value: &Value<'_>) -> u64 {
    let mut walk = Walk { cost: 0, steps_left: STEPS_MAX };
    match walk.visit(value) {
        ControlFlow::Continue(()) => walk.cost,
        ControlFlow::Break(()) => u64::MAX,
    }
}

struct Walk {
    cost: u64,
    steps_left: u32,
}

impl Walk {
    fn visit(&mut self, value: &Value<'_>) -> ControlFlow<()> {
        let Some(left) = self.steps_left.checked_sub(1) else { return ControlFlow::Break(()) };
        self.steps_left = left;
        match value {
            Value::String(text) => self.charge(text_traversal(text.len())),
            Value::Bytes(bytes) => self.charge(text_traversal(bytes.len())),
            Value::List(list) => return list.iter().try_for_each(|element| self.visit(&element)),
            Value::Map(map) => {
                map.for_each(|key, value| {
                    self.visit(&key)?;
                    self.visit(&value)
                });
                return self.flow();
            }
            Value::Object(object) => {
                object.for_each(&mut |field, value| {
                    self.charge(text_traversal(field.len()));
                    self.visit(&value)
                });
                return self.flow();
            }
            _ => self.charge(1),
        }
        ControlFlow::Continue(())
    }

    fn charge(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
    }

    /// Continues unless the steps are used up: maps and objects do not report why they stopped.
    fn flow(&self) -> ControlFlow<()> {
        if self.steps_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn text_traversal(octets: usize) -> u64 {
    (octets as f64 * STRING_TRAVERSAL_FACTOR) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_lists_counts_a_tenth_rounded_down() {
        let list = |elements: Vec<Value<'static>>| traversal(&Value::list(elements));
        assert_eq!(list(vec![Value::Int(1), Value::Bool(true)]), 2);
        assert_eq!(list(vec![Value::str("short"), Value::str("exactly 10")]), 1);
        assert_eq!(list(vec![Value::list(vec![Value::Int(1); 3]), Value::Null]), 4);
    }

    #[test]
    fn a_value_that_shares_its_parts_costs_more_than_anything() {
        let shared = (0..60).fold(Value::str(""), |part, _| Value::list(vec![part.clone(), part]));
        assert_eq!(traversal(&shared), u64::MAX);
    }

    #[test]
    fn an_empty_text_does_not_make_a_pattern_free() {
        assert_eq!(regex(0, 5), 2);
        assert_eq!(regex(10, 5), 4);
        assert_eq!(regex(10, 0), 0);
    }
}
