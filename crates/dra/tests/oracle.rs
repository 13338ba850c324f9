//! The search against brute force on thousands of small random instances: same devices, same "none", same error.
//!
//! The oracle knows no incremental state: it enumerates whole choices request by request, and judges each as a whole.
//! Every instance is also searched with a look-ahead that cuts as much as is ever allowed.

use std::collections::BTreeMap;

use api::json::{self, Value};
use api::resource::v1::{Device, DeviceAttribute, DeviceToleration};
use dra::constraints::look_ahead::LookAhead;
use dra::constraints::pruning::{Outlook, Partial, Pruning};
use dra::device::Model;
use dra::expressions::Answer;
use dra::{Budget, Error, Features, Search};

use crate::setting::{Programs, Setting};

/// A small generator of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}

/// Some fail where an attribute is missing, some are never true, some look at the order.
const EXPRESSIONS: [&str; 16] = [
    "devices.map(d, d.attributes['a.example.com'].id).max() - devices.map(d, d.attributes['a.example.com'].id).min() < size(devices)",
    "devices.all(d, d.attributes['a.example.com'].numa == devices[0].attributes['a.example.com'].numa)",
    "devices.all(d, d.attributes['a.example.com'].?numa.orValue(0) == devices[0].attributes['a.example.com'].?numa.orValue(0))",
    "devices.exists(d, d.attributes['a.example.com'].leader)",
    "devices.exists_one(d, d.attributes['a.example.com'].?leader.orValue(false))",
    "devices.map(d, d.attributes['a.example.com'].id).isSorted()",
    "devices[0].attributes['a.example.com'].id % 2 == 0",
    "devices.map(d, d.attributes['a.example.com'].id).sum() % 3 == 1",
    "devices.filter(d, d.attributes['a.example.com'].numa == 1).size() == 1",
    "size(devices) == 2",
    "size(devices) > 3",
    "true",
    "false",
    "devices[0].attributes['a.example.com'].id",
    "10 / devices[0].attributes['a.example.com'].id > 3",
    "devices.all(d, d.driver == devices[0].driver)",
];

const SELECTORS: [&str; 4] = [
    "device.attributes['a.example.com'].?numa.orValue(1) == 1",
    "device.driver == 'a.example.com'",
    "device.attributes['a.example.com'].?id.orValue(0) > 1",
    "true",
];

fn instance(random: &mut Random) -> Value {
    let pools: Vec<(&str, &str)> = [("a.example.com", "p"), ("a.example.com", "q"), ("b.example.com", "p")]
        .into_iter()
        .filter(|_| !random.one_in(3))
        .collect();
    let mut slices = Vec::new();
    let mut allocated = Vec::new();
    for (driver, pool) in &pools {
        let slice_count = 1 + random.below(2);
        for slice in 0..slice_count {
            let devices: Vec<Value> = (0..random.below(4))
                .map(|index| {
                    let name = format!("d{}", slice + 2 * index + 7 * random.below(2));
                    if random.one_in(6) {
                        allocated.push(api::json!({"driver": (*driver), "pool": (*pool), "device": (name.clone())}));
                    }
                    device(random, &name)
                })
                .collect();
            slices.push(api::json!({
                "metadata": {"name": (format!("{driver}-{pool}-{slice}"))},
                "spec": {
                    "driver": (*driver),
                    "nodeName": "n",
                    "pool": {"name": (*pool), "generation": 1, "resourceSliceCount": (slice_count as i64)},
                    "devices": (Value::Array(devices))
                }
            }));
        }
    }
    let claims = (0..1 + random.below(2)).map(|index| claim(random, index)).collect();
    api::json!({
        "node": {"metadata": {"name": "n"}},
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": (Value::Array(slices)),
        "allocatedDevices": (Value::Array(allocated)),
        "claims": (Value::Array(claims))
    })
}

fn device(random: &mut Random, name: &str) -> Value {
    let mut attributes = Value::object();
    let fields = attributes.as_object_mut().unwrap();
    if !random.one_in(8) {
        fields.insert("id", api::json!({"int": (random.below(5) as i64)}));
    }
    if !random.one_in(6) {
        fields.insert("a.example.com/numa", api::json!({"int": (random.below(2) as i64)}));
    }
    if random.one_in(2) {
        fields.insert("leader", api::json!({"bool": (random.one_in(2))}));
    }
    let mut device = api::json!({"name": (name), "attributes": (attributes)});
    if random.one_in(7) {
        let taint = api::json!({"key": "k", "effect": (*random.pick(&["NoSchedule", "NoExecute", "None"]))});
        device.as_object_mut().unwrap().insert("taints", Value::Array(vec![taint]));
    }
    device
}

