//! Differences, checked against a model of the kernel's rules for transactions.

#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use std::collections::BTreeSet;

use api::json::Value;

use super::*;
use crate::decide::NodeFacts;
use crate::network::Protocol;
use crate::nft::tests::node;
use crate::service::Service;
use crate::state::State;

/// The kernel's state, which rejects what the kernel would reject.
#[derive(Default)]
struct Kernel {
    rules: RuleSet,
    stale: BTreeSet<Name>,
}

impl Kernel {
    fn exists(&self, chain: &str) -> bool {
        let counts = 1..=crate::rules::SHARED_ENDPOINTS_MAX;
        let mut shared =
            Protocol::ALL.into_iter().flat_map(|protocol| counts.clone().map(move |count| (protocol, count)));
        chain == crate::rules::REJECT_CHAIN
            || shared.any(|(protocol, count)| *crate::rules::shared_chain(protocol, count) == *chain)
            || self.rules.chains.contains_key(chain)
            || self.stale.contains(chain)
    }

    /// Whether a rule names an object: as a whole word.
    fn uses(rules: &Chain, name: &str) -> bool {
        rules.iter().any(|rule| rule.split(' ').any(|word| word == name || word.strip_prefix('@') == Some(name)))
    }

    fn apply(&mut self, steps: &Difference) {
        for name in &steps.new_chains {
            assert!(!self.rules.chains.contains_key(name), "{name} exists");
            self.stale.remove(name);
            self.rules.chains.insert(name.clone(), Chain::from([]));
        }
        for (name, _) in &steps.changed_chains {
            *self.rules.chains.get_mut(name).unwrap() = Chain::from([]);
        }
        for element in &steps.removed_elements {
            assert!(self.rules.elements.remove(element).is_some(), "{element:?} does not exist");
        }
        for name in &steps.stale_chains {
            assert!(self.rules.chains.remove(name).is_some(), "{name} does not exist");
            self.stale.insert(name.clone());
        }
        for name in &steps.removed_sets {
            assert!(!self.rules.chains.values().any(|it| Self::uses(it, name)), "{name} is in use");
            assert!(self.rules.sets.remove(name).is_some(), "{name} does not exist");
        }
        for (name, seconds) in &steps.added_sets {
            assert_eq!(self.rules.sets.insert(name.clone(), *seconds), None, "{name} exists");
        }
        for (name, rules) in &steps.changed_chains {
            for word in rules.iter().flat_map(|rule| rule.split(' ')) {
                if let Some(set) = word.strip_prefix('@') {
                    assert!(self.rules.sets.contains_key(set), "{set} does not exist");
                }
            }
            let targets =
                rules.iter().flat_map(|rule| rule.split("goto ").skip(1)).filter_map(|it| it.split(' ').next());
            targets.for_each(|it| assert!(self.exists(it), "{it} does not exist"));
            self.rules.chains.insert(name.clone(), rules.clone());
        }
        for (element, verdict) in &steps.added_elements {
            if let Verdict::Goto(chain) = verdict {
                assert!(self.exists(chain), "{chain} does not exist");
            }
            assert_eq!(self.rules.elements.insert(*element, verdict.clone()), None, "{element:?} exists");
        }
        // Stale chains are deleted later, which fails if something uses them.
        for name in &self.stale {
            assert!(!self.rules.chains.values().any(|it| Self::uses(it, name)), "{name} is in use");
            assert!(!self.rules.elements.values().any(|it| *it == Verdict::Goto(name.clone())), "{name} is in use");
        }
    }
}

/// Deterministic numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn random_service(random: &mut Random, name: &str) -> Service {
    let kind = ["ClusterIP", "NodePort", "LoadBalancer"][random.below(3) as usize];
    let policy = |random: &mut Random| if random.flag() { "Local" } else { "Cluster" };
    let port = |number: i64, random: &mut Random| {
        let protocol = if random.flag() { "TCP" } else { "UDP" };
        api::json!({"name": (format!("p{number}")), "port": number, "protocol": protocol, "nodePort": (if kind == "ClusterIP" { 0 } else { 30000 + number })})
    };
    let first = port(80, random);
    let ports = if random.flag() { vec![first] } else { vec![first, port(81, random)] };
    // Addresses and ports that several Services claim.
    let external: Vec<Value> = (0..random.below(3)).map(|it| Value::from(format!("192.0.2.{it}"))).collect();
    let ingress: Vec<Value> = (0..random.below(2)).map(|it| api::json!({"ip": (format!("198.51.100.{it}"))})).collect();
    let object = api::json!({
        "metadata": {"namespace": "a", "name": name, "creationTimestamp": (format!("2026-01-01T00:00:0{}Z", random.below(10)))},
        "spec": {
            "type": kind, "clusterIP": (format!("10.96.0.{}", random.below(4) + 1)), "ports": ports, "externalIPs": external,
            "externalTrafficPolicy": (policy(random)), "internalTrafficPolicy": (policy(random)),
            "sessionAffinity": (if random.flag() { "ClientIP" } else { "None" }),
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": (10_i64 + random.below(2) as i64)}},
            "loadBalancerSourceRanges": (if random.flag() { api::json!(["10.0.0.0/8"]) } else { api::json!([]) }),
        },
        "status": {"loadBalancer": {"ingress": ingress}},
    });
    Service::read(&object).unwrap()
}

