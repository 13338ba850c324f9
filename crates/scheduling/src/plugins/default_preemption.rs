//! DefaultPreemption: room is made for a pod by deleting less important ones.

use api::field::{Errors, Path};
use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, PodInfo};
use crate::framework::{Action, Change, Event, Hint, Plugin, Point, Resource};
use crate::preemption::{Answer, Limits, PostFilter, preempt};

pub(super) const NAME: &str = "DefaultPreemption";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PostFilter];

#[derive(Debug)]
struct DefaultPreemption {
    limits: Limits,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    min_candidate_nodes_percentage: i32,
    min_candidate_nodes_absolute: i32,
}

impl Default for Args {
    fn default() -> Self {
        Args { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    args::write(&args::read::<Args>(given)?)
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let (percentage, absolute) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
    let mut errors = Errors::new();
    let (at_percentage, at_absolute) =
        (|| Path::new("minCandidateNodesPercentage"), || Path::new("minCandidateNodesAbsolute"));
    if !(0..=100).contains(&percentage) {
        errors.invalid(at_percentage(), percentage, "not in valid range [0, 100]");
    }
    if absolute < 0 {
        errors.invalid(at_absolute(), absolute, "not in valid range [0, inf)");
    }
    if percentage == 0 && absolute == 0 {
        errors.invalid(at_percentage(), 0, "cannot be zero at the same time as minCandidateNodesAbsolute");
        errors.invalid(at_absolute(), 0, "cannot be zero at the same time as minCandidateNodesPercentage");
    }
    args::check(&errors)?;
    let limits = Limits {
        percentage: usize::try_from(percentage).unwrap_or(0),
        absolute: usize::try_from(absolute).unwrap_or(0),
    };
    Ok(Box::new(DefaultPreemption { limits }))
}

impl Plugin for DefaultPreemption {
    fn events(&self) -> Vec<Event> {
        vec![Event::new(Resource::AssignedPod, Action::DELETE)]
    }

    fn hint(&self, _: &PodInfo, _: Event, _: Change<'_>, _: &Cluster) -> Hint {
        // The plugins that rejected the pod know when to try again.
        Hint::Skip
    }

    fn post_filter(&self, failed: &mut PostFilter<'_, '_>) -> Option<Answer> {
        let answer = preempt(failed, self.limits);
        Some(Answer { message: format!("preemption: {}", answer.message), ..answer })
    }
}
