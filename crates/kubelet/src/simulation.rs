//! Containers that are played instead of run.
//!
//! The state of a pod is determined by [`Rules`] and the time alone, so that a fleet costs a few timers, and a
//! restarted process resumes: missing state is read from the pod's status.

mod containers;
mod rules;
mod select;
mod usage;

use locks::{Mutex, MutexGuard};
use std::collections::HashMap;

use api::core::v1::Pod;
use api::json::{Text, Value};
use api::time::Timestamp;

use self::containers::Containers;
use self::rules::PodRules;
pub use self::rules::{Rules, RulesError};
pub(crate) use self::rules::{is_readable, seconds};
pub use self::select::SelectError;
use crate::logs::{self, Line};
use crate::runtime::{ContainerTermination, Observation, Runtime, State, StopProgress};
use crate::usage::{self as used, ContainerUsage};

/// Exit code of a container that was stopped.
const TERMINATED: i32 = 143;

/// A runtime that plays containers.
#[derive(Debug, Default)]
pub struct Simulation {
    rules: Rules,
    pods: Mutex<HashMap<Text, SimulatedPod>>,
}

#[derive(Debug)]
struct SimulatedPod {
    containers: Containers,
    /// Since when the pod is being stopped.
    stopping: Option<Timestamp>,
}

impl Simulation {
    /// Plays pods by these rules, as far as their annotations do not change them.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, pods: Mutex::default() }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<Text, SimulatedPod>> {
        self.pods.lock()
    }

    fn with<T>(&self, pod: &Pod, now: Timestamp, act: impl FnOnce(&mut SimulatedPod, &PodRules) -> T) -> T {
        let rules = self.rules.for_pod(pod);
        let mut pods = self.pods();
        let new = || SimulatedPod { containers: Containers::new(pod, now), stopping: None };
        act(pods.entry(pod.metadata.uid.clone()).or_insert_with(new), &rules)
    }

    /// The usage of the running containers of a pod.
    pub(crate) fn usage(&self, pod: &Pod) -> Vec<ContainerUsage> {
        let mut running = used::running(pod).peekable();
        if running.peek().is_none() {
            return Vec::new();
        }
        let rules = self.rules.for_pod(pod);
        let usage = |container| usage::of_container(container, rules.cpu_usage, rules.memory_usage);
        running.map(|it| ContainerUsage { name: it.name.clone(), usage: usage(it) }).collect()
    }

    fn observe(&self, pod: &Pod, now: Timestamp) -> Observation {
        self.with(pod, now, |it, rules| it.containers.advance(pod, rules, now))
    }
}

impl Runtime for Simulation {
    const IS_SIMULATED: bool = true;

    async fn sync(&self, pod: &Pod, _manifest: Option<&Value>, now: Timestamp) -> Observation {
        self.observe(pod, now)
    }

    async fn stop(&self, pod: &Pod, now: Timestamp) -> StopProgress {
        self.with(pod, now, |it, rules| {
            let Some(pause) = rules.terminate else { return StopProgress::Never };
            let ends = it.stopping.get_or_insert(now).plus(pause);
            if ends > now {
                return StopProgress::Wait(now.until(ends));
            }
            it.containers.end_all(now, TERMINATED);
            StopProgress::Ended(it.containers.as_they_are(pod, rules, now))
        })
    }

    fn forget(&self, uid: &str) {
        self.pods().remove(uid);
    }

    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &logs::Options,
        now: Timestamp,
    ) -> Result<Vec<Line>, String> {
        let previous = options.previous;
        let seen = self.observe(pod, now);
        let name = &pod.metadata.name;
        let found = seen.init_containers.iter().chain(&seen.containers).chain(&seen.ephemeral_containers);
        let found = found.into_iter().find(|it| it.name == container);
        let Some(found) = found else {
            return Err(format!("container \"{container}\" in pod \"{name}\" not found"));
        };
        let says = self.rules.for_pod(pod).log;
        let began = |time: Timestamp| {
            let lines = format!("simulated container {container} started ({})", found.image);
            let lines = std::iter::once(lines).chain(says.lines().map(ToOwned::to_owned));
            lines.map(move |text| Line { time, text }).collect::<Vec<_>>()
        };
        let ran = |end: &ContainerTermination| {
            let mut lines = began(end.started);
            let text = format!("simulated container {container} ended with code {}", end.exit_code);
            lines.push(Line { time: end.finished, text });
            lines
        };
        match (&found.state, &found.last_end) {
            (_, Some(end)) if previous => Ok(ran(end)),
            _ if previous => Err(format!("previous terminated container \"{container}\" in pod \"{name}\" not found")),
            (State::Running { since }, _) => Ok(began(*since)),
            (State::Ended(end), _) | (State::Waiting { .. }, Some(end)) => Ok(ran(end)),
            (State::Waiting { reason, .. }, None) => {
                Err(format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"))
            }
        }
    }
}
