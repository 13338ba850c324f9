//! Playing a cluster: every pod is tried in the scheduler's order until nothing changes any more.
//!
//! Time is virtual: where the scheduler would wait, it jumps to the next wake-up.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use api::core::v1::{Node, Pod, PodResourceClaimStatus};
use api::features::Features;
use api::json::{Text, Value};
use api::meta::v1::Object as _;
use api::resource::v1::ResourceClaim;
use api::well_known::LABEL_HOSTNAME;
use matching::Matcher;
use scheduling::cluster::{Devices, Object};
use scheduling::config::Configuration;
use scheduling::{Attempt, Outcome, Scheduler};

use super::cluster::Cluster;
use super::writes;

const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Virtual time after which a simulation ends, whatever happens.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Settings of a simulation.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) configuration: Configuration,
    pub(super) features: Features,
    pub(super) seed: u64,
    pub(super) with_scores: bool,
}

/// Result of a simulation.
#[derive(Debug, Default)]
pub(super) struct SimulationResult {
    /// Pods that got a node, in the order in which they did.
    pub(super) placed: Vec<PlacedPod>,
    /// Pods without a node, by name.
    pub(super) pending: Vec<PendingPod>,
    /// Pods that had to make room.
    pub(super) preempted: Vec<(String, Text, String)>,
    /// Utilization of the nodes.
    pub(super) nodes: Vec<NodeUse>,
    /// Number of attempts.
    pub(super) attempts: usize,
    /// Elapsed virtual time.
    pub(super) virtual_time: Duration,
    /// Processor time of the attempts.
    pub(super) took: Duration,
}

