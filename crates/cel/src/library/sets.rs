//! Lists as sets: containment, intersection and equivalence.
//!
//! Follows cel-go's `ext.Sets`.

use super::price::size;
use super::standard::contains;
use super::{list, native};
use crate::cost::{CallSite, Cost, Price};
use crate::env::{Library, LibraryVersion, Overload};
use crate::value::drawn::PartialList;
use crate::value::{EvalError, List, Value, Verdict};

/// `sets.contains`, `sets.equivalent`, `sets.intersects`.
pub fn sets() -> Library {
    Library {
        name: "cel.lib.ext.sets",
        version: LibraryVersion(0),
        overloads: OVERLOADS,
        singletons: &[],
        types: Vec::new(),
        macros: &[],
        validators: &[],
        partial: &[
            ("sets.contains", |operands| partial(operands, |a, b| has_all(a, b))),
            ("sets.equivalent", |operands| partial(operands, |a, b| and(has_all(a, b), has_all(b, a)))),
            ("sets.intersects", |operands| partial(operands, has_any)),
        ],
    }
}

static OVERLOADS: &[Overload] = &[
    native("list_sets_contains_list", ":sets.contains(list(T), list(T)) -> bool", ONCE, |operands| {
        contains_all(list(operands, 0)?, list(operands, 1)?).map(Value::Bool)
    }),
    native("list_sets_equivalent_list", ":sets.equivalent(list(T), list(T)) -> bool", TWICE, |operands| {
        let (a, b) = (list(operands, 0)?, list(operands, 1)?);
        Ok(Value::Bool(contains_all(a, b)? && contains_all(b, a)?))
    }),
    native("list_sets_intersects_list", ":sets.intersects(list(T), list(T)) -> bool", ONCE, |operands| {
        intersects(list(operands, 0)?, list(operands, 1)?).map(Value::Bool)
    }),
];

/// Every element is compared with every element of the other list.
const ONCE: Price = Price::Sized {
    estimate: |site| estimate(site, 1.0).into(),
    actual: |operands, _| actual(operands, 1.0),
    when_dynamic: false,
};

const TWICE: Price = Price::Sized {
    estimate: |site| estimate(site, 2.0).into(),
    actual: |operands, _| actual(operands, 2.0),
    when_dynamic: false,
};

fn estimate(site: &dyn CallSite, factor: f64) -> Cost {
    site.size(0).times(site.size(1)).times_factor(factor).plus(Cost::exactly(1))
}

fn actual(operands: &[Value<'_>], factor: f64) -> u64 {
    let pairs = size(operands, 0).saturating_mul(size(operands, 1));
    ((pairs as f64 * factor) as u64).saturating_add(1)
}

fn contains_all(list: &List<'_>, elements: &List<'_>) -> Result<bool, EvalError> {
    let mut undecided = None;
    for element in elements.iter() {
        match contains(list, &element) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(fatal) if fatal.is_fatal() => return Err(fatal),
            Err(error) => undecided = undecided.or(Some(error)),
        }
    }
    undecided.map_or(Ok(true), Err)
}

fn intersects(a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    let mut undecided = None;
    for element in a.iter() {
        match contains(b, &element) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(fatal) if fatal.is_fatal() => return Err(fatal),
            Err(error) => undecided = undecided.or(Some(error)),
        }
    }
    undecided.map_or(Ok(false), Err)
}

/// A list of which all is known, or a part.
enum KnownElements<'o, 'v> {
    All(&'o List<'v>),
    Part(&'o PartialList<'v>),
}

fn partial<'v>(
    operands: &[Value<'v>],
    decide: fn(&KnownElements<'_, 'v>, &KnownElements<'_, 'v>) -> Option<Verdict>,
) -> Option<Value<'v>> {
    let [a, b] = operands else { return None };
    decide(&KnownElements::of(a)?, &KnownElements::of(b)?).map(Value::of_verdict)
}

impl<'o, 'v> KnownElements<'o, 'v> {
    fn of(operand: &'o Value<'v>) -> Option<Self> {
        match operand {
            Value::List(list) => Some(KnownElements::All(list)),
            Value::Unknown(unknown) => unknown.as_drawn().map(KnownElements::Part),
            _ => None,
        }
    }
}

