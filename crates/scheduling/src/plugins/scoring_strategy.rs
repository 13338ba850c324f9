//! Scoring by utilization: the strategies of NodeResourcesFit, and the arithmetic that BalancedAllocation
//! shares.
//!
//! Divisions are of whole numbers, per resource and again over the weights, as in Kubernetes.

use api::field::{Errors, Path};
use api::json::Text;
use matching::resources::is_scalar;

use crate::cluster::{NodeInfo, PodInfo};
use crate::framework::MAX_NODE_SCORE;

/// A resource and how much it counts.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourceSpec {
    pub(super) name: Text,
    #[serde(default)]
    pub(super) weight: i64,
}

/// `scoringStrategy`.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct StrategyArgs {
    #[serde(rename = "type")]
    kind: Text,
    resources: Vec<ResourceSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_to_capacity_ratio: Option<RatioArgs>,
}

#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RatioArgs {
    shape: Vec<ShapeArgs>,
}

/// A point of a function from utilization to score.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShapeArgs {
    #[serde(default)]
    utilization: i64,
    #[serde(default)]
    score: i64,
}

const LEAST: &str = "LeastAllocated";
const MOST: &str = "MostAllocated";
const RATIO: &str = "RequestedToCapacityRatio";

/// Scoring of nodes by their utilization.
#[derive(Debug, Clone)]
pub(super) struct Strategy {
    pub(super) resources: Vec<ResourceSpec>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    LeastAllocated,
    MostAllocated,
    /// Points between which the score is linear.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// Used and available amount of a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) allocated: i64,
    pub(super) requested: i64,
    pub(super) allocatable: i64,
}

/// CPU and memory, equally.
pub(super) fn default_resources() -> Vec<ResourceSpec> {
    ["cpu", "memory"].map(|name| ResourceSpec { name: name.into(), weight: 1 }).to_vec()
}

/// The resources that count, and missing weights filled in.
pub(super) fn with_defaults(given: Vec<ResourceSpec>) -> Vec<ResourceSpec> {
    if given.is_empty() {
        return default_resources();
    }
    let weighted =
        given.into_iter().map(|spec| ResourceSpec { weight: if spec.weight == 0 { 1 } else { spec.weight }, ..spec });
    weighted.collect()
}

impl StrategyArgs {
    /// Returns the arguments with defaults: least allocated first, by CPU and memory.
    pub(super) fn with_defaults(given: Option<Self>) -> Self {
        let given = given.unwrap_or_else(|| StrategyArgs { kind: LEAST.into(), ..StrategyArgs::default() });
        StrategyArgs { resources: with_defaults(given.resources), ..given }
    }
}

impl Strategy {
    /// Creates the strategy of the arguments. Their errors are added to `errors`.
    pub(super) fn new(args: Option<StrategyArgs>, at: Path<'_>, errors: &mut Errors) -> Self {
        let args = StrategyArgs::with_defaults(args);
        let (ratio, resources) = (args.requested_to_capacity_ratio.as_ref(), args.resources);
        let kind = match args.kind.as_str() {
            MOST => Kind::MostAllocated,
            RATIO => Kind::RequestedToCapacityRatio(ratio.map(|it| ShapeArgs::scaled(&it.shape)).unwrap_or_default()),
            LEAST => Kind::LeastAllocated,
            other => {
                errors.not_supported(at.child("type"), other, &[LEAST, MOST, RATIO]);
                Kind::LeastAllocated
            }
        };
        let all = at.child("resources");
        for (index, spec) in resources.iter().enumerate() {
            if !(1..=100).contains(&spec.weight) {
                let why = format!("resource weight of {} not in valid range (0, 100]", spec.name);
                errors.invalid(all.index(index).child("weight"), spec.weight, why);
            }
        }
        let at = at.child("requestedToCapacityRatio");
        match (&kind, ratio) {
            (Kind::RequestedToCapacityRatio(_), Some(ratio)) => {
                ShapeArgs::check(&ratio.shape, at.child("shape"), errors)
            }
            (Kind::RequestedToCapacityRatio(_), None) => {
                errors.required(at, "must be specified when type is RequestedToCapacityRatio");
            }
            (_, Some(_)) => errors.forbidden(at, "must be nil when type is not RequestedToCapacityRatio"),
            (_, None) => {}
        }
        Strategy { resources, kind }
    }

