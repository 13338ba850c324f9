//! Finds the best fitting node from summaries instead of evaluating each node.
//!
//! The result is that of a search followed by scoring, computed from the same results of the same plugins.
//! Ranking is possible if each plugin's result about a node is valid as long as the node is unchanged.
//! Normalization may compare nodes: nodes with the same raw scores form one group, and groups are compared.

use matching::Meter;

use super::choice::{Choice, ChosenNode};
use super::evaluations::{of_rejections, of_scores};
use super::ranking::{NodeRank, Ranking, SearchExtent, Tally};
use super::scores::{ScoreOf, is_remembered};
use super::search::{Search, Statuses};
use super::{Filters, PluginFilter};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{Code, Dependencies, MAX_NODE_SCORE, Point, PreScore, Score};
use crate::memory::{Memory, ShapeMemory, versions};
use crate::profile::Profile;
use crate::random::Random;
use crate::timing::{FilterTime, SKIP, SUCCESS, TimedScore, Timer, Timing};

/// For this many pods nodes are not ranked after that has failed.
const UNRANKED_AFTER_FAILURE: u32 = 100;
/// More groups than this are not worth it.
const GROUPS_MAX: usize = 64;

/// All nodes as pods of one shape see them.
#[derive(Debug, Default)]
pub(crate) struct RankedNodes {
    holds_for: RankingKey,
    /// Changes of nodes are taken into account up to this generation.
    generation: u64,
    /// By number.
    groups: Vec<Group>,
    ranking: Ranking,
}

/// If one of these changes, the ranking is rebuilt.
#[derive(Debug, Default, PartialEq)]
struct RankingKey {
    filters: Vec<&'static str>,
    scorers: Vec<&'static str>,
    versions: [u64; 4],
    order: u64,
}

#[derive(Debug, PartialEq)]
enum Group {
    Rejected {
        plugin: &'static str,
        code: Code,
    },
    /// With the raw scores of the plugins that compare nodes.
    Fits(Vec<i64>),
}

struct Scorer<'c> {
    name: &'static str,
    weight: i64,
    score: Box<dyn Score + 'c>,
    spent: Option<FilterTime>,
    /// The budget for expressions: past it, answers cannot be used.
    budget: Option<&'c Meter>,
}

/// Ranking is not possible: nodes must be evaluated in turn.
struct NotRankable;