/// A pod with its node.
#[derive(Debug)]
pub(super) struct PlacedPod {
    pub(super) pod: String,
    pub(super) node: Text,
    /// Total score, and that of each plugin, if there was a choice.
    pub(super) score: Option<(i64, Vec<(&'static str, i64)>)>,
    /// The devices that it got, by claim.
    pub(super) devices: Vec<(Text, Vec<String>)>,
}

/// A pod without one.
#[derive(Debug, Clone)]
pub(super) struct PendingPod {
    pub(super) pod: String,
    pub(super) why: String,
}

/// Utilization of a node.
#[derive(Debug)]
pub(super) struct NodeUse {
    pub(super) name: Text,
    pub(super) pods: usize,
    /// Requested and allocatable: milli-CPU, bytes of memory, pods.
    pub(super) milli_cpu: (i64, i64),
    pub(super) memory: (i64, i64),
    pub(super) pods_max: i64,
}

impl SimulationResult {
    /// Whether every pod has its place and none had to go.
    pub(super) fn is_well(&self) -> bool {
        self.pending.is_empty() && self.preempted.is_empty()
    }
}

/// Plays a cluster.
pub(super) fn play(cluster: &Cluster, rules: &Rules) -> Result<SimulationResult> {
    let mut core = make_core(rules)?;
    let now = Duration::ZERO;
    for object in &cluster.objects {
        core.set_object(object, now);
    }
    for (node, copies) in &cluster.nodes {
        each_node(node, *copies, |node| core.set_node(node, now));
    }
    let mut names = HashMap::new();
    let mut waiting = 0_usize;
    for (group, (pod, copies)) in cluster.pods.iter().enumerate() {
        each_pod(group, pod, *copies, |mut pod| {
            for claim in claims_for(&mut pod, cluster)? {
                core.set_object(&Object::ResourceClaim(Arc::new(claim)), now);
            }
            if pod.spec.node_name.is_empty() && !pod.is_terminal() {
                waiting = waiting.saturating_add(1);
                names.insert(pod.metadata.uid.clone(), format!("{}/{}", pod.metadata.namespace, pod.metadata.name));
            }
            core.set_pod(&pod, now);
            Ok(())
        })?;
    }
    let mut playing = Simulation {
        core,
        now,
        played: SimulationResult::default(),
        said: BTreeMap::new(),
        tried: HashSet::new(),
        with_scores: rules.with_scores,
        progress: Progress::new(waiting),
    };
    // Other programs on the machine would count in the time of the clock.
    let started = client::costly::thread_time();
    playing.run();
    playing.progress.clear();
    playing.played.took = client::costly::thread_time().saturating_sub(started);
    playing.played.virtual_time = playing.now;
    Ok(playing.finish(&names))
}

fn make_core(rules: &Rules) -> Result<Scheduler> {
    let started = Instant::now();
    let clock = Arc::new(move || started.elapsed());
    let matcher = Matcher::new(EXPRESSIONS_MAX, clock.clone(), rules.features.into());
    let matcher = Arc::new(matcher.map_err(|error| anyhow!("expressions cannot be compiled: {error}"))?);
    let programs = dra::Expressions::new(EXPRESSIONS_MAX, clock);
    let programs = programs.map_err(|error| anyhow!("expressions cannot be compiled: {error}"))?;
    let profiles = rules.configuration.make_profiles(&matcher)?;
    let inventory = dra::Inventory::new(matcher.clone(), rules.features.into());
    let core = Scheduler::new(profiles, rules.configuration.backoff(), matcher, rules.seed);
    Ok(core.with_devices(Devices::new(inventory, Arc::new(programs))))
}

fn each_node(node: &Node, copies: Option<usize>, mut take: impl FnMut(&Node)) {
    let Some(copies) = copies else { return take(node) };
    let mut copy = node.clone();
    for number in 0..copies {
        let name = Text::from(format!("{}-{number}", node.metadata.name));
        copy.metadata.labels.insert(LABEL_HOSTNAME.into(), name.clone());
        copy.metadata.name = name;
        take(&copy);
    }
}

fn each_pod(group: usize, pod: &Pod, copies: Option<usize>, mut take: impl FnMut(Pod) -> Result<()>) -> Result<()> {
    for number in 0..copies.unwrap_or(1) {
        let mut copy = pod.clone();
        if copies.is_some() {
            copy.metadata.name = format!("{}-{number}", pod.metadata.name).into();
        }
        if copy.metadata.uid.is_empty() {
            copy.metadata.uid = format!("pod-{group}-{number}").into();
        }
        take(copy)?;
    }
    Ok(())
}

/// Returns the claims that would be created for a pod from templates; their names are set in the pod.
fn claims_for(pod: &mut Pod, cluster: &Cluster) -> Result<Vec<ResourceClaim>> {
    let mut claims = Vec::new();
    for used in &pod.spec.resource_claims {
        let Some(template) = &used.resource_claim_template_name else { continue };
        if pod.status.resource_claim_statuses.iter().any(|status| status.name == used.name) {
            continue;
        }
        // Without the template there is no claim, and the scheduler reports it.
        let Some(spec) = cluster.claim_templates.get(&(pod.metadata.namespace.clone(), template.clone())) else {
            continue;
        };
        let name = format!("{}-{}", pod.metadata.name, used.name);
        claims.push(ResourceClaim::read(&claim_document(pod, &used.name, &name, spec))?);
        pod.status
            .resource_claim_statuses
            .push(PodResourceClaimStatus { name: used.name.clone(), resource_claim_name: Some(name.into()) });
    }
    Ok(claims)
}

fn claim_document(pod: &Pod, used: &str, name: &str, spec: &Value) -> Value {
    let owner = api::json!([{
        "apiVersion": "v1", "kind": "Pod", "name": (pod.metadata.name.as_str()), "uid": (pod.metadata.uid.as_str()),
        "controller": true, "blockOwnerDeletion": true
    }]);
    api::json!({
        "metadata": {
            "name": name,
            "namespace": (pod.metadata.namespace.as_str()),
            "uid": (format!("claim-{}-{name}", pod.metadata.namespace)),
            "annotations": {"resource.kubernetes.io/pod-claim-name": used},
            "ownerReferences": owner
        },
        "spec": (spec.clone())
    })
}

struct Simulation {
    core: Scheduler,
    now: Duration,
    played: SimulationResult,
    /// Last messages about waiting pods, by UID.
    said: BTreeMap<Text, (String, String)>,
    /// Pods without success since the last change.
    tried: HashSet<Text>,
    with_scores: bool,
    progress: Progress,
}

impl Simulation {
    fn run(&mut self) {
        loop {
            while let Some(attempt) = self.core.schedule_one(self.now) {
                self.played.attempts = self.played.attempts.saturating_add(1);
                self.follow(attempt);
                self.progress.show(self.played.placed.len(), self.said.len());
            }
            let lengths = self.core.lengths();
            let waiting = lengths.active.saturating_add(lengths.backoff).saturating_add(lengths.unschedulable);
            // All of them were tried since the last change: the result is final.
            if waiting <= self.tried.len() {
                return;
            }
            match self.core.next_wake_up(self.now).filter(|next| *next > self.now && *next < TIME_MAX) {
                Some(next) => self.now = next,
                None => return,
            }
        }
    }

    fn follow(&mut self, attempt: Attempt) {
        let pod = attempt.pod.to_string();
        match attempt.outcome {
            Outcome::Scheduled(placement) => {
                let score = attempt.score.filter(|_| self.with_scores).map(|it| (it.total, it.by_plugin));
                let devices = writes::devices(&placement.writes);
                writes::carry_out(&mut self.core, &placement.writes, &attempt.pod.name, &attempt.uid, self.now);
                self.core.bound(&attempt.uid);
                self.said.remove(&attempt.uid);
                self.tried.clear();
                self.played.placed.push(PlacedPod { pod, node: placement.node, score, devices });
            }
            Outcome::Unschedulable(unplaced) => {
                self.tried.insert(attempt.uid.clone());
                self.said.insert(attempt.uid.clone(), (pod.clone(), unplaced.message));
                if !unplaced.writes.is_empty() {
                    self.tried.clear();
                    writes::carry_out(&mut self.core, &unplaced.writes, &attempt.pod.name, &attempt.uid, self.now);
                }
                for victim in unplaced.nomination.iter().flat_map(|nomination| &nomination.victims) {
                    self.tried.clear();
                    self.played.preempted.push((victim.key().to_string(), victim.node_name.clone(), pod.clone()));
                    self.core.remove_pod(&victim.uid, self.now);
                }
            }
            Outcome::Error(message) => {
                self.tried.insert(attempt.uid.clone());
                self.said.insert(attempt.uid, (pod, message));
            }
            // No other pods are blocked here: attempts wait for their searches, unless configured otherwise.
            Outcome::Deferred(search) => {
                self.core.searched(search.run(), self.now);
            }
        }
    }

    fn finish(mut self, names: &HashMap<Text, String>) -> SimulationResult {
        let preempted: HashSet<String> = self.played.preempted.iter().map(|(pod, _, _)| pod.clone()).collect();
        // A pod that was placed and then had to go is not placed.
        self.played.placed.retain(|placed| !preempted.contains(&placed.pod));
        let done: HashSet<&str> = self.played.placed.iter().map(|placed| placed.pod.as_str()).collect();
        let mut pending: Vec<PendingPod> = self.said.into_values().map(|(pod, why)| PendingPod { pod, why }).collect();
        let said: HashSet<String> = pending.iter().map(|pending| pending.pod.clone()).collect();
        let silent = names
            .values()
            .filter(|name| !done.contains(name.as_str()) && !said.contains(*name) && !preempted.contains(*name));
        // Closed gates, and schedulers that are not in the configuration.
        pending.extend(silent.map(|pod| PendingPod {
            pod: pod.clone(),
            why: "not scheduled: it has scheduling gates, or names another scheduler".to_owned(),
        }));
        pending.sort_by(|one, other| one.pod.cmp(&other.pod));
        self.played.pending = pending;
        let nodes = self.core.cluster().cache.nodes().map(|node| {
            let (requested, allocatable) = (&node.requested, &node.object.allocatable);
            NodeUse {
                name: node.name().clone(),
                pods: node.pods.len(),
                milli_cpu: (requested.milli_cpu, allocatable.milli_cpu),
                memory: (requested.memory, allocatable.memory),
                pods_max: allocatable.pods,
            }
        });
        let mut nodes: Vec<NodeUse> = nodes.collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        self.played.nodes = nodes;
        self.played
    }
}

/// A bar on a terminal; nothing elsewhere.
struct Progress {
    is_shown: bool,
    total: usize,
    last: Instant,
    has_line: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), total, last: Instant::now(), has_line: false }
    }

    fn show(&mut self, placed: usize, waiting: usize) {
        if !self.is_shown || self.last.elapsed() < Duration::from_millis(100) {
            return;
        }
        (self.last, self.has_line) = (Instant::now(), true);
        let _ = write!(std::io::stderr(), "\r{}\u{1b}[K", progress_text(self.total, placed, waiting));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// The bar, and the number of pods that were placed or are pending.
fn progress_text(total: usize, placed: usize, waiting: usize) -> String {
    let done = placed.saturating_add(waiting);
    let filled = done.saturating_mul(30).checked_div(total).unwrap_or(30).min(30);
    let bar: String = (0..30).map(|at| if at < filled { '█' } else { '░' }).collect();
    format!("{bar} {done} of {total}, {waiting} pending")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(total: usize, placed: usize, waiting: usize, filled: usize, text: &str) {
        let bar = "█".repeat(filled) + &"░".repeat(30_usize.saturating_sub(filled));
        assert_eq!(progress_text(total, placed, waiting), format!("{bar} {text}"));
    }

    #[test]
    fn progress_counts_placed_and_pending_pods() {
        check(60, 0, 0, 0, "0 of 60, 0 pending");
        check(60, 28, 2, 15, "30 of 60, 2 pending");
        check(60, 60, 0, 30, "60 of 60, 0 pending");
        // Pods that were preempted and placed again count twice.
        check(60, 70, 1, 30, "71 of 60, 1 pending");
        check(0, 0, 0, 30, "0 of 0, 0 pending");
    }
}
