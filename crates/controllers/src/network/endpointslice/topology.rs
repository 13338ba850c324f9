//! Hints by zone, in proportion to the processors that zones have: `service.kubernetes.io/topology-mode: Auto`.
//!
//! Each ready endpoint is assigned to its own zone; zones with a surplus give some to zones with a lack. If a
//! zone would get less than it needs, there are no hints at all. Follows Kubernetes
//! `staging/src/k8s.io/endpointslice/topologycache`, with zones in the order of their names.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::core::v1::{Node, Service};
use api::json::{Text, Value};
use api::well_known::{
    ANNOTATION_TOPOLOGY_AWARE_HINTS, ANNOTATION_TOPOLOGY_MODE, LABEL_CONTROL_PLANE, LABEL_TOPOLOGY_ZONE,
};
use client::events::Severity;
use client::informer::Key;

use super::endpoint::is_ready;

/// An endpoint may get so much more than its share.
const OVERLOAD: f64 = 0.2;
const DISABLED: &str = "TopologyAwareHintsDisabled";

/// An event: severity, reason, message.
pub(super) type EventParts = (Severity, &'static str, String);
/// Number of endpoints by assigned zone.
type Hints = BTreeMap<Text, u32>;

/// Number of endpoints of a zone.
struct Share {
    max: u32,
    desired: f64,
}

/// State of zones, and of the hints of services.
#[derive(Debug, Default)]
pub(super) struct Topology {
    /// Share of all processors by zone; `None` if there are fewer than two zones, or nodes do not report them.
    ratios: Option<BTreeMap<Text, f64>>,
    /// Whether nodes have changed since.
    is_old: bool,
    /// The families in which a service has hints.
    services: HashMap<Key, BTreeSet<&'static str>>,
    populated: HashSet<Key>,
}

/// Whether a service requests these hints.
pub(super) fn is_wanted(service: &Service) -> bool {
    let annotations = &service.metadata.annotations;
    annotations
        .get(ANNOTATION_TOPOLOGY_AWARE_HINTS)
        .or_else(|| annotations.get(ANNOTATION_TOPOLOGY_MODE))
        .is_some_and(|it| it == "Auto" || it == "auto")
}

/// Whether a change of a node matters.
pub(super) fn node_changed(old: &Node, new: &Node) -> bool {
    node_is_ready(old) != node_is_ready(new)
        || old.metadata.labels.get(LABEL_TOPOLOGY_ZONE) != new.metadata.labels.get(LABEL_TOPOLOGY_ZONE)
}

fn node_is_ready(node: &Node) -> bool {
    let ready = node.status.conditions.iter().find(|it| it.condition_type == "Ready");
    ready.is_some_and(|it| it.status == "True")
}

fn ratios<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Option<BTreeMap<Text, f64>> {
    let is_excluded = |node: &Node| {
        let roles = [LABEL_CONTROL_PLANE, "node-role.kubernetes.io/master"];
        roles.iter().any(|role| node.metadata.labels.contains_key(*role))
    };
    let mut processors: BTreeMap<Text, f64> = BTreeMap::new();
    for node in nodes.into_iter().filter(|node| !is_excluded(node) && node_is_ready(node)) {
        let zone = node.metadata.labels.get(LABEL_TOPOLOGY_ZONE).filter(|zone| !zone.is_empty())?;
        let own = node.status.allocatable.get("cpu").filter(|cpu| !cpu.is_zero())?.as_approximate_f64();
        *processors.entry(zone.clone()).or_default() += own;
    }
    let total: f64 = processors.values().sum();
    (processors.len() >= 2).then(|| processors.into_iter().map(|(zone, own)| (zone, own / total)).collect())
}

/// The least endpoints that a zone with this part of the whole needs.
fn least(desired: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from float saturates")]
    let least = (desired * (1.0 / (1.0 + OVERLOAD))).ceil() as u32;
    least
}

fn endpoints(slice: &Value) -> &[Value] {
    slice.get("endpoints").and_then(Value::as_array).unwrap_or_default()
}

fn endpoints_mut<'a>(slices: impl IntoIterator<Item = &'a mut Value>) -> impl Iterator<Item = &'a mut Value> {
    let lists = slices.into_iter().filter_map(|slice| slice.get_mut("endpoints").and_then(Value::as_array_mut));
    lists.flatten()
}

