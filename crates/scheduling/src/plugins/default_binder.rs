//! DefaultBinder: a pod is bound through the API. The caller performs the binding; the plugin represents the
//! choice.

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::framework::{Plugin, Point};

pub(super) const NAME: &str = "DefaultBinder";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::Bind];

#[derive(Debug)]
struct DefaultBinder;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(DefaultBinder) as Box<dyn Plugin>)
}

impl Plugin for DefaultBinder {}