fn random_slice(random: &mut Random, service: &str) -> crate::endpoint::Slice {
    let endpoints: Vec<Value> = (0..random.below(4))
        .map(|it| {
            let node = if random.flag() { "here" } else { "there" };
            api::json!({
                "addresses": [(format!("10.244.0.{it}"))], "nodeName": node,
                "conditions": {"ready": (random.flag()), "serving": (random.flag()), "terminating": (random.flag())},
            })
        })
        .collect();
    let object = api::json!({
        "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [
            {"name": "p80", "port": 8080_i64, "protocol": "TCP"}, {"name": "p81", "port": 8080_i64, "protocol": "TCP"},
            {"name": "p80", "port": 8080_i64, "protocol": "UDP"},
        ],
    });
    crate::endpoint::Slice::read(&object, "here").unwrap()
}

#[test]
fn differences_lead_to_the_same_rules_as_a_full_resync() {
    for seed in 1..40 {
        let mut random = Random(seed);
        let mut state = State::new(node());
        let (mut kernel, mut slices) = (Kernel::default(), BTreeMap::new());
        let mut services: BTreeMap<String, Service> = BTreeMap::new();
        for _ in 0..60 {
            for _ in 0..=random.below(3) {
                let name = format!("s{}", random.below(5));
                let key = client::Key::new("a", name.as_str());
                match random.below(3) {
                    0 => {
                        let service = random_service(&mut random, &name);
                        services.insert(name, service.clone());
                        state.set_service(&key, Some(Arc::new(service)));
                    }
                    1 if random.flag() => {
                        services.remove(&name);
                        state.set_service(&key, None);
                    }
                    _ => {
                        let slice_name = api::json::Text::from(format!("{name}-{}", random.below(2)));
                        let new = random.flag().then(|| Arc::new(random_slice(&mut random, &name)));
                        let old: Option<Arc<crate::endpoint::Slice>> = match &new {
                            Some(new) => slices.insert(slice_name.clone(), new.clone()),
                            None => slices.remove(&slice_name),
                        };
                        state.set_slice(&slice_name, old.as_deref(), new);
                    }
                }
            }
            let _ = state.update();
            kernel.apply(&state.ledger.difference());
            state.ledger.confirm();
            assert!(state.ledger.difference().is_empty());
            assert_eq!(kernel.rules, state.ledger.rule_set());
        }
        // The order of events does not matter: a new process computes the same.
        let mut fresh = State::new(node());
        for (name, slice) in slices.iter().rev() {
            fresh.set_slice(name, None, Some(slice.clone()));
        }
        for (name, service) in services {
            fresh.set_service(&client::Key::new("a", name.as_str()), Some(Arc::new(service)));
        }
        let _ = fresh.update();
        assert_eq!(fresh.ledger.rule_set(), state.ledger.rule_set());
    }
}

#[test]
fn oldest_service_keeps_a_contested_address() {
    let mut state = State::new(NodeFacts { address: "192.0.2.9".parse().unwrap(), ..node() });
    let service = |name: &str, second: u8| {
        let object = api::json!({
            "metadata": {"namespace": "a", "name": name, "creationTimestamp": (format!("2026-01-01T00:00:0{second}Z"))},
            "spec": {"clusterIP": (format!("10.96.0.{second}")), "externalIPs": ["192.0.2.1"], "ports": [{"port": 80_i64}]},
        });
        Arc::new(Service::read(&object).unwrap())
    };
    let slice = |name: &str| {
        let object = api::json!({
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.1"]}], "ports": [{"name": "", "port": 80_i64}],
        });
        crate::endpoint::Slice::read(&object, "here").map(Arc::new)
    };
    let contested = Element::Service("192.0.2.1".parse().unwrap(), crate::network::Protocol::Tcp, 80);
    let winner = |state: &State| match state.ledger.rule_set().elements.get(&contested) {
        Some(Verdict::Goto(chain)) => chain.to_string(),
        other => panic!("{other:?}"),
    };
    for (name, second) in [("young", 5), ("a-younger", 6), ("old", 1)] {
        state.set_service(&client::Key::new("a", name), Some(service(name, second)));
        state.set_slice(&name.into(), None, slice(name));
        let _ = state.update();
    }
    assert_eq!(winner(&state), "external-a/old/tcp/");
    state.set_service(&client::Key::new("a", "old"), None);
    let _ = state.update();
    assert_eq!(winner(&state), "external-a/young/tcp/");
}
