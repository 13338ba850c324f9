//! `distinct`, `sort` and `reverse` of partly known lists.

use std::collections::BTreeMap;

use crate::env::PartialFunction;
use crate::value::drawn::{Member, PartialList};
use crate::value::{Key, Value};

pub(super) const FUNCTIONS: &[(&str, PartialFunction)] = &[
    ("distinct", distinct),
    ("sort", |operands| sorted(operands, 0)),
    ("@sortByAssociatedKeys", |operands| sorted(operands, 1)),
    ("reverse", |operands| Some(drawn(operands, 0)?.clone().in_any_order().into_value())),
];

fn drawn<'o, 'v>(operands: &'o [Value<'v>], operand: usize) -> Option<&'o PartialList<'v>> {
    match operands.get(operand) {
        Some(Value::Unknown(unknown)) => unknown.as_drawn(),
        _ => None,
    }
}

/// The same elements in an unknown order, if the keys have an order.
fn sorted<'v>(operands: &[Value<'v>], keys: usize) -> Option<Value<'v>> {
    let (list, keys) = (drawn(operands, 0)?, drawn(operands, keys)?);
    if list.length() != keys.length() || !keys.is_of_one_kind() {
        return None;
    }
    Some(list.clone().in_any_order().into_value())
}

/// Each value once. However many candidates have it, a value counts once.
fn distinct<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let list = drawn(operands, 0)?;
    if !list.is_of_one_kind() {
        return None;
    }
    let key = |member: &Member<'v>| match &member.value {
        Value::Unknown(_) | Value::Double(_) => None,
        value => Key::new(value.clone()).ok(),
    };
    let mut members: Vec<Member<'v>> = Vec::new();
    let mut known: BTreeMap<Key<'v>, usize> = BTreeMap::new();
    let mut prefix = 0_usize;
    for (index, member) in list.members().iter().enumerate() {
        let key = key(member)?;
        match known.get(&key).copied() {
            // If the earlier one is uncertain, this one makes it certain.
            Some(at) => {
                if let Some(earlier) = members.get_mut(at) {
                    earlier.is_certain |= member.is_certain;
                }
            }
            None => {
                prefix = prefix.saturating_add(usize::from(index < list.prefix()));
                known.insert(key, members.len());
                members.push(Member::loose(member.value.clone(), member.is_certain));
            }
        }
    }
    let mut groups: BTreeMap<Key<'v>, (usize, Value<'v>)> = BTreeMap::new();
    // Candidates whose value already exists add nothing.
    let mut silent = 0_usize;
    let drawable = if list.open().1 == 0 { &[] } else { list.candidates() };
    for candidate in drawable {
        let key = key(candidate)?;
        if known.contains_key(&key) {
            silent = silent.saturating_add(1);
        } else {
            let group = groups.entry(key).or_insert_with(|| (0, candidate.value.clone()));
            group.0 = group.0.saturating_add(1);
        }
    }
    // An uncertain member may become certain by a candidate: then its value exists in any case.
    let is_doubtful = silent > 0 && members.iter().any(|member| !member.is_certain);
    if is_doubtful {
        return None;
    }
    let mut sizes: Vec<usize> = groups.values().map(|(size, _)| *size).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let (least, most) = list.open();
    let mut left = least.saturating_sub(silent);
    let fewest = sizes.iter().take_while(|size| {
        let goes_on = left > 0;
        left = left.saturating_sub(**size);
        goes_on
    });
    let fewest = fewest.count();
    let most = most.min(groups.len());
    let candidates = groups.into_values().map(|(_, value)| Member::loose(value, true)).collect();
    Some(PartialList::from_parts(members, candidates, (fewest, most), prefix).into_value())
}
