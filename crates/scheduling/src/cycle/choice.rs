//! The node for a pod: the best of those that fit, by lot among the best.

use super::evaluations::{Evaluation, of_filters, of_scores};
use super::scores::{ScoreOf, score_timed};
use super::search::Search;
use super::{Filters, Found};
use crate::cluster::{NodeId, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::framework::Status;
use crate::memory::Memory;
use crate::random::Random;
use crate::timing::Timer;

/// What came of looking for a node.
#[derive(Debug)]
pub(crate) struct Choice {
    /// How many nodes were looked at.
    pub(crate) evaluated: usize,
    /// How many of them fit.
    pub(crate) feasible: usize,
    /// How often plugins were asked, and what they said.
    pub(crate) evaluations: Vec<Evaluation>,
    /// The node.
    pub(crate) node: Result<Chosen, NoNode>,
}

/// A node for the pod.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) id: NodeId,
    /// How much plugins like it, where there was a choice.
    pub(crate) score: Option<ScoreOf>,
}

/// Why there is no node.
#[derive(Debug)]
pub(crate) enum NoNode {
    NoFit(Box<Diagnosis>),
    Error(Status),
}

impl Search<'_> {
    /// The node for the pod.
    pub(crate) fn choose(&self, pod: &PodInfo, memory: &mut Memory, random: &mut Random, timer: &mut Timer) -> Choice {
        memory.begin(pod);
        let found = match Filters::timed(self.profile, pod, self.cluster, timer) {
            Ok(filters) => match self.choose_ranked(pod, &filters, memory, random, timer) {
                Some(choice) => return choice,
                None => self.look(pod, &filters, memory.of(pod), timer),
            },
            Err(refused) => self.refused(refused),
        };
        match found {
            Ok(found) => self.choose_among(pod, found, memory, random, timer),
            Err(status) => {
                Choice { evaluated: 0, feasible: 0, evaluations: Vec::new(), node: Err(NoNode::Error(status)) }
            }
        }
    }

    fn choose_among(
        &self,
        pod: &PodInfo,
        found: Found,
        memory: &mut Memory,
        random: &mut Random,
        timer: &mut Timer,
    ) -> Choice {
        let mut evaluations = of_filters(&found);
        let (evaluated, feasible) = (found.evaluated, found.feasible.len());
        let node = match found.feasible.as_slice() {
            [] => Err(NoNode::NoFit(Box::new(found.diagnosis))),
            [only] => {
                // A lot is drawn in any case, so that a run with the same seed goes the same way.
                random.below(1);
                Ok(Chosen { id: *only, score: None })
            }
            several => match score_timed(self.profile, pod, self.cluster, several, memory, timer) {
                Ok(scores) => {
                    evaluations.extend(of_scores(scores.by_plugin.iter().map(|by| (by.plugin, by.raw.len()))));
                    let id = random.choose(&scores.best()).copied();
                    let chosen = id.map(|id| Chosen { id, score: scores.of(id) });
                    chosen.ok_or_else(|| NoNode::Error(Status::error("no node")))
                }
                Err(status) => Err(NoNode::Error(status)),
            },
        };
        Choice { evaluated, feasible, evaluations, node }
    }
}
