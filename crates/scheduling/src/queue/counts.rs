//! Counters of the queue: causes of moves, and plugins that block pods.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use api::json::Text;

use super::PluginSet;
use crate::framework::Event;

/// Cause of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of metrics")]
pub enum Cause {
    /// The pod is new.
    Added,
    /// The pod was changed.
    Changed,
    /// An event may help the pod.
    Event(Event),
    ScheduleAttemptFailure,
    BackoffComplete,
    UnschedulableTimeout,
    ForceActivate,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Added => f.write_str("UnscheduledPodAdd"),
            Cause::Changed => f.write_str("UnscheduledPodUpdate"),
            Cause::Event(event) => event.fmt(f),
            Cause::ScheduleAttemptFailure => f.write_str("ScheduleAttemptFailure"),
            Cause::BackoffComplete => f.write_str("BackoffComplete"),
            Cause::UnschedulableTimeout => f.write_str("UnschedulableTimeout"),
            Cause::ForceActivate => f.write_str("ForceActivate"),
        }
    }
}

/// Counters of the queue.
#[derive(Debug, Default)]
pub(super) struct Counts {
    moves: HashMap<(&'static str, Cause), u64>,
    /// Pods that wait, by scheduler name and by the place of a plugin that rejected them.
    rejected: BTreeMap<Text, BTreeMap<usize, usize>>,
}

impl Counts {
    pub(super) fn moved(&mut self, to: &'static str, cause: Cause) {
        let count = self.moves.entry((to, cause)).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn take_moves(&mut self) -> impl Iterator<Item = (&'static str, Cause, u64)> + use<> {
        let moves = std::mem::take(&mut self.moves);
        moves.into_iter().map(|((queue, cause), count)| (queue, cause, count))
    }

    pub(super) fn waits(&mut self, scheduler_name: &Text, by: PluginSet) {
        let plugins = match self.rejected.get_mut(scheduler_name) {
            Some(plugins) => plugins,
            None => self.rejected.entry(scheduler_name.clone()).or_default(),
        };
        for place in places(by) {
            let count = plugins.entry(place).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// A plugin that blocks no pod keeps its entry with zero, so that its gauge is updated.
    pub(super) fn waits_no_longer(&mut self, scheduler_name: &Text, by: PluginSet) {
        let Some(plugins) = self.rejected.get_mut(scheduler_name) else { return };
        for place in places(by) {
            if let Some(count) = plugins.get_mut(&place) {
                *count = count.saturating_sub(1);
            }
        }
    }

    pub(super) fn rejected_by(&self) -> impl Iterator<Item = (&Text, usize, usize)> {
        self.rejected
            .iter()
            .flat_map(|(name, plugins)| plugins.iter().map(move |(place, count)| (name, *place, *count)))
    }
}

/// The places of plugins in the list of all plugins.
fn places(set: PluginSet) -> impl Iterator<Item = usize> {
    (0..PluginSet::BITS).filter(move |place| set.checked_shr(*place).unwrap_or(0) & 1 != 0).map(|place| place as usize)
}
