//! The node for a pod: the best of those that fit, by lot among the best.

use super::evaluations::{Evaluation, of_filters, of_refusal, of_scores};
use super::scores::{ScoreOf, score_timed};
use super::search::Search;
use super::{Filters, SearchResult};
use crate::cluster::{NodeId, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::framework::Status;
use crate::memory::Memory;
use crate::random::Random;
use crate::timing::Timer;

/// Result of a node search.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Number of evaluated nodes.
    pub(crate) evaluated: usize,
    /// Number of nodes that fit.
    pub(crate) feasible: usize,
    /// Number of plugin results, by plugin and status.
    pub(crate) evaluations: Vec<Evaluation>,
    /// The node.
    pub(crate) node: Result<ChosenNode, NoNode>,
}

/// A node for the pod.
#[derive(Debug)]
pub(crate) struct ChosenNode {
    pub(crate) id: NodeId,
    /// Score of the node, if there was a choice.
    pub(crate) score: Option<ScoreOf>,
}

/// A reason why there is no node.
#[derive(Debug)]
pub(crate) enum NoNode {
    NoFit(Box<Diagnosis>),
    Error(Status),
}

impl Search<'_> {
    /// The node for the pod.
    pub(crate) fn choose(&self, pod: &PodInfo, memory: &mut Memory, random: &mut Random, timer: &mut Timer) -> Choice {
        memory.begin(pod);
        let mut refusal = None;
        let found = match Filters::timed(self.profile, pod, self.cluster, timer) {
            Ok(filters) => match self.choose_ranked(pod, &filters, memory, random, timer) {
                Some(choice) => return choice,
                None => self.look(pod, &filters, memory.of(pod), timer),
            },
            Err(refused) => {
                refusal = Some(of_refusal(refused.status.plugin, refused.status.code));
                self.refused(refused)
            }
        };
        match found {
            Ok(found) => {
                let mut choice = self.choose_among(pod, found, memory, random, timer);
                choice.evaluations.extend(refusal.filter(|it| !it.plugin.is_empty()));
                choice
            }
            Err(status) => {
                Choice { evaluated: 0, feasible: 0, evaluations: Vec::new(), node: Err(NoNode::Error(status)) }
            }
        }
    }

    fn choose_among(
        &self,
        pod: &PodInfo,
        found: SearchResult,
        memory: &mut Memory,
        random: &mut Random,
        timer: &mut Timer,
    ) -> Choice {
        let mut evaluations = of_filters(&found);
        let (evaluated, feasible) = (found.evaluated, found.feasible.len());
        let node = match found.feasible.as_slice() {
            [] => Err(NoNode::NoFit(Box::new(found.diagnosis))),
            [only] => {
                // A random number is drawn in any case, so that a run with the same seed is reproducible.
                random.below(1);
                Ok(ChosenNode { id: *only, score: None })
            }
            several => match score_timed(self.profile, pod, self.cluster, several, memory, timer) {
                Ok(scores) => {
                    evaluations.extend(of_scores(scores.by_plugin.iter().map(|by| (by.plugin, by.raw.len()))));
                    let id = random.choose(&scores.best()).copied();
                    let chosen = id.map(|id| ChosenNode { id, score: scores.of(id) });
                    chosen.ok_or_else(|| NoNode::Error(Status::error("no node")))
                }
                Err(status) => Err(NoNode::Error(status)),
            },
        };
        Choice { evaluated, feasible, evaluations, node }
    }
}
