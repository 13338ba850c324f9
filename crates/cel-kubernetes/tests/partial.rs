//! Every statement about a partly chosen set of devices holds for every completion of the set.
//!
//! Random expressions over `devices`, on random devices: small numbers, so that values are often equal and
//! ordered; missing attributes or other types, so that evaluations fail; numbers that overflow.

mod expression;

use api::quantity::Quantity;
use cel::program::{Effort, Limits, Memory, Verdict};
use cel::value::Value;
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::{Devices, PartialDevices, environment};
use expression::{Choices, expression};

fn random_device(choices: &mut Choices, index: usize) -> Device {
    let mut device = Device::new(choices.pick(&["a.example.com", "a.example.com", "b.example.com"]));
    let odd = choices.below(12);
    for name in ["x", "y"] {
        match choices.below(if odd == 0 { 6 } else { 40 }) {
            0 => {}
            1 => device.set_attribute(&format!("a/{name}"), Value::str("text")),
            2 => device.set_attribute(&format!("a/{name}"), Value::Int(i64::MAX)),
            _ => device.set_attribute(&format!("a/{name}"), Value::Int(choices.below(5) as i64 - 1)),
        }
    }
    device.set_attribute("a/id", Value::Int(index as i64));
    device.set_attribute("a/s", Value::str(choices.pick(&["", "a", "b", "abc"])));
    device.set_attribute("a/f", Value::Bool(choices.below(2) == 0));
    device.set_capacity("a/m", Quantity::parse(choices.pick(&["1", "2", "4", "1500m"])).unwrap());
    device
}

/// Every way to choose this many of the candidates, in their order.
fn choices_of<'d>(candidates: &[&'d Device], count: usize) -> Vec<Vec<&'d Device>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in candidates.iter().enumerate() {
        for mut rest in choices_of(&candidates[index + 1..], count - 1) {
            rest.insert(0, first);
            all.push(rest);
        }
    }
    all
}

fn shown(compiled: &CompiledExpression, set: &[&Device]) -> (Verdict, String) {
    let set = Devices(set);
    match compiled.eval(&set).result {
        Ok(value) => (value.verdict(), value.to_string()),
        Err(error) => (Verdict::ERROR, error.to_string()),
    }
}

struct VerdictCounts {
    decided: usize,
    hopeless: usize,
    open: usize,
}

/// Compares the verdicts on partial sets of one instance with those on every completion.
fn check(compiled: &CompiledExpression, text: &str, choices: &mut Choices, seen: &mut VerdictCounts) {
    let count = 3 + choices.below(4);
    let devices: Vec<Device> = (0..count).map(|index| random_device(choices, index)).collect();
    let all: Vec<(u32, &Device)> = devices.iter().enumerate().map(|(index, device)| (index as u32, device)).collect();
    let mut memory = Memory::default();
    for _ in 0..6 {
        let chosen_first = choices.below(3) > 0;
        let chosen: Vec<(u32, &Device)> = all.iter().copied().filter(|_| choices.below(3) == 0).collect();
        let last = chosen.last().map(|(index, _)| *index);
        let is_candidate = |(index, _): &(u32, &Device)| match last {
            Some(last) if chosen_first => *index > last,
            _ => !chosen.iter().any(|(taken, _)| taken == index),
        };
        let candidates: Vec<(u32, &Device)> = all.iter().copied().filter(is_candidate).collect();
        let least = choices.below(4);
        let most = if choices.below(4) == 0 { least + choices.below(2) } else { least };
        let input = PartialDevices::new(
            chosen.iter().copied(),
            candidates.iter().copied(),
            least..=most,
            if chosen_first { chosen.len() } else { 0 },
        );
        for effort in [Effort::Quick, Effort::Full] {
            let verdict = compiled.possible(&input, Limits::NONE, &mut memory, effort).0;
            let mut completions = 0;
            for places in least..=most {
                let drawn: Vec<&Device> = candidates.iter().map(|(_, device)| *device).collect();
                for drawn in choices_of(&drawn, places) {
                    let mut set: Vec<&Device> = chosen.iter().map(|(_, device)| *device).chain(drawn).collect();
                    if !chosen_first {
                        let place = |device: &Device| devices.iter().position(|other| std::ptr::eq(other, device));
                        set.sort_by_key(|device| place(device));
                    }
                    completions += 1;
                    let (found, value) = shown(compiled, &set);
                    assert!(
                        verdict.can_be(found),
                        "`{text}` ({effort:?}) is {verdict:?} with {chosen:?} chosen (first: {chosen_first}) and {least} to {most} \
                         of {candidates:?}, but {value} on {set:?}"
                    );
                }
            }
            if effort == Effort::Full && completions > 1 {
                match verdict {
                    Verdict::TRUE | Verdict::ERROR | Verdict::OTHER => seen.decided += 1,
                    verdict if verdict.is_never_but_false() => seen.hopeless += 1,
                    _ => seen.open += 1,
                }
            }
        }
    }
}

/// Number of expressions to try.
const EXPRESSIONS: u64 = 2_000;

