//! A CronJob starts one Job per time, none in parallel if that is forbidden, and keeps no more history than
//! configured.

use api::json;
use api::json::Value;
use api::metadata;

use super::job::condition;
use super::{Bounds, disturb_pods, metadata, template, worlds};
use crate::machinery::model::Dice;
use crate::machinery::model::server::Observer;
use crate::machinery::model::world::{Model, World, play};

struct CronJob {
    bounds: Bounds,
    policy: &'static str,
}

fn is_over(job: &Value) -> bool {
    condition(job, "Complete") || condition(job, "Failed")
}

impl Model for CronJob {
    fn controllers(&self) -> &'static [&'static str] {
        &["cronjob-controller", "job-controller"]
    }

    fn begin(&mut self, world: &World) {
        let mut pods = template(1);
        pods.set_at(&["spec", "restartPolicy"], "Never");
        let policy = self.policy;
        // Without a server, labels and selectors of Jobs are not generated.
        let job = json!({"spec": {"completions": 1, "parallelism": 1, "backoffLimit": 1, "template": pods,
            "selector": {"matchLabels": {"app": "web"}}}});
        let spec = json!({"schedule": "* * * * *", "concurrencyPolicy": policy, "jobTemplate": job,
            "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1, "suspend": false});
        world.create("cronjobs", json!({"metadata": (metadata()), "spec": spec}));
    }

    fn disturb(&mut self, world: &World, dice: &mut Dice) {
        match dice.below(8) {
            0 | 1 => disturb_pods(world, &self.bounds, dice),
            2..6 => {
                if let Some(pod) = world.some_pod(dice) {
                    world.end_pod(&pod, i64::from(dice.percent(30)));
                }
            }
            _ => {
                let suspend = dice.percent(30);
                world.edit("cronjobs", "web", |it| it.set_at(&["spec", "suspend"], suspend));
            }
        }
    }

    fn observer(&self) -> Observer {
        let policy = self.policy;
        Box::new(move |objects, write| {
            let new = write.new.filter(|_| write.plural == "jobs" && write.old.is_none())?;
            let jobs = || objects.iter().filter(|(id, _)| id.0 == "jobs").map(|(_, job)| job);
            let at = |job: &Value| {
                metadata::annotation(job, "batch.kubernetes.io/cronjob-scheduled-timestamp").map(ToOwned::to_owned)
            };
            let twice = jobs().filter(|job| at(job) == at(new)).count() > 1;
            let open = jobs().filter(|job| !is_over(job)).count();
            (twice || (policy != "Allow" && open > 1)).then(|| format!("{open} Jobs run, twice at a time: {twice}"))
        })
    }

    fn missing(&self, world: &World) -> Option<String> {
        world.edit("cronjobs", "web", |it| it.set_at(&["spec", "suspend"], true));
        for pod in world.list("pods").iter().filter(|pod| super::is_ready(pod)) {
            world.end_pod(metadata::name(pod), 0);
        }
        let jobs = world.list("jobs");
        let open = jobs.iter().filter(|job| !is_over(job)).count();
        let good = jobs.iter().filter(|job| condition(job, "Complete")).count();
        let bad = jobs.iter().filter(|job| condition(job, "Failed")).count();
        let active = world.get("cronjobs", "web")?;
        let active = active.array_at(&["status", "active"]).map_or(0, <[_]>::len);
        let is_right = open == 0 && active == 0 && good <= 2 && bad <= 1;
        (!is_right).then(|| format!("{open} open, {active} listed, {good} good and {bad} bad Jobs"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_starts_no_job_twice_and_none_beside_another_unless_it_may() {
    for seed in worlds().step_by(2) {
        let policy = ["Forbid", "Replace", "Allow"][usize::try_from(seed % 3).unwrap()];
        play(seed, CronJob { bounds: Bounds::default(), policy }).await;
    }
}
