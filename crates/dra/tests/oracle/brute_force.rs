//! The oracle: it has no incremental state, enumerates complete choices request by request, and evaluates each
//! as a whole.

use std::collections::BTreeMap;

use api::json::{self, Value};
use api::resource::v1::{Device, DeviceAttribute, DeviceToleration};
use dra::constraints::pruning::Pruning;
use dra::device::Model;
use dra::expressions::Answer;
use dra::{Budget, Error, Search};

use super::instance::AMOUNT;
use super::setting::{Programs, Setting};

/// A device, its position, and its form for expressions.
struct ListedDevice {
    key: (String, String, String),
    model: Model,
    view: Device,
    /// Whether it has an exclusive owner.
    in_use: bool,
    /// Shares of other claims.
    shares: Vec<i64>,
}

/// Result of an instance.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// By claim: request and device.
    Devices(Vec<Vec<(String, String)>>),
    None,
    /// The set on which a constraint fails.
    Fails(String),
    InvalidPools,
    Other(String),
}

/// One request of one claim.
struct WantedDevices {
    claim: usize,
    name: String,
    alternatives: Vec<(String, Value)>,
}

pub(crate) struct Oracle<'o> {
    programs: &'o Programs,
    /// As listed.
    devices: Vec<ListedDevice>,
    /// By pool and name: capacity.
    counters: BTreeMap<((String, String), String), i64>,
    wanted: Vec<WantedDevices>,
    claims: Vec<Value>,
}