/// Takes the hints off all slices; those that have some are updated.
fn remove(create: &mut [Value], update: &mut Vec<Value>, unchanged: &[Value]) {
    let has_hints = |slice: &&Value| endpoints(slice).iter().any(|it| it.get("hints").is_some());
    update.extend(unchanged.iter().filter(has_hints).cloned());
    endpoints_mut(create.iter_mut().chain(update)).for_each(|it| drop(it.remove_at(&["hints"])));
}

impl Topology {
    /// Records a change of nodes; returns the services with hints, which may have to change.
    pub(super) fn nodes_changed(&mut self) -> Vec<Key> {
        self.is_old = true;
        self.services.keys().cloned().collect()
    }

    /// Recounts the nodes if they have changed.
    pub(super) fn look<'a>(&mut self, nodes: impl FnOnce() -> Vec<&'a Node>) {
        if std::mem::take(&mut self.is_old) {
            self.ratios = ratios(nodes());
        }
    }

    /// Removes the hints of a service. Returns whether it had some.
    pub(super) fn forget(&mut self, key: &Key, family: &str) -> bool {
        if let Some(families) = self.services.get_mut(key) {
            families.remove(family);
            if families.is_empty() {
                self.services.remove(key);
            }
        }
        self.populated.remove(key)
    }

    /// Returns the number of endpoints of each zone, or the reason why there can be no hints.
    fn shares(&self, count: u32) -> Result<BTreeMap<&Text, Share>, String> {
        let Some(ratios) = &self.ratios else {
            return Err(
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes".into()
            );
        };
        let zones = ratios.len();
        let all = format!("({count} endpoints, {zones} zones)");
        if zones > usize::try_from(count).unwrap_or(usize::MAX) {
            return Err(format!("Insufficient number of endpoints {all}"));
        }
        let wanted = ratios.iter().map(|(zone, ratio)| (zone, ratio * f64::from(count)));
        let wanted: Vec<(&Text, f64, u32)> = wanted.map(|(zone, desired)| (zone, desired, least(desired))).collect();
        let total = wanted.iter().map(|(_, _, min)| *min).fold(0, u32::saturating_add);
        let Some(spare) = count.checked_sub(total) else {
            let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
            return Err(format!("{why} {all}"));
        };
        let share =
            |min: u32, desired: f64| Share { max: min.saturating_add(spare), desired: desired.max(f64::from(min)) };
        Ok(wanted.into_iter().map(|(zone, desired, min)| (zone, share(min, desired))).collect())
    }

    /// Sets the hints of a service's endpoints. Slices whose hints no longer fit are updated.
    pub(super) fn hint(
        &mut self,
        key: &Key,
        family: &'static str,
        create: &mut [Value],
        update: &mut Vec<Value>,
        unchanged: &[Value],
    ) -> Option<EventParts> {
        let all = create.iter().chain(&*update).chain(unchanged);
        let count = all.flat_map(endpoints).filter(|it| is_ready(it)).count();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let result = self.shares(count).and_then(|shares| spread(&shares, create, update, unchanged));
        match result {
            Err(why) => {
                self.forget(key, family);
                remove(create, update, unchanged);
                Some((Severity::Warning, DISABLED, format!("{why}, addressType: {family}")))
            }
            Ok(()) => {
                self.services.entry(key.clone()).or_default().insert(family);
                let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
                self.populated.insert(key.clone()).then_some((Severity::Normal, "TopologyAwareHintsEnabled", message))
            }
        }
    }

    /// Removes the hints of a service that does not request them; returns an event if it had some.
    pub(super) fn unwanted(&mut self, key: &Key, family: &str) -> Option<EventParts> {
        let message = format!("Topology Aware Hints has been disabled, addressType: {family}");
        self.forget(key, family).then_some((Severity::Warning, DISABLED, message))
    }
}