/// Searches a list for an element that equals this one.
fn has<'v>(list: &KnownElements<'_, 'v>, element: &Value<'v>) -> Verdict {
    match (list, element) {
        (KnownElements::Part(list), element) => list.holds(element),
        (KnownElements::All(_), Value::Unknown(_)) => Verdict::TRUE | Verdict::FALSE | Verdict::FATAL,
        (KnownElements::All(list), element) => match contains(list, element) {
            Ok(found) => Verdict::of(found),
            Err(_) => Verdict::TRUE | Verdict::FALSE | Verdict::FATAL,
        },
    }
}

fn has_all<'v>(list: &KnownElements<'_, 'v>, elements: &KnownElements<'_, 'v>) -> Option<Verdict> {
    match elements {
        KnownElements::All(elements) => {
            let mut all = Some(Verdict::TRUE);
            for element in elements.iter() {
                all = and(all, Some(has(list, &element)));
            }
            all
        }
        KnownElements::Part(elements) => elements.quantify(false, |_, element| Ok(has(list, &element.value))).ok(),
    }
}

fn has_any<'v>(a: &KnownElements<'_, 'v>, b: &KnownElements<'_, 'v>) -> Option<Verdict> {
    match a {
        KnownElements::All(elements) => {
            let mut none = Verdict::FALSE;
            for element in elements.iter() {
                let found = has(b, &element);
                if found == Verdict::TRUE && !none.can_end() {
                    return Some(Verdict::TRUE);
                }
                let can_still_be_none = found.can_be(Verdict::FALSE);
                none = (none | found.without(Verdict::FALSE)).without(if can_still_be_none {
                    Verdict::NONE
                } else {
                    Verdict::FALSE
                });
            }
            Some(none)
        }
        KnownElements::Part(elements) => elements.quantify(true, |_, element| Ok(has(b, &element.value))).ok(),
    }
}

/// Both hold.
fn and(a: Option<Verdict>, b: Option<Verdict>) -> Option<Verdict> {
    let (a, b) = (a?, b?);
    let can_end = a.can_end() || b.can_end();
    if !can_end && (a == Verdict::FALSE || b == Verdict::FALSE) {
        return Some(Verdict::FALSE);
    }
    let both = a | b;
    let is_possible = a.can_be(Verdict::TRUE) && b.can_be(Verdict::TRUE);
    Some(if is_possible { both } else { both.without(Verdict::TRUE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(numbers: &[i64]) -> Value<'static> {
        Value::list(numbers.iter().copied().map(Value::Int).collect())
    }

    #[track_caller]
    fn check(function: &str, a: &[i64], b: &[i64], expected: bool, cost: u64) {
        let overload = OVERLOADS.iter().find(|overload| overload.id.contains(function)).unwrap();
        let crate::env::Call::Native(call) = overload.call else { panic!() };
        let operands = [ints(a), ints(b)];
        let value = call(&operands).unwrap();
        assert_eq!(value.as_bool(), Some(expected));
        let Price::Sized { actual, .. } = overload.price else { panic!() };
        assert_eq!(actual(&operands, Ok(&value)), cost);
    }

    #[test]
    fn sets_compare() {
        check("contains", &[1, 2, 3], &[3, 1], true, 7);
        check("contains", &[1, 2, 3], &[4], false, 4);
        check("contains", &[], &[], true, 1);
        check("equivalent", &[1, 1, 2], &[2, 1], true, 13);
        check("equivalent", &[1, 2], &[2], false, 5);
        check("intersects", &[1, 2], &[2, 3], true, 5);
        check("intersects", &[1], &[], false, 1);
    }

    #[test]
    fn unknown_elements_matter_only_if_undecided() {
        let unknown = Value::list(vec![Value::unknown(0), Value::Int(1)]);
        let Value::List(unknown) = unknown else { panic!() };
        let known = |numbers: &[i64]| match ints(numbers) {
            Value::List(list) => list,
            _ => panic!(),
        };
        assert_eq!(intersects(&unknown, &known(&[1])), Ok(true));
        assert!(intersects(&unknown, &known(&[2])).is_err());
        assert_eq!(contains_all(&known(&[2]), &unknown), Ok(false));
        assert!(contains_all(&known(&[1]), &unknown).is_err());
    }
}