/// A device for a request.
#[derive(Clone)]
struct Choice {
    claim: usize,
    request: String,
    /// With the alternative's name.
    full_name: String,
    device: usize,
    /// Share of a shared device.
    share: Option<i64>,
    is_admin: bool,
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

impl<'o> Oracle<'o> {
    pub(crate) fn new(instance: &Value, programs: &'o Programs) -> Option<Self> {
        let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).unwrap_or_default().to_vec();
        let text = |value: &Value, path: &[&str]| value.text_at(path).to_owned();
        let mut slices = list(instance, "resourceSlices");
        slices.sort_by_key(|slice| {
            (
                text(slice, &["spec", "driver"]),
                text(slice, &["spec", "pool", "name"]),
                text(slice, &["metadata", "name"]),
            )
        });
        let allocated = list(instance, "allocatedDevices");
        let mut devices: Vec<ListedDevice> = Vec::new();
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
                let (shared, alone): (Vec<&Value>, Vec<&Value>) =
                    allocated.iter().filter(|it| of(it) == key).partition(|it| it.get("shareID").is_some());
                let consumed = |it: &&Value| number(it.str_at(&["consumedCapacity", AMOUNT]).unwrap());
                let shares = shared.iter().map(consumed).collect();
                devices.push(ListedDevice {
                    model: Model::new(&driver, &view),
                    key,
                    view,
                    in_use: !alone.is_empty(),
                    shares,
                });
            }
        }
        // Pools with two devices of one name are not used; that is tested with recorded cases.
        if !has_twins.is_empty() {
            return None;
        }
        let mut counters = BTreeMap::new();
        for slice in list(instance, "resourceSlices") {
            for (name, counter) in list(slice.get("spec").unwrap(), "sharedCounters")
                .iter()
                .flat_map(|set| set.get("counters").unwrap().as_object().unwrap().iter())
            {
                let pool = (text(&slice, &["spec", "driver"]), text(&slice, &["spec", "pool", "name"]));
                counters.insert((pool, name.to_string()), number(counter.str_at(&["value"]).unwrap()));
            }
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
                wanted.push(WantedDevices { claim: index, name, alternatives });
            }
        }
        Some(Oracle { programs, devices, counters, wanted, claims })
    }

    fn constraints(&self, claim: usize) -> &[Value] {
        self.claims[claim].list_at(&["spec", "devices", "constraints"])
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
        (!self.devices[device].in_use || is_admin(ask)) && (!tainted || !tolerations.is_empty())
    }

    /// Returns the amount that a request takes from a device; `None` if that is impossible.
    fn takes(&self, ask: &Value, device: usize) -> Option<i64> {
        let view = &self.devices[device].view;
        let asked = ask.str_at(&["capacity", "requests", AMOUNT]).map(number);
        let Some(capacity) = view.capacity.get(AMOUNT) else { return asked.is_none().then_some(0) };
        let value = capacity.value.value();
        let policy = capacity.request_policy.as_ref();
        let default = policy.and_then(|policy| policy.default.as_ref()).map(|it| it.value());
        let range = policy.and_then(|policy| policy.valid_range.as_ref());
        let values: Vec<i64> = policy.map_or_else(Vec::new, |it| it.valid_values.iter().map(|it| it.value()).collect());
        let bounds = range.map(|it| [&it.min, &it.max, &it.step].map(|it| it.as_ref().unwrap().value()));
        let takes = match (asked, bounds) {
            (None, _) => default.unwrap_or(value),
            (Some(asked), Some([min, _, step])) => (asked.max(min)..).find(|it| (it - min) % step == 0).unwrap(),
            (Some(asked), None) => values.iter().copied().find(|valid| asked <= *valid).unwrap_or(asked),
        };
        let allowed = default == Some(takes)
            || match bounds {
                Some([min, max, step]) => takes <= max && (takes - min) % step == 0,
                None => values.is_empty() || values.contains(&takes),
            };
        (allowed && takes <= value).then_some(takes)
    }

    /// Whether there is enough of devices that are shared.
    fn has_room(&self, choices: &[Choice]) -> bool {
        self.devices.iter().enumerate().all(|(index, listed)| {
            let shares = || choices.iter().filter(move |choice| choice.device == index).filter_map(|it| it.share);
            let all: i64 = shares().chain(listed.shares.iter().copied()).sum();
            let room = listed.view.capacity.get(AMOUNT).map(|it| it.value.value());
            shares().next().is_none() || room.is_none_or(|room| all <= room)
        })
    }

    /// Whether no device with an exclusive owner is used twice, and all counters suffice.
    fn is_available(&self, choices: &[Choice]) -> bool {
        let mut left = self.counters.clone();
        for (index, listed) in self.devices.iter().enumerate() {
            let chosen: Vec<&Choice> = choices.iter().filter(|choice| choice.device == index).collect();
            let twice = |at: usize| {
                let (before, it) = (&chosen[..at], chosen[at]);
                it.share.is_none() && before.iter().any(|other| !it.is_admin || other.claim == it.claim)
            };
            if (0..chosen.len()).any(twice) {
                return false;
            }
            let users = usize::from(listed.in_use || !listed.shares.is_empty());
            // A device that is shared takes counters once.
            let is_shared = listed.view.allow_multiple_allocations == Some(true);
            let times = if is_shared && !listed.shares.is_empty() {
                1
            } else if is_shared {
                users + usize::from(!chosen.is_empty())
            } else {
                users + chosen.len()
            };
            for (name, counter) in listed.view.consumes_counters.iter().flat_map(|it| &it.counters) {
                let pool = (listed.key.0.clone(), listed.key.1.clone());
                *left.get_mut(&(pool, name.to_string())).unwrap() -= counter.value.value() * times as i64;
            }
        }
        // Counters limit only devices that consume them.
        choices.iter().all(|choice| {
            let listed = &self.devices[choice.device];
            let draws = !listed.view.consumes_counters.is_empty()
                && (listed.view.allow_multiple_allocations != Some(true) || listed.shares.is_empty());
            let mut of_pool = left.iter().filter(|((pool, _), _)| (&pool.0, &pool.1) == (&listed.key.0, &listed.key.1));
            !draws || of_pool.all(|(_, left)| *left >= 0)
        })
    }

    /// All choices of devices for a request, in order.
    fn tuples(&self, wanted: &WantedDevices, ask: &Value) -> Vec<Vec<usize>> {
        if ask.str_at(&["allocationMode"]) == Some("All") {
            let selected = |it: &usize| self.is_selected(ask, *it) && self.takes(ask, *it).is_some();
            let all: Vec<usize> = (0..self.devices.len()).filter(selected).collect();
            return if all.is_empty() { Vec::new() } else { vec![all] };
        }
        let count = ask.get("count").unwrap().as_i64().unwrap() as usize;
        let order = self.order(wanted.claim);
        let is_usable =
            |it: &usize| self.is_selected(ask, *it) && self.can_be_had(ask, *it) && self.takes(ask, *it).is_some();
        let usable: Vec<usize> = order.into_iter().filter(is_usable).collect();
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

    /// Whether the attribute constraints of a claim hold.
    fn attributes_hold(&self, choices: &[Choice], claim: usize) -> bool {
        for constraint in self.constraints(claim) {
            let covered: Vec<usize> = choices
                .iter()
                .filter(|it| it.claim == claim && Self::covers(constraint, &it.request, &it.full_name))
                .map(|choice| choice.device)
                .collect();
            let values = |name: &str| -> Vec<Option<&DeviceAttribute>> {
                covered.iter().map(|it| self.attribute(*it, name)).collect()
            };
            if let Some(name) = constraint.str_at(&["matchAttribute"]) {
                let values = values(name);
                if values.iter().any(|it| it.is_none() || *it != values[0]) {
                    return false;
                }
            }
            if let Some(name) = constraint.str_at(&["distinctAttribute"]) {
                let values = values(name);
                let twice = |at: usize| values[..at].contains(&values[at]);
                if values.iter().any(Option::is_none) || (0..values.len()).any(twice) {
                    return false;
                }
            }
        }
        true
    }

    /// Evaluates the choices for the requests of a claim up to and including `index`: holds, does not hold,
    /// fails.
    fn judge(&self, choices: &[Choice], index: usize) -> Result<bool, Outcome> {
        let wanted = &self.wanted[index];
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
                .filter(|it| it.claim == wanted.claim && Self::covers(constraint, &it.request, &it.full_name))
                .map(|choice| choice.device)
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

    /// Takes devices for a request one by one; false where one cannot be had.
    ///
    /// It is an error if a constraint excludes one of all devices.
    fn take(
        &self,
        wanted: &WantedDevices,
        alternative: &(String, Value),
        tuple: &[usize],
        choices: &mut Vec<Choice>,
    ) -> Result<bool, Outcome> {
        let (full_name, ask) = alternative;
        for device in tuple {
            choices.push(Choice {
                claim: wanted.claim,
                request: wanted.name.clone(),
                full_name: full_name.clone(),
                device: *device,
                share: (self.devices[*device].view.allow_multiple_allocations == Some(true))
                    .then(|| self.takes(ask, *device).unwrap()),
                is_admin: is_admin(ask),
            });
            if !self.can_be_had(ask, *device) || !self.is_available(choices) {
                return Ok(false);
            }
            if !self.attributes_hold(choices, wanted.claim) {
                if ask.str_at(&["allocationMode"]) != Some("All") {
                    return Ok(false);
                }
                let claim = self.claims[wanted.claim].str_at(&["metadata", "name"]).unwrap();
                let request = full_name.rsplit('/').next().unwrap();
                let device = self.name(*device);
                return Err(Outcome::Other(format!(
                    "claim ns/{claim}, request {request}: cannot add device {device} because a claim constraint would not be satisfied"
                )));
            }
            if !self.has_room(choices) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn solve(&self, index: usize, choices: &mut Vec<Choice>) -> Result<bool, Outcome> {
        let Some(wanted) = self.wanted.get(index) else { return Ok(true) };
        for alternative in &wanted.alternatives {
            for tuple in self.tuples(wanted, &alternative.1) {
                let before = choices.len();
                if self.take(wanted, alternative, &tuple, choices)?
                    && self.judge(choices, index)?
                    && self.solve(index + 1, choices)?
                {
                    return Ok(true);
                }
                choices.truncate(before);
            }
        }
        Ok(false)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let mut choices = Vec::new();
        match self.solve(0, &mut choices) {
            Err(outcome) => outcome,
            Ok(false) => Outcome::None,
            Ok(true) => {
                let mut devices = vec![Vec::new(); self.claims.len()];
                for Choice { claim, full_name, device, .. } in choices {
                    devices[claim].push((full_name, self.name(device)));
                }
                Outcome::Devices(devices)
            }
        }
    }
}

fn is_admin(ask: &Value) -> bool {
    ask.get("adminAccess").is_some()
}

/// Returns the result of the search itself, and the number of branches it cut.
pub(crate) fn search(setting: &Setting, pruning: Option<&mut (dyn Pruning + 'static)>) -> (Outcome, u64) {
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
