//! A profile: which plugins decide about the pods of one scheduler name, in which order, with which weights.

use std::collections::BTreeMap;

use api::json::Text;

use crate::framework::{Event, Plugin, Point};
use crate::queue::PluginSet;

/// The plugins for the pods of one scheduler name.
#[derive(Debug)]
pub struct Profile {
    /// The name in `spec.schedulerName`.
    pub scheduler_name: Text,
    /// Percentage of the nodes to evaluate; `None` for Kubernetes' formula.
    pub percentage_of_nodes_to_score: Option<u32>,
    plugins: Vec<EnabledPlugin>,
    /// The plugins of each point by their places in the list, in order.
    order: BTreeMap<Point, Vec<usize>>,
}

/// A plugin with its extension points in this profile.
#[derive(Debug)]
pub struct EnabledPlugin {
    name: &'static str,
    /// The plugin.
    pub plugin: Box<dyn Plugin>,
    /// Weight of the normalized score.
    pub weight: i64,
    /// Position in the order of each point at which it is enabled.
    pub at: Vec<(Point, usize)>,
    pub(crate) bit: PluginSet,
    events: Vec<Event>,
}

impl EnabledPlugin {
    /// A plugin under its name and the bit of that name.
    pub(crate) fn new(
        (name, bit): (&'static str, PluginSet),
        plugin: Box<dyn Plugin>,
        weight: i64,
        at: Vec<(Point, usize)>,
    ) -> Self {
        EnabledPlugin { name, bit, events: plugin.events(), plugin, weight, at }
    }

    /// The name in configuration files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Profile {
    /// A profile of these plugins.
    pub fn new(scheduler_name: impl Into<Text>, plugins: Vec<EnabledPlugin>) -> Self {
        let mut places: BTreeMap<Point, Vec<(usize, usize)>> = BTreeMap::new();
        for (index, enabled) in plugins.iter().enumerate() {
            for (point, place) in &enabled.at {
                places.entry(*point).or_default().push((*place, index));
            }
        }
        let sorted = |mut list: Vec<(usize, usize)>| {
            list.sort_unstable();
            list.into_iter().map(|(_, index)| index).collect()
        };
        let order = places.into_iter().map(|(point, list)| (point, sorted(list))).collect();
        Profile { scheduler_name: scheduler_name.into(), percentage_of_nodes_to_score: None, plugins, order }
    }

    /// The plugins of a point, in order.
    pub fn at(&self, point: Point) -> impl Iterator<Item = &EnabledPlugin> {
        let order = self.order.get(&point).map(Vec::as_slice).unwrap_or_default();
        order.iter().filter_map(|index| self.plugins.get(*index))
    }

    /// All plugins.
    pub fn plugins(&self) -> impl Iterator<Item = &EnabledPlugin> {
        self.plugins.iter()
    }

    /// The plugins that wait for an event.
    pub fn listeners(&self, event: Event) -> impl Iterator<Item = &EnabledPlugin> {
        self.plugins.iter().filter(move |it| it.events.iter().any(|awaited| event.is_awaited_by(*awaited)))
    }
}
