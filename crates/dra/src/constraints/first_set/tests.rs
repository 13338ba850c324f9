//! Looking ahead changes nothing but the cost: the same first set, none, or the same failure.

#[path = "../../../../cel-kubernetes/tests/partial/expression.rs"]
mod expression;

use cel::value::Value;
use cel_kubernetes::environments::{Dialect, devices};
use expression::{Choices, expression};

use super::*;

fn compile(text: &str) -> Option<CompiledExpression> {
    let mut environment = devices::environment(Dialect::CELPLANE).unwrap().without_estimate_limit();
    environment.limits.runtime_cost = u64::MAX;
    environment.compile(text).ok()
}

fn random_device(choices: &mut Choices, index: usize, is_plain: bool) -> Device {
    let mut device = Device::new("a.example.com");
    for name in ["x", "y"] {
        match choices.below(if is_plain { usize::MAX } else { 24 }) {
            0 => {}
            1 => device.set_attribute(&format!("a/{name}"), Value::str("text")),
            2 => device.set_attribute(&format!("a/{name}"), Value::Int(i64::MAX)),
            _ => device.set_attribute(&format!("a/{name}"), Value::Int(choices.below(4) as i64)),
        }
    }
    device.set_attribute("a/id", Value::Int((index * 7 % 11) as i64));
    device.set_attribute("a/s", Value::str(choices.pick(&["", "a", "b"])));
    device.set_attribute("a/f", Value::Bool(choices.below(2) == 0));
    device.set_capacity("a/m", api::quantity::Quantity::parse(choices.pick(&["1", "2", "4"])).unwrap());
    device
}

/// Searches with and without look-ahead; returns the evaluations of each.
#[track_caller]
fn check(text: &str, compiled: &CompiledExpression, owned: &[Device], count: usize) -> (Outcome, Meter, Meter) {
    check_among(text, compiled, &owned.iter().collect::<Vec<_>>(), count)
}

#[track_caller]
fn check_among(
    text: &str,
    compiled: &CompiledExpression,
    devices: &[&Device],
    count: usize,
) -> (Outcome, Meter, Meter) {
    let mut ahead = FirstSet::new(compiled, devices, u64::MAX, Some(Outlooks::new(0)));
    let mut every = FirstSet::new(compiled, devices, u64::MAX, None);
    let outcome = every.run(count);
    assert_eq!(ahead.run(count), outcome, "`{text}`: {count} of {devices:?}");
    (outcome, ahead.meter, every.meter)
}

#[test]
fn look_ahead_agrees_with_exhaustive_search() {
    let (mut found, mut none, mut failed, mut saved) = (0, 0, 0, 0);
    for seed in 10_000..11_500 {
        let mut choices = Choices::new(seed);
        let Some((text, compiled)) = Some(expression(&mut choices)).and_then(|it| Some((it.clone(), compile(&it)?)))
        else {
            continue;
        };
        let (of, count, is_plain) = (4 + choices.below(4), 1 + choices.below(4), choices.below(2) == 0);
        let owned: Vec<Device> = (0..of).map(|index| random_device(&mut choices, index, is_plain)).collect();
        let (outcome, ahead, every) = check(&text, &compiled, &owned, count);
        saved += u32::from(ahead.whole < every.whole);
        match outcome {
            Outcome::Found(_) => found += 1,
            Outcome::None => none += 1,
            _ => failed += 1,
        }
    }
    assert!(found > 300 && none > 150 && failed > 100, "{found} found, {none} none, {failed} failed");
    assert!(saved > 100, "{saved}");
}

