//! Probes of running containers: one task for each, whose results the next look at the pod reads.
//!
//! Follows `prober/worker.go` of Kubernetes' kubelet: thresholds, delays, and that errors decide nothing.

use locks::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Value;
use client::events::Severity::Warning;
use tokio::task::JoinSet;

use super::SharedState;
use super::actions::{self, Outcome, Place};
use super::manifest::Kind;

/// Kind of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    const ALL: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

    fn field(self) -> &'static str {
        match self {
            ProbeKind::Startup => "startupProbe",
            ProbeKind::Liveness => "livenessProbe",
            ProbeKind::Readiness => "readinessProbe",
        }
    }

    fn word(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

/// Results of the probes of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) is_started: bool,
    pub(super) is_ready: bool,
    /// The probe that failed, with its name for users, and its own grace period.
    pub(super) failed: Option<(&'static str, Option<i64>)>,
}

/// Results and tasks by the runtime's names for containers.
type Tasks = HashMap<String, (Arc<Mutex<Results>>, JoinSet<()>)>;

/// The probes of one pod's containers, by the runtime's name for them.
#[derive(Default)]
pub(super) struct Probes {
    containers: Mutex<Tasks>,
}

impl Probes {
    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.containers.lock()
    }

    /// The results for a running container. Probing begins with the first look; a container that was running before the
    /// agent started is `known` to be ready or not.
    pub(super) fn results(&self, start: &ProbeStart<'_>) -> Results {
        let mut containers = self.lock();
        let id = start.place.container_id.clone();
        let (results, _) = containers.entry(id).or_insert_with(|| start.begin());
        results.lock().clone()
    }

    /// Ends the probes of all containers but these.
    pub(super) fn retain(&self, ids: &[&str]) {
        self.lock().retain(|id, _| ids.contains(&id.as_str()));
    }
}

/// A container whose probes are to be begun.
pub(super) struct ProbeStart<'p> {
    pub(super) shared: &'p Arc<SharedState>,
    pub(super) pod: &'p Arc<Pod>,
    pub(super) kind: Kind,
    pub(super) container: &'p Value,
    pub(super) place: Place,
    /// Time for which it has been running.
    pub(super) age: Duration,
    /// State before the agent started.
    pub(super) known: Option<(bool, bool)>,
}

impl ProbeStart<'_> {
    fn begin(&self) -> (Arc<Mutex<Results>>, JoinSet<()>) {
        let has = |which: ProbeKind| self.container.get(which.field()).is_some();
        let (was_started, was_ready) = self.known.unwrap_or((false, false));
        let is_started = was_started || !has(ProbeKind::Startup);
        let is_ready = if has(ProbeKind::Readiness) { was_ready } else { is_started };
        let results = Arc::new(Mutex::new(Results { is_started, is_ready, failed: None }));
        let mut tasks = JoinSet::new();
        for which in ProbeKind::ALL.into_iter().filter(|which| has(*which)) {
            if which == ProbeKind::Startup && is_started {
                continue;
            }
            let worker = Worker {
                shared: self.shared.clone(),
                pod: self.pod.clone(),
                kind: self.kind,
                container: self.container.clone(),
                place: self.place.clone(),
                which,
                results: results.clone(),
            };
            let age = self.age;
            tasks.spawn(async move { worker.run(age).await });
        }
        (results, tasks)
    }
}

struct Worker {
    shared: Arc<SharedState>,
    pod: Arc<Pod>,
    kind: Kind,
    container: Value,
    place: Place,
    which: ProbeKind,
    results: Arc<Mutex<Results>>,
}

impl Worker {
    async fn run(&self, age: Duration) {
        let Some(probe) = self.container.get(self.which.field()) else { return };
        let field =
            |name: &str, default: u64| probe.i64_at(&[name]).and_then(|it| u64::try_from(it).ok()).unwrap_or(default);
        let period = Duration::from_secs(field("periodSeconds", 10).max(1));
        let timeout = Duration::from_secs(field("timeoutSeconds", 1).max(1));
        let (successes, failures) = (field("successThreshold", 1).max(1), field("failureThreshold", 3).max(1));
        tokio::time::sleep(Duration::from_secs(field("initialDelaySeconds", 0)).saturating_sub(age)).await;
        let (mut last, mut run) = (None, 0_u64);
        loop {
            // The others begin once the container has started up.
            if self.which == ProbeKind::Startup || self.read(|it| it.is_started) {
                let outcome = actions::probe(&self.shared.runtime, &self.place, &self.container, probe, timeout).await;
                let succeeded = self.report(&outcome);
                if let Some(succeeded) = succeeded {
                    run = if last == Some(succeeded) { run.saturating_add(1) } else { 1 };
                    last = Some(succeeded);
                    let is_decided = if succeeded { run >= successes } else { run >= failures };
                    if is_decided && self.apply(succeeded, probe) {
                        return;
                    }
                }
            }
            tokio::time::sleep(period).await;
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Results) -> T) -> T {
        read(&self.results.lock())
    }

    /// Records an event unless the probe succeeded; returns the result, if it is conclusive.
    fn report(&self, outcome: &Outcome) -> Option<bool> {
        let word = self.which.word();
        let (message, decided) = match outcome {
            Outcome::Success => return Some(true),
            Outcome::Failure(why) => (format!("{word} probe failed: {why}"), Some(false)),
            Outcome::Error(why) => (format!("{word} probe errored and resulted in unknown state: {why}"), None),
        };
        self.shared.events.container(&self.pod, self.kind, &self.container, Warning, "Unhealthy", &message);
        decided
    }

    /// Records a result and wakes the pod if it is new; returns whether the probe has ended.
    fn apply(&self, succeeded: bool, probe: &Value) -> bool {
        let has_readiness = self.container.get(ProbeKind::Readiness.field()).is_some();
        let is_new = {
            let mut results = self.results.lock();
            let before = results.clone();
            match (self.which, succeeded) {
                (ProbeKind::Readiness, succeeded) => results.is_ready = succeeded,
                (ProbeKind::Startup, true) => {
                    results.is_started = true;
                    results.is_ready |= !has_readiness;
                }
                (ProbeKind::Liveness, true) => {}
                (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                    let word = if self.which == ProbeKind::Startup { "startup" } else { "liveness" };
                    results.failed = Some((word, probe.i64_at(&["terminationGracePeriodSeconds"])));
                }
            }
            *results != before
        };
        if is_new {
            self.shared.wake(&self.pod);
        }
        match self.which {
            ProbeKind::Readiness => false,
            ProbeKind::Startup => true,
            ProbeKind::Liveness => !succeeded,
        }
    }
}
