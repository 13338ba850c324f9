//! One attempt to place one pod: which nodes fit, and which of them is best.
//!
//! Follows `schedulePod` of Kubernetes' `schedule_one.go`. What becomes of the answer is the [`Scheduler`](crate::Scheduler)'s.

mod choice;
mod evaluations;
mod ranked;
mod ranking;
mod scores;
mod search;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::json::Text;
pub(crate) use choice::{Choice, Chosen, NoNode};
pub use evaluations::Evaluation;
pub(crate) use ranked::Ranked;
pub use scores::{ScoreOf, Scores, score, score_remembering, score_timed};
pub(crate) use search::filter_failed;
pub use search::{Found, Search, nodes_to_find};

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Code, Dependencies, Filter, Point, PreFilter, Status};
use crate::profile::Profile;
use crate::timing::{SKIP, SUCCESS, Spent, TimedFilter, Timer, Timing};

/// What the plugins worked out about a pod before nodes are looked at.
pub struct Filters<'c> {
    /// Plugins that have to be asked, in order.
    pub asked: Vec<Asked<'c>>,
    /// Plugins that have nothing against any node.
    pub skipped: Vec<&'static str>,
    /// The only nodes that are worth a look; nothing for all.
    pub nodes: Option<BTreeSet<Text>>,
    /// Who left out the others.
    pub narrowed_by: BTreeSet<&'static str>,
}

/// A plugin that has to be asked.
pub struct Asked<'c> {
    /// Its name.
    pub name: &'static str,
    /// What it has to say.
    pub filter: Box<dyn Filter + 'c>,
    /// What it has spent on that, where it is measured.
    spent: Option<Spent>,
}

/// Why no node needs to be looked at.
#[derive(Debug)]
pub struct Refused {
    /// What was said.
    pub status: Status,
    /// Who left out nodes, where none is left.
    pub narrowed_by: BTreeSet<&'static str>,
}

impl<'c> Asked<'c> {
    fn new(name: &'static str, filter: Box<dyn Filter + 'c>, timer: &Timer) -> Self {
        match timer.by_plugin() {
            None => Asked { name, filter, spent: None },
            Some(clock) => {
                let spent = Spent::default();
                let filter = Box::new(TimedFilter { filter, clock, spent: spent.clone() });
                Asked { name, filter, spent: Some(spent) }
            }
        }
    }

    /// What if: not measured.
    fn copy(&self) -> Asked<'_> {
        Asked { name: self.name, filter: self.filter.copy(), spent: None }
    }

    /// What it has spent on nodes.
    pub(crate) fn timing(&self, rejected: bool) -> Option<Timing> {
        let (duration, calls) = self.spent.as_ref()?.get();
        let status = if rejected { Code::Unschedulable.name() } else { SUCCESS };
        (calls > 0).then_some(Timing { point: Point::Filter, plugin: self.name, status, duration, calls })
    }
}

impl<'c> Filters<'c> {
    /// Asks every plugin what it has against the pod.
    ///
    /// # Errors
    /// A plugin is against all nodes, or together they leave none.
    pub fn new(profile: &'c Profile, pod: &'c PodInfo, cluster: &'c Cluster) -> Result<Self, Refused> {
        Self::timed(profile, pod, cluster, &mut Timer::off())
    }

    /// As [`new`](Self::new), measured.
    ///
    /// # Errors
    /// A plugin is against all nodes, or together they leave none.
    pub fn timed(
        profile: &'c Profile,
        pod: &'c PodInfo,
        cluster: &'c Cluster,
        timer: &mut Timer,
    ) -> Result<Self, Refused> {
        let begun = timer.begin();
        let made = Self::make(profile, pod, cluster, timer);
        let status = made.as_ref().err().map_or(SUCCESS, |refused| refused.status.code.name());
        timer.end(begun, Point::PreFilter, "", status);
        made
    }

    fn make(profile: &'c Profile, pod: &'c PodInfo, cluster: &'c Cluster, timer: &mut Timer) -> Result<Self, Refused> {
        let mut filters = Filters { asked: Vec::new(), skipped: Vec::new(), nodes: None, narrowed_by: BTreeSet::new() };
        for enabled in profile.at(Point::Filter) {
            let name = enabled.plugin.name();
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
                    return Err(Refused { status, narrowed_by: BTreeSet::new() });
                }
            };
            filters.asked.push(Asked::new(name, filter, timer));
            if let Some(nodes) = nodes {
                filters.narrow(name, nodes)?;
            }
        }
        Ok(filters)
    }

    fn narrow(&mut self, by: &'static str, nodes: BTreeSet<Text>) -> Result<(), Refused> {
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
            return Err(Refused { status: Status::unresolvable(text), narrowed_by: self.narrowed_by.clone() });
        }
        self.nodes = Some(left);
        Ok(())
    }

    /// What the first plugin says that is against the node.
    ///
    /// # Errors
    /// What it says.
    pub fn ask(&self, node: &NodeInfo) -> Result<(), Status> {
        self.asked.iter().try_for_each(|asked| asked.filter.filter(node).map_err(|status| status.by(asked.name)))
    }

    /// How many of the first plugins say what can be remembered for the node, and what that depends on.
    ///
    /// Only the first, because the first that is against a node gives the reason. What depends on pods elsewhere changes with
    /// every pod: remembering it would cost more than it saves.
    pub fn rememberable(&self) -> (usize, Dependencies) {
        let cannot = |depends: Dependencies| {
            depends.include(Dependencies::UNKNOWN) || depends.include(Dependencies::PODS) || depends.is_empty()
        };
        let depends: Vec<Dependencies> = self.asked.iter().map(|asked| asked.filter.depends_on()).collect();
        let first = depends.iter().take_while(|depends| !cannot(**depends));
        first.fold((0, Dependencies::default()), |(count, all), depends| (count.saturating_add(1), all.and(*depends)))
    }

    /// As [`ask`](Self::ask), only some of the plugins.
    ///
    /// # Errors
    /// What the first that is against the node says.
    pub fn ask_some(&self, from: usize, to: usize, node: &NodeInfo) -> Result<(), Status> {
        let mut some = self.asked.iter().take(to).skip(from);
        some.try_for_each(|asked| asked.filter.filter(node).map_err(|status| status.by(asked.name)))
    }

    /// As [`ask`](Self::ask), also with the pods for which room is being made on the node: both must hold, because they may
    /// come or not.
    ///
    /// # Errors
    /// What the first plugin says.
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

    /// A copy for a run of what-if.
    pub fn copy(&self) -> Filters<'_> {
        Filters {
            asked: self.asked.iter().map(Asked::copy).collect(),
            skipped: self.skipped.clone(),
            nodes: self.nodes.clone(),
            narrowed_by: self.narrowed_by.clone(),
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
