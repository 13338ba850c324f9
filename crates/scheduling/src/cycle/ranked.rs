//! The best of the nodes that fit, found by what is summed up of them instead of by a look at each.
//!
//! It comes to what a search and the scores of what it found come to, by the same answers of the same plugins. It can be had
//! where each plugin's answer about a node holds as long as the node stands as it is. What a plugin makes of its raw scores
//! afterwards may compare nodes: those with the same raw scores are one group, and groups are compared.

use super::choice::{Choice, Chosen};
use super::evaluations::{of_rejections, of_scores};
use super::ranking::{Known, Passed, Ranking, Tally};
use super::scores::{ScoreOf, is_remembered};
use super::search::{Search, Statuses};
use super::{Asked, Filters};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{Code, Dependencies, MAX_NODE_SCORE, Point, PreScore, Score};
use crate::memory::{Memory, Remembered, versions};
use crate::profile::Profile;
use crate::random::Random;
use crate::timing::{SKIP, SUCCESS, Spent, TimedScore, Timer, Timing};

/// For this many pods nodes are not ranked after that has failed.
const UNRANKED_AFTER_FAILURE: u32 = 100;
/// More groups than this are not worth it.
const GROUPS_MAX: usize = 64;

/// All nodes as pods of one shape see them.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    holds_for: HoldsFor,
    /// Changes of nodes are taken into account up to this generation.
    generation: u64,
    /// By number.
    groups: Vec<Group>,
    ranking: Ranking,
}

/// If one of these changes, everything begins anew.
#[derive(Debug, Default, PartialEq)]
struct HoldsFor {
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
    spent: Option<Spent>,
}

/// Nodes have to be looked at in turn.
struct Plainly;

impl Search<'_> {
    /// The node for the pod, if ranking can tell. It cannot tell why no node fits.
    pub(super) fn choose_ranked(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        memory: &mut Memory,
        random: &mut Random,
        timer: &mut Timer,
    ) -> Option<Choice> {
        // Pods for which room is being made count, and are not part of what is remembered.
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
        ranked: &mut Ranked,
        remembered: &mut Remembered,
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
        let mut asking = Asking { filters, scorers, remembered };
        let mut statuses = Statuses::default();
        let groups = &mut ranked.groups;
        let found = ranked.ranking.find(start, enough, |position| {
            let node = order.get(position).and_then(|id| cache.node(*id)).ok_or(Plainly)?;
            asking.ask(node, &mut statuses, groups)
        });
        let Ok(passed) = found else {
            *ranked = Ranked::default();
            asking.remembered.unranked = UNRANKED_AFTER_FAILURE;
            return None;
        };
        if passed.fitting == 0 {
            return None;
        }
        let rejections = ranked.rejections(&passed);
        timer.end(begun, Point::Filter, "", SUCCESS);
        let against = |asked: &Asked<'_>| rejections.iter().any(|(plugin, ..)| *plugin == asked.name);
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
        let node = Ok(Chosen { id: node.id, score });
        Some(Choice { evaluated: passed.nodes, feasible: passed.fitting, evaluations, node })
    }
}

impl Ranked {
    /// Something is known.
    #[cfg(test)]
    pub(crate) fn is_ranked(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Forgets what has changed.
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
                self.holds_for = HoldsFor {
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

    fn rejections(&self, passed: &Passed) -> Vec<(&'static str, Code, usize)> {
        let groups = passed.tallies.iter().map(|tally| (self.groups.get(tally.group as usize), tally.count));
        let rejected = groups.filter_map(|(group, count)| match group {
            Some(Group::Rejected { plugin, code }) => Some((*plugin, *code, count)),
            _ => None,
        });
        rejected.collect()
    }

    /// What the plugins that compare nodes make of the groups' raw scores: for each group, by the place of the plugin.
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

/// A score that counts; others are an error, which the plain way tells.
fn in_range(score: i64) -> Option<i64> {
    (0..=MAX_NODE_SCORE).contains(&score).then_some(score)
}

fn weighed(scorers: &[Scorer<'_>], place: usize, score: i64) -> i64 {
    scorers.get(place).map_or(0, |scorer| scorer.weight.saturating_mul(score))
}

/// Those who like nodes. Nothing if one of them cannot say how much without all others.
fn scorers<'c>(
    profile: &'c Profile,
    pod: &'c PodInfo,
    cluster: &'c Cluster,
    timer: &mut Timer,
) -> Option<Vec<Scorer<'c>>> {
    let mut scorers = Vec::new();
    for enabled in profile.at(Point::Score) {
        let name = enabled.plugin.name();
        let begun = timer.begin_plugin();
        let said = enabled.plugin.pre_score(pod, cluster, None);
        timer.end(begun, Point::PreScore, name, if matches!(said, PreScore::Skip) { SKIP } else { SUCCESS });
        let score = match said {
            PreScore::Skip => continue,
            PreScore::Ask(score) if is_remembered(score.depends_on()) => score,
            PreScore::Ask(_) | PreScore::Together | PreScore::Fail(_) => return None,
        };
        scorers.push(match timer.by_plugin() {
            None => Scorer { name, weight: enabled.weight, score, spent: None },
            Some(clock) => {
                let spent = Spent::default();
                let score = Box::new(TimedScore { score, clock, spent: spent.clone() });
                Scorer { name, weight: enabled.weight, score, spent: Some(spent) }
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

/// Whom to ask about a node.
struct Asking<'a, 'c> {
    filters: &'a Filters<'c>,
    scorers: &'a [Scorer<'c>],
    remembered: &'a mut Remembered,
}

impl Asking<'_, '_> {
    fn ask(&mut self, node: &NodeInfo, statuses: &mut Statuses, groups: &mut Vec<Group>) -> Result<Known, Plainly> {
        let verdicts = &mut self.remembered.verdicts;
        let verdict = verdicts.get_or_ask(node, || statuses.note(self.filters.ask(node))).map_err(|_| Plainly)?;
        let (group, score) = match verdict {
            Some(status) => (Group::Rejected { plugin: status.plugin, code: status.code }, 0),
            None => {
                let (mut relative, mut sum) = (Vec::new(), 0_i64);
                for scorer in self.scorers {
                    let raw = raw(scorer, node, self.remembered)?;
                    if scorer.score.is_relative() {
                        relative.push(raw);
                    } else {
                        let score = in_range(raw).ok_or(Plainly)?;
                        sum = sum.saturating_add(score.saturating_mul(scorer.weight));
                    }
                }
                (Group::Fits(relative), sum)
            }
        };
        let fits = matches!(group, Group::Fits(_));
        let number = match groups.iter().position(|known| *known == group) {
            Some(number) => number,
            None if groups.len() >= GROUPS_MAX => return Err(Plainly),
            None => {
                groups.push(group);
                groups.len().saturating_sub(1)
            }
        };
        Ok(Known { group: u32::try_from(number).map_err(|_| Plainly)?, fits, score })
    }

    /// What makes up the score of a node.
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

fn raw(scorer: &Scorer<'_>, node: &NodeInfo, remembered: &mut Remembered) -> Result<i64, Plainly> {
    remembered.scores(scorer.name).get_or_ask(node, || scorer.score.score(node)).map_err(|_| Plainly)
}
