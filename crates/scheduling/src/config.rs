//! `KubeSchedulerConfiguration` v1: which profiles there are, and how long pods wait.
//!
//! Parsed strictly: an unknown field or plugin is an error that names it. Settings of other components (leader
//! election, client connection) are checked for their form and passed on.

mod resolve;

use std::time::Duration;

use api::json::{Text, Value, from_value, to_value};
use api::well_known::{DEFAULT_SCHEDULER, NAMESPACE_SYSTEM};
use matching::Matcher;
use serde::{Deserialize, Serialize};

use crate::framework::Point;
use crate::plugins::ArgsError;
use crate::profile::Profile;
use crate::queue::Backoff;

/// The version of the format.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The kind of the document.
pub const KIND: &str = "KubeSchedulerConfiguration";

/// A reason to reject a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The document is of another kind.
    #[error("no kind \"{kind}\" is registered for version \"{version}\"")]
    Kind {
        /// Kind of the document.
        kind: String,
        /// Version of the document.
        version: String,
    },
    /// A field is not known, or has the wrong form.
    #[error("strict decoding error: {0}")]
    Form(String),
    /// A value makes no sense.
    #[error("{field}: Invalid value: {value}: {why}")]
    Invalid {
        /// Field with the error.
        field: String,
        /// Value of the field.
        value: String,
        /// Description of the error.
        why: String,
    },
    /// A plugin is not known.
    #[error("initializing profiles: plugin \"{0}\" does not exist")]
    UnknownPlugin(String),
    /// A plugin is enabled at an extension point that it does not implement.
    #[error("initializing profiles: plugin \"{plugin}\" does not extend {point:?} plugin")]
    WrongPoint {
        /// The plugin.
        plugin: String,
        /// The extension point.
        point: Point,
    },
    /// A plugin is enabled twice.
    #[error("initializing profiles: plugin \"{plugin}\" already registered as \"{point:?}\"")]
    Twice {
        /// The plugin.
        plugin: String,
        /// The extension point.
        point: Point,
    },
    /// A plugin refuses its arguments.
    #[error("initializing profiles: initializing plugin \"{plugin}\"")]
    Args {
        /// The plugin.
        plugin: String,
        /// Cause.
        #[source]
        source: ArgsError,
    },
}

/// Configuration of the scheduler. Missing fields have Kubernetes' defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Configuration {
    api_version: Text,
    kind: Text,
    /// Number of nodes to evaluate in parallel: accepted, but without effect.
    pub parallelism: i32,
    /// The election of a leader among several replicas.
    pub leader_election: LeaderElection,
    /// Connection to the API server.
    pub client_connection: ClientConnection,
    /// Deprecated address: accepted, without effect, as in Kubernetes.
    pub health_bind_address: Text,
    /// Accepted, without effect.
    pub metrics_bind_address: Text,
    /// Whether profiles of the process are served.
    pub enable_profiling: bool,
    /// Whether lock contention is among them.
    pub enable_contention_profiling: bool,
    /// Percentage of the nodes to evaluate; 0 for Kubernetes' formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Back-off of a pod after its first failure.
    pub pod_initial_backoff_seconds: i64,
    /// Maximum back-off.
    pub pod_max_backoff_seconds: i64,
    /// Whether the cache is filled only while leading: read, and of no effect.
    pub delay_cache_until_active: bool,
    /// One set of plugins for each scheduler name.
    pub profiles: Vec<ProfileConfig>,
    /// Scheduler extenders: not supported.
    extenders: Vec<Value>,
}

/// Leader election settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration: Text,
    pub renew_deadline: Text,
    pub retry_period: Text,
    pub resource_lock: Text,
    pub resource_name: Text,
    pub resource_namespace: Text,
}

/// Connection to the API server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub struct ClientConnection {
    pub kubeconfig: Text,
    pub accept_content_types: Text,
    pub content_type: Text,
    pub qps: f64,
    pub burst: i32,
}

