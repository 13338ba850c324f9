//! The loop around the core: changes in, decisions out, and what became of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Text;
use client::election::Leadership;
use client::events::Recorder;
use client::{Client, Informers, Shutdown};
use scheduling::aside::{DeviceSearch, DeviceSearched};
use scheduling::cluster::PodKey;
use scheduling::framework::Point;
use scheduling::writes::Write;
use scheduling::{Attempt, Outcome, Placement, Scheduler, Unplaced};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::metrics::{Call, CoreMetrics, Metrics};
use crate::profile::Profiler;
use crate::report::{self, Said};
use crate::sources::Sources;
use crate::{Options, binding, devices, preemption};

/// How many bindings and reports are under way at a time; the core waits when there are more. A server's fair queues take
/// some more of one flow before they refuse.
const IN_FLIGHT_MAX: usize = 320;
/// How many attempts are made before other tasks get a turn.
const ATTEMPTS_PER_TURN: usize = 16;
/// How often counts are shown while there is no pause.
const SHOW_INTERVAL: Duration = Duration::from_millis(500);
/// What is under way at the end gets so long to finish.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What a task has done.
enum Done {
    Bound,
    /// Why not, unless the pod is gone.
    NotBound(Option<(Arc<Pod>, String)>),
    Reported,
    Searched(Box<DeviceSearched>),
}

/// What a task is about.
struct Task {
    uid: Text,
    work: Work,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Bind,
    Report,
    Search,
}

/// An attempt, for those who measure.
struct Tried {
    profile: Text,
    begun: Instant,
    attempts: u32,
    first: Instant,
    was_flushed: bool,
    evaluated_nodes: usize,
    feasible_nodes: usize,
}

/// The core, and all that connects it to the cluster.
pub struct Shell {
    core: Scheduler,
    sources: Sources,
    client: Client,
    /// By scheduler name.
    recorders: HashMap<Text, Recorder>,
    leadership: Leadership,
    shutdown: Shutdown,
    metrics: Metrics,
    core_metrics: CoreMetrics,
    device_metrics: devices::Metrics,
    /// When counts were last shown.
    shown: Duration,
    profiler: Profiler,
    started: Instant,
    /// How many tasks wait for volumes.
    awaiting_volumes: Arc<AtomicUsize>,
    running: JoinSet<Done>,
    tasks: HashMap<Id, Task>,
    /// Searches that attempts do not wait for, in the order in which they came. One at a time is carried out.
    searches: VecDeque<DeviceSearch>,
    is_searching: bool,
}

impl Shell {
    /// Connects a core. Needs a Tokio runtime.
    #[must_use]
    pub fn start(core: Scheduler, options: Options) -> Self {
        let metrics = Metrics::new(&options.registry);
        Self {
            core,
            core_metrics: CoreMetrics::new(&options.registry, &metrics),
            sources: Sources::start(Informers::new(options.client.clone()), options.health),
            recorders: HashMap::new(),
            client: options.client,
            leadership: options.leadership,
            shutdown: options.shutdown,
            metrics,
            device_metrics: devices::Metrics::new(&options.registry),
            shown: Duration::ZERO,
            profiler: options.profiler,
            started: Instant::now(),
            awaiting_volumes: Arc::default(),
            running: JoinSet::new(),
            tasks: HashMap::new(),
            searches: VecDeque::new(),
            is_searching: false,
        }
    }

    /// Time as the core has it.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Schedules until the end is asked for.
    pub async fn run(mut self) {
        tokio::select! {
            () = self.sources.synced() => {}
            () = self.shutdown.requested() => return,
        }
        info!("Started scheduler");
        while !self.shutdown.is_requested() {
            let now = self.now();
            self.sources.tell(&mut self.core, now);
            while let Some(ended) = self.running.try_join_next_with_id() {
                self.ended(ended);
            }
            self.core.set_profiled(self.profiler.is_wanted());
            let busy = self.schedule_some();
            if !busy || self.now().saturating_sub(self.shown) >= SHOW_INTERVAL {
                self.shown = self.now();
                self.core_metrics.show(&mut self.core);
            }
            if busy {
                tokio::task::yield_now().await;
            } else {
                self.wait().await;
            }
        }
        self.core.abandon_searches();
        let finished = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(END_TIMEOUT, finished).await.is_err() {
            warn!("Scheduler did not finish in time");
        }
        info!("Stopped scheduler");
    }

    /// Makes some attempts; whether there may be more to do at once.
    fn schedule_some(&mut self) -> bool {
        for _ in 0..ATTEMPTS_PER_TURN {
            if self.is_full() {
                return false;
            }
            let begun = Instant::now();
            let now = self.now();
            let Some(attempt) = self.core.schedule_one(now) else { return false };
            let took = begun.elapsed();
            self.metrics.decided(took);
            devices::report(&self.device_metrics, &attempt, took);
            if self.profiler.is_wanted() {
                self.profiler.add(&attempt.timings, took);
            }
            self.follow_up(attempt, begun);
        }
        true
    }

