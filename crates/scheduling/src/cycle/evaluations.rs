//! Number of plugin results by status: for `scheduler_plugin_evaluation_total`.
//!
//! Counted in bulk from the result of a search. A cached result counts like a computed one.

use super::SearchResult;
use crate::framework::{Code, Point};

/// Number of results of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// The plugin.
    pub plugin: &'static str,
    /// Extension point.
    pub point: Point,
    /// Status: `Success`, `Unschedulable` and so on.
    pub status: &'static str,
    /// Number of results.
    pub count: usize,
}

const SUCCESS: &str = "Success";

/// Plugins without PreFilter in Kubernetes.
const WITHOUT_PRE_FILTER: [&str; 3] = ["NodeName", "NodeUnschedulable", "TaintToleration"];
/// Plugins without PreScore in Kubernetes.
const WITHOUT_PRE_SCORE: [&str; 1] = ["ImageLocality"];

/// The answers of plugins before their filters: those that were not skipped.
fn of_pre_filters(asked: impl Iterator<Item = &'static str>) -> impl Iterator<Item = Evaluation> {
    let asked = asked.filter(|plugin| !WITHOUT_PRE_FILTER.contains(plugin));
    asked.map(|plugin| Evaluation { plugin, point: Point::PreFilter, status: SUCCESS, count: 1 })
}

/// The answer of the plugin that refused all nodes at once.
pub(super) fn of_refusal(plugin: &'static str, code: Code) -> Evaluation {
    Evaluation { plugin, point: Point::PreFilter, status: code.name(), count: 1 }
}

/// Counts the results of filters.
pub(crate) fn of_filters(found: &SearchResult) -> Vec<Evaluation> {
    let mut rejections: Vec<(&'static str, Code, usize)> = Vec::new();
    for (_, status) in &found.diagnosis.by_node {
        match rejections.iter_mut().find(|(plugin, code, _)| *plugin == status.plugin && *code == status.code) {
            Some((.., count)) => *count = count.saturating_add(1),
            None => rejections.push((status.plugin, status.code, 1)),
        }
    }
    of_rejections(found.asked.iter().copied(), found.evaluated, &rejections)
}

/// Counts the results of filters that ran in this order on this many nodes, given the number of rejections by
/// each.
pub(super) fn of_rejections(
    asked: impl Iterator<Item = &'static str> + Clone,
    evaluated: usize,
    rejections: &[(&'static str, Code, usize)],
) -> Vec<Evaluation> {
    let mut all: Vec<Evaluation> = of_pre_filters(asked.clone()).collect();
    let mut asked_about = evaluated;
    for plugin in asked {
        let rejected = || rejections.iter().filter(|(by, ..)| *by == plugin);
        let total: usize = rejected().map(|(.., count)| *count).sum();
        // A rejection keeps the later plugins from running on the node.
        let passed = asked_about.saturating_sub(total);
        let said = rejected().map(|(_, code, count)| (code.name(), *count));
        let said = said.chain([(SUCCESS, passed)]).filter(|(_, count)| *count > 0);
        all.extend(said.map(|(status, count)| Evaluation { plugin, point: Point::Filter, status, count }));
        asked_about = passed;
    }
    all
}

/// Scores that were given, by plugin and number, and the answers of the plugins before.
pub(super) fn of_scores(given: impl Iterator<Item = (&'static str, usize)>) -> impl Iterator<Item = Evaluation> {
    given.filter(|(_, count)| *count > 0).flat_map(|(plugin, count)| {
        let before = (!WITHOUT_PRE_SCORE.contains(&plugin)).then_some((Point::PreScore, 1));
        let all = before.into_iter().chain([(Point::Score, count)]);
        all.map(move |(point, count)| Evaluation { plugin, point, status: SUCCESS, count })
    })
}
