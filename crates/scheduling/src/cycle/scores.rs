//! Scores of the nodes that fit.

use matching::Meter;

use super::over_budget;
use crate::cluster::{Cluster, NodeId, PodInfo};
use crate::framework::{Dependencies, MAX_NODE_SCORE, Point, PreScore, Status};
use crate::memory::{Memory, ShapeMemory};
use crate::profile::Profile;
use crate::timing::{SKIP, SUCCESS, Timer, status_of};

/// The scores of the nodes that fit.
#[derive(Debug, Default)]
pub struct Scores {
    /// Scores by plugin, in order.
    pub by_plugin: Vec<PluginScores>,
    /// Plugins that prefer no node.
    pub skipped: Vec<&'static str>,
    /// The sums.
    pub total: Vec<(NodeId, i64)>,
}

/// Scores of one plugin.
#[derive(Debug)]
pub struct PluginScores {
    /// Name of the plugin.
    pub plugin: &'static str,
    /// Weight of the scores.
    pub weight: i64,
    /// Raw scores.
    pub raw: Vec<(NodeId, i64)>,
    /// Between 0 and 100.
    pub normalized: Vec<(NodeId, i64)>,
}

/// The score of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreOf {
    /// The sum.
    pub total: i64,
    /// Contribution of each plugin, in order.
    pub by_plugin: Vec<(&'static str, i64)>,
}

/// Whether scores with these dependencies can be cached.
pub(super) fn is_remembered(depends_on: Dependencies) -> bool {
    let cannot = depends_on.include(Dependencies::UNKNOWN) || depends_on.include(Dependencies::PODS);
    !cannot && !depends_on.is_empty()
}

/// Scores nodes.
///
/// # Errors
/// Something went wrong; the attempt ends.
pub fn score(profile: &Profile, pod: &PodInfo, cluster: &Cluster, nodes: &[NodeId]) -> Result<Scores, Status> {
    score_with(profile, pod, cluster, nodes, None, &mut Timer::off())
}

/// Like [`score`], but with cached raw scores from other pods of the same shape.
///
/// # Errors
/// Something went wrong; the attempt ends.
pub fn score_remembering(
    profile: &Profile,
    pod: &PodInfo,
    cluster: &Cluster,
    nodes: &[NodeId],
    memory: &mut Memory,
) -> Result<Scores, Status> {
    score_timed(profile, pod, cluster, nodes, memory, &mut Timer::off())
}

/// Like [`score_remembering`], but measured.
///
/// # Errors
/// Something went wrong; the attempt ends.
pub fn score_timed(
    profile: &Profile,
    pod: &PodInfo,
    cluster: &Cluster,
    nodes: &[NodeId],
    memory: &mut Memory,
    timer: &mut Timer,
) -> Result<Scores, Status> {
    let begun = timer.begin();
    let scores = score_with(profile, pod, cluster, nodes, memory.of(pod), timer);
    timer.end(begun, Point::Score, "", status_of(&scores));
    scores
}

fn score_with(
    profile: &Profile,
    pod: &PodInfo,
    cluster: &Cluster,
    nodes: &[NodeId],
    mut memory: Option<&mut ShapeMemory>,
    timer: &mut Timer,
) -> Result<Scores, Status> {
    let mut scores = Scores { total: nodes.iter().map(|node| (*node, 0)).collect(), ..Scores::default() };
    for enabled in profile.at(Point::Score) {
        let name = enabled.name();
        let begun = timer.begin_plugin();
        let said = enabled.plugin.pre_score(pod, cluster, Some(nodes));
        let status = match &said {
            PreScore::Skip => SKIP,
            PreScore::Fail(status) => status.code.name(),
            PreScore::Ask(_) | PreScore::Together => SUCCESS,
        };
        timer.end(begun, Point::PreScore, name, status);
        let scorer = match said {
            PreScore::Skip => {
                scores.skipped.push(name);
                continue;
            }
            PreScore::Fail(status) => return Err(failed("PreScore", name, &status)),
            PreScore::Together => return Err(failed("PreScore", name, &Status::error("the nodes are known"))),
            PreScore::Ask(scorer) => scorer,
        };
        let begun = timer.begin_plugin();
        let depends_on = scorer.depends_on();
        let mut column = memory.as_mut().map(|memory| memory.scores(name)).filter(|_| is_remembered(depends_on));
        if let Some(column) = &mut column {
            column.begin(depends_on, cluster);
        }
        let mut raw = Vec::with_capacity(nodes.len());
        for node in nodes.iter().filter_map(|id| cluster.cache.node(*id)) {
            let ask = || {
                let score = scorer.score(node).map_err(|status| failed("Score", name, &status))?;
                if cluster.meter().is_some_and(Meter::is_exceeded) { Err(over_budget()) } else { Ok(score) }
            };
            let score = match &mut column {
                Some(column) => column.get_or_ask(node, ask)?,
                None => ask()?,
            };
            raw.push((node.id, score));
        }
        let mut normalized = raw.clone();
        scorer.normalize(&mut normalized);
        for ((_, total), (_, score)) in scores.total.iter_mut().zip(&normalized) {
            if !(0..=MAX_NODE_SCORE).contains(score) {
                let text = format!(
                    "applying score defaultWeights on Score plugins: plugin \"{name}\" returns an invalid score {score}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
                );
                return Err(Status::error(text).by(name));
            }
            *total = total.saturating_add(score.saturating_mul(enabled.weight));
        }
        timer.end(begun, Point::Score, name, SUCCESS);
        scores.by_plugin.push(PluginScores { plugin: name, weight: enabled.weight, raw, normalized });
    }
    Ok(scores)
}

fn failed(point: &str, plugin: &'static str, status: &Status) -> Status {
    Status::error(format!("running {point} plugin \"{plugin}\": {}", status.message())).by(plugin)
}

impl Scores {
    /// The score of a node.
    pub fn of(&self, node: NodeId) -> Option<ScoreOf> {
        let place = self.total.iter().position(|(it, _)| *it == node)?;
        let by_plugin = self.by_plugin.iter().map(|by| {
            let score = by.normalized.get(place).map_or(0, |(_, score)| *score);
            (by.plugin, score.saturating_mul(by.weight))
        });
        Some(ScoreOf { total: self.total.get(place)?.1, by_plugin: by_plugin.collect() })
    }

    /// The nodes with the highest score.
    pub fn best(&self) -> Vec<NodeId> {
        let highest = self.total.iter().map(|(_, score)| *score).max();
        self.total.iter().filter(|(_, score)| Some(*score) == highest).map(|(node, _)| *node).collect()
    }
}