    /// Whether the core has to wait. Volumes take as long as they take, and nobody else waits for them.
    fn is_full(&self) -> bool {
        self.running.len().saturating_sub(self.awaiting_volumes.load(Ordering::Relaxed)) >= IN_FLIGHT_MAX
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        let now = self.now();
        let full = self.is_full();
        let wake_up = self.core.next_wake_up(now).filter(|_| !full);
        let wake_up = wake_up.and_then(|at| self.started.checked_add(at));
        let sleep = async {
            match wake_up {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            () = self.sources.changed() => None,
            ended = self.running.join_next_with_id(), if !self.running.is_empty() => ended,
            () = sleep => None,
            () = self.shutdown.requested() => None,
        };
        if let Some(ended) = ended {
            self.ended(ended);
        }
    }

    /// A task has ended; one that panicked has failed.
    fn ended(&mut self, ended: Result<(Id, Done), tokio::task::JoinError>) {
        let now = self.now();
        let (id, done) = match ended {
            Ok((id, done)) => (id, done),
            Err(failure) => {
                error!(err = %failure, "Task of the scheduler panicked");
                (failure.id(), Done::NotBound(None))
            }
        };
        let Some(task) = self.tasks.remove(&id) else { return };
        match done {
            Done::Searched(searched) => {
                self.is_searching = false;
                if let Some(attempt) = self.core.searched(*searched, now) {
                    devices::report(&self.device_metrics, &attempt, Duration::ZERO);
                    self.follow_up(attempt, Instant::now());
                }
                self.search_next();
            }
            Done::Bound => self.core.bound(&task.uid),
            // It panicked.
            Done::NotBound(_) if task.work == Work::Search => {
                self.is_searching = false;
                self.core.search_failed(&task.uid, now);
                self.search_next();
            }
            Done::NotBound(why) if task.work == Work::Bind => {
                self.core.binding_failed(&task.uid, now);
                if let Some((pod, why)) = why {
                    self.report(&pod, "SchedulerError", &why, None, Vec::new(), Vec::new());
                }
            }
            Done::NotBound(_) | Done::Reported => {}
        }
    }

    /// The pod as it is known, if it is still that one.
    fn pod(&self, key: &PodKey, uid: &str) -> Option<Arc<Pod>> {
        let pod = self.sources.pods().store().get(&key.namespace, &key.name)?;
        (pod.metadata.uid == uid).then_some(pod)
    }

    /// Events are told under the name of the pod's scheduler.
    fn recorder(&mut self, pod: &Pod) -> Recorder {
        let name = scheduler_name(&pod.spec.scheduler_name);
        let client = &self.client;
        self.recorders.entry(name).or_insert_with_key(|name| Recorder::start(client, name, "")).clone()
    }

    fn spawn(&mut self, uid: Text, work: Work, task: impl Future<Output = Done> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.tasks.insert(id, Task { uid, work });
    }

    /// Does what an attempt asks for.
    fn follow_up(&mut self, attempt: Attempt, begun: Instant) {
        let profile = scheduler_name(&attempt.scheduler_name);
        self.core_metrics.asked(&attempt, &profile);
        let Some(pod) = self.pod(&attempt.pod, &attempt.uid) else {
            // It has gone since: the change that says so is on its way.
            if matches!(attempt.outcome, Outcome::Scheduled(_)) {
                let now = self.now();
                self.core.binding_failed(&attempt.uid, now);
            }
            return;
        };
        if !attempt.complaints.is_empty() {
            let recorder = self.recorder(&pod);
            for complaint in &attempt.complaints {
                report::complained(&recorder, &pod, complaint);
            }
        }
        let tried = Tried {
            profile: profile.clone(),
            begun,
            attempts: attempt.attempts,
            first: attempt.first_attempt.and_then(|at| self.started.checked_add(at)).unwrap_or(begun),
            was_flushed: attempt.was_flushed,
            evaluated_nodes: attempt.evaluated_nodes,
            feasible_nodes: attempt.feasible_nodes,
        };
        match attempt.outcome {
            Outcome::Scheduled(placement) => self.bind(pod, placement, tried),
            Outcome::Unschedulable(unplaced) => {
                self.metrics.attempted("unschedulable", &profile, begun.elapsed());
                debug!(pod = %attempt.pod, err = %unplaced.message, "Could not schedule pod");
                self.reject(&pod, unplaced);
            }
            Outcome::Deferred(search) => {
                debug!(pod = %attempt.pod, "Looking for devices of pod takes long and goes on aside");
                self.device_metrics.deferred();
                self.searches.push_back(*search);
                self.search_next();
            }
            Outcome::Error(message) => {
                self.metrics.attempted("error", &profile, begun.elapsed());
                warn!(pod = %attempt.pod, err = %message, "Scheduling failed");
                self.report(&pod, "SchedulerError", &message, None, Vec::new(), Vec::new());
            }
        }
    }

    /// Carries out the next search, on a thread where it holds up nobody.
    fn search_next(&mut self) {
        if self.is_searching {
            return;
        }
        let Some(search) = self.searches.pop_front() else { return };
        self.is_searching = true;
        let uid = search.uid().clone();
        let id = self.running.spawn_blocking(move || Done::Searched(Box::new(search.run()))).id();
        self.tasks.insert(id, Task { uid, work: Work::Search });
    }

    fn bind(&mut self, pod: Arc<Pod>, placement: Placement, tried: Tried) {
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        let (recorder, metrics, waiting) = (self.recorder(&pod), self.metrics.clone(), self.awaiting_volumes.clone());
        let uid = pod.metadata.uid.clone();
        self.spawn(uid, Work::Bind, async move {
            let bind = async {
                let prepare = binding::prepare(&client, &leadership, &pod, &placement, &waiting);
                metrics.point(Point::PreBind, &tried.profile, prepare).await?;
                metrics.point(Point::Bind, &tried.profile, binding::bind(&client, &leadership, &pod, &placement)).await
            };
            match metrics.call(Call::Bind, bind).await {
                Ok(()) => {
                    metrics.attempted("scheduled", &tried.profile, tried.begun.elapsed());
                    metrics.bound(tried.attempts, tried.first.elapsed(), tried.was_flushed);
                    info!(
                        pod = %pod.metadata.key(), node = %placement.node, evaluatedNodes = tried.evaluated_nodes,
                        feasibleNodes = tried.feasible_nodes, "Bound pod to node"
                    );
                    report::scheduled(&recorder, &pod, &placement.node);
                    Done::Bound
                }
                Err(error) => {
                    metrics.attempted("error", &tried.profile, tried.begun.elapsed());
                    warn!(pod = %pod.metadata.key(), node = %placement.node, err = %error, "Could not bind pod");
                    let why = (!error.pod_is_gone()).then(|| error.told());
                    Done::NotBound(why.map(|why| (pod, why)))
                }
            }
        });
    }

    fn reject(&mut self, pod: &Arc<Pod>, unplaced: Unplaced) {
        let (node, victims) = match &unplaced.nomination {
            // Room that was made once is not named for ever.
            None => ((!unplaced.keeps_nomination).then(Text::default), Vec::new()),
            Some(nomination) => {
                self.metrics.preempting(nomination.victims.len());
                let known = nomination.victims.iter().filter_map(|victim| self.pod(&victim.key(), &victim.uid));
                (Some(nomination.node.clone()), known.collect())
            }
        };
        self.report(pod, "Unschedulable", &unplaced.message, node, victims, unplaced.writes);
    }

    /// Tells that a pod has no node, and makes room for it if that is decided.
    fn report(
        &mut self,
        pod: &Arc<Pod>,
        reason: &'static str,
        message: &str,
        node: Option<Text>,
        victims: Vec<Arc<Pod>>,
        writes: Vec<Write>,
    ) {
        let recorder = self.recorder(pod);
        report::failed(&recorder, pod, message);
        let said = Said { condition: "PodScheduled", status: "False", reason, message };
        let patch = report::status_patch(pod, said, node.as_deref(), crate::now());
        if patch.is_none() && victims.is_empty() && writes.is_empty() {
            return;
        }
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        let (pod, metrics) = (pod.clone(), self.metrics.clone());
        self.spawn(pod.metadata.uid.clone(), Work::Report, async move {
            if let Some(node) = node.as_ref().filter(|_| !victims.is_empty()) {
                let begun = Instant::now();
                let is_done = preemption::make_room(&client, &recorder, &leadership, &pod, &victims, node).await;
                metrics.made_room(is_done, begun.elapsed());
            }
            binding::free_claims(&client, &leadership, &writes).await;
            if let Some(patch) = patch
                && leadership.holds()
                && let Err(error) = metrics.call(Call::PatchStatus, report::write_status(&client, &pod, patch)).await
                && !error.is_not_found()
            {
                debug!(pod = %pod.metadata.key(), err = %error, "Could not write the condition of the pod");
            }
            Done::Reported
        });
    }
}

/// The API gives every pod a scheduler name; one without is the default scheduler's.
fn scheduler_name(given: &Text) -> Text {
    if given.is_empty() { scheduling::plugins::DEFAULT_SCHEDULER.into() } else { given.clone() }
}
