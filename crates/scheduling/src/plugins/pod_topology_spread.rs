//! PodTopologySpread: pods of a kind spread evenly over zones, nodes or other parts of the cluster.

mod counts;
mod hints;
mod scoring;

use api::core::v1::TopologySpreadConstraint;
use api::field::{Errors, Path};
use api::json::{Text, Value};
use api::labels::{Operator, Requirement, Selector};
use api::meta::v1::{LabelSelector, StringMap};
use api::well_known::{LABEL_HOSTNAME, LABEL_TOPOLOGY_ZONE};
use matching::Matcher;
use matching::topology_spread::SpreadConstraint;

use self::counts::Counts;
use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{
    Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Status,
};

pub(crate) const NAME: &str = "PodTopologySpread";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

const DO_NOT_SCHEDULE: &str = "DoNotSchedule";
const SCHEDULE_ANYWAY: &str = "ScheduleAnyway";
/// Value of `defaultingType` for built-in default constraints.
const SYSTEM: &str = "System";
const LIST: &str = "List";

#[derive(Debug)]
struct PodTopologySpread {
    defaults: Vec<TopologySpreadConstraint>,
    /// Whether the defaults are Kubernetes', not the operator's.
    is_system_defaulted: bool,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    default_constraints: Vec<TopologySpreadConstraint>,
    defaulting_type: Text,
}

impl Default for Args {
    fn default() -> Self {
        Args { default_constraints: Vec::new(), defaulting_type: SYSTEM.into() }
    }
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    args::write(&args::read::<Args>(given)?)
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let mut errors = Errors::new();
    let at_type = || Path::new("defaultingType");
    let is_system_defaulted = match args.defaulting_type.as_str() {
        "" | SYSTEM => true,
        LIST => false,
        other => {
            errors.not_supported(at_type(), other, &[SYSTEM, LIST]);
            false
        }
    };
    if is_system_defaulted && !args.default_constraints.is_empty() {
        errors.invalid(at_type(), SYSTEM, "when .defaultConstraints are not empty");
    }
    check_defaults(&args.default_constraints, &mut errors);
    args::check(&errors)?;
    let soft = |key: &str, max_skew: i32| TopologySpreadConstraint {
        max_skew,
        topology_key: key.into(),
        when_unsatisfiable: SCHEDULE_ANYWAY.into(),
        ..TopologySpreadConstraint::default()
    };
    let system = || vec![soft(LABEL_HOSTNAME, 3), soft(LABEL_TOPOLOGY_ZONE, 5)];
    let defaults = if is_system_defaulted { system() } else { args.default_constraints };
    Ok(Box::new(PodTopologySpread { defaults, is_system_defaulted }))
}

/// Validates default constraints.
fn check_defaults(constraints: &[TopologySpreadConstraint], errors: &mut Errors) {
    let all = Path::new("defaultConstraints");
    for (index, constraint) in constraints.iter().enumerate() {
        let at = all.index(index);
        if constraint.max_skew <= 0 {
            errors.invalid(at.child("maxSkew"), constraint.max_skew, "not in valid range (0, inf)");
        }
        let key = &constraint.topology_key;
        if key.is_empty() {
            errors.required(at.child("topologyKey"), "can not be empty");
        } else {
            for complaint in api::names::qualified_name(key) {
                errors.invalid(at.child("topologyKey"), key.as_str(), complaint);
            }
        }
        match constraint.when_unsatisfiable.as_str() {
            "" => errors.required(at.child("whenUnsatisfiable"), "can not be empty"),
            DO_NOT_SCHEDULE | SCHEDULE_ANYWAY => {}
            other => {
                errors.not_supported(at.child("whenUnsatisfiable"), other, &[DO_NOT_SCHEDULE, SCHEDULE_ANYWAY]);
            }
        }
        if constraint.label_selector.is_some() {
            let why = "constraint must not define a selector, as they deduced for each pod";
            errors.forbidden(at.child("labelSelector"), why);
        }
        let same = |other: &TopologySpreadConstraint| {
            other.topology_key == *key && other.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if constraints.iter().take(index).any(same) {
            errors.duplicate(at, format!("{{{key}, {}}}", constraint.when_unsatisfiable));
        }
    }
}

impl PodTopologySpread {
    /// The constraints of a pod: its own, or else the defaults with a selector of the pod's services and
    /// controller.
    fn constraints(&self, pod: &PodInfo, action: &str, cluster: &Cluster) -> Result<Vec<SpreadConstraint>, Status> {
        let own = &pod.spec().topology_spread_constraints;
        let (given, is_own) = if own.is_empty() { (&self.defaults, false) } else { (own, true) };
        let mut constraints = Vec::new();
        for constraint in given.iter().filter(|it| it.when_unsatisfiable == action) {
            let compiled = SpreadConstraint::new(constraint, pod.labels());
            constraints.push(compiled.map_err(|error| {
                let (strength, whose) = match (action, is_own) {
                    (DO_NOT_SCHEDULE, true) => ("hard", "obtaining pod's"),
                    (_, true) => ("soft", "obtaining pod's"),
                    (DO_NOT_SCHEDULE, false) => ("hard", "setting default"),
                    (_, false) => ("soft", "setting default"),
                };
                Status::error(format!("{whose} {strength} topology spread constraints: {error}"))
            })?);
        }
        if !is_own && !constraints.is_empty() {
            let selector = default_selector(pod, cluster);
            if selector.is_empty() {
                return Ok(Vec::new());
            }
            for constraint in &mut constraints {
                constraint.selector = Some(selector.clone());
            }
        }
        Ok(constraints)
    }

    /// Whether nodes must have all topology keys. With Kubernetes' own defaults, nodes without a zone are still
    /// spread by hostname.
    fn requires_all_keys(&self, pod: &PodInfo) -> bool {
        !pod.spec().topology_spread_constraints.is_empty() || !self.is_system_defaulted
    }
}

/// Returns the selector of the pods that belong with this one: of its services and its controller.
fn default_selector(pod: &PodInfo, cluster: &Cluster) -> Selector {
    let namespace = pod.namespace();
    let mut labels = StringMap::new();
    let first = (namespace.clone(), Text::default());
    let services = cluster.objects.services.range(first..).take_while(|((space, _), _)| space == namespace);
    for (_, service) in services {
        let selector = &service.spec.selector;
        if !selector.is_empty() && selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value)) {
            labels.extend(selector.clone());
        }
    }
    let mut more = Vec::new();
    if let Some(owner) = pod.owner() {
        let name = (namespace.clone(), owner.name.clone());
        let of = |selector: Option<&LabelSelector>| -> Vec<Requirement> {
            let selector = selector.and_then(|selector| selector.to_selector().ok());
            selector.map(|selector| selector.requirements().to_vec()).unwrap_or_default()
        };
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => {
                if let Some(controller) = cluster.objects.replication_controllers.get(&name) {
                    labels.extend(controller.spec.selector.clone());
                }
            }
            ("apps/v1", "ReplicaSet") => {
                more = of(cluster.objects.replica_sets.get(&name).and_then(|set| set.spec.selector.as_ref()));
            }
            ("apps/v1", "StatefulSet") => {
                more = of(cluster.objects.stateful_sets.get(&name).and_then(|set| set.spec.selector.as_ref()));
            }
            _ => {}
        }
    }
    let own =
        labels.into_iter().map(|(key, value)| Requirement { key, operator: Operator::Equals, values: vec![value] });
    Selector::from_requirements(own.chain(more).collect())
}

