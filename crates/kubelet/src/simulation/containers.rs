//! The simulated containers of one pod: changes between the last check and now, and the next change.
//!
//! Follows the kubelet's order: init containers one after the other, restartable ones (sidecars) in parallel
//! with all that follow, then the containers; ended containers are restarted according to the restart policy,
//! after delays that double from 10 s to 300 s.

use std::time::Duration;

use api::core::v1::{self, Pod};
use api::json::{Text, Value};
use api::time::Timestamp;
use matching::resources::is_sidecar;

use super::rules::PodRules;
use crate::runtime::{Container, ContainerTermination, Observation, State};

const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Run time of ephemeral containers.
const EPHEMERAL_RUN: Duration = Duration::from_secs(1);
/// A container that ran this long has no history.
const PAUSE_FORGOTTEN: Duration = Duration::from_secs(600);

/// The containers of a pod.
#[derive(Debug, Clone)]
pub(super) struct Containers {
    /// Start time of the pod.
    began: Timestamp,
    init: Vec<Play>,
    main: Vec<Play>,
    /// Ephemeral containers, which are added while the pod runs.
    ephemeral: Vec<Play>,
}

#[derive(Debug, Clone)]
struct Play {
    act: ContainerPhase,
    last_end: Option<ContainerTermination>,
    restarts: i32,
    /// Number of consecutive early ends.
    crashes: u32,
}

#[derive(Debug, Clone, PartialEq)]
enum ContainerPhase {
    Waiting,
    Running {
        since: Timestamp,
    },
    /// Ended; restarted at `again`, if set.
    Ended {
        end: ContainerTermination,
        again: Option<Timestamp>,
    },
}

/// Time of the next change; the earliest counts.
#[derive(Default)]
struct NextChange(Option<Timestamp>);

impl NextChange {
    fn at(&mut self, time: Timestamp) {
        self.0 = Some(self.0.map_or(time, |earlier| earlier.min(time)));
    }
}

impl Containers {
    /// The containers of a new pod: in the state of its status, if it already runs.
    pub(super) fn new(pod: &Pod, now: Timestamp) -> Self {
        let plays = |containers: &[v1::Container], statuses: &[v1::ContainerStatus]| {
            containers
                .iter()
                .map(|container| {
                    let status = statuses.iter().find(|status| status.name == container.name);
                    status.map_or_else(Play::new, |status| Play::resumed(status, now))
                })
                .collect()
        };
        Containers {
            began: pod.status.start_time.unwrap_or(now),
            init: plays(&pod.spec.init_containers, &pod.status.init_container_statuses),
            main: plays(&pod.spec.containers, &pod.status.container_statuses),
            ephemeral: plays(&as_containers(pod), &pod.status.ephemeral_container_statuses),
        }
    }

    /// Advances the simulation to `now` and returns the state of the containers.
    pub(super) fn advance(&mut self, pod: &Pod, rules: &PodRules, now: Timestamp) -> Observation {
        let mut next = NextChange::default();
        let created = self.began.plus(rules.start);
        if rules.stays_pending || (now < created && self.is_untouched()) {
            if !rules.stays_pending {
                next.at(created);
            }
            return self.observe(pod, rules, now, next);
        }
        let mut cursor = created.max(self.began);
        let mut initialized = true;
        for (container, play) in pod.spec.init_containers.iter().zip(&mut self.init) {
            let run = if is_sidecar(container) { None } else { Some(rules.init_run) };
            let restarts = rules.restarts && (is_sidecar(container) || pod.spec.restart_policy != "Never");
            let code = |run| if is_sidecar(container) { 0 } else { rules.code_of_init(pod, container, run) };
            play.advance(cursor, now, run, &code, |ended| restarts && ended.exit_code != 0, &mut next);
            match &play.act {
                ContainerPhase::Running { since } if is_sidecar(container) => cursor = cursor.max(*since),
                ContainerPhase::Ended { end, again: None } if end.exit_code == 0 => cursor = cursor.max(end.finished),
                _ => {
                    initialized = false;
                    break;
                }
            }
        }
        if initialized {
            let policy = pod.spec.restart_policy.as_str();
            for (container, play) in pod.spec.containers.iter().zip(&mut self.main) {
                let code = |run| rules.code_of_run(&pod.metadata.uid, &container.name, run);
                let again = |ended: &ContainerTermination| {
                    rules.restarts
                        && (matches!(policy, "Always" | "") || (policy == "OnFailure" && ended.exit_code != 0))
                };
                play.advance(cursor, now, rules.run, &code, again, &mut next);
            }
        }
        let missing = pod.spec.ephemeral_containers.len().saturating_sub(self.ephemeral.len());
        self.ephemeral.extend(std::iter::repeat_with(Play::new).take(missing));
        for play in &mut self.ephemeral {
            // A simulated debug container has no input, so it ends like a shell whose input is closed.
            play.advance(now, now, Some(EPHEMERAL_RUN), &|_| 0, |_| false, &mut next);
        }
        if let Some(code) = rules.exit_now {
            self.end_all(now, code);
            next = NextChange::default();
        } else if self.main.iter().all(|play| matches!(play.act, ContainerPhase::Ended { again: None, .. })) {
            // Sidecars end with the last container.
            self.init.iter_mut().for_each(|play| play.end(now, 0));
        }
        self.observe(pod, rules, now, next)
    }