/// Means every endpoint for its own zone, and then some for others.
fn spread(
    shares: &BTreeMap<&Text, Share>,
    create: &mut [Value],
    update: &mut Vec<Value>,
    unchanged: &[Value],
) -> Result<(), String> {
    let mut hints = Hints::new();
    for slice in unchanged {
        match fitting(slice, &hints, shares) {
            Some(known) => known.into_iter().for_each(|(zone, count)| add(&mut hints, &zone, count)),
            None => update.push(slice.clone()),
        }
    }
    for endpoint in endpoints_mut(create.iter_mut().chain(&mut *update)).filter(|it| is_ready(it)) {
        let Some(zone) = zone_of(endpoint) else {
            return Err("One or more endpoints do not have a zone specified".to_owned());
        };
        mean(endpoint, &zone);
        add(&mut hints, &zone, 1);
    }
    let (mut giving, mut receiving) = surplus_and_lack(shares, &hints);
    for endpoint in endpoints_mut(create.iter_mut().chain(update)).filter(|it| is_ready(it)) {
        let Some(from) = zone_of(endpoint).filter(|zone| giving.contains_key(zone)) else { continue };
        let Some(to) = receiving.keys().next().cloned() else { break };
        mean(endpoint, &to);
        take(&mut giving, &from);
        take(&mut receiving, &to);
        take(&mut hints, &from);
        add(&mut hints, &to, 1);
    }
    if hints.is_empty() { Err("No hints allocated for zones".to_owned()) } else { Ok(()) }
}

fn zone_of(endpoint: &Value) -> Option<Text> {
    endpoint.str_at(&["zone"]).filter(|zone| !zone.is_empty()).map(Text::from)
}

fn mean(endpoint: &mut Value, zone: &Text) {
    endpoint.set_at(&["hints"], api::json!({"forZones": [{"name": (zone.clone())}]}));
}

fn add(counts: &mut Hints, zone: &Text, count: u32) {
    let known = counts.entry(zone.clone()).or_default();
    *known = known.saturating_add(count);
}

fn take(counts: &mut Hints, zone: &Text) {
    let left = counts.get(zone).copied().unwrap_or(0).saturating_sub(1);
    if left == 0 {
        counts.remove(zone);
    } else {
        counts.insert(zone.clone(), left);
    }
}

/// Returns the hints of an otherwise unchanged slice; `None` if they must be reassigned.
fn fitting(slice: &Value, others: &Hints, shares: &BTreeMap<&Text, Share>) -> Option<Hints> {
    let mut hints = Hints::new();
    for endpoint in endpoints(slice).iter().filter(|it| is_ready(it)) {
        let zones = endpoint.array_at(&["hints", "forZones"]).filter(|it| !it.is_empty())?;
        for zone in zones {
            add(&mut hints, &zone.str_at(&["name"]).map(Text::from)?, 1);
        }
    }
    let fits = |(zone, count): (&Text, &u32)| {
        let known = others.get(zone).copied().unwrap_or(0);
        shares.get(zone).is_some_and(|share| count.saturating_add(known) <= share.max)
    };
    hints.iter().all(fits).then_some(hints)
}

