//! A StatefulSet creates its pods in order, replaces no more at a time than permitted, and ends with one of the
//! right revision for each ordinal.

use api::json;
use api::json::Value;
use api::metadata;

use super::{Bounds, disturb_pods, is_ready, metadata, missing_pods, missing_status, template, worlds};
use crate::machinery::model::Dice;
use crate::machinery::model::server::Observer;
use crate::machinery::model::world::{Model, World, play};

struct StatefulSet {
    bounds: Bounds,
    wanted: i64,
    partition: i64,
    unavailable: i64,
    image: i32,
    is_parallel: bool,
}

fn ordinal(pod: &Value) -> i64 {
    metadata::name(pod).rsplit('-').next().unwrap().parse().unwrap()
}

impl StatefulSet {
    fn strategy(&self) -> Value {
        let (partition, unavailable) = (self.partition, self.unavailable);
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition, "maxUnavailable": unavailable}})
    }

    /// Requests the minimum of ready pods during a replacement; not more ordinals than replicas.
    fn ask(&self) {
        self.bounds.ask((self.wanted - self.unavailable).max(0), self.wanted);
    }
}

impl Model for StatefulSet {
    fn controllers(&self) -> &'static [&'static str] {
        &["statefulset-controller"]
    }

    fn begin(&mut self, world: &World) {
        self.ask();
        let (wanted, policy) = (self.wanted, if self.is_parallel { "Parallel" } else { "OrderedReady" });
        let spec = json!({"replicas": wanted, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": (template(self.image)), "podManagementPolicy": policy, "updateStrategy": (self.strategy()),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}], "revisionHistoryLimit": 2});
        world.create("statefulsets", json!({"metadata": (metadata()), "spec": spec}));
    }

    fn disturb(&mut self, world: &World, dice: &mut Dice) {
        match dice.below(10) {
            0..5 => disturb_pods(world, &self.bounds, dice),
            5 | 6 => {
                self.wanted = i64::from(dice.number(5));
                self.ask();
                world.edit("statefulsets", "web", |it| it.set_at(&["spec", "replicas"], self.wanted));
            }
            7 => {
                self.partition = i64::from(dice.number(4));
                self.unavailable = 1 + i64::from(dice.number(2));
                self.ask();
                world.edit("statefulsets", "web", |it| it.set_at(&["spec", "updateStrategy"], self.strategy()));
            }
            _ => {
                self.image = dice.number(4);
                world.edit("statefulsets", "web", |it| it.set_at(&["spec", "template"], template(self.image)));
            }
        }
    }

    fn observer(&self) -> Observer {
        let (bounds, is_parallel) = (self.bounds.clone(), self.is_parallel);
        Box::new(move |objects, write| {
            if write.plural != "pods" {
                return None;
            }
            let (least, most) = bounds.now();
            let pods = || objects.iter().filter(|(id, _)| id.0 == "pods").map(|(_, pod)| pod);
            let ready_below = |limit: i64| {
                let ready = pods().filter(|pod| is_ready(pod) && ordinal(pod) < limit);
                i64::try_from(ready.count()).unwrap()
            };
            if let (None, Some(new)) = (write.old, write.new) {
                let place = ordinal(new);
                let out_of_order = !is_parallel && ready_below(place) + bounds.losses() < place;
                return (place >= most || out_of_order).then(|| format!("web-{place} came too early, of {most}"));
            }
            let taken = write.old.filter(|old| is_ready(old) && !write.new.is_some_and(is_ready));
            let place = ordinal(taken?);
            // The ordinals in all recently requested states.
            let places = bounds.least_of_most();
            let ready = ready_below(places);
            let is_wrong = place < places && ready + bounds.losses() < least;
            is_wrong.then(|| format!("web-{place} is taken away though only {ready} of {least} serve"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        let wanted = self.wanted;
        let newest = world.get("statefulsets", "web")?.str_at(&["status", "updateRevision"])?.to_owned();
        let is_old = |pod: &Value| {
            let revision = pod.at(&["metadata", "labels"]).and_then(|it| it.str_at(&["controller-revision-hash"]));
            ordinal(pod) >= self.partition && revision != Some(newest.as_str())
        };
        let old = world.list("pods").iter().any(is_old);
        let claims = i64::try_from(world.list("persistentvolumeclaims").len()).unwrap();
        missing_pods(world, wanted)
            .or_else(|| old.then(|| "a pod of an old revision is left".to_owned()))
            .or_else(|| (claims < wanted).then(|| format!("{claims} claims for {wanted} pods")))
            .or_else(|| missing_status(world, "statefulsets", &[("replicas", wanted), ("readyReplicas", wanted)]))
    }
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_keeps_its_order_and_ends_complete() {
    for seed in worlds() {
        let is_parallel = seed % 3 == 2;
        let bounds = Bounds::default();
        play(seed, StatefulSet { bounds, wanted: 3, partition: 0, unavailable: 1, image: 0, is_parallel }).await;
    }
}