/// The plugins for the pods of one scheduler name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ProfileConfig {
    /// The name in `spec.schedulerName`.
    pub scheduler_name: Option<Text>,
    /// Percentage of the nodes to evaluate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Changes to the default plugins.
    pub plugins: Option<Plugins>,
    /// Arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
}

/// Changes to the default plugins, by extension point.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub struct Plugins {
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub pre_enqueue: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub queue_sort: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub pre_filter: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub filter: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub post_filter: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub pre_score: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub score: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub reserve: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub permit: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub pre_bind: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub bind: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub post_bind: PluginSet,
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub multi_point: PluginSet,
    /// Extension point of pod groups, which are not supported: nothing can be enabled here.
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub placement_generate: PluginSet,
    /// Extension point of pod groups, at which nothing can be enabled.
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub placement_score: PluginSet,
    /// Extension point of pod groups, at which nothing can be enabled.
    #[serde(skip_serializing_if = "PluginSet::is_empty")]
    pub pod_group_post_filter: PluginSet,
}

/// Plugins that are enabled, and default ones that are not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub struct PluginSet {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<PluginRef>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<PluginRef>,
}

/// A plugin, and the weight of its score.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub struct PluginRef {
    pub name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// Arguments of a plugin.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub struct PluginConfig {
    pub name: Text,
    pub args: Value,
}

impl PluginSet {
    /// Whether nothing is changed.
    fn is_empty(&self) -> bool {
        self.enabled.is_empty() && self.disabled.is_empty()
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Configuration {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            parallelism: 16,
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection {
                content_type: "application/json".into(),
                qps: 50.0,
                burst: 100,
                ..ClientConnection::default()
            },
            health_bind_address: Text::default(),
            metrics_bind_address: Text::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            delay_cache_until_active: false,
            profiles: Vec::new(),
            extenders: Vec::new(),
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        LeaderElection {
            leader_elect: true,
            lease_duration: "15s".into(),
            renew_deadline: "10s".into(),
            retry_period: "2s".into(),
            resource_lock: "leases".into(),
            resource_name: "kube-scheduler".into(),
            resource_namespace: NAMESPACE_SYSTEM.into(),
        }
    }
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first thing that is not understood or makes no sense.
    pub fn read(document: &Value) -> Result<Self, ConfigError> {
        let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != API_VERSION || kind != KIND {
            return Err(ConfigError::Kind { kind, version });
        }
        let read: Self = from_value(document).map_err(|error| ConfigError::Form(error.to_string()))?;
        read.check()?;
        Ok(read)
    }

    /// The configuration as a document, defaults written out.
    ///
    /// # Errors
    /// Never: everything in it is JSON.
    pub fn write(&self) -> Result<Value, ConfigError> {
        to_value(self).map_err(|error| ConfigError::Form(error.to_string()))
    }

    /// Returns the configuration with the default profile, its plugins and their arguments written out.
    ///
    /// # Errors
    /// Arguments that a plugin refuses.
    pub fn with_defaults(&self) -> Result<Self, ConfigError> {
        let mut whole = self.clone();
        if whole.profiles.is_empty() {
            whole.profiles.push(ProfileConfig::default());
        }
        for profile in &mut whole.profiles {
            profile.scheduler_name.get_or_insert_with(|| DEFAULT_SCHEDULER.into());
            let plugins = profile.plugins.get_or_insert_default();
            plugins.multi_point.enabled = resolve::merged(&plugins.multi_point)
                .into_iter()
                .map(|(name, weight)| PluginRef { name, weight: weight.filter(|weight| *weight != 0) })
                .collect();
            profile.plugin_config = resolve::arguments(&profile.plugin_config)?;
        }
        Ok(whole)
    }

    /// Back-off settings of the queue.
    pub fn backoff(&self) -> Backoff {
        let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or(0));
        Backoff {
            initial: seconds(self.pod_initial_backoff_seconds),
            max: seconds(self.pod_max_backoff_seconds),
            ..Backoff::default()
        }
    }

