//! A Job never runs more pods than its parallelism, counts each success once, and creates no pods after its
//! end.

use api::json;
use api::json::Value;
use api::metadata;

use super::{Bounds, count, disturb_pods, is_active, metadata, template, worlds};
use crate::machinery::model::Dice;
use crate::machinery::model::server::Observer;
use crate::machinery::model::world::{Model, World, play};

struct Job {
    bounds: Bounds,
    completions: i64,
    is_indexed: bool,
}

pub(super) fn condition(job: &Value, kind: &str) -> bool {
    let conditions = job.list_at(&["status", "conditions"]);
    conditions.iter().any(|it| it.str_at(&["type"]) == Some(kind) && it.str_at(&["status"]) == Some("True"))
}

impl Model for Job {
    fn controllers(&self) -> &'static [&'static str] {
        &["job-controller"]
    }

    fn begin(&mut self, world: &World) {
        self.bounds.ask(0, 2);
        let mut pods = template(1);
        pods.set_at(&["spec", "restartPolicy"], "Never");
        let (completions, mode) = (self.completions, if self.is_indexed { "Indexed" } else { "NonIndexed" });
        let spec = json!({"completions": completions, "parallelism": 2, "completionMode": mode, "backoffLimit": 1000,
            "selector": {"matchLabels": {"app": "web"}}, "template": pods});
        world.create("jobs", json!({"metadata": (metadata()), "spec": spec}));
    }

    fn disturb(&mut self, world: &World, dice: &mut Dice) {
        match dice.below(10) {
            0..4 => disturb_pods(world, &self.bounds, dice),
            4..7 => {
                if let Some(pod) = world.some_pod(dice) {
                    world.end_pod(&pod, 0);
                }
            }
            7 => {
                let parallelism = i64::from(dice.number(5));
                self.bounds.ask(0, parallelism);
                world.edit("jobs", "web", |it| it.set_at(&["spec", "parallelism"], parallelism));
            }
            _ => {
                let suspend = dice.percent(50);
                world.edit("jobs", "web", |it| it.set_at(&["spec", "suspend"], suspend));
            }
        }
    }

    fn observer(&self) -> Observer {
        let (bounds, completions) = (self.bounds.clone(), self.completions);
        Box::new(move |objects, write| {
            let made = write.plural == "pods" && write.old.is_none();
            let (active, most) = (count(objects, is_active), bounds.now().1);
            let mut jobs = objects.iter().filter(|(id, _)| id.0 == "jobs").map(|(_, job)| job);
            let is_over = jobs.clone().any(|job| condition(job, "Complete") || condition(job, "Failed"));
            // Only the controller counts successes, so it has observed those that are counted.
            let counted = jobs.next().map_or(0, |job| job.int_at(&["status", "succeeded"]));
            let most = most.min(completions - counted);
            (made && (active > most || is_over)).then(|| format!("{active} pods of {most}, over: {is_over}"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        let job = world.get("jobs", "web")?;
        if !condition(&job, "Complete") {
            self.bounds.ask(0, 3);
            world.edit("jobs", "web", |it| {
                it.set_at(&["spec", "suspend"], false);
                it.set_at(&["spec", "parallelism"], 3);
            });
            // All running pods succeed.
            for pod in world.list("pods").iter().filter(|pod| super::is_ready(pod)) {
                world.end_pod(metadata::name(pod), 0);
            }
            return Some(format!("not complete: {:?}", job.get("status").map(ToString::to_string)));
        }
        let tracked = world.list("pods").iter().filter(|pod| pod.to_string().contains("job-tracking")).count();
        let succeeded = job.int_at(&["status", "succeeded"]);
        let is_right = tracked == 0 && succeeded == self.completions && job.int_at(&["status", "active"]) == 0;
        (!is_right).then(|| format!("{succeeded} succeeded of {}, {tracked} tracked", self.completions))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_counts_each_success_once_and_runs_no_more_than_it_may() {
    for seed in worlds() {
        let completions = 2 + i64::try_from(seed % 5).unwrap();
        play(seed, Job { bounds: Bounds::default(), completions, is_indexed: seed % 2 == 1 }).await;
    }
}
