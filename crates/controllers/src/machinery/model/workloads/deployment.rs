//! A Deployment's sets never request more pods than replicas plus surge, a rollout removes no pods that are
//! needed, and in the end all pods are new and ready.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use api::json;
use api::json::Value;
use api::metadata;
use tokio::time::Instant;

use super::{Bounds, count, disturb_pods, is_ready, metadata, missing_pods, missing_status, template, worlds};
use crate::machinery::model::Dice;
use crate::machinery::model::server::Observer;
use crate::machinery::model::world::{Model, World, play};

const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";

/// A status that is older than this has reached the controller.
const NEWS: Duration = Duration::from_secs(5);

fn replicas(set: &Value) -> i64 {
    set.int_at(&["spec", "replicas"])
}

/// Recent statuses of sets about ready pods.
#[derive(Default)]
struct Statuses(HashMap<String, VecDeque<(Instant, i64)>>);

impl Statuses {
    fn note<'a>(&mut self, sets: impl Iterator<Item = &'a Value>) {
        let now = Instant::now();
        for set in sets {
            let known = self.0.entry(metadata::name(set).to_owned()).or_default();
            let available = set.int_at(&["status", "availableReplicas"]);
            if known.back().is_none_or(|last| last.1 != available) {
                known.push_back((now, available));
            }
            // A value holds until the next one comes.
            while known.get(1).is_some_and(|next| now - next.0 > NEWS) {
                known.pop_front();
            }
        }
    }

    /// The numbers that the controller may assume for a set.
    fn of(&self, set: &Value) -> impl Iterator<Item = i64> {
        self.0.get(metadata::name(set)).into_iter().flatten().map(|it| it.1)
    }
}

struct Deployment {
    /// Minimum number of ready pods, and maximum number of requested ones.
    bounds: Bounds,
    wanted: i64,
    surge: i64,
    unavailable: i64,
    image: i32,
    recreates: bool,
}

impl Deployment {
    fn ask(&self) {
        let (surge, unavailable) = if self.recreates { (0, self.wanted) } else { (self.surge, self.unavailable) };
        self.bounds.ask((self.wanted - unavailable).max(0), self.wanted + surge);
    }

    fn strategy(&self) -> Value {
        if self.recreates {
            return json!({"type": "Recreate"});
        }
        let (surge, unavailable) = (self.surge, self.unavailable);
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
    }
}

impl Model for Deployment {
    fn controllers(&self) -> &'static [&'static str] {
        &["deployment-controller", "replicaset-controller"]
    }

    fn begin(&mut self, world: &World) {
        self.ask();
        let wanted = self.wanted;
        let spec = json!({"replicas": wanted, "selector": {"matchLabels": {"app": "web"}},
            "template": (template(self.image)), "strategy": (self.strategy()), "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 600});
        world.create("deployments", json!({"metadata": (metadata()), "spec": spec}));
    }

    fn disturb(&mut self, world: &World, dice: &mut Dice) {
        match dice.below(10) {
            0..5 => disturb_pods(world, &self.bounds, dice),
            5 => {
                self.wanted = i64::from(dice.number(7));
                self.ask();
                world.edit("deployments", "web", |it| it.set_at(&["spec", "replicas"], self.wanted));
            }
            6 if !self.recreates => {
                self.surge = i64::from(dice.number(3));
                self.unavailable = i64::from(dice.number(3)).max(i64::from(self.surge == 0));
                self.ask();
                world.edit("deployments", "web", |it| it.set_at(&["spec", "strategy"], self.strategy()));
            }
            7 => {
                let paused = dice.percent(50);
                world.edit("deployments", "web", |it| it.set_at(&["spec", "paused"], paused));
            }
            _ => {
                // An earlier image is a rollback.
                self.image = dice.number(4);
                world.edit("deployments", "web", |it| it.set_at(&["spec", "template"], template(self.image)));
            }
        }
    }

    fn observer(&self) -> Observer {
        let bounds = self.bounds.clone();
        let mut statuses = Statuses::default();
        Box::new(move |objects, write| {
            let (least, most) = bounds.now();
            if write.plural == "pods" {
                let taken = write.old.is_some_and(is_ready) && !write.new.is_some_and(is_ready);
                let ready = count(objects, is_ready);
                return (taken && ready + bounds.losses() < least)
                    .then(|| format!("{ready} pods serve, asked for {least}"));
            }
            if write.plural != "replicasets" {
                return None;
            }
            let sets = || objects.iter().filter(|(id, _)| id.0 == "replicasets").map(|(_, set)| set);
            statuses.note(sets());
            let (old, new) = (write.old.map_or(0, replicas), write.new.map_or(0, replicas));
            let asked: i64 = sets().map(replicas).sum();
            if new > old && asked > most {
                return Some(format!("sets ask for {asked} pods, allowed {most}"));
            }
            let desired = |set: Option<&Value>| set?.str_at(&["metadata", "annotations", DESIRED]).map(str::to_owned);
            if new < old && desired(write.old) != desired(write.new) {
                // A user requested another number: the reduction of ready sets is not caused by the rollout.
                bounds.lose(usize::try_from(old - new).unwrap());
                return None;
            }
            // Pods that do not serve, as far as was known of late, may go at any time.
            let takes = write.new.map_or(0, |set| statuses.of(set).min().unwrap_or(0)) > new;
            let kept: i64 = sets().map(|set| statuses.of(set).max().unwrap_or(0).min(replicas(set))).sum();
            (takes && kept < least).then(|| {
                let name = write.new.map(metadata::name).unwrap_or_default();
                format!("{name} shrinks from {old} to {new}, which leaves {kept} to serve, asked for {least}")
            })
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        world.edit("deployments", "web", |it| it.set_at(&["spec", "paused"], false));
        let wanted = self.wanted;
        let status = [("replicas", wanted), ("updatedReplicas", wanted), ("availableReplicas", wanted)];
        let image = format!("app:{}", self.image);
        let old = world.list("pods").iter().filter(|pod| super::is_active(pod)).any(|pod| {
            let containers = pod.list_at(&["spec", "containers"]);
            containers.iter().any(|it| it.str_at(&["image"]) != Some(&image))
        });
        let sets = world.list("replicasets").len();
        missing_pods(world, wanted)
            .or_else(|| old.then(|| "an old pod is left".to_owned()))
            .or_else(|| missing_status(world, "deployments", &status))
            .or_else(|| (sets > 3).then(|| format!("{sets} sets, of which two may be old")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_ends_with_new_pods_and_keeps_within_its_bounds() {
    for seed in worlds() {
        let recreates = seed % 4 == 3;
        let bounds = Bounds::default();
        play(seed, Deployment { bounds, wanted: 3, surge: 1, unavailable: 1, image: 0, recreates }).await;
    }
}
