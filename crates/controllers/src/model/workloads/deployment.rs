//! A Deployment's sets never ask for more pods than replicas and surge, and in the end all pods are new and serve.

use api::json;
use api::json::Value;

use super::{Bounds, WORLDS, disturb_pods, metadata, missing_pods, missing_status, template};
use crate::edit;
use crate::model::Dice;
use crate::model::server::Observer;
use crate::model::world::{Model, World, play};

struct Deployment {
    /// How many shall serve at least, and how many are asked for at the most.
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
                world.edit("deployments", "web", |it| edit::set(it, &["spec", "replicas"], self.wanted));
            }
            6 if !self.recreates => {
                self.surge = i64::from(dice.number(3));
                self.unavailable = i64::from(dice.number(3)).max(i64::from(self.surge == 0));
                self.ask();
                world.edit("deployments", "web", |it| edit::set(it, &["spec", "strategy"], self.strategy()));
            }
            7 => {
                let paused = dice.percent(50);
                world.edit("deployments", "web", |it| edit::set(it, &["spec", "paused"], paused));
            }
            _ => {
                // An image of before is a way back.
                self.image = dice.number(4);
                world.edit("deployments", "web", |it| edit::set(it, &["spec", "template"], template(self.image)));
            }
        }
    }

    fn observer(&self) -> Observer {
        let bounds = self.bounds.clone();
        Box::new(move |objects, write| {
            if write.plural != "replicasets" {
                return None;
            }
            let most = bounds.now().1;
            let sets = objects.iter().filter(|(id, _)| id.0 == "replicasets");
            let asked: i64 = sets.map(|(_, set)| edit::int(set, &["spec", "replicas"])).sum();
            let grew = write.old.map_or(0, |old| edit::int(old, &["spec", "replicas"]))
                < write.new.map_or(0, |new| edit::int(new, &["spec", "replicas"]));
            (grew && asked > most).then(|| format!("sets ask for {asked} pods, allowed {most}"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        world.edit("deployments", "web", |it| edit::set(it, &["spec", "paused"], false));
        let wanted = self.wanted;
        let status = [("replicas", wanted), ("updatedReplicas", wanted), ("availableReplicas", wanted)];
        let image = format!("app:{}", self.image);
        let old = world.list("pods").iter().filter(|pod| super::is_active(pod)).any(|pod| {
            let containers = pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap_or_default();
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
    for seed in 0..WORLDS {
        let recreates = seed % 4 == 3;
        let bounds = Bounds::default();
        play(seed, Deployment { bounds, wanted: 3, surge: 1, unavailable: 1, image: 0, recreates }).await;
    }
}
