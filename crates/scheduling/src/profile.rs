//! A profile: which plugins decide about the pods of one scheduler name, in which order, with which weights.

use api::json::Text;

use crate::framework::{Event, Plugin, Point};
use crate::plugins;
use crate::queue::PluginSet;

/// The plugins for the pods of one scheduler name.
#[derive(Debug)]
pub struct Profile {
    /// The name in `spec.schedulerName`.
    pub scheduler_name: Text,
    /// How many of the nodes are looked at, in percent; nothing for Kubernetes' formula.
    pub percentage_of_nodes_to_score: Option<u32>,
    plugins: Vec<Enabled>,
}

/// A plugin, and where it has a say in this profile.
#[derive(Debug)]
pub struct Enabled {
    /// The plugin.
    pub plugin: Box<dyn Plugin>,
    /// What its normalized score is multiplied with.
    pub weight: i64,
    /// Its place in the order of each point where it is enabled.
    pub at: Vec<(Point, usize)>,
    pub(crate) bit: PluginSet,
    events: Vec<Event>,
}

impl Enabled {
    /// A plugin that is enabled wherever it has a say, in the order of the list.
    pub fn everywhere(plugin: Box<dyn Plugin>, weight: i64, place: usize) -> Self {
        let at = plugin.points().iter().map(|point| (*point, place)).collect();
        Self::at(plugin, weight, at)
    }

    /// A plugin that is enabled at some points.
    pub fn at(plugin: Box<dyn Plugin>, weight: i64, at: Vec<(Point, usize)>) -> Self {
        Enabled { bit: plugins::bit(plugin.name()), events: plugin.events(), plugin, weight, at }
    }
}

impl Profile {
    /// A profile of these plugins.
    pub fn new(scheduler_name: impl Into<Text>, plugins: Vec<Enabled>) -> Self {
        Profile { scheduler_name: scheduler_name.into(), percentage_of_nodes_to_score: None, plugins }
    }

    /// The plugins of a point, in order.
    pub fn at(&self, point: Point) -> impl Iterator<Item = &Enabled> {
        let place = |enabled: &Enabled| enabled.at.iter().find(|(at, _)| *at == point).map(|(_, place)| *place);
        let mut here: Vec<(usize, &Enabled)> = self.plugins.iter().filter_map(|it| Some((place(it)?, it))).collect();
        here.sort_by_key(|(place, _)| *place);
        here.into_iter().map(|(_, enabled)| enabled)
    }

    /// All plugins.
    pub fn plugins(&self) -> impl Iterator<Item = &Enabled> {
        self.plugins.iter()
    }

    /// The plugins that wait for an event.
    pub fn listeners(&self, event: Event) -> impl Iterator<Item = &Enabled> {
        self.plugins.iter().filter(move |it| it.events.iter().any(|awaited| event.is_awaited_by(*awaited)))
    }
}
