//! How often plugins were asked, and what they said: for `scheduler_plugin_evaluation_total`.
//!
//! Counted in bulk from what a search found. An answer that was remembered counts as one that was given.

use super::Found;
use crate::framework::{Code, Point};

/// How often a plugin said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// The plugin.
    pub plugin: &'static str,
    /// Where.
    pub point: Point,
    /// What: `Success`, `Unschedulable` and so on.
    pub status: &'static str,
    /// How often.
    pub count: usize,
}

const SUCCESS: &str = "Success";

/// What filters said.
pub(crate) fn of_filters(found: &Found) -> Vec<Evaluation> {
    let mut rejections: Vec<(&'static str, Code, usize)> = Vec::new();
    for (_, status) in &found.diagnosis.by_node {
        match rejections.iter_mut().find(|(plugin, code, _)| *plugin == status.plugin && *code == status.code) {
            Some((.., count)) => *count = count.saturating_add(1),
            None => rejections.push((status.plugin, status.code, 1)),
        }
    }
    of_rejections(found.asked.iter().copied(), found.evaluated, &rejections)
}

/// What filters said that were asked in this order about this many nodes, if some were against this many.
pub(super) fn of_rejections(
    asked: impl Iterator<Item = &'static str>,
    evaluated: usize,
    rejections: &[(&'static str, Code, usize)],
) -> Vec<Evaluation> {
    let mut all = Vec::new();
    let mut asked_about = evaluated;
    for plugin in asked {
        let rejected = || rejections.iter().filter(|(by, ..)| *by == plugin);
        let total: usize = rejected().map(|(.., count)| *count).sum();
        // Those that are against a node keep the plugins after them from being asked about it.
        let passed = asked_about.saturating_sub(total);
        let said = rejected().map(|(_, code, count)| (code.name(), *count));
        let said = said.chain([(SUCCESS, passed)]).filter(|(_, count)| *count > 0);
        all.extend(said.map(|(status, count)| Evaluation { plugin, point: Point::Filter, status, count }));
        asked_about = passed;
    }
    all
}

/// What scores were given, by whom and how many.
pub(super) fn of_scores(given: impl Iterator<Item = (&'static str, usize)>) -> impl Iterator<Item = Evaluation> {
    let given = given.filter(|(_, count)| *count > 0);
    given.map(|(plugin, count)| Evaluation { plugin, point: Point::Score, status: SUCCESS, count })
}
