//! DefaultPreemption: room is made for a pod by deleting less important ones.

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError, invalid};
use crate::cluster::{Cluster, PodInfo};
use crate::framework::{Action, Change, Event, Hint, Plugin, Point, Resource};
use crate::preemption::{Answer, Limits, PostFilter, preempt};

pub(super) const NAME: &str = "DefaultPreemption";

/// Where it has a say.
pub(super) const POINTS: &[Point] = &[Point::PostFilter];

#[derive(Debug)]
struct DefaultPreemption {
    limits: Limits,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    min_candidate_nodes_percentage: Option<usize>,
    min_candidate_nodes_absolute: Option<usize>,
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let limits = Limits {
        percentage: args.min_candidate_nodes_percentage.unwrap_or(10),
        absolute: args.min_candidate_nodes_absolute.unwrap_or(100),
    };
    if limits.percentage > 100 {
        return Err(invalid("minCandidateNodesPercentage", limits.percentage, "not in valid range [0, 100]"));
    }
    if limits.percentage == 0 && limits.absolute == 0 {
        let why = "cannot be zero at the same time as minCandidateNodesAbsolute";
        return Err(invalid("minCandidateNodesPercentage", 0, why));
    }
    Ok(Box::new(DefaultPreemption { limits }))
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

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
