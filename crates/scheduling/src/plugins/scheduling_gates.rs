//! SchedulingGates: a pod with gates is not tried until all of them are removed.

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, PodInfo};
use crate::framework::{Action, Event, Plugin, Point, Resource, Status};

pub(super) const NAME: &str = "SchedulingGates";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreEnqueue];

#[derive(Debug)]
struct SchedulingGates;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(SchedulingGates) as Box<dyn Plugin>)
}

impl Plugin for SchedulingGates {
    fn events(&self) -> Vec<Event> {
        vec![Event::new(Resource::TargetPod, Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)]
    }

    fn pre_enqueue(&self, pod: &PodInfo, _: &Cluster) -> Result<(), Status> {
        let gates: Vec<&str> = pod.spec().scheduling_gates.iter().map(|gate| gate.name.as_str()).collect();
        if gates.is_empty() {
            return Ok(());
        }
        Err(Status::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" "))))
    }
}