impl Search<'_> {
    /// Returns the node for the pod, if ranking can determine it. It cannot determine why no node fits.
    pub(super) fn choose_ranked(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        memory: &mut Memory,
        random: &mut Random,
        timer: &mut Timer,
    ) -> Option<Choice> {
        // Nominated pods affect the result, but are not part of the cached state.
        if !self.cluster.nominated.is_empty() || !pod.nominated_node.is_empty() || filters.nodes.is_some() {
            return None;
        }
        let (first, depends_on) = filters.rememberable();
        if first < filters.asked.len() {
            return None;
        }
        let remembered = memory.of(pod)?;
        if let Some(less) = remembered.unranked.checked_sub(1) {
            remembered.unranked = less;
            return None;
        }
        let mark = timer.mark();
        let mut ranked = std::mem::take(&mut remembered.ranked);
        let chosen = scorers(self.profile, pod, self.cluster, timer).and_then(|scorers| {
            self.choose_by_rank(filters, depends_on, &scorers, &mut ranked, remembered, random, timer)
        });
        if chosen.is_none() {
            timer.rewind(mark);
        }
        remembered.ranked = ranked;
        chosen
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is needed")]
    fn choose_by_rank(
        &self,
        filters: &Filters<'_>,
        depends_on: Dependencies,
        scorers: &[Scorer<'_>],
        ranked: &mut RankedNodes,
        remembered: &mut ShapeMemory,
        random: &mut Random,
        timer: &mut Timer,
    ) -> Option<Choice> {
        let cache = &self.cluster.cache;
        let order = cache.order();
        let start = self.start.checked_rem(order.len())?;
        let enough = self.enough(order.len());
        let begun = timer.begin();
        ranked.begin(filters, depends_on, scorers, self.cluster);
        remembered.begin_verdicts(filters.asked.iter().map(|asked| asked.name), depends_on, self.cluster);
        for scorer in scorers {
            remembered.scores(scorer.name).begin(scorer.score.depends_on(), self.cluster);
        }
        let mut asking = NodeEvaluator { filters, scorers, remembered };
        let mut statuses = Statuses::default();
        let groups = &mut ranked.groups;
        let found = ranked.ranking.find(start, enough, |position| {
            let node = order.get(position).and_then(|id| cache.node(*id)).ok_or(NotRankable)?;
            asking.ask(node, &mut statuses, groups)
        });
        let Ok(passed) = found else {
            *ranked = RankedNodes::default();
            asking.remembered.unranked = UNRANKED_AFTER_FAILURE;
            return None;
        };
        if passed.fitting == 0 {
            return None;
        }
        let rejections = ranked.rejections(&passed);
        timer.end(begun, Point::Filter, "", SUCCESS);
        let against = |asked: &PluginFilter<'_>| rejections.iter().any(|(plugin, ..)| *plugin == asked.name);
        filters.asked.iter().filter_map(|asked| asked.timing(against(asked))).for_each(|timing| timer.add(timing));

        let begun = timer.begin();
        let fitting: Vec<&Tally> = passed.tallies.iter().filter(|tally| tally.fits).collect();
        let has_choice = passed.fitting > 1;
        let normalized =
            if has_choice { ranked.normalized(&fitting, scorers)? } else { vec![Vec::new(); fitting.len()] };
        let added = |normalized: &Vec<(usize, i64)>| {
            let weigh = |(place, score): &(usize, i64)| weighed(scorers, *place, *score);
            normalized.iter().map(weigh).fold(0, i64::saturating_add)
        };
        let added: Vec<i64> = normalized.iter().map(added).collect();
        let totals = || fitting.iter().zip(&added).map(|(tally, added)| (*tally, tally.best.saturating_add(*added)));
        let highest = totals().map(|(_, total)| total).max()?;
        let best = || totals().filter(|(_, total)| *total == highest).map(|(tally, _)| tally);
        let mut wanted: Vec<Option<i64>> = vec![None; ranked.groups.len()];
        for tally in best() {
            if let Some(slot) = wanted.get_mut(tally.group as usize) {
                *slot = Some(tally.best);
            }
        }
        let lot = random.below(best().map(|tally| tally.ties).sum());
        let score_of = |group: u32| wanted.get(group as usize).copied().flatten();
        let position = ranked.ranking.nth(start, passed.nodes, lot, score_of)?;
        let node = cache.node(*order.get(position)?)?;
        let mut evaluations = of_rejections(filters.asked.iter().map(|asked| asked.name), passed.nodes, &rejections);
        let mut score = None;
        if has_choice {
            evaluations.extend(of_scores(scorers.iter().map(|scorer| (scorer.name, passed.fitting))));
            let group = ranked.ranking.group_of(position);
            let normalized = fitting.iter().zip(&normalized).find(|(tally, _)| Some(tally.group) == group)?.1;
            score = Some(asking.score_of(node, normalized, highest)?);
        }
        timer.end(begun, Point::Score, "", SUCCESS);
        scorers.iter().filter_map(Scorer::timing).for_each(|timing| timer.add(timing));
        let node = Ok(ChosenNode { id: node.id, score });
        Some(Choice { evaluated: passed.nodes, feasible: passed.fitting, evaluations, node })
    }
}

impl RankedNodes {
    /// Whether nodes are ranked.
    #[cfg(test)]
    pub(crate) fn is_ranked(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Removes outdated state.
    fn begin(&mut self, filters: &Filters<'_>, depends_on: Dependencies, scorers: &[Scorer<'_>], cluster: &Cluster) {
        let depends_on = scorers.iter().fold(depends_on, |all, scorer| all.and(scorer.score.depends_on()));
        let cache = &cluster.cache;
        let versions = versions(depends_on, cluster);
        let holds = &self.holds_for;
        let stands = holds.order == cache.order_version()
            && holds.versions == versions
            && holds.filters.iter().copied().eq(filters.asked.iter().map(|asked| asked.name))
            && holds.scorers.iter().copied().eq(scorers.iter().map(|scorer| scorer.name));
        match cache.changed_since(self.generation).filter(|_| stands) {
            Some(changed) => {
                changed.iter().filter_map(|id| cache.position(*id)).for_each(|position| self.ranking.forget(position));
            }
            None => {
                self.holds_for = RankingKey {
                    filters: filters.asked.iter().map(|asked| asked.name).collect(),
                    scorers: scorers.iter().map(|scorer| scorer.name).collect(),
                    versions,
                    order: cache.order_version(),
                };
                self.groups.clear();
                self.ranking.reset(cache.order().len());
            }
        }
        self.generation = cache.last_generation();
    }

    fn rejections(&self, passed: &SearchExtent) -> Vec<(&'static str, Code, usize)> {
        let groups = passed.tallies.iter().map(|tally| (self.groups.get(tally.group as usize), tally.count));
        let rejected = groups.filter_map(|(group, count)| match group {
            Some(Group::Rejected { plugin, code }) => Some((*plugin, *code, count)),
            _ => None,
        });
        rejected.collect()
    }

    /// Returns the normalized scores of the groups by the plugins that compare nodes: for each group, by plugin
    /// index.
    fn normalized(&self, fitting: &[&Tally], scorers: &[Scorer<'_>]) -> Option<Vec<Vec<(usize, i64)>>> {
        let mut all: Vec<Vec<(usize, i64)>> = vec![Vec::new(); fitting.len()];
        let relative = scorers.iter().enumerate().filter(|(_, scorer)| scorer.score.is_relative());
        for (nth, (place, scorer)) in relative.enumerate() {
            let raw = fitting.iter().map(|tally| match self.groups.get(tally.group as usize) {
                Some(Group::Fits(raw)) => raw.get(nth).map(|raw| (NodeId(tally.group), *raw)),
                _ => None,
            });
            let mut scores = raw.collect::<Option<Vec<(NodeId, i64)>>>()?;
            scorer.score.normalize(&mut scores);
            for (of_group, (_, score)) in all.iter_mut().zip(scores) {
                of_group.push((place, in_range(score)?));
            }
        }
        Some(all)
    }
}

/// Returns a score in range; others are an error, which the search in turn reports.
fn in_range(score: i64) -> Option<i64> {
    (0..=MAX_NODE_SCORE).contains(&score).then_some(score)
}

fn weighed(scorers: &[Scorer<'_>], place: usize, score: i64) -> i64 {
    scorers.get(place).map_or(0, |scorer| scorer.weight.saturating_mul(score))
}

/// Prepares the scorers. `None` if one of them needs all nodes.
fn scorers<'c>(
    profile: &'c Profile,
    pod: &'c PodInfo,
    cluster: &'c Cluster,
    timer: &mut Timer,
) -> Option<Vec<Scorer<'c>>> {
    let mut scorers = Vec::new();
    let budget = cluster.meter();
    for enabled in profile.at(Point::Score) {
        let name = enabled.name();
        let begun = timer.begin_plugin();
        let said = enabled.plugin.pre_score(pod, cluster, None);
        timer.end(begun, Point::PreScore, name, if matches!(said, PreScore::Skip) { SKIP } else { SUCCESS });
        let score = match said {
            PreScore::Skip => continue,
            PreScore::Ask(score) if is_remembered(score.depends_on()) => score,
            PreScore::Ask(_) | PreScore::Together | PreScore::Fail(_) => return None,
        };
        scorers.push(match timer.by_plugin() {
            None => Scorer { name, weight: enabled.weight, score, spent: None, budget },
            Some(clock) => {
                let spent = FilterTime::default();
                let score = Box::new(TimedScore { score, clock, spent: spent.clone() });
                Scorer { name, weight: enabled.weight, score, spent: Some(spent), budget }
            }
        });
    }
    Some(scorers)
}

impl Scorer<'_> {
    fn timing(&self) -> Option<Timing> {
        let (duration, calls) = self.spent.as_ref()?.get();
        let timing = Timing { point: Point::Score, plugin: self.name, status: SUCCESS, duration, calls };
        (calls > 0).then_some(timing)
    }
}

