//! A DaemonSet never has two pods on a node unless it may surge, takes no pod that serves from more nodes than it may, and
//! ends with one new pod on each node that takes it.

use std::collections::BTreeSet;

use api::json;
use api::json::Value;
use api::metadata;

use super::{Bounds, disturb_pods, is_active, is_ready, metadata, template, worlds};
use crate::machinery::model::Dice;
use crate::machinery::model::server::Observer;
use crate::machinery::model::world::{Model, World, play};

struct DaemonSet {
    bounds: Bounds,
    image: i32,
    surge: i64,
    unavailable: i64,
}

/// Whether a node takes daemon pods.
fn takes(node: &Value) -> bool {
    node.array_at(&["spec", "taints"]).is_none_or(<[_]>::is_empty)
}

/// The node that a daemon pod is assigned to.
fn node_of(pod: &Value) -> String {
    let affinity = pod.at(&["spec", "affinity"]).map(ToString::to_string).unwrap_or_default();
    let named = (0..3).map(|node| format!("node-{node}")).find(|node| affinity.contains(node.as_str()));
    named.unwrap_or_default()
}

fn node_id(node: &str) -> crate::machinery::model::server::Id {
    ("nodes".to_owned(), String::new(), node.to_owned())
}

impl Model for DaemonSet {
    fn controllers(&self) -> &'static [&'static str] {
        &["daemonset-controller"]
    }

    fn begin(&mut self, world: &World) {
        let (surge, unavailable) = (self.surge, self.unavailable);
        let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": (template(self.image)),
            "updateStrategy": strategy, "revisionHistoryLimit": 2});
        world.create("daemonsets", json!({"metadata": (metadata()), "spec": spec}));
    }

    fn disturb(&mut self, world: &World, dice: &mut Dice) {
        let node = format!("node-{}", dice.below(3));
        match dice.below(8) {
            0..4 => disturb_pods(world, &self.bounds, dice),
            4 | 5 => {
                let taints = if dice.percent(50) { json!([{"key": "gone", "effect": "NoExecute"}]) } else { json!([]) };
                let id = node_id(&node);
                self.bounds.lose(1);
                world.server.lock().change(&id, |node| node.set_at(&["spec", "taints"], taints));
            }
            6 => {
                self.bounds.lose(2);
                world.lose_node(&node);
                let mut state = world.server.lock();
                state.delete(&node_id(&node), true);
                if dice.percent(70) {
                    state.create("nodes", json!({"metadata": {"name": node}}));
                }
            }
            _ => {
                self.image = dice.number(4);
                world.edit("daemonsets", "web", |it| it.set_at(&["spec", "template"], template(self.image)));
            }
        }
    }

    fn observer(&self) -> Observer {
        let (bounds, surge, unavailable) = (self.bounds.clone(), self.surge, self.unavailable);
        Box::new(move |objects, write| {
            if write.plural != "pods" {
                return None;
            }
            let pods = || objects.iter().filter(|(id, _)| id.0 == "pods").map(|(_, pod)| pod);
            if let (None, Some(new)) = (write.old, write.new) {
                let node = node_of(new);
                let on_node = pods().filter(|pod| is_active(pod) && node_of(pod) == node).count();
                return (on_node > 1 + usize::from(surge > 0)).then(|| format!("{on_node} pods on {node}"));
            }
            let node = node_of(write.old.filter(|old| is_ready(old) && !write.new.is_some_and(is_ready))?);
            let wanting =
                || objects.iter().filter(|(id, it)| id.0 == "nodes" && takes(it)).map(|(id, _)| id.2.as_str());
            let lacks = |node: &str| !pods().any(|pod| is_ready(pod) && node_of(pod) == node);
            let without = i64::try_from(wanting().filter(|node| lacks(node)).count()).unwrap();
            let is_wanted = wanting().any(|it| it == node);
            (is_wanted && lacks(&node) && without > unavailable + bounds.losses())
                .then(|| format!("{without} nodes without a pod that serves, allowed {unavailable}"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        let nodes = world.list("nodes");
        let wanted: BTreeSet<String> =
            nodes.iter().filter(|node| takes(node)).map(|node| metadata::name(node).to_owned()).collect();
        let image = format!("app:{}", self.image);
        let pods = world.list("pods");
        let active: Vec<&Value> = pods.iter().filter(|pod| is_active(pod)).collect();
        let has: BTreeSet<String> = active.iter().map(|pod| node_of(pod)).collect();
        let is_new = |pod: &&&Value| {
            let containers = pod.list_at(&["spec", "containers"]);
            is_ready(pod) && containers.iter().all(|it| it.str_at(&["image"]) == Some(&image))
        };
        let new = active.iter().filter(is_new).count();
        let is_right = has == wanted && active.len() == wanted.len() && new == active.len();
        (!is_right).then(|| format!("{} pods on {has:?}, {new} of them new, wanted on {wanted:?}", active.len()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_ends_with_one_pod_on_each_node_and_keeps_within_its_bounds() {
    for seed in worlds() {
        let (surge, unavailable) = [(0, 1), (0, 2), (1, 0), (2, 0)][usize::try_from(seed % 4).unwrap()];
        play(seed, DaemonSet { bounds: Bounds::default(), image: 0, surge, unavailable }).await;
    }
}
