//! A ReplicaSet or a ReplicationController never has more pods than requested, and deletes none that it was
//! requested to keep.

use api::json;

use super::{Bounds, count, disturb_pods, is_active, metadata, missing_pods, missing_status, template, worlds};
use crate::machinery::model::Dice;
use crate::machinery::model::server::Observer;
use crate::machinery::model::world::{Model, World, play};

struct ReplicaSet {
    /// Plural of one of the two kinds.
    plural: &'static str,
    bounds: Bounds,
    wanted: i64,
}

impl Model for ReplicaSet {
    fn controllers(&self) -> &'static [&'static str] {
        if self.plural == "replicasets" { &["replicaset-controller"] } else { &["replicationcontroller-controller"] }
    }

    fn begin(&mut self, world: &World) {
        self.bounds.ask(self.wanted, self.wanted);
        let wanted = self.wanted;
        let labels = json!({"app": "web"});
        let selector = if self.plural == "replicasets" { json!({"matchLabels": labels}) } else { labels };
        let spec = json!({"replicas": wanted, "selector": selector, "template": (template(1))});
        world.create(self.plural, json!({"metadata": (metadata()), "spec": spec}));
    }

    fn disturb(&mut self, world: &World, dice: &mut Dice) {
        if dice.percent(60) {
            return disturb_pods(world, &self.bounds, dice);
        }
        self.wanted = i64::from(dice.number(7));
        self.bounds.ask(self.wanted, self.wanted);
        world.edit(self.plural, "web", |set| set.set_at(&["spec", "replicas"], self.wanted));
    }

    fn observer(&self) -> Observer {
        let bounds = self.bounds.clone();
        Box::new(move |objects, write| {
            let active = count(objects, is_active);
            let (least, most) = bounds.now();
            let made = write.plural == "pods" && write.old.is_none();
            let taken = write.plural == "pods" && write.old.is_some_and(is_active) && !write.new.is_some_and(is_active);
            let is_wrong = (made && active > most) || (taken && active + bounds.losses() < least);
            is_wrong.then(|| format!("{active} pods, asked for {least} to {most}"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        let wanted = self.wanted;
        let status = [("replicas", wanted), ("readyReplicas", wanted), ("availableReplicas", wanted)];
        missing_pods(world, wanted).or_else(|| missing_status(world, self.plural, &status))
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_ends_with_its_pods_and_never_has_more() {
    for seed in worlds() {
        play(seed, ReplicaSet { plural: "replicasets", bounds: Bounds::default(), wanted: 3 }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_ends_with_its_pods_and_never_has_more() {
    for seed in worlds() {
        play(seed, ReplicaSet { plural: "replicationcontrollers", bounds: Bounds::default(), wanted: 3 }).await;
    }
}
