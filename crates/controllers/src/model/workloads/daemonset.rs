//! A DaemonSet never has two pods on a node, and ends with one new pod on each node that takes it.

use std::collections::BTreeSet;

use api::json;
use api::json::Value;

use super::{Bounds, WORLDS, disturb_pods, is_active, is_ready, metadata, template};
use crate::edit;
use crate::model::Dice;
use crate::model::server::Observer;
use crate::model::world::{Model, World, play};

struct DaemonSet {
    bounds: Bounds,
    image: i32,
}

/// The node that a daemon pod is meant for.
fn node_of(pod: &Value) -> String {
    let affinity = pod.at(&["spec", "affinity"]).map(ToString::to_string).unwrap_or_default();
    let named = (0..3).map(|node| format!("node-{node}")).find(|node| affinity.contains(node.as_str()));
    named.unwrap_or_default()
}

fn node_id(node: &str) -> crate::model::server::Id {
    ("nodes".to_owned(), String::new(), node.to_owned())
}

impl Model for DaemonSet {
    fn controllers(&self) -> &'static [&'static str] {
        &["daemonset-controller"]
    }

    fn begin(&mut self, world: &World) {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
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
                world.server.lock().change(&id, |node| edit::set(node, &["spec", "taints"], taints));
            }
            6 => {
                world.lose_node(&node);
                let mut state = world.server.lock();
                state.delete(&node_id(&node), true);
                if dice.percent(70) {
                    state.create("nodes", json!({"metadata": {"name": node}}));
                }
            }
            _ => {
                self.image = dice.number(4);
                world.edit("daemonsets", "web", |it| edit::set(it, &["spec", "template"], template(self.image)));
            }
        }
    }

    fn observer(&self) -> Observer {
        Box::new(move |objects, write| {
            let new = write.new.filter(|_| write.plural == "pods" && write.old.is_none())?;
            let node = node_of(new);
            let pods = objects.iter().filter(|(id, _)| id.0 == "pods").map(|(_, pod)| pod);
            let on_node = pods.filter(|pod| is_active(pod) && node_of(pod) == node).count();
            (on_node > 1).then(|| format!("{on_node} pods on {node}"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        let takes = |node: &Value| node.at(&["spec", "taints"]).and_then(Value::as_array).is_none_or(<[_]>::is_empty);
        let nodes = world.list("nodes");
        let wanted: BTreeSet<String> =
            nodes.iter().filter(|node| takes(node)).map(|node| edit::name(node).to_owned()).collect();
        let image = format!("app:{}", self.image);
        let pods = world.list("pods");
        let active: Vec<&Value> = pods.iter().filter(|pod| is_active(pod)).collect();
        let has: BTreeSet<String> = active.iter().map(|pod| node_of(pod)).collect();
        let is_new = |pod: &&&Value| {
            let containers = pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap_or_default();
            is_ready(pod) && containers.iter().all(|it| it.str_at(&["image"]) == Some(&image))
        };
        let new = active.iter().filter(is_new).count();
        let is_right = has == wanted && active.len() == wanted.len() && new == active.len();
        (!is_right).then(|| format!("{} pods on {has:?}, {new} of them new, wanted on {wanted:?}", active.len()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_ends_with_one_pod_on_each_node_and_never_has_two() {
    for seed in 0..WORLDS {
        play(seed, DaemonSet { bounds: Bounds::default(), image: 0 }).await;
    }
}
