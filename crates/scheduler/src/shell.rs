//! The loop around the core: changes in, decisions out, and what became of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Text;
use api::well_known::{CONDITION_POD_SCHEDULED, DEFAULT_SCHEDULER};
use client::election::Leadership;
use client::events::Recorder;
use client::{Client, Informers, Shutdown};
use scheduling::aside::DeviceSearchResult;
use scheduling::cluster::PodKey;
use scheduling::framework::Point;
use scheduling::writes::Write;
use scheduling::{Attempt, FitError, Outcome, Placement, Scheduler};
use telemetry::logs::chain;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::binding::CreatedClaims;
use crate::metrics::{Call, CoreMetrics, Metrics};
use crate::profile::Profiler;
use crate::report::{self, ConditionText};
use crate::searches::Searches;
use crate::second_scheduler::{Claims, Resolver, TolerationResolver};
use crate::sources::Sources;
use crate::{Options, binding, devices, preemption};

/// Maximum number of concurrent bindings and reports; the core waits if there are more. A server's fair queues
/// accept slightly more of one flow before they reject.
const IN_FLIGHT_MAX: usize = 320;
/// Number of attempts before other tasks run.
const ATTEMPTS_PER_TURN: usize = 16;
/// Turns end after this time. An attempt with costly expressions takes up to 200 ms; the pods that arrive meanwhile are
/// received before the next.
const TURN_MAX: Duration = Duration::from_millis(20);
/// Interval at which counts are published without a pause.
const SHOW_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for work in progress at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// A controller creates the claims of a pod within moments; one that waits longer is reported.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// Result of a task.
enum TaskResult {
    Bound,
    /// Error, unless the pod was deleted.
    NotBound(Option<(Arc<Pod>, String)>),
    Reported,
    Searched(Box<DeviceSearchResult>),
}

/// A running task.
struct Task {
    uid: Text,
    work: Work,
}

/// Kind of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Bind,
    Report,
    Search,
}

/// An attempt, for metrics.
struct AttemptRecord {
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
    /// Event recorders by scheduler name.
    recorders: HashMap<Text, Recorder>,
    leadership: Leadership,
    shutdown: Shutdown,
    metrics: Metrics,
    core_metrics: CoreMetrics,
    device_metrics: devices::Metrics,
    /// Time of the last publication.
    shown: Duration,
    profiler: Profiler,
    started: Instant,
    /// Number of tasks that wait for volumes.
    awaiting_volumes: Arc<AtomicUsize>,
    running: JoinSet<TaskResult>,
    tasks: HashMap<Id, Task>,
    /// Searches that attempts do not wait for.
    searches: Searches,
    /// Extra writes for upstream's components, if they work on the same cluster.
    resolver: Option<Resolver>,
    /// The pods that wait for claims and were reported, by uid.
    reported: HashSet<Text>,
    /// The time of the next such report.
    next_report: Option<Duration>,
}

impl Shell {
    /// Connects a core. Needs a Tokio runtime.
    #[must_use]
    pub fn start(core: Scheduler, options: Options) -> Self {
        let metrics = Metrics::new(&options.registry);
        let informers = Informers::new(options.client.clone());
        let matcher = &core.cluster().matcher;
        let resolver = options.has_placement_annotations.then(|| Resolver {
            nodes: informers.all(),
            tolerations: TolerationResolver::new(matcher.cache().clone(), matcher.features()),
            claims: Claims::new(informers.all()),
        });
        let counted = core.cluster().matcher.cache().clone();
        options.registry.counters("scheduler_cel", move || counted.samples());
        Self {
            core_metrics: CoreMetrics::new(&options.registry, &metrics),
            sources: Sources::start(informers, options.health),
            recorders: HashMap::new(),
            started: options.client.clock().instant(),
            client: options.client,
            leadership: options.leadership,
            shutdown: options.shutdown,
            metrics,
            device_metrics: devices::Metrics::new(&options.registry),
            shown: Duration::ZERO,
            profiler: options.profiler,
            awaiting_volumes: Arc::default(),
            running: JoinSet::new(),
            tasks: HashMap::new(),
            searches: Searches::default(),
            resolver,
            core,
            reported: HashSet::new(),
            next_report: None,
        }
    }

    /// Time as the core has it.
    fn now(&self) -> Duration {
        self.client.clock().instant().saturating_duration_since(self.started)
    }