#[test]
fn partial_verdicts_hold_for_every_completion() {
    let mut environment = environment(Dialect::CELPLANE).unwrap().without_estimate_limit();
    environment.limits.runtime_cost = u64::MAX;
    let mut seen = VerdictCounts { decided: 0, hopeless: 0, open: 0 };
    let mut unusable = 0;
    for seed in 0..EXPRESSIONS {
        let mut choices = Choices::new(seed);
        let text = expression(&mut choices);
        match environment.compile(&text) {
            Ok(compiled) => check(&compiled, &text, &mut choices, &mut seen),
            Err(_) => unusable += 1,
        }
    }
    assert!(unusable < EXPRESSIONS / 5, "{unusable} expressions do not compile");
    let VerdictCounts { decided, hopeless, open } = seen;
    assert!(decided > 500 && hopeless > 300 && open > 1_000, "{decided} decided, {hopeless} false, {open} open");
}

#[test]
fn the_proposals_constraints_are_cut_as_soon_as_they_can_be() {
    let environment = environment(Dialect::CELPLANE).unwrap();
    let id = "d.attributes['a'].id";
    let text = format!("size(devices) == 3 && devices.map(d, {id}).max() - devices.map(d, {id}).min() == 2");
    let compiled = environment.compile(&text).unwrap();
    let devices: Vec<Device> = (0..8)
        .map(|index| {
            let mut device = Device::new("a.example.com");
            device.set_attribute("a/id", Value::Int(index));
            device
        })
        .collect();
    let all = |range: std::ops::Range<usize>| range.map(|index| (index as u32, &devices[index]));
    let mut memory = Memory::default();
    let mut verdict = |chosen: &[usize], rest: std::ops::Range<usize>, open: usize| {
        let chosen = chosen.iter().map(|index| (*index as u32, &devices[*index]));
        let input = PartialDevices::new(chosen, all(rest), open..=open, 8);
        compiled.possible(&input, Limits::NONE, &mut memory, Effort::Full).0
    };
    assert_eq!(verdict(&[], 0..8, 3), Verdict::TRUE | Verdict::FALSE);
    assert_eq!(verdict(&[0], 1..8, 2), Verdict::TRUE | Verdict::FALSE);
    assert_eq!(verdict(&[0, 2], 3..8, 1), Verdict::FALSE);
    assert_eq!(verdict(&[0, 1], 2..8, 1), Verdict::TRUE | Verdict::FALSE);
    assert_eq!(verdict(&[5], 6..8, 2), Verdict::TRUE);
    assert_eq!(verdict(&[6], 7..8, 2), Verdict::NONE);
    assert_eq!(verdict(&[], 0..8, 2), Verdict::FALSE);
    // Each device is read once for each of the two lists.
    assert_eq!(memory.bodies_run(), 16);
}

#[test]
fn an_error_that_is_possible_is_said() {
    let environment = environment(Dialect::CELPLANE).unwrap();
    let mut devices = [Device::new("a.example.com"), Device::new("a.example.com"), Device::new("a.example.com")];
    devices[0].set_attribute("a/n", Value::Int(1));
    devices[1].set_attribute("a/n", Value::Int(2));
    let check = |text: &str, expected: Verdict| {
        let compiled = environment.compile(text).unwrap();
        let candidates = devices.iter().enumerate().map(|(index, device)| (index as u32, device));
        let input = PartialDevices::new([], candidates, 2..=2, 0);
        let verdict = compiled.possible(&input, Limits::NONE, &mut Memory::default(), Effort::Full).0;
        assert_eq!(verdict, expected, "{text}");
    };
    check("devices.all(d, d.attributes['a'].n > 2)", Verdict::FALSE);
    check("devices.all(d, d.attributes['a'].n > 0)", Verdict::TRUE | Verdict::ERROR);
    check("devices.exists(d, d.attributes['a'].n == 2)", Verdict::TRUE | Verdict::ERROR);
    check("devices.exists(d, d.attributes['a'].n == 7) && false", Verdict::FALSE);
    check("false && devices.map(d, d.attributes['a'].n).sum() == 1", Verdict::FALSE);
    check("devices.map(d, d.attributes['a'].n).sum() == 7", Verdict::FALSE | Verdict::ERROR);
    check("devices.filter(d, has(d.attributes['a'].n)).size() == 0", Verdict::FALSE);
    check("devices.map(d, d.attributes['a'].?n.orValue(0)).sum() == 7", Verdict::FALSE);
    check("devices[2].driver == 'x'", Verdict::ERROR);
    // Attributes that some or all of them lack.
    check("has(devices[0].attributes['a'].n)", Verdict::TRUE | Verdict::FALSE);
    check("has(devices[0].attributes['a'].m)", Verdict::FALSE);
    check("!has(devices[1].attributes['a'].m)", Verdict::TRUE);
    check("has(devices[0].driver)", Verdict::TRUE);
}

#[test]
fn expressions_estimated_above_the_limit_may_fail() {
    let mut environment = environment(Dialect::CELPLANE).unwrap();
    environment.limits.runtime_cost = 100;
    let compiled = environment.compile("devices.all(d, d.driver == 'x')").unwrap();
    let device = Device::new("a.example.com");
    let input = PartialDevices::new([], [(0, &device)], 1..=1, 0);
    let verdict = compiled.possible(&input, Limits::NONE, &mut Memory::default(), Effort::Full).0;
    assert_eq!(verdict, Verdict::FALSE | Verdict::ERROR);
}
