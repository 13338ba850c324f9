//! Nodes that fall silent and recover, with a manual clock.

use api::json::from_value;

use super::*;

/// A few nodes as stored in the server: the monitor's findings are written back.
struct Cluster {
    monitor: Monitor,
    documents: BTreeMap<Text, Value>,
    leases: BTreeMap<Text, Timestamp>,
    now: Timestamp,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

impl Cluster {
    fn new(nodes: &[(&str, &str)]) -> Self {
        let documents = nodes.iter().map(|(name, zone)| {
            let document = api::json!({
                "metadata": {"name": (*name), "labels": {"topology.kubernetes.io/zone": (*zone)}},
                "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            (Text::from(*name), document)
        });
        let mut cluster = Cluster {
            monitor: Monitor::default(),
            documents: documents.collect(),
            leases: BTreeMap::new(),
            now: at(0),
        };
        cluster.pass(&[]);
        cluster
    }

    /// Five seconds pass, in which all nodes but the silent ones renew their leases and report; then a look, with all
    /// that follows from it.
    fn pass(&mut self, silent: &[&str]) -> Findings {
        self.now = self.now.plus_seconds(5);
        let now = self.now;
        for name in self.documents.keys().cloned().collect::<Vec<_>>() {
            if !silent.contains(&name.as_str()) {
                self.leases.insert(name.clone(), now);
                self.set(&name, &["status", "conditions"], api::json!([{"type": "Ready", "status": "True"}]));
            }
        }
        let findings = self.with_nodes(|monitor, seen| monitor.look(seen, now));
        for (name, document) in &findings.silenced {
            self.documents.insert(name.clone(), document.clone());
        }
        for (name, taints) in &findings.taints {
            self.set_taints(name, taints);
        }
        for name in self.documents.keys().cloned().collect::<Vec<_>>() {
            while let Some(taints) = taints::by_conditions(&self.node(&name), now) {
                self.set_taints(&name, &taints);
            }
        }
        for _ in 0..50 {
            let nodes: Vec<Node> = self.documents.keys().map(|name| self.node(name)).collect();
            let evictions = self.monitor.evictions(|name| nodes.iter().find(|node| node.metadata.name == name), now);
            for (name, taints) in evictions {
                self.set_taints(&name, &taints);
            }
        }
        findings
    }

    fn with_nodes<T>(&mut self, look: impl FnOnce(&mut Monitor, &[ObservedNode<'_>]) -> T) -> T {
        let nodes: Vec<(Node, &Value)> = self.documents.values().map(|it| (from_value(it).unwrap(), it)).collect();
        let seen: Vec<ObservedNode<'_>> = nodes
            .iter()
            .map(|(node, document)| ObservedNode {
                node,
                document,
                lease: self.leases.get(&node.metadata.name).copied(),
            })
            .collect();
        look(&mut self.monitor, &seen)
    }

    fn node(&self, name: &str) -> Node {
        from_value(self.documents.get(name).unwrap()).unwrap()
    }

    fn set(&mut self, name: &str, path: &[&str; 2], value: Value) {
        let part = self.documents.get_mut(name).unwrap().get_mut(path[0]).unwrap();
        part.as_object_mut().unwrap().insert(path[1], value);
    }

    fn set_taints(&mut self, name: &str, taints: &[Taint]) {
        self.set(name, &["spec", "taints"], api::json::to_value(&taints).unwrap());
    }

    fn taints(&self, name: &str) -> String {
        let words = self
            .node(name)
            .spec
            .taints
            .into_iter()
            .map(|it| format!("{}:{}", it.key.trim_start_matches("node.kubernetes.io/"), it.effect));
        words.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_silent_node_is_tainted_and_cleared_when_it_is_back() {
    let mut cluster = Cluster::new(&[("a", "z"), ("b", "z"), ("c", "z")]);
    for _ in 0..10 {
        assert!(cluster.pass(&["a"]).silenced.is_empty());
    }
    let findings = cluster.pass(&["a"]);
    assert_eq!(findings.silenced.len(), 1);
    assert_eq!(cluster.taints("a"), "unreachable:NoSchedule unreachable:NoExecute");
    assert!(cluster.pass(&["a"]).silenced.is_empty(), "it is told once");
    cluster.pass(&[]);
    assert_eq!(cluster.taints("a"), "");
}

#[test]
fn nodes_of_a_zone_are_given_up_one_by_one() {
    let mut cluster = Cluster::new(&[("a", "z"), ("b", "z"), ("c", "z"), ("d", "z"), ("e", "z")]);
    for _ in 0..11 {
        cluster.pass(&["a", "b"]);
    }
    let evicted = |cluster: &Cluster| {
        let is_evicted = |name: &&str| cluster.taints(name).contains("NoExecute");
        ["a", "b"].iter().filter(|name| is_evicted(name)).count()
    };
    assert_eq!(evicted(&cluster), 1);
    cluster.pass(&["a", "b"]);
    assert_eq!(evicted(&cluster), 1);
    cluster.pass(&["a", "b"]);
    assert_eq!(evicted(&cluster), 2);
}

#[test]
fn when_all_nodes_are_silent_their_pods_stay() {
    let mut cluster = Cluster::new(&[("a", "y"), ("b", "z")]);
    for _ in 0..20 {
        cluster.pass(&["a"]);
    }
    assert_eq!(cluster.taints("a"), "unreachable:NoSchedule unreachable:NoExecute");
    for _ in 0..20 {
        cluster.pass(&["a", "b"]);
    }
    assert_eq!(cluster.taints("a"), "unreachable:NoSchedule");
    assert_eq!(cluster.taints("b"), "unreachable:NoSchedule");
    cluster.pass(&["a"]);
    assert_eq!(cluster.taints("b"), "");
}

#[test]
fn nodes_are_met_and_missed_once() {
    let mut cluster = Cluster::new(&[("a", "z")]);
    assert!(cluster.pass(&[]).registered.is_empty());
    cluster.documents.clear();
    assert_eq!(cluster.pass(&[]).removed, [(Text::from("a"), Text::default())]);
    assert!(cluster.pass(&[]).removed.is_empty());
}
