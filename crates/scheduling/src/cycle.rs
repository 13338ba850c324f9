//! One attempt to place one pod: which nodes fit, and which of them is best.
//!
//! Follows `schedulePod` of Kubernetes' `schedule_one.go`. The [`Scheduler`](crate::Scheduler) handles the
//! result.

mod choice;
mod evaluations;
mod ranked;
mod ranking;
mod scores;
mod search;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::json::Text;
pub(crate) use choice::{Choice, ChosenNode, NoNode};
pub use evaluations::Evaluation;
pub(crate) use ranked::RankedNodes;
pub use scores::{ScoreOf, Scores, score, score_remembering, score_timed};
pub(crate) use search::filter_failed;
pub use search::{Search, SearchResult, nodes_to_find};

use matching::Meter;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Code, Dependencies, Filter, Point, PreFilter, Status};
use crate::profile::Profile;
use crate::timing::{FilterTime, SKIP, SUCCESS, TimedFilter, Timer, Timing};

/// The prepared filters of a pod, before nodes are evaluated.
pub struct Filters<'c> {
    /// Plugins with filters to run, in order.
    pub asked: Vec<PluginFilter<'c>>,
    /// Plugins that have nothing against any node.
    pub skipped: Vec<&'static str>,
    /// The only nodes that are worth a look; nothing for all.
    pub nodes: Option<BTreeSet<Text>>,
    /// Plugins that excluded the other nodes.
    pub narrowed_by: BTreeSet<&'static str>,
    /// The budget for expressions: past it, answers cannot be used.
    budget: Option<&'c Meter>,
}

/// A plugin with a filter to run.
pub struct PluginFilter<'c> {
    /// Name of the plugin.
    pub name: &'static str,
    /// The filter.
    pub filter: Box<dyn Filter + 'c>,
    /// Time that it has used, if it is measured.
    spent: Option<FilterTime>,
}

/// A rejection before any node was evaluated.
#[derive(Debug)]
pub struct PreFilterRejection {
    /// Status of the rejection.
    pub status: Status,
    /// Plugins that excluded nodes, if none is left.
    pub narrowed_by: BTreeSet<&'static str>,
}

impl<'c> PluginFilter<'c> {
    fn new(name: &'static str, filter: Box<dyn Filter + 'c>, timer: &Timer) -> Self {
        match timer.by_plugin() {
            None => PluginFilter { name, filter, spent: None },
            Some(clock) => {
                let spent = FilterTime::default();
                let filter = Box::new(TimedFilter { filter, clock, spent: spent.clone() });
                PluginFilter { name, filter, spent: Some(spent) }
            }
        }
    }

    /// A copy for what-if evaluation: not measured.
    fn copy(&self) -> PluginFilter<'_> {
        PluginFilter { name: self.name, filter: self.filter.copy(), spent: None }
    }

    /// Time spent on nodes.
    pub(crate) fn timing(&self, rejected: bool) -> Option<Timing> {
        let (duration, calls) = self.spent.as_ref()?.get();
        let status = if rejected { Code::Unschedulable.name() } else { SUCCESS };
        (calls > 0).then_some(Timing { point: Point::Filter, plugin: self.name, status, duration, calls })
    }
}

impl<'c> Filters<'c> {
    /// Runs PreFilter of every plugin.
    ///
    /// # Errors
    /// A plugin rejects all nodes, or the plugins together leave none.
    pub fn new(profile: &'c Profile, pod: &'c PodInfo, cluster: &'c Cluster) -> Result<Self, PreFilterRejection> {
        Self::timed(profile, pod, cluster, &mut Timer::off())
    }

    /// Like [`new`](Self::new), but measured.
    ///
    /// # Errors
    /// A plugin rejects all nodes, or the plugins together leave none.
    pub fn timed(
        profile: &'c Profile,
        pod: &'c PodInfo,
        cluster: &'c Cluster,
        timer: &mut Timer,
    ) -> Result<Self, PreFilterRejection> {
        let begun = timer.begin();
        let made = Self::make(profile, pod, cluster, timer);
        let status = made.as_ref().err().map_or(SUCCESS, |refused| refused.status.code.name());
        timer.end(begun, Point::PreFilter, "", status);
        made
    }

    fn make(
        profile: &'c Profile,
        pod: &'c PodInfo,
        cluster: &'c Cluster,
        timer: &mut Timer,
    ) -> Result<Self, PreFilterRejection> {
        let mut filters = Filters {
            asked: Vec::new(),
            skipped: Vec::new(),
            nodes: None,
            narrowed_by: BTreeSet::new(),
            budget: cluster.meter(),
        };
        for enabled in profile.at(Point::Filter) {
            let name = enabled.name();
            let begun = timer.begin_plugin();
            let said = enabled.plugin.pre_filter(pod, cluster);
            let status = match &said {
                PreFilter::Skip => SKIP,
                PreFilter::Reject(status) => status.code.name(),
                PreFilter::Ask(_) | PreFilter::AskAbout(..) => SUCCESS,
            };
            timer.end(begun, Point::PreFilter, name, status);
            let (filter, nodes) = match said {
                PreFilter::Skip => {
                    filters.skipped.push(name);
                    continue;
                }
                PreFilter::Ask(filter) => (filter, None),
                PreFilter::AskAbout(filter, nodes) => (filter, Some(nodes)),
                PreFilter::Reject(status) => {
                    let status = status.by(name);
                    return Err(PreFilterRejection { status, narrowed_by: BTreeSet::new() });
                }
            };
            filters.asked.push(PluginFilter::new(name, filter, timer));
            if let Some(nodes) = nodes {
                filters.narrow(name, nodes)?;
            }
        }
        match filters.within_budget(Ok(())) {
            Ok(()) => Ok(filters),
            Err(status) => Err(PreFilterRejection { status, narrowed_by: BTreeSet::new() }),
        }
    }

