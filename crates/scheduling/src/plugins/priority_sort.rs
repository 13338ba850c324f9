//! PrioritySort: more important pods are tried first.

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::PodInfo;
use crate::framework::{Plugin, Point};

pub(super) const NAME: &str = "PrioritySort";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::QueueSort];

#[derive(Debug)]
struct PrioritySort;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(PrioritySort) as Box<dyn Plugin>)
}

impl Plugin for PrioritySort {
    fn rank(&self, pod: &PodInfo) -> i64 {
        i64::from(pod.priority()).saturating_neg()
    }
}