    /// Ends all running containers.
    pub(super) fn end_all(&mut self, now: Timestamp, code: i32) {
        for play in self.init.iter_mut().chain(&mut self.main).chain(&mut self.ephemeral) {
            play.end(now, code);
        }
    }

    /// Returns the state of the containers without advancing it.
    pub(super) fn as_they_are(&self, pod: &Pod, rules: &PodRules, now: Timestamp) -> Observation {
        self.observe(pod, rules, now, NextChange::default())
    }

    fn is_untouched(&self) -> bool {
        self.init.iter().chain(&self.main).all(|play| play.act == ContainerPhase::Waiting)
    }

    fn observe(&self, pod: &Pod, rules: &PodRules, now: Timestamp, mut next: NextChange) -> Observation {
        let has_sandbox = !self.is_untouched();
        let mut show = |container: &v1::Container, play: &Play, is_init: bool| {
            let mut is_ready = match &play.act {
                ContainerPhase::Running { since } if is_init => is_sidecar(container) && *since <= now,
                ContainerPhase::Running { since } => {
                    let at = since.plus(rules.ready_after);
                    if at > now && rules.ready {
                        next.at(at);
                    }
                    at <= now
                }
                // An init container that has done its work counts as ready.
                ContainerPhase::Ended { end, again: None } => is_init && end.exit_code == 0,
                _ => false,
            };
            is_ready &= rules.ready || is_init;
            play.shown(pod, container, is_ready)
        };
        let mut containers = |list: &[v1::Container], plays: &[Play], is_init: bool| {
            list.iter().zip(plays).map(|(container, play)| show(container, play, is_init)).collect()
        };
        let init_containers = containers(&pod.spec.init_containers, &self.init, true);
        let containers = containers(&pod.spec.containers, &self.main, false);
        let ephemeral = as_containers(pod);
        let ephemeral = ephemeral.iter().zip(&self.ephemeral);
        let ephemeral_containers = ephemeral.map(|(container, play)| play.shown(pod, container, false)).collect();
        let next = next.0.map(|at| now.until(at));
        Observation { has_sandbox, init_containers, containers, ephemeral_containers, next, ..Observation::default() }
    }
}

impl Play {
    fn new() -> Self {
        Play { act: ContainerPhase::Waiting, last_end: None, restarts: 0, crashes: 0 }
    }

    /// Restores the state from a status.
    fn resumed(status: &v1::ContainerStatus, now: Timestamp) -> Self {
        let last_end = status.last_state.as_ref().and_then(|state| state.get("terminated")).and_then(ended);
        let crashes = u32::try_from(status.restart_count).unwrap_or(0);
        let mut play = Play { act: ContainerPhase::Waiting, last_end, restarts: status.restart_count, crashes };
        let Some(state) = &status.state else { return play };
        if let Some(since) = state.get("running").and_then(|it| time(it, "startedAt")) {
            play.act = ContainerPhase::Running { since };
        } else if let Some(end) = state.get("terminated").and_then(ended) {
            play.act = ContainerPhase::Ended { end, again: None };
        } else if let Some(end) = play.last_end.clone() {
            // It waited to be restarted: the delay has ended.
            play.act = ContainerPhase::Ended { end, again: Some(now) };
        }
        play
    }

    /// Plays from `cursor`, before which nothing happens, until now.
    fn advance(
        &mut self,
        cursor: Timestamp,
        now: Timestamp,
        run: Option<Duration>,
        code: &dyn Fn(i32) -> i32,
        again: impl Fn(&ContainerTermination) -> bool,
        next: &mut NextChange,
    ) {
        // Each turn moves on in time, except where runs and pauses take none; pauses do.
        loop {
            match &self.act {
                ContainerPhase::Waiting if cursor > now => return next.at(cursor),
                ContainerPhase::Waiting => self.act = ContainerPhase::Running { since: cursor },
                ContainerPhase::Running { since } => {
                    let Some(run) = run else { return };
                    let (since, finished) = (*since, since.plus(run));
                    if finished > now {
                        return next.at(finished);
                    }
                    let end = ContainerTermination::new(code(self.restarts), since, finished);
                    if run >= PAUSE_FORGOTTEN {
                        self.crashes = 0;
                    }
                    let pause = PAUSE_FIRST.saturating_mul(1_u32.checked_shl(self.crashes).unwrap_or(u32::MAX));
                    let again = again(&end).then(|| finished.plus(pause.min(PAUSE_MAX)));
                    self.act = ContainerPhase::Ended { end, again };
                }
                ContainerPhase::Ended { end, again: Some(again) } => {
                    if *again > now {
                        return next.at(*again);
                    }
                    let since = *again;
                    self.last_end = Some(end.clone());
                    self.restarts = self.restarts.saturating_add(1);
                    self.crashes = self.crashes.saturating_add(1);
                    self.act = ContainerPhase::Running { since };
                }
                ContainerPhase::Ended { again: None, .. } => return,
            }
        }
    }

