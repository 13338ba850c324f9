//! Users, scheduler and kubelets of a world, and the controllers in it.

use std::sync::Arc;
use std::time::Duration;

use api::json;
use api::json::Value;
use api::metadata;
use client::controller::Runtime;
use client::{Client, Health, Shutdown};
use tokio::task::JoinHandle;

use super::server::{Id, Observer, Server};
use super::{Dice, now};
use crate::machinery::edit;
use crate::manager;
use crate::settings::Settings;

pub(super) const NAMESPACE: &str = "ns";

/// A model: disturbances, invariants and final state.
pub(super) trait Model {
    /// The controllers that run.
    fn controllers(&self) -> &'static [&'static str];

    /// Creates the initial objects.
    fn begin(&mut self, world: &World);

    /// Performs an action of a user, a pod or a node.
    fn disturb(&mut self, world: &World, dice: &mut Dice);

    /// Invariant after every write of a controller.
    fn observer(&self) -> Observer;

    /// The difference from the desired state.
    fn missing(&self, world: &World) -> Option<String>;
}

/// One world.
pub(super) struct World {
    pub(super) server: Server,
    running: Option<JoinHandle<()>>,
    controllers: &'static [&'static str],
}

impl World {
    fn start_controllers(&mut self) {
        if let Some(running) = self.running.take() {
            // Like a crash: nothing is finished or handed over.
            running.abort();
        }
        let (stop, shutdown) = Shutdown::channel();
        let server = self.server.clone();
        let options = manager::Options {
            clients: Arc::new(move |name| Client::in_process(server.clone(), name)),
            controllers: self.controllers.iter().map(|name| (*name).to_owned()).collect(),
            features: api::features::Features::default(),
            settings: Settings::default(),
            runtime: Runtime::new(&telemetry::metrics::Registry::new(), Health::new(), shutdown)
                .with_clock(super::clock()),
        };
        self.running = Some(tokio::spawn(async move {
            let _stop = stop;
            manager::run(options).await;
        }));
    }

    /// Objects of a plural.
    pub(super) fn list(&self, plural: &str) -> Vec<Value> {
        let state = self.server.lock();
        state.objects.iter().filter(|(id, _)| id.0 == plural).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let id = (plural.to_owned(), NAMESPACE.to_owned(), name.to_owned());
        self.server.lock().objects.get(&id).cloned()
    }

    pub(super) fn create(&self, plural: &str, object: Value) {
        self.server.lock().create(plural, object);
    }

    pub(super) fn edit(&self, plural: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let id = (plural.to_owned(), NAMESPACE.to_owned(), name.to_owned());
        self.server.lock().change(&id, change);
    }

    pub(super) fn delete_pod(&self, name: &str, at_once: bool) {
        self.server.lock().delete(&pod_id(name), at_once);
    }

    /// A pod by chance, if there is one.
    pub(super) fn some_pod(&self, dice: &mut Dice) -> Option<String> {
        let pods = self.list("pods");
        let index = usize::try_from(dice.below(u64::try_from(pods.len().max(1)).unwrap())).unwrap();
        pods.get(index).map(|pod| metadata::name(pod).to_owned())
    }