    /// The score of a node on which the resources are used so.
    pub(super) fn score(&self, uses: impl Iterator<Item = Use>) -> i64 {
        let mut sum: i64 = 0;
        let mut weights: i64 = 0;
        for (spec, used) in self.resources.iter().zip(uses) {
            if used.allocatable == 0 {
                continue;
            }
            let score = match &self.kind {
                Kind::LeastAllocated if used.requested > used.allocatable => 0,
                Kind::LeastAllocated => share(used.allocatable.saturating_sub(used.requested), used.allocatable),
                Kind::MostAllocated => share(used.requested.min(used.allocatable), used.allocatable),
                Kind::RequestedToCapacityRatio(points) => {
                    let utilization =
                        if used.requested > used.allocatable { 100 } else { share(used.requested, used.allocatable) };
                    let score = linear(points, utilization);
                    if score <= 0 {
                        continue;
                    }
                    score
                }
            };
            sum = sum.saturating_add(score.saturating_mul(spec.weight));
            weights = weights.saturating_add(spec.weight);
        }
        match &self.kind {
            Kind::RequestedToCapacityRatio(_) if weights > 0 => rounded(sum, weights),
            _ => sum.checked_div(weights).unwrap_or(0),
        }
    }
}

/// Returns the resources that the pod and the existing pods use on a node. `nonzero`: containers without a
/// request count with a small default.
pub(super) fn used<'n>(
    resources: &'n [ResourceSpec],
    pod: &'n PodInfo,
    node: &'n NodeInfo,
    nonzero: bool,
) -> impl Iterator<Item = Use> + 'n {
    resources.iter().map(move |spec| {
        let allocatable = match spec.name.as_str() {
            // Kubernetes scores no numbers of pods.
            "pods" => 0,
            name => node.object.allocatable.get(name),
        };
        let allocated = match spec.name.as_str() {
            "cpu" if nonzero => node.nonzero_milli_cpu,
            "memory" if nonzero => node.nonzero_memory,
            name => node.requested.get(name),
        };
        let asked = asked(spec, pod, nonzero);
        // Resources that the node lacks do not count, nor do extended resources that the pod does not request.
        if allocatable == 0 || (asked == 0 && is_scalar(&spec.name)) {
            return Use { allocated: 0, requested: 0, allocatable: 0 };
        }
        Use { allocated, requested: allocated.saturating_add(asked), allocatable }
    })
}

/// Returns the request of a pod.
pub(super) fn asked(spec: &ResourceSpec, pod: &PodInfo, nonzero: bool) -> i64 {
    let demand = pod.demand();
    if nonzero { demand.scored.get(&spec.name) } else { demand.requests.get(&spec.name) }
}

/// A part of a whole, in percent.
pub(super) fn share(part: i64, whole: i64) -> i64 {
    part.saturating_mul(MAX_NODE_SCORE).checked_div(whole).unwrap_or(0)
}

/// A quotient, half away from zero; both are positive.
pub(super) fn rounded(sum: i64, weights: i64) -> i64 {
    sum.saturating_mul(2).saturating_add(weights).checked_div(weights.saturating_mul(2)).unwrap_or(0)
}

/// The value of a function that is linear between points.
pub(super) fn linear(points: &[(i64, i64)], at: i64) -> i64 {
    let mut before: Option<(i64, i64)> = None;
    for &(utilization, score) in points {
        if at <= utilization {
            let Some((from, low)) = before else { return score };
            let rise = score.saturating_sub(low).saturating_mul(at.saturating_sub(from));
            return low.saturating_add(rise.checked_div(utilization.saturating_sub(from)).unwrap_or(0));
        }
        before = Some((utilization, score));
    }
    before.map_or(0, |(_, score)| score)
}

/// The highest score that users write.
const MAX_CUSTOM_SCORE: i64 = 10;

impl ShapeArgs {
    /// From the best score for empty nodes to zero for full ones.
    pub(super) fn emptier_is_better() -> Vec<ShapeArgs> {
        vec![ShapeArgs { utilization: 0, score: MAX_CUSTOM_SCORE }, ShapeArgs { utilization: 100, score: 0 }]
    }

    /// The points, with scores up to [`MAX_NODE_SCORE`].
    pub(super) fn scaled(points: &[ShapeArgs]) -> Vec<(i64, i64)> {
        let factor = MAX_NODE_SCORE.checked_div(MAX_CUSTOM_SCORE).unwrap_or(1);
        points.iter().map(|point| (point.utilization, point.score.saturating_mul(factor))).collect()
    }

    /// Validates the points of a shape.
    pub(super) fn check(points: &[ShapeArgs], at: Path<'_>, errors: &mut Errors) {
        if points.is_empty() {
            errors.required(at, "at least one point must be specified");
        }
        let mut in_pairs = points.iter().zip(points.iter().skip(1)).enumerate();
        if let Some((index, (_, point))) = in_pairs.find(|(_, (left, right))| left.utilization >= right.utilization) {
            let at = at.index(index.saturating_add(1));
            errors.invalid(at.child("utilization"), point.utilization, "values must be sorted in increasing order");
        }
        for (index, point) in points.iter().enumerate() {
            let at = at.index(index);
            if !(0..=100).contains(&point.utilization) {
                errors.invalid(at.child("utilization"), point.utilization, "not in valid range [0, 100]");
            }
            if !(0..=MAX_CUSTOM_SCORE).contains(&point.score) {
                errors.invalid(at.child("score"), point.score, "not in valid range [0, 10]");
            }
        }
    }
}