    /// The profiles, their plugins made.
    ///
    /// # Errors
    /// A plugin that is not known, does not belong where it is enabled, or refuses its arguments.
    pub fn make_profiles(&self, matcher: &Matcher) -> Result<Vec<Profile>, ConfigError> {
        let default = [ProfileConfig::default()];
        let configured = if self.profiles.is_empty() { default.as_slice() } else { &self.profiles };
        let mut profiles = Vec::with_capacity(configured.len());
        for config in configured {
            let mut profile = resolve::profile(config, matcher)?;
            let percentage = config.percentage_of_nodes_to_score.or(self.percentage_of_nodes_to_score);
            profile.percentage_of_nodes_to_score = percentage.and_then(|it| u32::try_from(it).ok());
            profiles.push(profile);
        }
        Ok(profiles)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let invalid = |field: &str, value: &dyn ToString, why: &str| {
            Err(ConfigError::Invalid { field: field.to_owned(), value: value.to_string(), why: why.to_owned() })
        };
        if self.parallelism <= 0 {
            return invalid("parallelism", &self.parallelism, "should be an integer value greater than zero");
        }
        if self.pod_initial_backoff_seconds <= 0 {
            let value = self.pod_initial_backoff_seconds;
            return invalid("podInitialBackoffSeconds", &value, "must be greater than 0");
        }
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds {
            let value = self.pod_max_backoff_seconds;
            return invalid(
                "podMaxBackoffSeconds",
                &value,
                "must be greater than or equal to PodInitialBackoffSeconds",
            );
        }
        let of_profiles = self.profiles.iter().enumerate();
        let of_profiles = of_profiles.map(|(index, it)| {
            (format!("profiles[{index}].percentageOfNodesToScore"), it.percentage_of_nodes_to_score)
        });
        let whole = ("percentageOfNodesToScore".to_owned(), self.percentage_of_nodes_to_score);
        for (field, percentage) in of_profiles.chain([whole]) {
            if let Some(value) = percentage.filter(|value| !(0..=100).contains(value)) {
                return invalid(&field, &value, "not in valid range [0-100]");
            }
        }
        if !self.extenders.is_empty() {
            return invalid("extenders", &format!("{} of them", self.extenders.len()), "extenders are not supported");
        }
        let election = &self.leader_election;
        if election.leader_elect && election.resource_lock != "leases" {
            let value = format!("\"{}\"", election.resource_lock);
            return invalid("leaderElection.resourceLock", &value, "resourceLock value must be \"leases\"");
        }
        if self.client_connection.burst < 0 {
            return invalid("clientConnection.burst", &self.client_connection.burst, "must be non-negative");
        }
        for (index, plugins) in self.profiles.iter().map(|it| it.plugins.as_ref()).enumerate() {
            let Some(plugins) = plugins else { continue };
            let of_groups = [
                ("placementGenerate", &plugins.placement_generate),
                ("placementScore", &plugins.placement_score),
                ("podGroupPostFilter", &plugins.pod_group_post_filter),
            ];
            if let Some((point, set)) = of_groups.into_iter().find(|(_, set)| !set.enabled.is_empty()) {
                let field = format!("profiles[{index}].plugins.{point}.enabled");
                return invalid(&field, &format!("{} of them", set.enabled.len()), "pod groups are not supported");
            }
        }
        let mut names = std::collections::BTreeSet::new();
        for (index, profile) in self.profiles.iter().enumerate() {
            let name = profile.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
            let field = format!("profiles[{index}].schedulerName");
            if name.is_empty() {
                return invalid(&field, &"\"\"", "must be specified");
            }
            if !names.insert(name) {
                return Err(ConfigError::Invalid {
                    field,
                    value: name.to_owned(),
                    why: "another profile has the same name".to_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
