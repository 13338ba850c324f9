//! Sets of devices of which a part is chosen.

use std::sync::LazyLock;

use cel::program::{Effort, Limits, Memory, Verdict};
use cel::value::Value;
use cel_kubernetes::compile::Environment;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::{Devices, PartialDevices, environment};

#[path = "../../crates/cel-kubernetes/tests/partial/expression.rs"]
mod expression;

use expression::{Choices, expression};

static ENVIRONMENT: LazyLock<Option<Environment>> = LazyLock::new(|| {
    let mut environment = environment(Dialect::CELPLANE).ok()?.without_estimate_limit();
    environment.limits.runtime_cost = 1_000_000;
    Some(environment)
});

const DEVICES: usize = 5;

/// What is said about a set of which two devices are still to be chosen holds for every pair of the others.
pub fn devices_partial(data: &[u8]) {
    let Some(environment) = ENVIRONMENT.as_ref() else { return };
    let mut choices = Choices::of_bytes(data);
    let text = expression(&mut choices);
    let Ok(compiled) = environment.compile(&text) else { return };
    let devices: Vec<Device> = (0..DEVICES).map(|index| device(&mut choices, index)).collect();
    let numbered: Vec<(u32, &Device)> = (0..).zip(&devices).collect();
    let is_first_chosen = choices.below(2) == 0;
    let (chosen, candidates) = numbered.split_at(usize::from(is_first_chosen));
    let input = PartialDevices::new(chosen.iter().copied(), candidates.iter().copied(), 2..=2, chosen.len());
    let mut memory = Memory::default();
    for effort in [Effort::Quick, Effort::Full] {
        let said = compiled.possible(&input, Limits::cost(1_000_000), &mut memory, effort).0;
        for (index, first) in candidates.iter().enumerate() {
            for second in candidates.iter().skip(index + 1) {
                let set: Vec<&Device> = chosen.iter().chain([first, second]).map(|(_, device)| *device).collect();
                let set = Devices(&set);
                let found = match compiled.eval(&set).result {
                    Ok(value) => value.verdict(),
                    Err(_) => Verdict::ERROR,
                };
                assert!(
                    said.can_be(found),
                    "`{text}` ({effort:?}) is said to be {said:?}, but is {found:?} on {set:?}"
                );
            }
        }
    }
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
