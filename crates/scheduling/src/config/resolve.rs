//! Resolution of a profile's changes to its plugins, in order.
//!
//! Follows `mergePlugins` and `expandMultiPointPlugins` of Kubernetes: plugins enabled at a point and for all
//! points come first, then those enabled for all, then the rest of the point.

use std::collections::BTreeMap;

use api::json::{Object, Text, Value};
use api::well_known::DEFAULT_SCHEDULER;
use matching::Matcher;

use super::{API_VERSION, ConfigError, PluginConfig, PluginRef, PluginSet, Plugins, ProfileConfig};
use crate::framework::Point;
use crate::plugins::{self, Registration};
use crate::profile::Profile;

/// A plugin, and the weight of its score.
type WeightedName = (Text, Option<i32>);

/// The profile, its plugins made.
pub(super) fn profile(config: &ProfileConfig, matcher: &Matcher) -> Result<Profile, ConfigError> {
    let mut args: BTreeMap<&str, &Value> = BTreeMap::new();
    for (index, given) in config.plugin_config.iter().enumerate() {
        registered(&given.name)?;
        if args.insert(&given.name, &given.args).is_some() {
            return Err(ConfigError::Invalid {
                field: format!("profiles[].pluginConfig[{index}]"),
                value: given.name.to_string(),
                why: format!("repeated config for plugin {}", given.name),
            });
        }
    }
    let nothing = Plugins::default();
    let changes = config.plugins.as_ref().unwrap_or(&nothing);
    let multi_point = merged(&changes.multi_point);
    let sets = points(changes).into_iter().map(|(_, set)| set).chain([&changes.multi_point]);
    for plugin in sets.flat_map(|set| &set.disabled).filter(|plugin| plugin.name != "*") {
        registered(&plugin.name)?;
    }
    let mut places: BTreeMap<Text, Vec<(Point, usize)>> = BTreeMap::new();
    for (point, set) in points(changes) {
        for (place, name) in order(point, set, &multi_point)?.into_iter().enumerate() {
            places.entry(name).or_default().push((point, place));
        }
    }
    // PreFilter and Filter, and PreScore and Score, are merged: a plugin that is enabled at one of them runs at
    // both.
    let mut enabled = Vec::new();
    for (name, at) in places {
        let registration = registered(&name)?;
        let given = args.get(name.as_str()).copied().unwrap_or(&Value::Null);
        let plugin = (registration.new)(given, matcher)
            .map_err(|source| ConfigError::Args { plugin: name.to_string(), source })?;
        let find = |list: &[PluginRef]| list.iter().find(|it| it.name == name).and_then(|it| it.weight);
        let weight = find(&changes.score.enabled)
            .or_else(|| multi_point.iter().find(|(known, _)| *known == name).and_then(|(_, weight)| *weight))
            .filter(|weight| *weight != 0);
        enabled.push(registration.enable(plugin, weight.map_or(1, i64::from), at));
    }
    let name = config.scheduler_name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER.into());
    let profile = Profile::new(name, enabled);
    for (point, why) in [(Point::QueueSort, "one queue sort plugin"), (Point::Bind, "at least one bind plugin")] {
        let count = profile.at(point).count();
        if count == 0 || (point == Point::QueueSort && count > 1) {
            return Err(ConfigError::Invalid {
                field: format!("profiles[].plugins.{point:?}"),
                value: count.to_string(),
                why: format!("{why} is needed"),
            });
        }
    }
    Ok(profile)
}

/// The arguments of all plugins that take some, defaults written out.
pub(super) fn arguments(given: &[PluginConfig]) -> Result<Vec<PluginConfig>, ConfigError> {
    let mut all = Vec::new();
    for plugin in plugins::ALL {
        let Some(write) = plugin.write_args else { continue };
        let own = given.iter().find(|it| it.name == plugin.name).map_or(&Value::Null, |it| &it.args);
        let written = write(own).map_err(|source| ConfigError::Args { plugin: plugin.name.to_owned(), source })?;
        let kind = format!("{}Args", plugin.name);
        let mut args = Object::new();
        args.insert("apiVersion", API_VERSION);
        args.insert("kind", kind.as_str());
        if let Value::Object(fields) = written {
            for (key, value) in fields {
                args.insert(key, value);
            }
        }
        let args = Value::Object(args);
        all.push(PluginConfig { name: plugin.name.into(), args });
    }
    all.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(all)
}