fn claim(random: &mut Random, index: usize) -> Value {
    let requests: Vec<Value> = (0..1 + random.below(2))
        .map(|request| {
            let name = format!("r{request}");
            if random.one_in(4) {
                let mut alternatives: Vec<Value> = (0..2).map(|_| ask(random)).collect();
                for (index, alternative) in alternatives.iter_mut().enumerate() {
                    alternative.as_object_mut().unwrap().insert("name", format!("s{index}"));
                }
                api::json!({"name": (name), "firstAvailable": (Value::Array(alternatives))})
            } else {
                api::json!({"name": (name), "exactly": (ask(random))})
            }
        })
        .collect();
    let all_devices = json::to_string(&Value::Array(requests.clone())).contains("\"All\"");
    let constraints: Vec<Value> = (0..random.below(4))
        .filter_map(|_| {
            let mut constraint = match random.below(5) {
                // Kubernetes refuses a claim to all devices that such a constraint divides.
                0 | 1 if all_devices => return None,
                0 => api::json!({"matchAttribute": "a.example.com/numa"}),
                1 => api::json!({"distinctAttribute": "a.example.com/id"}),
                _ => api::json!({"cel": {"expression": (*random.pick(&EXPRESSIONS))}}),
            };
            if random.one_in(2) {
                let names = [vec!["r0"], vec!["r1"], vec!["r0", "r1"], vec!["r0/s1"]];
                let names: Vec<Value> = random.pick(&names).iter().map(|it| (*it).into()).collect();
                constraint.as_object_mut().unwrap().insert("requests", Value::Array(names));
            }
            Some(constraint)
        })
        .collect();
    api::json!({
        "metadata": {"name": (format!("c{index}")), "namespace": "ns"},
        "spec": {"devices": {"requests": (Value::Array(requests)), "constraints": (Value::Array(constraints))}}
    })
}

fn ask(random: &mut Random) -> Value {
    let mut ask = api::json!({"deviceClassName": "any"});
    let fields = ask.as_object_mut().unwrap();
    if random.one_in(8) {
        fields.insert("allocationMode", "All");
    } else {
        fields.insert("allocationMode", "ExactCount");
        fields.insert("count", 1 + random.below(3) as i64);
    }
    if random.one_in(2) {
        let selector = api::json!({"cel": {"expression": (*random.pick(&SELECTORS))}});
        fields.insert("selectors", Value::Array(vec![selector]));
    }
    if random.one_in(4) {
        fields.insert("tolerations", Value::Array(vec![api::json!({"key": "k", "operator": "Exists"})]));
    }
    ask
}

/// A device, where it stands, and what expressions see of it.
struct Listed {
    key: (String, String, String),
    model: Model,
    view: Device,
    in_use: bool,
}

/// What comes of an instance.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// By claim: request and device.
    Devices(Vec<Vec<(String, String)>>),
    None,
    /// The set on which a constraint fails.
    Fails(String),
    InvalidPools,
    Other(String),
}

/// One request of one claim.
struct Wanted {
    claim: usize,
    name: String,
    alternatives: Vec<(String, Value)>,
}

struct Oracle<'o> {
    programs: &'o Programs,
    /// As listed.
    devices: Vec<Listed>,
    wanted: Vec<Wanted>,
    claims: Vec<Value>,
}

/// A choice: claim, request, alternative's full name, device.
type Choice = (usize, String, String, usize);

