//! Containers that are played instead of run.
//!
//! How a pod goes is decided by [`Rules`] and the time alone, so that a fleet costs a few timers, and a process that is
//! started again goes on where it was: what is not remembered is read from the pod's status.

mod containers;
mod rules;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::core::v1::Pod;
use api::json::Text;
use api::time::Timestamp;

use self::containers::Containers;
pub use self::rules::{Rules, RulesError};
use crate::logs::Line;
use crate::runtime::{Ended, Observation, Runtime, State, Stopping};

/// Exit code of a container that was told to end.
const TERMINATED: i32 = 143;

/// A runtime that plays containers.
#[derive(Debug, Default)]
pub struct Simulation {
    rules: Rules,
    pods: Mutex<HashMap<Text, Remembered>>,
}

#[derive(Debug)]
struct Remembered {
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

    fn pods(&self) -> MutexGuard<'_, HashMap<Text, Remembered>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, pod: &Pod, now: Timestamp, act: impl FnOnce(&mut Remembered, &Rules) -> T) -> T {
        let rules = self.rules.for_pod(pod);
        let mut pods = self.pods();
        let new = || Remembered { containers: Containers::new(pod, now), stopping: None };
        act(pods.entry(pod.metadata.uid.clone()).or_insert_with(new), &rules)
    }

    fn observe(&self, pod: &Pod, now: Timestamp) -> Observation {
        self.with(pod, now, |it, rules| it.containers.advance(pod, rules, now))
    }
}

impl Runtime for Simulation {
    async fn sync(&self, pod: &Pod, now: Timestamp) -> Observation {
        self.observe(pod, now)
    }

    async fn stop(&self, pod: &Pod, now: Timestamp) -> Stopping {
        self.with(pod, now, |it, rules| {
            let Some(pause) = rules.terminate else { return Stopping::Never };
            let ends = it.stopping.get_or_insert(now).plus(pause);
            if ends > now {
                return Stopping::Wait(now.until(ends));
            }
            it.containers.end_all(now, TERMINATED);
            Stopping::Ended(it.containers.as_they_are(pod, rules, now))
        })
    }

    fn forget(&self, uid: &str) {
        self.pods().remove(uid);
    }

    async fn logs(&self, pod: &Pod, container: &str, previous: bool, now: Timestamp) -> Result<Vec<Line>, String> {
        let seen = self.observe(pod, now);
        let name = &pod.metadata.name;
        let found = seen.init_containers.iter().chain(&seen.containers).find(|it| it.name == container);
        let Some(found) = found else {
            return Err(format!("container \"{container}\" in pod \"{name}\" not found"));
        };
        let says = self.rules.for_pod(pod).log;
        let began = |time: Timestamp| {
            let lines = format!("simulated container {container} started ({})", found.image);
            let lines = std::iter::once(lines).chain(says.lines().map(ToOwned::to_owned));
            lines.map(move |text| Line { time, text }).collect::<Vec<_>>()
        };
        let ran = |end: &Ended| {
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
