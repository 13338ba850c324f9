//! How often plugins were asked, and what they said: for `scheduler_plugin_evaluation_total`.
//!
//! Counted in bulk from what a search found. An answer that was remembered counts as one that was given.

use super::{Found, Scores};
use crate::framework::Point;

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
    let mut all = Vec::new();
    let mut asked_about = found.evaluated;
    for plugin in &found.asked {
        let mut rejected: Vec<(&'static str, usize)> = Vec::new();
        for (_, status) in found.diagnosis.by_node.iter().filter(|(_, status)| status.plugin == *plugin) {
            let code = status.code.name();
            match rejected.iter_mut().find(|(name, _)| *name == code) {
                Some((_, count)) => *count = count.saturating_add(1),
                None => rejected.push((code, 1)),
            }
        }
        let total: usize = rejected.iter().map(|(_, count)| *count).sum();
        // Those that are against a node keep the plugins after them from being asked about it.
        let passed = asked_about.saturating_sub(total);
        let said = rejected.into_iter().chain([(SUCCESS, passed)]).filter(|(_, count)| *count > 0);
        all.extend(said.map(|(status, count)| Evaluation { plugin, point: Point::Filter, status, count }));
        asked_about = passed;
    }
    all
}

/// What scores were given.
pub(crate) fn of_scores(scores: &Scores) -> Vec<Evaluation> {
    let given = scores.by_plugin.iter();
    let given =
        given.map(|it| Evaluation { plugin: it.plugin, point: Point::Score, status: SUCCESS, count: it.raw.len() });
    given.filter(|it| it.count > 0).collect()
}