    /// An answer, if no evaluation was left out for it.
    fn within_budget(&self, answer: Result<(), Status>) -> Result<(), Status> {
        if self.budget.is_some_and(Meter::is_exceeded) { Err(over_budget()) } else { answer }
    }

    fn narrow(&mut self, by: &'static str, nodes: BTreeSet<Text>) -> Result<(), PreFilterRejection> {
        self.narrowed_by.insert(by);
        let left = match self.nodes.take() {
            Some(known) => known.intersection(&nodes).cloned().collect(),
            None => nodes,
        };
        if left.is_empty() {
            let names: Vec<&str> = self.narrowed_by.iter().copied().collect();
            let text = match names.as_slice() {
                [one] => format!("node(s) didn't satisfy plugin {one}"),
                several => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", several.join(" ")),
            };
            return Err(PreFilterRejection {
                status: Status::unresolvable(text),
                narrowed_by: self.narrowed_by.clone(),
            });
        }
        self.nodes = Some(left);
        Ok(())
    }

    /// Runs all filters on a node and returns the first rejection.
    ///
    /// # Errors
    /// Status of the first plugin that rejects the node.
    pub fn ask(&self, node: &NodeInfo) -> Result<(), Status> {
        let mut all = self.asked.iter();
        let answer = all.try_for_each(|asked| asked.filter.filter(node).map_err(|status| status.by(asked.name)));
        self.within_budget(answer)
    }

    /// Returns the number of leading plugins whose results can be cached for the node, and the dependencies of
    /// these results.
    ///
    /// Only leading plugins, because the first rejection gives the reason. Results that depend on pods
    /// elsewhere change with every pod: caching them would cost more than it saves.
    pub fn rememberable(&self) -> (usize, Dependencies) {
        let cannot = |depends: Dependencies| {
            depends.include(Dependencies::UNKNOWN) || depends.include(Dependencies::PODS) || depends.is_empty()
        };
        let depends: Vec<Dependencies> = self.asked.iter().map(|asked| asked.filter.depends_on()).collect();
        let first = depends.iter().take_while(|depends| !cannot(**depends));
        first.fold((0, Dependencies::default()), |(count, all), depends| (count.saturating_add(1), all.and(*depends)))
    }

    /// Like [`ask`](Self::ask), but runs only some of the plugins.
    ///
    /// # Errors
    /// Status of the first plugin that rejects the node.
    pub fn ask_some(&self, from: usize, to: usize, node: &NodeInfo) -> Result<(), Status> {
        let mut some = self.asked.iter().take(to).skip(from);
        let answer = some.try_for_each(|asked| asked.filter.filter(node).map_err(|status| status.by(asked.name)));
        self.within_budget(answer)
    }

    /// Like [`ask`](Self::ask), but also with the pods nominated to the node: the pod must fit with and without
    /// them, because they may never be placed there.
    ///
    /// # Errors
    /// Status of the first plugin that rejects the node.
    pub fn ask_with_nominated(&self, pod: &PodInfo, node: &NodeInfo, cluster: &Cluster) -> Result<(), Status> {
        if cluster.nominated.is_empty() {
            return self.ask(node);
        }
        let counts = |other: &&Arc<PodInfo>| other.uid != pod.uid && other.priority() >= pod.priority();
        let mut nominated = cluster.nominated.on(node.name()).iter().filter(counts).peekable();
        if nominated.peek().is_some() {
            let mut full = node.clone();
            let mut filters = self.copy();
            for other in nominated {
                full.add_pod(other.clone());
                filters.pod_added(other, &full);
            }
            filters.ask(&full)?;
        }
        self.ask(node)
    }

    /// A copy for a what-if evaluation.
    pub fn copy(&self) -> Filters<'_> {
        Filters {
            asked: self.asked.iter().map(PluginFilter::copy).collect(),
            skipped: self.skipped.clone(),
            nodes: self.nodes.clone(),
            narrowed_by: self.narrowed_by.clone(),
            budget: self.budget,
        }
    }

    /// A pod is imagined on a node.
    pub fn pod_added(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.asked.iter_mut().for_each(|asked| asked.filter.pod_added(pod, node));
    }

    /// A pod is imagined away from a node.
    pub fn pod_removed(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.asked.iter_mut().for_each(|asked| asked.filter.pod_removed(pod, node));
    }
}

/// Status of a plugin that skipped an evaluation. It is never cached, and ends the attempt.
pub(crate) fn over_budget() -> Status {
    Status::error("the budget for expressions is spent")
}