/// The plugins to run on a node.
struct NodeEvaluator<'a, 'c> {
    filters: &'a Filters<'c>,
    scorers: &'a [Scorer<'c>],
    remembered: &'a mut ShapeMemory,
}

impl NodeEvaluator<'_, '_> {
    fn ask(
        &mut self,
        node: &NodeInfo,
        statuses: &mut Statuses,
        groups: &mut Vec<Group>,
    ) -> Result<NodeRank, NotRankable> {
        let verdicts = &mut self.remembered.verdicts;
        let verdict = verdicts.get_or_ask(node, || statuses.note(self.filters.ask(node))).map_err(|_| NotRankable)?;
        let (group, score) = match verdict {
            Some(status) => (Group::Rejected { plugin: status.plugin, code: status.code }, 0),
            None => {
                let (mut relative, mut sum) = (Vec::new(), 0_i64);
                for scorer in self.scorers {
                    let raw = raw(scorer, node, self.remembered)?;
                    if scorer.score.is_relative() {
                        relative.push(raw);
                    } else {
                        let score = in_range(raw).ok_or(NotRankable)?;
                        sum = sum.saturating_add(score.saturating_mul(scorer.weight));
                    }
                }
                (Group::Fits(relative), sum)
            }
        };
        let fits = matches!(group, Group::Fits(_));
        let number = match groups.iter().position(|known| *known == group) {
            Some(number) => number,
            None if groups.len() >= GROUPS_MAX => return Err(NotRankable),
            None => {
                groups.push(group);
                groups.len().saturating_sub(1)
            }
        };
        Ok(NodeRank { group: u32::try_from(number).map_err(|_| NotRankable)?, fits, score })
    }

    /// Returns the parts of a node's score.
    fn score_of(&mut self, node: &NodeInfo, normalized: &[(usize, i64)], total: i64) -> Option<ScoreOf> {
        let mut by_plugin = Vec::with_capacity(self.scorers.len());
        for (place, scorer) in self.scorers.iter().enumerate() {
            let score = match normalized.iter().find(|(it, _)| *it == place) {
                Some((_, score)) => *score,
                None => raw(scorer, node, self.remembered).ok()?,
            };
            by_plugin.push((scorer.name, score.saturating_mul(scorer.weight)));
        }
        Some(ScoreOf { total, by_plugin })
    }
}

fn raw(scorer: &Scorer<'_>, node: &NodeInfo, remembered: &mut ShapeMemory) -> Result<i64, NotRankable> {
    let ask = || match scorer.score.score(node) {
        Ok(score) if !scorer.budget.is_some_and(Meter::is_exceeded) => Ok(score),
        _ => Err(NotRankable),
    };
    remembered.scores(scorer.name).get_or_ask(node, ask)
}
