//! Small random instances: slices, their allocation, and claims of a pod.

use api::json::Value;

use super::expression::{Choices, expression};

/// Some fail if an attribute is missing, some are never true, some depend on the order.
const EXPRESSIONS: [&str; 16] = [
    "devices.map(d, d.attributes['a'].id).max() - devices.map(d, d.attributes['a'].id).min() < size(devices)",
    "devices.all(d, d.attributes['a'].x == devices[0].attributes['a'].x)",
    "devices.all(d, d.attributes['a'].?x.orValue(0) == devices[0].attributes['a'].?x.orValue(0))",
    "devices.exists(d, d.attributes['a'].leader)",
    "devices.exists_one(d, d.attributes['a'].?leader.orValue(false))",
    "devices.map(d, d.attributes['a'].id).isSorted()",
    "devices[0].attributes['a'].id % 2 == 0",
    "devices.map(d, d.attributes['a'].id).sum() % 3 == 1",
    "devices.filter(d, d.attributes['a'].x == 1).size() == 1",
    "size(devices) == 2",
    "size(devices) > 3",
    "true",
    "false",
    "devices[0].attributes['a'].id",
    "10 / devices[0].attributes['a'].id > 3",
    "devices.all(d, d.driver == devices[0].driver)",
];

const SELECTORS: [&str; 4] = [
    "device.attributes['a'].?x.orValue(1) == 1",
    "device.driver == 'a.example.com'",
    "device.attributes['a'].?id.orValue(0) > 1",
    "true",
];

/// The amount that counters and shares are about.
pub(crate) const AMOUNT: &str = "a/m";

/// An instance. Expressions that cannot be used are replaced.
pub(crate) fn instance(choices: &mut Choices, is_usable: &dyn Fn(&str) -> bool) -> Value {
    let pools = [("a.example.com", "p"), ("a.example.com", "q"), ("b.example.com", "p")];
    let pools: Vec<(&str, &str)> = pools.into_iter().filter(|_| choices.below(3) > 0).collect();
    let mut slices = Vec::new();
    let mut allocated = Vec::new();
    for (driver, pool) in &pools {
        let slice_count = 1 + choices.below(2);
        let has_counters = choices.below(4) == 0;
        let described = |name: String, key: &str, content: Value| {
            let count = slice_count + usize::from(has_counters);
            let mut slice = api::json!({
                "metadata": {"name": name},
                "spec": {
                    "driver": (*driver),
                    "nodeName": "n",
                    "pool": {"name": (*pool), "generation": 1, "resourceSliceCount": (count as i64)}
                }
            });
            slice.as_object_mut().unwrap().get_mut("spec").unwrap().as_object_mut().unwrap().insert(key, content);
            slice
        };
        for slice in 0..slice_count {
            let mut devices: Vec<Value> = Vec::new();
            for index in 0..choices.below(4) {
                let name = format!("d{}", slice + 2 * index + 7 * choices.below(2));
                // Some are equal to the previous one in everything but the name.
                let device = match devices.last().cloned().filter(|_| choices.below(3) == 0) {
                    Some(mut twin) => {
                        twin.as_object_mut().unwrap().insert("name", name.as_str());
                        twin
                    }
                    None => device(choices, &name, has_counters),
                };
                if choices.below(6) == 0 {
                    let mut taken = api::json!({"driver": (*driver), "pool": (*pool), "device": (name.as_str())});
                    if device.get("allowMultipleAllocations").is_some() && choices.below(4) > 0 {
                        let fields = taken.as_object_mut().unwrap();
                        fields.insert("shareID", format!("before-{pool}-{name}"));
                        fields.insert("consumedCapacity", api::json!({"a/m": (amount(choices, 3))}));
                    }
                    allocated.push(taken);
                }
                devices.push(device);
            }
            slices.push(described(format!("{driver}-{pool}-{slice}"), "devices", Value::Array(devices)));
        }
        if has_counters {
            let counters = api::json!([{"name": "memory", "counters": {"m": {"value": (amount(choices, 6))}, "n": {"value": "3"}}}]);
            slices.push(described(format!("{driver}-{pool}-counters"), "sharedCounters", counters));
        }
    }
    let claims = (0..1 + choices.below(2)).map(|index| claim(choices, index, is_usable)).collect();
    api::json!({
        "node": {"metadata": {"name": "n"}},
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": (Value::Array(slices)),
        "allocatedDevices": (Value::Array(allocated)),
        "claims": (Value::Array(claims))
    })
}

fn amount(choices: &mut Choices, below: usize) -> String {
    choices.below(below).to_string()
}