/// Returns the number of endpoints that each zone gives to others, and that it receives.
fn surplus_and_lack(shares: &BTreeMap<&Text, Share>, hints: &Hints) -> (Hints, Hints) {
    let difference = |(zone, share): (&&Text, &Share)| {
        let has = f64::from(hints.get(*zone).copied().unwrap_or(0));
        ((*zone).clone(), has - share.desired)
    };
    let mut left: BTreeMap<Text, f64> = shares.iter().map(difference).collect();
    let (mut giving, mut receiving) = (Hints::new(), Hints::new());
    loop {
        let most = left.iter().filter(|(_, by)| **by > 0.0).reduce(|best, it| if it.1 > best.1 { it } else { best });
        let fewest = left.iter().filter(|(_, by)| **by < 0.0).reduce(|best, it| if it.1 < best.1 { it } else { best });
        let (Some((from, give)), Some((to, lack))) = (most, fewest) else { break };
        let (from, to, give, lack) = (from.clone(), to.clone(), *give, -*lack);
        if (give < 1.0 && lack < 1.0) || give < 0.5 || lack < 0.5 {
            break;
        }
        add(&mut giving, &from, 1);
        add(&mut receiving, &to, 1);
        left.insert(from, give - 1.0);
        left.insert(to, 1.0 - lack);
    }
    (giving, receiving)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(zone: &str, cpu: &str) -> Node {
        let node = api::json!({"metadata": {"labels": {LABEL_TOPOLOGY_ZONE: zone}}, "status": {"allocatable": {"cpu": cpu},
            "conditions": [{"type": "Ready", "status": "True"}]}});
        api::json::from_value(&node).expect("a node")
    }

    fn slice(zones: &str) -> Value {
        let endpoint = |zone: char| {
            let mut endpoint = api::json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}});
            if zone != '-' {
                endpoint.set_at(&["zone"], zone.to_string());
            }
            endpoint
        };
        let all: Vec<Value> = zones.chars().map(endpoint).collect();
        api::json!({"endpoints": all})
    }

    fn topology(nodes: &[Node]) -> Topology {
        let mut topology = Topology { is_old: true, ..Topology::default() };
        topology.look(|| nodes.iter().collect());
        topology
    }

    /// The zones assigned to endpoints, in their order, `-` for none.
    fn meant(slices: &[Value]) -> String {
        let zone = |it: &Value| match it.array_at(&["hints", "forZones"]) {
            Some([only]) => only.str_at(&["name"]).unwrap_or("?").to_owned(),
            _ => "-".to_owned(),
        };
        slices.iter().flat_map(endpoints).map(zone).collect()
    }

    #[track_caller]
    fn check(nodes: &[Node], zones: &str, expected: &str, reported: &str) {
        let mut create = [slice(zones)];
        let event = topology(nodes).hint(&Key::new("ns", "web"), "IPv4", &mut create, &mut Vec::new(), &[]);
        assert_eq!((meant(&create).as_str(), event.map(|it| it.2).unwrap_or_default().as_str()), (expected, reported));
    }

    #[test]
    fn endpoints_stay_in_their_zone_or_help_another() {
        let even = [node("a", "4"), node("b", "4")];
        let enabled = "Topology Aware Hints has been enabled, addressType: IPv4";
        check(&even, "aabb", "aabb", enabled);
        check(&even, "aaab", "baab", enabled);
        check(&[node("a", "9"), node("b", "3")], "aabb", "aaab", enabled);
    }

    #[test]
    fn where_a_zone_would_get_too_little_there_are_no_hints() {
        let even = [node("a", "4"), node("b", "4")];
        let of = |why: &str| format!("{why}, addressType: IPv4");
        check(&even, "a", "-", &of("Insufficient number of endpoints (1 endpoints, 2 zones)"));
        check(&even, "abb-", "----", &of("One or more endpoints do not have a zone specified"));
        let unknown = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
        check(&[node("a", "4"), node("", "4")], "ab", "--", &of(unknown));
        check(&[node("a", "4"), node("a", "4")], "aa", "--", &of(unknown));
        let three = [node("a", "4"), node("b", "2"), node("c", "1")];
        let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
        check(&three, "abc", "---", &of(&format!("{why} (3 endpoints, 3 zones)")));
    }

    #[test]
    fn hint_events_are_recorded_once_and_on_removal() {
        let (key, even) = (Key::new("ns", "web"), [node("a", "4"), node("b", "4")]);
        let mut topology = topology(&even);
        let mut create = [slice("aabb")];
        let hint = |topology: &mut Topology, create: &mut [Value], unchanged: &[Value]| {
            let mut update = Vec::new();
            let reported = topology.hint(&key, "IPv4", create, &mut update, unchanged);
            (reported.map(|it| it.1), update)
        };
        assert_eq!(hint(&mut topology, &mut create, &[]).0, Some("TopologyAwareHintsEnabled"));
        assert_eq!(hint(&mut topology, &mut [], &create), (None, Vec::new()), "nothing has changed");
        // The nodes of one zone are removed: the service is reconciled, and its hints are removed.
        assert_eq!(topology.nodes_changed(), std::slice::from_ref(&key));
        topology.look(|| even.iter().take(1).collect());
        let (reported, update) = hint(&mut topology, &mut [], &create);
        assert_eq!((reported, meant(&update).as_str()), (Some(DISABLED), "----"));
        assert_eq!(topology.unwanted(&key, "IPv4"), None, "there are none");
        assert!(topology.nodes_changed().is_empty());
        topology.look(|| even.iter().collect());
        hint(&mut topology, &mut create, &[]);
        assert!(topology.unwanted(&key, "IPv4").is_some());
    }

    #[test]
    fn the_annotation_asks_for_them() {
        let service = |key: &str, value: &str| -> Service {
            api::json::from_value(&api::json!({"metadata": {"annotations": {key: value}}})).expect("a service")
        };
        assert!(
            is_wanted(&service(ANNOTATION_TOPOLOGY_MODE, "Auto"))
                && is_wanted(&service(ANNOTATION_TOPOLOGY_AWARE_HINTS, "auto"))
        );
        assert!(!is_wanted(&service(ANNOTATION_TOPOLOGY_MODE, "Disabled")) && !is_wanted(&Service::default()));
    }
}
