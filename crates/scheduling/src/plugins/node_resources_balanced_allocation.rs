//! NodeResourcesBalancedAllocation: nodes are liked on which the pod makes the use of resources more even.

use api::field::{Errors, Path};
use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use super::scoring_strategy::{ResourceSpec, Use, asked, used, with_defaults};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{Dependencies, MAX_NODE_SCORE, Plugin, Point, PreScore, Score, Status};

pub(super) const NAME: &str = "NodeResourcesBalancedAllocation";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreScore, Point::Score];

#[derive(Debug)]
struct BalancedAllocation {
    resources: Vec<ResourceSpec>,
}

#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Args {
    resources: Vec<ResourceSpec>,
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    let args: Args = args::read(given)?;
    args::write(&Args { resources: with_defaults(args.resources) })
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let resources = with_defaults(args.resources);
    let mut errors = Errors::new();
    let all = Path::new("resources");
    for (index, spec) in resources.iter().enumerate() {
        let at = all.index(index);
        if resources.iter().take(index).any(|before| before.name == spec.name) {
            errors.duplicate(at.child("name"), spec.name.as_str());
        }
        if spec.weight != 1 {
            errors.invalid(at.child("weight"), spec.weight, "must be 1");
        }
    }
    args::check(&errors)?;
    Ok(Box::new(BalancedAllocation { resources }))
}

impl Plugin for BalancedAllocation {
    fn pre_score<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        // Pods without requests would all be placed on one node.
        if self.resources.iter().all(|spec| asked(spec, pod, false) == 0) {
            return PreScore::Skip;
        }
        PreScore::Ask(Box::new(Balance { plugin: self, pod }))
    }
}

struct Balance<'c> {
    plugin: &'c BalancedAllocation,
    pod: &'c PodInfo,
}

impl Score for Balance<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        let uses: Vec<Use> = used(&self.plugin.resources, self.pod, node, false).collect();
        let with = balance(uses.iter().map(|used| (used.requested, used.allocatable)));
        let without = balance(uses.iter().map(|used| (used.allocated, used.allocatable)));
        let half = MAX_NODE_SCORE.checked_div(2).unwrap_or(0);
        let change = half.saturating_add(with).saturating_sub(without);
        Ok(half.saturating_add(change.checked_div(2).unwrap_or(0)))
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}

/// The less the shares of the resources differ, the higher: one minus their standard deviation.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::float_arithmetic,
    reason = "Kubernetes reckons in floats, and truncates"
)]
fn balance(uses: impl Iterator<Item = (i64, i64)>) -> i64 {
    let shares: Vec<f64> =
        uses.filter(|(_, all)| *all != 0).map(|(used, all)| (used as f64 / all as f64).min(1.0)).collect();
    let deviation = match shares.as_slice() {
        [] | [_] => 0.0,
        [left, right] => ((left - right) / 2.0).abs(),
        several => {
            let count = several.len() as f64;
            let mean = several.iter().sum::<f64>() / count;
            (several.iter().map(|share| (share - mean) * (share - mean)).sum::<f64>() / count).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}