impl<'o> Oracle<'o> {
    fn new(instance: &Value, programs: &'o Programs) -> Option<Self> {
        let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).unwrap_or_default().to_vec();
        let text = |value: &Value, path: &[&str]| value.str_at(path).unwrap_or_default().to_owned();
        let mut slices = list(instance, "resourceSlices");
        slices.sort_by_key(|slice| {
            (
                text(slice, &["spec", "driver"]),
                text(slice, &["spec", "pool", "name"]),
                text(slice, &["metadata", "name"]),
            )
        });
        let allocated = list(instance, "allocatedDevices");
        let mut devices: Vec<Listed> = Vec::new();
        let mut has_twins: Vec<(String, String)> = Vec::new();
        for slice in slices {
            let (driver, pool) = (text(&slice, &["spec", "driver"]), text(&slice, &["spec", "pool", "name"]));
            for document in list(slice.get("spec").unwrap(), "devices") {
                let view: Device = json::from_value(&document).unwrap();
                let key = (driver.clone(), pool.clone(), view.name.to_string());
                if devices.iter().any(|it| it.key == key) {
                    has_twins.push((driver.clone(), pool.clone()));
                }
                let of = |it: &Value| (text(it, &["driver"]), text(it, &["pool"]), text(it, &["device"]));
                let in_use = allocated.iter().any(|it| of(it) == key);
                devices.push(Listed { model: Model::new(&driver, &view), key, view, in_use });
            }
        }
        // Pools with two devices of one name are not used; that is tested with recorded cases.
        if !has_twins.is_empty() {
            return None;
        }
        let claims = list(instance, "claims");
        let mut wanted = Vec::new();
        for (index, claim) in claims.iter().enumerate() {
            let requests = list(claim.at(&["spec", "devices"]).unwrap(), "requests");
            for request in &requests {
                let name = text(request, &["name"]);
                let alternatives = match request.get("exactly") {
                    Some(exactly) => vec![(name.clone(), exactly.clone())],
                    None => list(request, "firstAvailable")
                        .into_iter()
                        .map(|it| (format!("{name}/{}", text(&it, &["name"])), it))
                        .collect(),
                };
                wanted.push(Wanted { claim: index, name, alternatives });
            }
        }
        Some(Oracle { programs, devices, wanted, claims })
    }

    fn constraints(&self, claim: usize) -> &[Value] {
        self.claims[claim].at(&["spec", "devices", "constraints"]).and_then(Value::as_array).unwrap_or_default()
    }

    fn covers(constraint: &Value, request: &str, full_name: &str) -> bool {
        let names = constraint.get("requests").and_then(Value::as_array).unwrap_or_default();
        names.is_empty() || names.iter().filter_map(Value::as_str).any(|it| it == request || it == full_name)
    }

    /// The positions of devices in the order in which a claim tries them.
    fn order(&self, claim: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        if self.constraints(claim).iter().any(|it| it.get("cel").is_some()) {
            order.sort_by_key(|it| &self.devices[*it].key);
        }
        order
    }

    fn is_selected(&self, ask: &Value, device: usize) -> bool {
        let selectors = ask.get("selectors").and_then(Value::as_array).unwrap_or_default();
        selectors.iter().all(|selector| {
            // Every selector of the test is also an expression over a set of one.
            let text = selector.str_at(&["cel", "expression"]).unwrap().replace("device.", "devices[0].");
            let seen = self.devices[device].model.seen().unwrap();
            self.programs.expressions.set(&text).unwrap().ask(&[seen]).0 == Answer::Yes
        })
    }

    fn can_be_had(&self, ask: &Value, device: usize) -> bool {
        let tolerations: Vec<DeviceToleration> =
            ask.get("tolerations").map_or_else(Vec::new, |it| json::from_value(it).unwrap());
        let tainted = self.devices[device].view.taints.iter().any(|taint| taint.effect != "None");
        !self.devices[device].in_use && (!tainted || !tolerations.is_empty())
    }

    /// All choices of devices for a request, in order.
    fn tuples(&self, wanted: &Wanted, ask: &Value) -> Vec<Vec<usize>> {
        if ask.str_at(&["allocationMode"]) == Some("All") {
            let all: Vec<usize> = (0..self.devices.len()).filter(|it| self.is_selected(ask, *it)).collect();
            let possible = !all.is_empty() && all.iter().all(|it| self.can_be_had(ask, *it));
            return if possible { vec![all] } else { Vec::new() };
        }
        let count = ask.get("count").unwrap().as_i64().unwrap() as usize;
        let order = self.order(wanted.claim);
        let usable: Vec<usize> =
            order.into_iter().filter(|it| self.is_selected(ask, *it) && self.can_be_had(ask, *it)).collect();
        let mut tuples = vec![Vec::new()];
        for _ in 0..count {
            tuples = tuples
                .into_iter()
                .flat_map(|tuple: Vec<usize>| {
                    let next = tuple.last().map_or(0, |last| last + 1);
                    (next..usable.len()).map(move |it| [tuple.clone(), vec![it]].concat())
                })
                .collect();
        }
        tuples.into_iter().map(|tuple| tuple.into_iter().map(|it| usable[it]).collect()).collect()
    }

    fn attribute(&self, device: usize, full_name: &str) -> Option<&DeviceAttribute> {
        let listed = &self.devices[device];
        let (domain, name) = full_name.split_once('/').unwrap();
        let own = listed.view.attributes.get(name).filter(|_| domain == listed.key.0);
        listed.view.attributes.get(full_name).or(own)
    }

    /// Judges what is chosen for the requests of a claim up to and with `index`: holds, does not hold, fails.
    fn judge(&self, choices: &[Choice], index: usize) -> Result<bool, Outcome> {
        let wanted = &self.wanted[index];
        for constraint in self.constraints(wanted.claim) {
            let covered: Vec<usize> = choices
                .iter()
                .filter(|(claim, request, full, _)| *claim == wanted.claim && Self::covers(constraint, request, full))
                .map(|choice| choice.3)
                .collect();
            let values = |name: &str| -> Vec<Option<&DeviceAttribute>> {
                covered.iter().map(|it| self.attribute(*it, name)).collect()
            };
            if let Some(name) = constraint.str_at(&["matchAttribute"]) {
                let values = values(name);
                if values.iter().any(|it| it.is_none() || *it != values[0]) {
                    return Ok(false);
                }
            }
            if let Some(name) = constraint.str_at(&["distinctAttribute"]) {
                let values = values(name);
                let twice = |at: usize| values[..at].contains(&values[at]);
                if values.iter().any(Option::is_none) || (0..values.len()).any(twice) {
                    return Ok(false);
                }
            }
        }
        for constraint in self.constraints(wanted.claim) {
            let Some(text) = constraint.str_at(&["cel", "expression"]) else { continue };
            let same_claim = self.wanted.iter().enumerate().filter(|(_, it)| it.claim == wanted.claim);
            let last = same_claim
                .filter(|(_, it)| it.alternatives.iter().any(|(full, _)| Self::covers(constraint, &it.name, full)))
                .map(|(position, _)| position)
                .next_back();
            if last != Some(index) {
                continue;
            }
            let mut set: Vec<usize> = choices
                .iter()
                .filter(|(claim, request, full, _)| *claim == wanted.claim && Self::covers(constraint, request, full))
                .map(|choice| choice.3)
                .collect();
            if set.is_empty() {
                continue;
            }
            set.sort_by_key(|it| &self.devices[*it].key);
            let seen: Vec<_> = set.iter().map(|it| self.devices[*it].model.seen().unwrap()).collect();
            match self.programs.expressions.set(text).unwrap().ask(&seen).0 {
                Answer::Yes => {}
                Answer::No => return Ok(false),
                Answer::Fails(_) => {
                    let names: Vec<String> = set.iter().map(|it| self.name(*it)).collect();
                    // Messages name four.
                    let (first, rest) = names.split_at(names.len().min(4));
                    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
                    return Err(Outcome::Fails(first.join(", ") + &more));
                }
            }
        }
        Ok(true)
    }

    fn name(&self, device: usize) -> String {
        let (driver, pool, name) = &self.devices[device].key;
        format!("{driver}/{pool}/{name}")
    }

    fn solve(&self, index: usize, choices: &mut Vec<Choice>) -> Result<bool, Outcome> {
        let Some(wanted) = self.wanted.get(index) else { return Ok(true) };
        for (full_name, ask) in &wanted.alternatives {
            for tuple in self.tuples(wanted, ask) {
                if tuple.iter().any(|device| choices.iter().any(|choice| choice.3 == *device)) {
                    continue;
                }
                let before = choices.len();
                choices.extend(tuple.iter().map(|it| (wanted.claim, wanted.name.clone(), full_name.clone(), *it)));
                if self.judge(choices, index)? && self.solve(index + 1, choices)? {
                    return Ok(true);
                }
                choices.truncate(before);
            }
        }
        Ok(false)
    }

    fn outcome(&self) -> Outcome {
        let mut choices = Vec::new();
        match self.solve(0, &mut choices) {
            Err(outcome) => outcome,
            Ok(false) => Outcome::None,
            Ok(true) => {
                let mut devices = vec![Vec::new(); self.claims.len()];
                for (claim, _, full_name, device) in choices {
                    devices[claim].push((full_name, self.name(device)));
                }
                Outcome::Devices(devices)
            }
        }
    }
}

