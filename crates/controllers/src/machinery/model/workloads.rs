//! Invariants of each workload under disturbances of its pods, nodes, writes and controllers.

mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod replicaset;
mod statefulset;

use locks::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::json;
use api::json::Value;
use tokio::time::Instant;

use super::Dice;
use super::server::Objects;
use super::world::{NAMESPACE, World};

/// Number of worlds for each model; set `CELPLANE_WORLDS` for more.
fn worlds() -> std::ops::Range<u64> {
    0..std::env::var("CELPLANE_WORLDS").map_or(40, |count| count.parse().unwrap())
}

/// News of a spec has reached everybody after this time.
const WINDOW: Duration = Duration::from_secs(20);

/// Recently requested states: controllers may still act on any of them.
#[derive(Clone, Default)]
struct Bounds(Arc<Mutex<RecentRequests>>);

#[derive(Default)]
struct RecentRequests {
    /// Minimum and maximum number, and the time until which it was requested; `None` for the last one.
    asked: VecDeque<(i64, i64, Option<Instant>)>,
    /// Pods that were lost and not deleted by a controller. The time to replace one is not bounded, because
    /// writes fail and events are delayed.
    losses: usize,
}

impl Bounds {
    fn ask(&self, least: i64, most: i64) {
        let mut recent = self.0.lock();
        if let Some(last) = recent.asked.back_mut() {
            last.2 = Some(Instant::now());
        }
        recent.asked.push_back((least, most, None));
    }

    fn lose(&self, count: usize) {
        self.0.lock().losses += count;
    }

    fn losses(&self) -> i64 {
        i64::try_from(self.0.lock().losses).unwrap()
    }

    /// The smallest upper bound that a controller may still use.
    fn least_of_most(&self) -> i64 {
        self.now();
        self.0.lock().asked.iter().map(|it| it.1).min().unwrap_or(0)
    }

    /// The range that a controller may still use.
    fn now(&self) -> (i64, i64) {
        let mut recent = self.0.lock();
        recent.asked.retain(|(_, _, until)| until.is_none_or(|until| until.elapsed() < WINDOW));
        let least = recent.asked.iter().map(|it| it.0).min().unwrap_or(0);
        (least, recent.asked.iter().map(|it| it.1).max().unwrap_or(0))
    }
}

fn template(image: i32) -> Value {
    let image = format!("app:{image}");
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn metadata() -> Value {
    json!({"name": "web", "namespace": NAMESPACE})
}

fn is_active(pod: &Value) -> bool {
    let has_ended = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    !has_ended && pod.at(&["metadata", "deletionTimestamp"]).is_none()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.list_at(&["status", "conditions"]);
    is_active(pod) && conditions.iter().any(|it| it.str_at(&["status"]) == Some("True"))
}

fn count(objects: &Objects, counts: impl Fn(&Value) -> bool) -> i64 {
    let pods = objects.iter().filter(|(id, _)| id.0 == "pods");
    i64::try_from(pods.filter(|(_, pod)| counts(pod)).count()).unwrap()
}

/// Disturbances of the pods of any workload.
fn disturb_pods(world: &World, bounds: &Bounds, dice: &mut Dice) {
    let Some(pod) = world.some_pod(dice) else { return };
    match dice.below(4) {
        0 => {
            bounds.lose(1);
            world.end_pod(&pod, 1);
        }
        1 => {
            bounds.lose(1);
            world.delete_pod(&pod, dice.percent(50));
        }
        2 => {
            bounds.lose(1);
            world.set_ready(&pod, false);
        }
        _ => {
            let node = format!("node-{}", dice.below(3));
            bounds.lose(world.list("pods").len());
            world.lose_node(&node);
        }
    }
}

/// Reports a deviation from this many pods, all of them ready.
fn missing_pods(world: &World, wanted: i64) -> Option<String> {
    let pods = world.list("pods");
    let left: Vec<&Value> = pods.iter().filter(|pod| is_active(pod)).collect();
    let ready = left.iter().filter(|pod| is_ready(pod)).count();
    let is_right = i64::try_from(left.len()).unwrap() == wanted && ready == left.len();
    (!is_right).then(|| format!("{} pods, {ready} of them ready, instead of {wanted}", left.len()))
}

/// Reports a number in the status of `web` that differs from these.
fn missing_status(world: &World, plural: &str, fields: &[(&str, i64)]) -> Option<String> {
    let object = world.get(plural, "web")?;
    let generation = object.int_at(&["metadata", "generation"]);
    let is_right = fields.iter().all(|(field, number)| object.int_at(&["status", field]) == *number)
        && object.int_at(&["status", "observedGeneration"]) == generation;
    (!is_right).then(|| format!("{:?} instead of {fields:?}", object.get("status").map(ToString::to_string)))
}
