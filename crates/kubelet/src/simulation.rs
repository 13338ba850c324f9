//! Containers that are played instead of run.
//!
//! How a pod goes is decided by [`Rules`] and the time alone, so that a fleet costs a few timers, and a process that is
//! started again goes on where it was: what is not remembered is read from the pod's status.

mod containers;
mod rules;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::core::v1::Pod;
use api::json::Text;
use api::time::Timestamp;

use self::containers::Containers;
pub use self::rules::Rules;
use crate::runtime::{Observation, Runtime, State, Stopping};

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

    async fn logs(&self, pod: &Pod, container: &str, now: Timestamp) -> Result<String, String> {
        let seen = self.observe(pod, now);
        let found = seen.init_containers.iter().chain(&seen.containers).find(|it| it.name == container);
        let Some(found) = found else {
            return Err(format!("container \"{container}\" in pod \"{}\" not found", pod.metadata.name));
        };
        let waits = |reason: &str| {
            let name = &pod.metadata.name;
            Err(format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"))
        };
        let mut text = String::new();
        let mut line = |time: &Timestamp, what: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{time} {what}");
        };
        match &found.state {
            State::Waiting { reason, .. } if found.last_end.is_none() => return waits(reason),
            State::Waiting { .. } => {}
            State::Running { since } => {
                line(since, &format!("simulated container {container} started ({})", found.image))
            }
            State::Ended(end) => {
                line(&end.started, &format!("simulated container {container} started ({})", found.image));
                line(&end.finished, &format!("simulated container {container} ended with code {}", end.exit_code));
            }
        }
        Ok(text)
    }
}