/// Looks at every completion: cuts all that may be cut.
#[derive(Default)]
struct Clairvoyant {
    asked: usize,
}

impl Pruning for Clairvoyant {
    fn look_ahead(&mut self, set: &Partial<'_>) -> (Outlook, u64) {
        self.asked += 1;
        let mut outlook = Outlook { may_hold: false, may_fail: false };
        // Where devices of several requests mix, their order in the set is not known here.
        if set.open.len() > 1 || !set.open.iter().all(|open| open.after_chosen) {
            return (Outlook::UNKNOWN, 0);
        }
        let mut sets: Vec<Vec<_>> = vec![set.chosen.to_vec()];
        for open in set.open {
            let mut choices: Vec<(usize, Vec<_>)> = sets.into_iter().map(|set| (0, set)).collect();
            for _ in 0..open.places {
                choices = choices
                    .into_iter()
                    .flat_map(|(next, set)| {
                        (next..open.candidates.len())
                            .map(move |it| (it + 1, [set.clone(), vec![open.candidates[it]]].concat()))
                    })
                    .collect();
            }
            sets = choices.into_iter().map(|(_, set)| set).collect();
        }
        for devices in sets {
            match set.expression.ask(&devices).0 {
                Answer::Yes => outlook.may_hold = true,
                Answer::No => {}
                Answer::Fails(_) => outlook.may_fail = true,
            }
        }
        (outlook, 0)
    }
}