#[test]
fn constraints_that_people_write_are_searched_alike_in_any_order() {
    let at = |text: &str| {
        let mut text = text.to_owned();
        for variable in ["d", "e"] {
            text = text.replace(&format!("{variable}@"), &format!("{variable}.attributes['a']."));
        }
        text
    };
    let expressions = [
        at("devices.map(d, d@id).max() - devices.map(d, d@id).min() == size(devices) - 1"),
        at("devices.all(d, devices.filter(e, d != e && (d@x == e@x && (d@y == e@y + 1 || d@y == e@y - 1) || \
            d@y == e@y && (d@x == e@x + 1 || d@x == e@x - 1))).size() >= 2)"),
        at("devices.all(d, d@x == devices[0].attributes['a'].x) && devices.all(d, devices.exists_one(e, e@y == d@y))"),
        at("devices.map(d, d.capacity['a'].m.asInteger()).sum() == 9"),
        at("devices.all(d, devices.all(e, (d@x - e@x) * (d@x - e@x) + (d@y - e@y) * (d@y - e@y) <= 2))"),
        at("devices.filter(d, devices.exists(e, e@id == d@id + 1)).size() == size(devices) - 1"),
        at("devices.exists(e, devices.all(d, (d@id - e@id + 11) % 11 < 4))"),
        at("devices.map(d, d@x).distinct().size() == 1 && devices.map(d, d@y).distinct().size() == size(devices)"),
        at("devices.map(d, d@id).isSorted()"),
        at("sets.equivalent(devices.map(d, d@x), [0, 1]) && devices.map(d, d@id).sum() % 3 == 0"),
    ];
    let mut choices = Choices::new(77);
    let (mut whole, mut every) = (0, 0);
    for text in &expressions {
        let compiled = compile(text).unwrap();
        for round in 0..12 {
            let (of, count) = (9 + choices.below(3), 3 + choices.below(2));
            let owned: Vec<Device> = (0..of).map(|index| random_device(&mut choices, index, round % 4 > 0)).collect();
            let (_, ahead, exhaustive) = check(text, &compiled, &owned, count);
            whole += ahead.whole;
            every += exhaustive.whole;
        }
    }
    assert!(whole * 4 < every, "{whole} whole sets were tried, of {every}");
}

#[test]
fn few_sets_are_tried_one_by_one() {
    let compiled = compile("devices.map(d, d.attributes['a'].id).max() > 100").unwrap();
    let mut choices = Choices::new(1);
    let owned: Vec<Device> = (0..10).map(|index| random_device(&mut choices, index, true)).collect();
    let devices: Vec<&Device> = owned.iter().collect();
    let mut few = FirstSet::new(&compiled, &devices, u64::MAX, Some(Outlooks::default()));
    assert_eq!((few.run(3), few.meter.whole, few.meter.partial), (Outcome::None, 120, 0));
    let mut many = FirstSet::new(&compiled, &devices, u64::MAX, Some(Outlooks::default()));
    assert_eq!((many.run(4), many.meter.whole, many.meter.partial), (Outcome::None, 0, 1));
}

#[test]
fn a_search_ends_at_its_limit() {
    let compiled = compile("devices.map(d, d.attributes['a'].id * d.attributes['a'].id).sum() % 1000 == 999").unwrap();
    let mut choices = Choices::new(1);
    let owned: Vec<Device> = (0..16).map(|index| random_device(&mut choices, index, true)).collect();
    let devices: Vec<&Device> = owned.iter().collect();
    let mut search = FirstSet::new(&compiled, &devices, 20_000, Some(Outlooks::default()));
    assert_eq!(search.run(8), Outcome::TooCostly);
}

/// Devices with the same content are the same to an expression, and still each can be had.
#[test]
fn devices_with_equal_content_are_distinct() {
    let distinct = "devices.map(d, d.attributes['a'].id).distinct().size() == 3";
    let compiled = compile(distinct).unwrap();
    let mut choices = Choices::new(1);
    let owned: Vec<Device> = (0..3).map(|index| random_device(&mut choices, index, true)).collect();
    let devices = [&owned[0], &owned[0], &owned[1], &owned[1], &owned[2]];
    assert_eq!(check_among(distinct, &compiled, &devices, 3).0, Outcome::Found(vec![0, 2, 4]));
    for seed in 20_000..20_800 {
        let mut choices = Choices::new(seed);
        let text = expression(&mut choices);
        let Some(compiled) = compile(&text) else { continue };
        let owned: Vec<Device> = (0..4).map(|index| random_device(&mut choices, index, true)).collect();
        let (of, count) = (4 + choices.below(4), 2 + choices.below(3));
        let devices: Vec<&Device> = (0..of).map(|_| &owned[choices.below(4)]).collect();
        check_among(&text, &compiled, &devices, count);
    }
}