impl Plugin for PodTopologySpread {
    fn events(&self) -> Vec<Event> {
        let pods = Action::ADD.or(Action::UPDATE_POD_LABEL).or(Action::DELETE);
        let nodes = Action::ADD.or(Action::DELETE).or(Action::UPDATE_NODE_LABEL).or(Action::UPDATE_NODE_TAINT);
        vec![
            Event::new(Resource::AssignedPod, pods),
            Event::new(Resource::TargetPod, Action::UPDATE_POD_TOLERATION.or(Action::UPDATE_POD_LABEL)),
            Event::new(Resource::Node, nodes),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: Event, change: Change<'_>, cluster: &Cluster) -> Hint {
        // Constraints that cannot be read: when in doubt, try.
        let Ok(constraints) = self.constraints(pod, DO_NOT_SCHEDULE, cluster) else { return Hint::Queue };
        if hints::helps(pod, &constraints, event, change) { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        match self.constraints(pod, DO_NOT_SCHEDULE, cluster) {
            Ok(constraints) if constraints.is_empty() => PreFilter::Skip,
            Ok(constraints) => PreFilter::Ask(Box::new(Spread { pod, counts: Counts::of(constraints, pod, cluster) })),
            Err(status) => {
                let text = format!("get constraints from pod: {}", status.message());
                PreFilter::Reject(Status::error(text))
            }
        }
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster, nodes: Option<&[NodeId]>) -> PreScore<'c> {
        match self.constraints(pod, SCHEDULE_ANYWAY, cluster) {
            Ok(constraints) if constraints.is_empty() => PreScore::Skip,
            Ok(constraints) => {
                let Some(nodes) = nodes else { return PreScore::Together };
                let requires_all = self.requires_all_keys(pod);
                PreScore::Ask(Box::new(scoring::Preference::new(constraints, pod, cluster, nodes, requires_all)))
            }
            Err(status) => PreScore::Fail(Status::error(format!("calculating preScoreState: {}", status.message()))),
        }
    }
}

#[derive(Clone)]
struct Spread<'c> {
    pod: &'c PodInfo,
    counts: Counts,
}

impl Filter for Spread<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        for (constraint, counted) in self.counts.iter() {
            let Some(value) = node.object.matching.labels.get(&constraint.topology_key) else {
                let text = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Status::unresolvable(text));
            };
            let own = i64::from(constraint.selects(self.pod.labels()));
            let skew = counted.at(value).saturating_add(own).saturating_sub(counted.least(constraint.min_domains));
            if skew > i64::from(constraint.max_skew) {
                return Err(Status::unschedulable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }

    fn pod_added(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.counts.change(pod, self.pod, node, 1);
    }

    fn pod_removed(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.counts.change(pod, self.pod, node, -1);
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(self.clone())
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::PODS)
    }
}
