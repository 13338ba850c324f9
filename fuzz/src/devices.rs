//! Sets of devices: verdicts on partial sets, and results of searches.

use std::sync::LazyLock;

use cel::program::{Effort, Limits, Memory, Verdict};
use cel::value::Value;
use cel_kubernetes::compile::Environment;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::{Devices, PartialDevices, environment};

#[path = "../../crates/dra/tests/oracle/brute_force.rs"]
mod brute_force;
#[path = "../../crates/cel-kubernetes/tests/partial/expression.rs"]
mod expression;
#[path = "../../crates/dra/tests/oracle/instance.rs"]
mod instance;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../../crates/dra/tests/setting.rs"]
mod setting;

use brute_force::{Oracle, search};
use dra::Features;
use dra::constraints::look_ahead::LookAhead;
use expression::{Choices, expression};
use setting::{Programs, Setting};

static ENVIRONMENT: LazyLock<Option<Environment>> = LazyLock::new(|| {
    let mut environment = environment(Dialect::CELPLANE).ok()?.without_estimate_limit();
    environment.limits.runtime_cost = 1_000_000;
    Some(environment)
});

const DEVICES: usize = 5;

/// The verdict on a partial set holds for every completion.
pub fn devices_partial(data: &[u8]) {
    let Some(environment) = ENVIRONMENT.as_ref() else { return };
    let mut choices = Choices::of_bytes(data);
    let text = expression(&mut choices);
    let Ok(compiled) = environment.compile(&text) else { return };
    let devices: Vec<Device> = (0..DEVICES).map(|index| device(&mut choices, index)).collect();
    let numbered: Vec<(u32, &Device)> = (0..).zip(&devices).collect();
    // The chosen devices are before the others, or anywhere among them.
    let is_front = choices.below(2) == 0;
    let is_chosen = |index: usize, bits: usize| if is_front { index < bits % 3 } else { bits >> index & 1 == 1 };
    let bits = choices.below(1 << DEVICES);
    let (chosen, candidates): (Vec<_>, Vec<_>) =
        numbered.iter().partition(|(index, _)| is_chosen(*index as usize, bits));
    let least = choices.below(3);
    let open = least..=least + choices.below(2);
    let front = if is_front { chosen.len() } else { 0 };
    let input = PartialDevices::new(chosen.iter().copied(), candidates.iter().copied(), open.clone(), front);
    let mut memory = Memory::default();
    for effort in [Effort::Quick, Effort::Full] {
        let said = compiled.possible(&input, Limits::cost(1_000_000), &mut memory, effort).0;
        for drawn in 0..1_usize << candidates.len() {
            if !open.contains(&(drawn.count_ones() as usize)) {
                continue;
            }
            let drawn = candidates.iter().enumerate().filter(|(index, _)| drawn >> index & 1 == 1).map(|(_, it)| *it);
            let mut set: Vec<(u32, &Device)> = chosen.iter().copied().chain(drawn).collect();
            set.sort_by_key(|(index, _)| *index);
            let set: Vec<&Device> = set.into_iter().map(|(_, device)| device).collect();
            let set = Devices(&set);
            let found = match compiled.eval(&set).result {
                Ok(value) => value.verdict(),
                Err(_) => Verdict::ERROR,
            };
            assert!(
                said.can_be(found),
                "`{text}` ({effort:?}, {open:?} of {candidates:?}) is said to be {said:?}, but is {found:?} on {set:?}"
            );
        }
    }
}

thread_local! {
    static PROGRAMS: Programs = Programs::new();
}

/// A search for the devices of some claims finds what brute force finds, whether it looks ahead or not.
pub fn dra_agrees_with_brute_force(data: &[u8]) {
    PROGRAMS.with(|programs| {
        let is_usable = |text: &str| programs.expressions.set(text).is_ok();
        let instance = instance::instance(&mut Choices::of_bytes(data), &is_usable);
        let Some(oracle) = Oracle::new(&instance, programs) else { return };
        let expected = oracle.outcome();
        let setting = Setting::new(&instance, programs, Features::ALL);
        let text = || api::json::to_string(&instance);
        assert_eq!(search(&setting, None).0, expected, "{}", text());
        for exhaustive_below in [0, 20] {
            let (found, _) = search(&setting, Some(&mut LookAhead::new(exhaustive_below)));
            assert_eq!(found, expected, "looking ahead, {exhaustive_below}: {}", text());
        }
    });
}

fn device(choices: &mut Choices, index: usize) -> Device {
    let mut device = Device::new("a.example.com");
    for name in ["a/x", "a/y"] {
        match choices.below(16) {
            0 => {}
            1 => device.set_attribute(name, Value::str("text")),
            2 => device.set_attribute(name, Value::Int(i64::MAX)),
            _ => device.set_attribute(name, Value::Int(i64::from(choices.below(4) as u8))),
        }
    }
    device.set_attribute("a/id", Value::Int(i64::from(index as u8)));
    device.set_attribute("a/s", Value::str(choices.pick(&["", "a", "b"])));
    device.set_attribute("a/f", Value::Bool(choices.below(2) == 0));
    if let Ok(quantity) = api::quantity::Quantity::parse(choices.pick(&["1", "2", "4"])) {
        device.set_capacity("a/m", quantity);
    }
    device
}