fn device(choices: &mut Choices, name: &str, has_counters: bool) -> Value {
    let mut attributes = Value::object();
    let fields = attributes.as_object_mut().unwrap();
    if choices.below(8) > 0 {
        fields.insert("a/id", api::json!({"int": (choices.below(5) as i64)}));
    }
    for name in ["a/x", "a/y"] {
        match choices.below(12) {
            0 => None,
            1 => fields.insert(name, api::json!({"string": "text"})),
            _ => fields.insert(name, api::json!({"int": (choices.below(2) as i64)})),
        };
    }
    fields.insert("a/s", api::json!({"string": (choices.pick(&["", "a", "b"]))}));
    fields.insert("a/f", api::json!({"bool": (choices.below(2) == 0)}));
    if choices.below(2) == 0 {
        fields.insert("a/leader", api::json!({"bool": (choices.below(2) == 0)}));
    }
    let mut device = api::json!({"name": (name), "attributes": (attributes)});
    let fields = device.as_object_mut().unwrap();
    if choices.below(7) == 0 {
        let taint = api::json!({"key": "k", "effect": (choices.pick(&["NoSchedule", "NoExecute", "None"]))});
        fields.insert("taints", Value::Array(vec![taint]));
    }
    let mut capacity = api::json!({"value": (choices.pick(&["1", "2", "4", "6"]))});
    let policy = match choices.below(6) {
        0 => Some(api::json!({"default": "1"})),
        1 => Some(api::json!({"default": "2", "validValues": ["1", "2", "4"]})),
        2 => Some(api::json!({"default": "1", "validRange": {"min": "1", "max": "5", "step": "2"}})),
        _ => None,
    };
    if let Some(policy) = policy {
        capacity.as_object_mut().unwrap().insert("requestPolicy", policy);
    }
    if choices.below(8) > 0 {
        fields.insert("capacity", api::json!({"a/m": (capacity)}));
    }
    if choices.below(4) == 0 {
        fields.insert("allowMultipleAllocations", Value::Bool(true));
    }
    if has_counters && choices.below(3) > 0 {
        let counter = choices.pick(&["m", "n"]);
        let mut counters = Value::object();
        counters.as_object_mut().unwrap().insert(counter, api::json!({"value": (amount(choices, 4))}));
        fields.insert("consumesCounters", api::json!([{"counterSet": "memory", "counters": (counters)}]));
    }
    device
}

fn claim(choices: &mut Choices, index: usize, is_usable: &dyn Fn(&str) -> bool) -> Value {
    let requests: Vec<Value> = (0..1 + choices.below(2))
        .map(|request| {
            let name = format!("r{request}");
            if choices.below(4) == 0 {
                let mut alternatives: Vec<Value> = (0..2).map(|_| ask(choices)).collect();
                for (index, alternative) in alternatives.iter_mut().enumerate() {
                    alternative.as_object_mut().unwrap().insert("name", format!("s{index}"));
                }
                api::json!({"name": (name), "firstAvailable": (Value::Array(alternatives))})
            } else {
                let mut exactly = ask(choices);
                if choices.below(10) == 0 {
                    exactly.as_object_mut().unwrap().insert("adminAccess", Value::Bool(true));
                }
                api::json!({"name": (name), "exactly": (exactly)})
            }
        })
        .collect();
    let constraints: Vec<Value> = (0..choices.below(4))
        .map(|_| {
            let mut constraint = match choices.below(6) {
                0 => api::json!({"matchAttribute": "a/x"}),
                1 => api::json!({"distinctAttribute": "a/id"}),
                2 | 3 => api::json!({"cel": {"expression": (choices.pick(&EXPRESSIONS))}}),
                _ => {
                    let text = expression(choices);
                    let text = if is_usable(&text) { text.as_str() } else { choices.pick(&EXPRESSIONS) };
                    api::json!({"cel": {"expression": text}})
                }
            };
            if choices.below(2) == 0 {
                let names = [vec!["r0"], vec!["r1"], vec!["r0", "r1"], vec!["r0/s1"]];
                let names = names[choices.below(names.len())].iter().map(|it| (*it).into()).collect();
                constraint.as_object_mut().unwrap().insert("requests", Value::Array(names));
            }
            constraint
        })
        .collect();
    api::json!({
        "metadata": {"name": (format!("c{index}")), "namespace": "ns"},
        "spec": {"devices": {"requests": (Value::Array(requests)), "constraints": (Value::Array(constraints))}}
    })
}

fn ask(choices: &mut Choices) -> Value {
    let mut ask = api::json!({"deviceClassName": "any"});
    let fields = ask.as_object_mut().unwrap();
    if choices.below(8) == 0 {
        fields.insert("allocationMode", "All");
    } else {
        fields.insert("allocationMode", "ExactCount");
        fields.insert("count", 1 + choices.below(3) as i64);
    }
    if choices.below(2) == 0 {
        let selector = api::json!({"cel": {"expression": (choices.pick(&SELECTORS))}});
        fields.insert("selectors", Value::Array(vec![selector]));
    }
    if choices.below(4) == 0 {
        fields.insert("tolerations", Value::Array(vec![api::json!({"key": "k", "operator": "Exists"})]));
    }
    if choices.below(5) == 0 {
        fields.insert("capacity", api::json!({"requests": {"a/m": (amount(choices, 4))}}));
    }
    ask
}