fn search(setting: &Setting, pruning: Option<&mut (dyn Pruning + 'static)>) -> (Outcome, u64) {
    let pools = setting.pools().unwrap();
    let mut budget = Budget::by_cost();
    let (found, effort) = Search::new(&pools, &setting.allocated, &setting.claims, &mut budget, pruning).run();
    let outcome = match found {
        Ok(None) => Outcome::None,
        Ok(Some(solution)) => {
            let allocations = solution.allocations(&setting.claims, &pools, &mut || "share".into()).unwrap();
            let of = |allocation: &api::resource::v1::AllocationResult| -> Vec<(String, String)> {
                let results = allocation.devices.results.iter();
                results.map(|it| (it.request.to_string(), format!("{}/{}/{}", it.driver, it.pool, it.device))).collect()
            };
            Outcome::Devices(allocations.iter().map(of).collect())
        }
        Err(Error::ConstraintFails { devices, .. }) => Outcome::Fails(devices),
        Err(Error::InvalidPools) => Outcome::InvalidPools,
        Err(other) => Outcome::Other(other.to_string()),
    };
    (outcome, effort.cuts)
}

#[test]
fn a_search_finds_what_brute_force_finds() {
    let programs = Programs::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut cuts, mut cuts_ahead) = (0, 0);
    for _ in 0..2500 {
        let instance = instance(&mut random);
        let Some(oracle) = Oracle::new(&instance, &programs) else { continue };
        let setting = Setting::new(&instance, &programs, Features::ALL);
        let expected = oracle.outcome();
        let (found, _) = search(&setting, None);
        assert_eq!(found, expected, "{}", json::to_string(&instance));
        let mut clairvoyant = Clairvoyant::default();
        let (pruned, cut) = search(&setting, Some(&mut clairvoyant));
        assert_eq!(pruned, expected, "pruned: {}", json::to_string(&instance));
        cuts += cut;
        let mut ahead = LookAhead::new(0);
        let (pruned, cut) = search(&setting, Some(&mut ahead));
        assert_eq!(pruned, expected, "looking ahead: {}", json::to_string(&instance));
        cuts_ahead += cut;
        let kind = match expected {
            Outcome::Devices(_) => "found",
            Outcome::None => "none",
            Outcome::Fails(_) => "fails",
            other => panic!("{other:?}"),
        };
        *seen.entry(kind).or_default() += 1;
    }
    assert!(seen.values().all(|count| *count > 100) && seen.len() == 3 && cuts > 100, "{seen:?}, {cuts} cuts");
    // Most of what can be cut is seen without looking at every completion.
    assert!(cuts_ahead * 2 > cuts, "{cuts_ahead} cuts, of {cuts}");
}