    fn end(&mut self, now: Timestamp, exit_code: i32) {
        match &mut self.act {
            ContainerPhase::Waiting => {}
            ContainerPhase::Running { since } => {
                let end = ContainerTermination::new(exit_code, *since, now);
                self.act = ContainerPhase::Ended { end, again: None };
            }
            ContainerPhase::Ended { again, .. } => *again = None,
        }
    }

    fn shown(&self, pod: &Pod, container: &v1::Container, is_ready: bool) -> Container {
        let waiting = |reason, message| State::Waiting { reason, message };
        let (state, last_end) = match &self.act {
            ContainerPhase::Waiting if pod.spec.init_containers.is_empty() => {
                (waiting("ContainerCreating", String::new()), None)
            }
            ContainerPhase::Waiting => (waiting("PodInitializing", String::new()), None),
            ContainerPhase::Running { since } => (State::Running { since: *since }, self.last_end.clone()),
            ContainerPhase::Ended { end, again: None } => (State::Ended(end.clone()), self.last_end.clone()),
            ContainerPhase::Ended { end, again: Some(again) } => {
                let pause = i64::try_from(end.finished.until(*again).as_nanos()).unwrap_or(i64::MAX);
                let pause = api::duration::Duration { nanos: pause };
                let message = format!(
                    "back-off {pause} restarting failed container={} pod={}_{}({})",
                    container.name, pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
                );
                (waiting("CrashLoopBackOff", message), Some(end.clone()))
            }
        };
        let was_created = self.act != ContainerPhase::Waiting;
        let id = if was_created { container_id(pod, container, self.restarts) } else { Text::default() };
        Container {
            name: container.name.clone(),
            image: container.image.clone(),
            image_id: if was_created { "sim".into() } else { Text::default() },
            container_id: id,
            state,
            last_end,
            is_ready,
            is_started: matches!(self.act, ContainerPhase::Running { .. }),
            restarts: self.restarts,
            is_restarting: false,
            fields: Vec::new(),
        }
    }
}

/// The ephemeral containers of a pod as others are described.
fn as_containers(pod: &Pod) -> Vec<v1::Container> {
    let ephemeral = pod.spec.ephemeral_containers.iter();
    let plain = |it: &v1::EphemeralContainer| v1::Container {
        name: it.name.clone(),
        image: it.image.clone(),
        ..v1::Container::default()
    };
    ephemeral.map(plain).collect()
}

/// `sim://POD`, with the container's name and run where the pod's uid alone is not enough.
fn container_id(pod: &Pod, container: &v1::Container, restarts: i32) -> Text {
    let uid = &pod.metadata.uid;
    let is_main = pod.spec.containers.iter().any(|it| it.name == container.name);
    let is_only = is_main && pod.spec.containers.len() == 1 && pod.spec.init_containers.is_empty();
    match (is_only, restarts) {
        (true, 0) => format!("sim://{uid}").into(),
        (true, _) => format!("sim://{uid}/{restarts}").into(),
        (false, _) => format!("sim://{uid}/{}/{restarts}", container.name).into(),
    }
}

impl PodRules {
    /// Exit code of a run of an init container.
    fn code_of_init(&self, pod: &Pod, container: &v1::Container, run: i32) -> i32 {
        let fails = self.code_of_run(&pod.metadata.uid, &container.name, run) == self.fail_code;
        if fails && self.failure_millionths > 0 { self.fail_code } else { 0 }
    }
}

fn time(state: &Value, field: &str) -> Option<Timestamp> {
    Timestamp::parse(state.str_at(&[field])?).ok()
}

fn ended(state: &Value) -> Option<ContainerTermination> {
    let exit_code = state.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
    let exit_code = i32::try_from(exit_code).unwrap_or(1);
    Some(ContainerTermination::new(exit_code, time(state, "startedAt")?, time(state, "finishedAt")?))
}

#[cfg(test)]
mod tests;