fn registered(name: &str) -> Result<&'static Registration, ConfigError> {
    let found = plugins::ALL.iter().find(|plugin| plugin.name == name);
    found.ok_or_else(|| ConfigError::UnknownPlugin(name.to_owned()))
}

/// The default plugins without the disabled ones, with the enabled ones in their places or behind them.
pub(super) fn merged(set: &PluginSet) -> Vec<WeightedName> {
    let is_disabled = |name: &str| set.disabled.iter().any(|it| it.name == name || it.name == "*");
    let given = |name: &str| set.enabled.iter().find(|it| it.name == name);
    let mut all: Vec<WeightedName> = Vec::new();
    for plugin in plugins::ALL.iter().filter(|plugin| !is_disabled(plugin.name)) {
        let weight = i32::try_from(plugin.weight).ok();
        let weight = given(plugin.name).map_or(weight, |given| given.weight);
        all.push((plugin.name.into(), weight));
    }
    for plugin in &set.enabled {
        let replaces = plugins::ALL.iter().any(|known| plugin.name == known.name) && !is_disabled(&plugin.name);
        if !replaces {
            all.push((plugin.name.clone(), plugin.weight));
        }
    }
    all
}

/// The plugins of a point, in order.
fn order(point: Point, set: &PluginSet, multi_point: &[WeightedName]) -> Result<Vec<Text>, ConfigError> {
    let twice = |plugin: &str| ConfigError::Twice { plugin: plugin.to_owned(), point };
    for (index, plugin) in set.enabled.iter().enumerate() {
        if !has_say(&plugin.name, point)? {
            return Err(ConfigError::WrongPoint { plugin: plugin.name.to_string(), point });
        }
        if set.enabled.iter().skip(index.saturating_add(1)).any(|other| other.name == plugin.name) {
            return Err(twice(&plugin.name));
        }
    }
    let own = |name: &str| set.enabled.iter().any(|it| it.name == name);
    let is_disabled = |name: &str| set.disabled.iter().any(|it| it.name == name || it.name == "*");
    let mut from_all: Vec<Text> = Vec::new();
    for (name, _) in multi_point {
        if has_say(name, point)? && !is_disabled(name) && !own(name) {
            if from_all.contains(name) {
                return Err(twice(name));
            }
            from_all.push(name.clone());
        }
    }
    let everything_off = set.disabled.iter().any(|it| it.name == "*");
    let is_override =
        |name: &str| !everything_off && !is_disabled(name) && multi_point.iter().any(|(it, _)| it == name);
    let own_names = || set.enabled.iter().map(|it| it.name.clone());
    let overriding = own_names().filter(|name| is_override(name));
    let rest = own_names().filter(|name| !is_override(name));
    Ok(overriding.chain(from_all).chain(rest).collect())
}

fn has_say(name: &str, point: Point) -> Result<bool, ConfigError> {
    Ok(registered(name)?.points.contains(&point))
}

/// Each extension point with its changes.
fn points(plugins: &Plugins) -> [(Point, &PluginSet); 12] {
    [
        (Point::PreEnqueue, &plugins.pre_enqueue),
        (Point::QueueSort, &plugins.queue_sort),
        (Point::PreFilter, &plugins.pre_filter),
        (Point::Filter, &plugins.filter),
        (Point::PostFilter, &plugins.post_filter),
        (Point::PreScore, &plugins.pre_score),
        (Point::Score, &plugins.score),
        (Point::Reserve, &plugins.reserve),
        (Point::Permit, &plugins.permit),
        (Point::PreBind, &plugins.pre_bind),
        (Point::Bind, &plugins.bind),
        (Point::PostBind, &plugins.post_bind),
    ]
}