    /// Ends a pod's containers with an exit code.
    pub(super) fn end_pod(&self, name: &str, code: i64) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let at = edit::time(now());
        self.edit("pods", name, |pod| {
            if pod.str_at(&["status", "phase"]) != Some("Running") {
                return;
            }
            pod.set_at(&["status", "phase"], phase);
            let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": (at.clone())}]);
            pod.set_at(&["status", "conditions"], ready);
            let ended = json!({"exitCode": code, "finishedAt": at});
            let containers = json!([{"name": "c", "state": {"terminated": ended}}]);
            pod.set_at(&["status", "containerStatuses"], containers);
        });
    }

    pub(super) fn set_ready(&self, name: &str, is_ready: bool) {
        let at = edit::time(now());
        self.edit("pods", name, |pod| {
            let status = if is_ready { "True" } else { "False" };
            if pod.str_at(&["status", "phase"]) == Some("Running") {
                let ready = json!([{"type": "Ready", "status": status, "lastTransitionTime": at}]);
                pod.set_at(&["status", "conditions"], ready);
            }
        });
    }

    /// All pods of a node are lost with it.
    pub(super) fn lose_node(&self, node: &str) {
        for pod in self.list("pods").iter().filter(|pod| pod.str_at(&["spec", "nodeName"]) == Some(node)) {
            self.end_pod(metadata::name(pod), 137);
            self.delete_pod(metadata::name(pod), true);
        }
    }

    /// Scheduler and kubelets do their work, each piece with this chance.
    fn tick(&self, dice: &mut Dice, chance: u64) {
        for pod in self.list("pods") {
            if !dice.percent(chance) {
                continue;
            }
            let name = metadata::name(&pod);
            let is_going = pod.at(&["metadata", "deletionTimestamp"]).is_some();
            let ready = || {
                let conditions = pod.list_at(&["status", "conditions"]);
                conditions.iter().any(|it| it.str_at(&["status"]) == Some("True"))
            };
            match (pod.str_at(&["spec", "nodeName"]), pod.str_at(&["status", "phase"])) {
                (_, Some("Succeeded" | "Failed")) if !is_going => {}
                (_, _) if is_going => {
                    self.end_pod(name, 143);
                    self.delete_pod(name, true);
                }
                (None, _) => {
                    let named = pod.at(&["spec", "affinity"]).map(ToString::to_string).unwrap_or_default();
                    // Daemon pods name their node.
                    let known = ["node-0", "node-1", "node-2"].into_iter().find(|node| named.contains(*node));
                    let node = known.map_or_else(|| format!("node-{}", dice.below(3)), ToOwned::to_owned);
                    self.edit("pods", name, |pod| pod.set_at(&["spec", "nodeName"], node));
                }
                (_, Some("Pending")) => {
                    self.edit("pods", name, |pod| pod.set_at(&["status", "phase"], "Running"));
                    self.set_ready(name, true);
                }
                (_, Some("Running")) if chance == 100 && !ready() => self.set_ready(name, true),
                _ => {}
            }
        }
    }
}

pub(super) fn pod_id(name: &str) -> Id {
    ("pods".to_owned(), NAMESPACE.to_owned(), name.to_owned())
}

/// Number of disturbances in a world.
const STEPS: usize = 24;
/// Time limit for reaching the desired state after the last one.
const CALM: Duration = Duration::from_secs(3 * 3600);

/// Plays a world to its end.
pub(super) async fn play(seed: u64, mut model: impl Model) {
    let mut dice = Dice(seed);
    let server = Server::new(Dice(seed ^ 0x5eed));
    let mut world = World { server, running: None, controllers: model.controllers() };
    for node in 0..3 {
        let name = format!("node-{node}");
        world.create("nodes", json!({"metadata": {"name": name}}));
    }
    model.begin(&world);
    {
        let mut state = world.server.lock();
        state.observer = Some(model.observer());
        state.lag_ms = dice.below(3) * 40;
    }
    world.start_controllers();
    for _ in 0..STEPS {
        world.server.lock().faults = if dice.percent(50) { 15 } else { 0 };
        if dice.percent(12) {
            world.start_controllers();
        }
        model.disturb(&world, &mut dice);
        for _ in 0..dice.below(12) {
            world.tick(&mut dice, 40);
            tokio::time::sleep(Duration::from_millis(20 + dice.below(300))).await;
        }
    }
    world.server.lock().faults = 0;
    let calm = tokio::time::Instant::now();
    let mut good = 0;
    while good < 10 {
        world.tick(&mut dice, 100);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let missing = model.missing(&world);
        good = if missing.is_none() { good + 1 } else { 0 };
        if let Some(missing) = missing.filter(|_| calm.elapsed() > CALM) {
            let pods: Vec<String> = world.list("pods").iter().map(ToString::to_string).collect();
            panic!("seed {seed}: {missing}\n{}", pods.join("\n"));
        }
    }
    let violations = std::mem::take(&mut world.server.lock().violations);
    assert!(violations.is_empty(), "seed {seed}:\n{}", violations.join("\n"));
    if let Some(running) = world.running.take() {
        running.abort();
    }
}
