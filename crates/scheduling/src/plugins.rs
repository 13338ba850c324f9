//! The plugins, one file each, registered by one line in [`ALL`].
//!
//! The order of the list is the order in which they run, that of Kubernetes' default profile.

mod args;
mod built_in_disks;
mod default_binder;
mod default_preemption;
mod dynamic_resources;
mod image_locality;
pub(crate) mod inter_pod_affinity;
pub(crate) mod node_affinity;
mod node_declared_features;
mod node_name;
pub(crate) mod node_ports;
mod node_resources_balanced_allocation;
pub(crate) mod node_resources_fit;
pub(crate) mod node_unschedulable;
mod node_volume_limits;
pub(crate) mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod scoring_strategy;
pub(crate) mod taint_toleration;
mod volume_binding;
mod volume_claims;
mod volume_restrictions;
mod volume_zone;

use std::collections::BTreeMap;

use api::json::Value;
use api::well_known::DEFAULT_SCHEDULER;
pub use args::ArgsError;
use matching::Matcher;

use crate::framework::{Plugin, Point};
use crate::profile::{EnabledPlugin, Profile};
use crate::queue::PluginSet;

/// A plugin that can be enabled.
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    /// The name in configuration files.
    pub name: &'static str,
    /// Default weight of the score.
    pub weight: i64,
    /// Extension points of the plugin.
    pub points: &'static [Point],
    /// Creates the plugin from its arguments; `null` for the defaults.
    pub new: PluginFactory,
    /// Writes its arguments out with their defaults; nothing where it takes none.
    pub write_args: Option<WriteArgs>,
}

/// Makes a plugin from its arguments.
pub type PluginFactory = fn(&Value, &Matcher) -> Result<Box<dyn Plugin>, ArgsError>;

/// Writes arguments out with their defaults.
pub type WriteArgs = fn(&Value) -> Result<Value, ArgsError>;

const fn plugin(name: &'static str, weight: i64, points: &'static [Point], new: PluginFactory) -> Registration {
    Registration { name, weight, points, new, write_args: None }
}

impl Registration {
    const fn with_args(self, write_args: WriteArgs) -> Self {
        Registration { write_args: Some(write_args), ..self }
    }

    /// Enables a plugin of this row: its position in the order of each point at which it runs.
    pub(crate) fn enable(&self, plugin: Box<dyn Plugin>, weight: i64, at: Vec<(Point, usize)>) -> EnabledPlugin {
        EnabledPlugin::new((self.name, bit(self.name)), plugin, weight, at)
    }
}

/// The plugin that allocates devices.
pub(crate) const DYNAMIC_RESOURCES: &str = dynamic_resources::NAME;

/// All plugins, in the order of the default profile.
pub const ALL: &[Registration] = &[
    plugin(scheduling_gates::NAME, 0, scheduling_gates::POINTS, scheduling_gates::new),
    plugin(priority_sort::NAME, 0, priority_sort::POINTS, priority_sort::new),
    plugin(node_name::NAME, 0, node_name::POINTS, node_name::new),
    plugin(node_unschedulable::NAME, 0, node_unschedulable::POINTS, node_unschedulable::new),
    plugin(taint_toleration::NAME, 3, taint_toleration::POINTS, taint_toleration::new),
    plugin(node_affinity::NAME, 2, node_affinity::POINTS, node_affinity::new).with_args(node_affinity::write_args),
    plugin(node_ports::NAME, 0, node_ports::POINTS, node_ports::new),
    plugin(node_resources_fit::NAME, 1, node_resources_fit::POINTS, node_resources_fit::new)
        .with_args(node_resources_fit::write_args),
    plugin(volume_restrictions::NAME, 0, volume_restrictions::POINTS, volume_restrictions::new),
    plugin(node_volume_limits::NAME, 0, node_volume_limits::POINTS, node_volume_limits::new),
    plugin(volume_binding::NAME, 1, volume_binding::POINTS, volume_binding::new).with_args(volume_binding::write_args),
    plugin(volume_zone::NAME, 0, volume_zone::POINTS, volume_zone::new),
    plugin(pod_topology_spread::NAME, 2, pod_topology_spread::POINTS, pod_topology_spread::new)
        .with_args(pod_topology_spread::write_args),
    plugin(inter_pod_affinity::NAME, 2, inter_pod_affinity::POINTS, inter_pod_affinity::new)
        .with_args(inter_pod_affinity::write_args),
    // Idle claims are freed before pods are deleted.
    plugin(dynamic_resources::NAME, 2, dynamic_resources::POINTS, dynamic_resources::new)
        .with_args(dynamic_resources::write_args),
    plugin(default_preemption::NAME, 0, default_preemption::POINTS, default_preemption::new)
        .with_args(default_preemption::write_args),
    plugin(
        node_resources_balanced_allocation::NAME,
        1,
        node_resources_balanced_allocation::POINTS,
        node_resources_balanced_allocation::new,
    )
    .with_args(node_resources_balanced_allocation::write_args),
    plugin(image_locality::NAME, 1, image_locality::POINTS, image_locality::new),
    plugin(default_binder::NAME, 0, default_binder::POINTS, default_binder::new),
    plugin(node_declared_features::NAME, 0, node_declared_features::POINTS, node_declared_features::new),
];

/// The bit of a plugin; none for names that are not known.
pub(crate) fn bit(name: &str) -> PluginSet {
    let place = ALL.iter().position(|plugin| plugin.name == name);
    place.and_then(|place| 1_u64.checked_shl(u32::try_from(place).ok()?)).unwrap_or(0)
}

/// The default profile.
///
/// # Errors
/// Never: the defaults are valid.
pub fn default_profile(matcher: &Matcher) -> Result<Profile, ArgsError> {
    default_profile_with(&BTreeMap::new(), matcher)
}

/// The default profile, with arguments for some plugins.
///
/// # Errors
/// Arguments that a plugin refuses.
pub fn default_profile_with(args: &BTreeMap<&str, &Value>, matcher: &Matcher) -> Result<Profile, ArgsError> {
    let mut enabled = Vec::with_capacity(ALL.len());
    for (place, registration) in ALL.iter().enumerate() {
        let plugin = (registration.new)(args.get(registration.name).copied().unwrap_or(&Value::Null), matcher)?;
        let at = registration.points.iter().map(|point| (*point, place)).collect();
        enabled.push(registration.enable(plugin, registration.weight, at));
    }
    Ok(Profile::new(DEFAULT_SCHEDULER, enabled))
}

#[cfg(test)]
mod tests;