    /// Schedules until shutdown.
    pub async fn run(mut self) {
        tokio::select! {
            () = self.sources.synced() => {}
            () = self.shutdown.requested() => return,
        }
        info!("Started scheduler");
        while !self.shutdown.is_requested() {
            let now = self.now();
            self.sources.forward(&mut self.core, now);
            while let Some(ended) = self.running.try_join_next_with_id() {
                self.ended(ended);
            }
            self.core.set_profiled(self.profiler.is_wanted());
            let busy = self.schedule_some();
            if !busy || self.now().saturating_sub(self.shown) >= SHOW_INTERVAL {
                self.shown = self.now();
                self.core_metrics.show(&mut self.core);
                self.report_missing_claims();
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

    /// Makes scheduling attempts for one turn; returns whether more pods may be ready.
    fn schedule_some(&mut self) -> bool {
        let turn = Instant::now();
        for _ in 0..ATTEMPTS_PER_TURN {
            if self.is_full() {
                return false;
            }
            if turn.elapsed() >= TURN_MAX {
                return true;
            }
            let begun = Instant::now();
            let now = self.now();
            let Some(attempt) = self.core.schedule_one(now) else { return false };
            let took = begun.elapsed();
            let ended = self.now();
            self.core.attempt_ended(ended);
            self.metrics.decided(took);
            devices::report(&self.device_metrics, &attempt, took);
            if self.profiler.is_wanted() {
                self.profiler.add(&attempt.timings, took);
            }
            self.follow_up(attempt, begun);
        }
        true
    }

    /// Whether the core has to wait. Tasks that wait for volumes do not count, because they may take long and
    /// block nothing else.
    fn is_full(&self) -> bool {
        self.running.len().saturating_sub(self.awaiting_volumes.load(Ordering::Relaxed)) >= IN_FLIGHT_MAX
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        let now = self.now();
        let full = self.is_full();
        let wake_up = self.core.next_wake_up(now).filter(|_| !full);
        let wake_up = wake_up.into_iter().chain(self.next_report).min();
        let wake_up = wake_up.and_then(|at| self.started.checked_add(at));
        let clock = self.client.clock().clone();
        let sleep = async {
            match wake_up {
                Some(at) => clock.sleep_until(at).await,
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

    /// Reports pods that have waited for a while for claims which nothing has created, each once.
    fn report_missing_claims(&mut self) {
        self.next_report = None;
        if self.core.lengths().gated == 0 {
            self.reported.clear();
            return;
        }
        let now = self.now();
        let mut waiting = HashSet::new();
        let mut due = Vec::new();
        for (queued, gate) in self.core.awaiting_claims() {
            let uid = &queued.pod.uid;
            waiting.insert(uid.clone());
            let at = queued.since.saturating_add(CLAIM_PATIENCE);
            if self.reported.contains(uid) {
                continue;
            }
            if at > now {
                self.next_report = self.next_report.into_iter().chain([at]).min();
            } else {
                due.push((queued.pod.key(), uid.clone(), gate.message()));
            }
        }
        self.reported.retain(|uid| waiting.contains(uid));
        for (key, uid, message) in due {
            self.reported.insert(uid.clone());
            if let Some(pod) = self.pod(&key, &uid) {
                self.report(&pod, "Unschedulable", &message, None, Vec::new(), Vec::new());
            }
        }
    }

    /// Processes the end of a task; a panic counts as a failure.
    fn ended(&mut self, ended: Result<(Id, TaskResult), tokio::task::JoinError>) {
        let now = self.now();
        let (id, done) = match ended {
            Ok((id, done)) => (id, done),
            Err(failure) => {
                error!(err = %chain(&failure), "Task of the scheduler panicked");
                (failure.id(), TaskResult::NotBound(None))
            }
        };
        let Some(task) = self.tasks.remove(&id) else { return };
        match done {
            TaskResult::Searched(searched) => {
                self.searches.ended(&task.uid);
                if let Some(attempt) = self.core.searched(*searched, now) {
                    devices::report(&self.device_metrics, &attempt, Duration::ZERO);
                    self.follow_up(attempt, Instant::now());
                }
                self.search_next();
            }
            TaskResult::Bound => self.core.bound(&task.uid),
            // The task panicked.
            TaskResult::NotBound(_) if task.work == Work::Search => {
                self.searches.ended(&task.uid);
                self.core.search_failed(&task.uid, now);
                self.search_next();
            }
            TaskResult::NotBound(why) if task.work == Work::Bind => {
                self.core.binding_failed(&task.uid, now);
                if let Some((pod, why)) = why {
                    self.report(&pod, "SchedulerError", &why, None, Vec::new(), Vec::new());
                }
            }
            TaskResult::NotBound(_) | TaskResult::Reported => {}
        }
    }

    /// The pod as it is known, if it is still that one.
    fn pod(&self, key: &PodKey, uid: &str) -> Option<Arc<Pod>> {
        let pod = self.sources.pods().store().get(&key.namespace, &key.name)?;
        (pod.metadata.uid == uid).then_some(pod)
    }

    /// The event recorder of the pod's scheduler.
    fn recorder(&mut self, pod: &Pod) -> Recorder {
        let name = scheduler_name(&pod.spec.scheduler_name);
        let client = &self.client;
        self.recorders.entry(name).or_insert_with_key(|name| Recorder::start(client, name, "")).clone()
    }

    fn spawn(&mut self, uid: Text, work: Work, task: impl Future<Output = TaskResult> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.tasks.insert(id, Task { uid, work });
    }

    /// Processes the result of an attempt.
    fn follow_up(&mut self, attempt: Attempt, begun: Instant) {
        let profile = scheduler_name(&attempt.scheduler_name);
        // Background searches are part of the attempt.
        let aside = attempt.devices.as_ref().map_or(Duration::ZERO, |spent| spent.time_aside);
        let begun = begun.checked_sub(aside).unwrap_or(begun);
        self.core_metrics.asked(&attempt, &profile);
        let Some(pod) = self.pod(&attempt.pod, &attempt.uid) else {
            // It was deleted meanwhile: the change has not arrived yet.
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
        let tried = AttemptRecord {
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
                debug!(pod = %attempt.pod, "Moved slow device search for pod to the background");
                self.device_metrics.deferred();
                let namespace = search.namespace().clone();
                self.searches.push(&namespace, *search);
                self.search_next();
            }
            Outcome::Error(message) => {
                self.metrics.attempted("error", &profile, begun.elapsed());
                warn!(pod = %attempt.pod, err = %message, "Scheduling failed");
                self.report(&pod, "SchedulerError", &message, None, Vec::new(), Vec::new());
            }
        }
    }

    /// Starts the next searches, on separate threads.
    fn search_next(&mut self) {
        while let Some(search) = self.searches.next(|search| search.uid().clone()) {
            let (uid, turns) = (search.uid().clone(), self.searches.turns.clone());
            let search = move || {
                let searched = client::costly::run_aside("device-search", move || {
                    let turn = turns.begin();
                    search.run_in_turn(&|| turn.pause())
                });
                searched.map_or(TaskResult::NotBound(None), |searched| TaskResult::Searched(Box::new(searched)))
            };
            let id = self.running.spawn_blocking(search).id();
            self.tasks.insert(id, Task { uid, work: Work::Search });
        }
    }

    fn bind(&mut self, pod: Arc<Pod>, placement: Placement, tried: AttemptRecord) {
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        let (recorder, metrics, waiting) = (self.recorder(&pod), self.metrics.clone(), self.awaiting_volumes.clone());
        let (uid, resolver) = (pod.metadata.uid.clone(), self.resolver.clone());
        self.spawn(uid, Work::Bind, async move {
            let mut created = CreatedClaims::default();
            let bind = async {
                let resolver = resolver.as_ref();
                let prepare =
                    binding::prepare(&client, &leadership, &pod, &placement, &waiting, resolver, &mut created);
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
                    TaskResult::Bound
                }
                Err(error) => {
                    metrics.attempted("error", &tried.profile, tried.begun.elapsed());
                    warn!(pod = %pod.metadata.key(), node = %placement.node, err = %chain(&error), "Could not bind pod");
                    created.delete(&client).await;
                    let why = (!error.pod_is_gone()).then(|| error.reported());
                    TaskResult::NotBound(why.map(|why| (pod, why)))
                }
            }
        });
    }

    fn reject(&mut self, pod: &Arc<Pod>, unplaced: FitError) {
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

    /// Reports that a pod has no node, and preempts pods if that was decided.
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
        let said = ConditionText { condition: CONDITION_POD_SCHEDULED, status: "False", reason, message };
        let patch = report::status_patch(pod, said, node.as_deref(), self.client.clock().now());
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
                debug!(pod = %pod.metadata.key(), err = %chain(&error), "Could not write the condition of the pod");
            }
            TaskResult::Reported
        });
    }
}

/// The scheduler name of a pod; an empty one is the default scheduler, though the API sets a default.
fn scheduler_name(given: &Text) -> Text {
    if given.is_empty() { DEFAULT_SCHEDULER.into() } else { given.clone() }
}
