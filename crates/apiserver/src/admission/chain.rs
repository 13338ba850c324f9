//! The chain: which plugins run, one after the other, and how long each takes.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use api::json::Value;
use telemetry::metrics::{Family, Histogram, Registry};

use super::{Attributes, Cluster, Operation, PLUGINS, Phases, Plugin, Registration, Switch, policies, webhooks};
use crate::wire::status::Result;

/// Bounds of durations, in seconds.
const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// Plugins that Kubernetes has and this server has not: they can be disabled, which changes nothing, but not enabled.
const ABSENT: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodGroupProtection",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodTolerationRestriction",
    "PodTopologyLabels",
];

/// An error in the lists of plugins to enable and to disable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPlugin {
    /// No plugin has this name.
    #[error("unknown admission plugin `{0}`")]
    Unknown(String),
    /// Kubernetes has a plugin of this name, this server has not.
    #[error("admission plugin `{0}` is not implemented by this server and cannot be enabled")]
    Absent(String),
    /// The name is in both lists.
    #[error("admission plugin `{0}` is both enabled and disabled")]
    Both(String),
}

/// Checks the names of plugins to enable and to disable.
///
/// # Errors
/// The first name that cannot be followed.
pub fn check_plugin_names(enabled: &[String], disabled: &[String]) -> std::result::Result<(), UnknownPlugin> {
    let is_known = |name: &String| PLUGINS.iter().any(|it| it.name == name && it.switch != Switch::Always);
    let is_absent = |name: &String| ABSENT.contains(&name.as_str()) && !is_known(name);
    for name in enabled {
        if is_absent(name) {
            return Err(UnknownPlugin::Absent(name.clone()));
        }
        if !is_known(name) {
            return Err(UnknownPlugin::Unknown(name.clone()));
        }
        if disabled.contains(name) {
            return Err(UnknownPlugin::Both(name.clone()));
        }
    }
    match disabled.iter().find(|name| !is_known(name) && !is_absent(name)) {
        Some(name) => Err(UnknownPlugin::Unknown(name.clone())),
        None => Ok(()),
    }
}

/// A step of the chain, in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Admit,
    Validate,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Admit => "admit",
            Step::Validate => "validate",
        }
    }
}

/// The histograms of one plugin, found once: by step, operation, and whether the request was refused.
#[derive(Default)]
struct Series([OnceLock<Arc<Histogram>>; 16]);

impl Series {
    fn observe(
        &self,
        started: Instant,
        (step, operation, refused): (Step, Operation, bool),
        find: impl FnOnce() -> Arc<Histogram>,
    ) {
        let operation = match operation {
            Operation::Create => 0,
            Operation::Update => 1,
            Operation::Delete => 2,
            Operation::Connect => 3,
        };
        // Four operations, two steps and two outcomes make sixteen series: a lookup by labels would hash four texts.
        let index = operation | usize::from(step == Step::Validate) << 2 | usize::from(refused) << 3;
        if let Some(series) = self.0.get(index) {
            series.get_or_init(find).observe_duration(started.elapsed());
        }
    }
}

/// A plugin that is on.
struct Link {
    registration: &'static Registration,
    plugin: Box<dyn Plugin>,
    series: Series,
}

/// The plugins that are on, in their order.
pub(crate) struct Chain {
    links: Vec<Link>,
    cluster: Arc<dyn Cluster>,
    durations: Arc<Family<Histogram>>,
    step_durations: Arc<Family<Histogram>>,
    steps: Series,
}

impl Chain {
    /// The chain of a server. Names that are not known are ignored: [`check_plugin_names`] reports them.
    pub(crate) fn new(cluster: Arc<dyn Cluster>, enabled: &[String], disabled: &[String], metrics: &Registry) -> Self {
        let names = |list: &[String], name: &str| list.iter().any(|it| it == name);
        let is_on = |it: &&Registration| match it.switch {
            Switch::Always => true,
            Switch::DefaultOn => !names(disabled, it.name),
            Switch::DefaultOff => names(enabled, it.name) && !names(disabled, it.name),
        };
        let link = |registration: &'static Registration| Link {
            registration,
            plugin: (registration.make)(&cluster),
            series: Series::default(),
        };
        let links = PLUGINS.iter().filter(is_on).map(link).collect();
        let durations = metrics.family(
            "apiserver_admission_controller_admission_duration_seconds",
            "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
            &["name", "operation", "rejected", "type"],
            SECONDS,
        );
        let step_durations = metrics.family(
            "apiserver_admission_step_admission_duration_seconds",
            "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
            &["operation", "rejected", "type"],
            SECONDS,
        );
        Self { links, cluster, durations, step_durations, steps: Series::default() }
    }

    /// Lets plugins change or refuse an object before its kind prepares and validates it.
    ///
    /// # Errors
    /// That of the first plugin that refuses.
    pub(crate) async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
        let is_reinvocable = |link: &Link| {
            [policies::MUTATING, webhooks::MUTATING].contains(&link.registration.name)
                && link.plugin.handles(attributes)
        };
        if !self.links.iter().any(is_reinvocable) {
            return self.pass(attributes, object).await;
        }
        let passes = async {
            self.pass(attributes, object).await?;
            if !policies::needs_second_pass() && !webhooks::needs_second_pass() {
                return Ok(());
            }
            // Kubernetes: plugins of users run once more if a later one has changed the object that they saw.
            policies::begin_second_pass();
            webhooks::begin_second_pass();
            self.pass(attributes, object).await
        };
        webhooks::in_passes(policies::in_passes(passes)).await
    }

    /// Whether policies or webhooks of users may be about a request.
    pub(crate) fn asks_users(&self, attributes: &Attributes<'_>) -> bool {
        let is_of_users = |link: &Link| {
            let name = link.registration.name;
            [policies::MUTATING, webhooks::MUTATING, policies::VALIDATING, webhooks::VALIDATING].contains(&name)
        };
        self.links.iter().any(|link| is_of_users(link) && link.plugin.handles(attributes))
    }

    /// Runs the mutating plugins once.
    async fn pass(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
        let mut started = None;
        let mut result = Ok(());
        for link in &self.links {
            if link.registration.phases == Phases::Validation || !link.plugin.handles(attributes) {
                continue;
            }
            let now = Instant::now();
            started.get_or_insert(now);
            result = link.plugin.mutate(attributes, object).await;
            // The cache may lag behind a class or an account that the same client created a moment ago.
            if result.is_err() && link.registration.retries && self.cluster.catch_up().await {
                result = link.plugin.mutate(attributes, object).await;
            }
            self.observe(link, now, Step::Admit, attributes.operation, result.is_err());
            if result.is_err() {
                break;
            }
        }
        self.observe_step(started, Step::Admit, attributes.operation, result.is_err());
        result
    }

    /// Lets plugins refuse an object as it will be stored.
    ///
    /// # Errors
    /// That of the first plugin that refuses.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let mut started = None;
        let mut result = Ok(());
        for link in &self.links {
            if link.registration.phases == Phases::Mutation || !link.plugin.handles(attributes) {
                continue;
            }
            let now = Instant::now();
            started.get_or_insert(now);
            result = link.plugin.validate(attributes).await;
            self.observe(link, now, Step::Validate, attributes.operation, result.is_err());
            if result.is_err() {
                break;
            }
        }
        self.observe_step(started, Step::Validate, attributes.operation, result.is_err());
        result
    }

    /// Runs both phases, for requests without an object of a kind that is stored.
    ///
    /// # Errors
    /// That of the first plugin that refuses.
    pub(crate) async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<()> {
        let Some(object) = object else {
            self.mutate(attributes, &mut Value::Null).await?;
            return self.validate(attributes).await;
        };
        self.mutate(attributes, object).await?;
        self.validate(&Attributes { object: Some(object), ..*attributes }).await
    }

    fn observe(&self, link: &Link, started: Instant, step: Step, operation: Operation, refused: bool) {
        let labels = || {
            let refused = if refused { "true" } else { "false" };
            self.durations.with(&[link.registration.name, operation.name(), refused, step.name()])
        };
        link.series.observe(started, (step, operation, refused), labels);
    }

    fn observe_step(&self, started: Option<Instant>, step: Step, operation: Operation, refused: bool) {
        let Some(started) = started else { return };
        let labels = || {
            let refused = if refused { "true" } else { "false" };
            self.step_durations.with(&[operation.name(), refused, step.name()])
        };
        self.steps.observe(started, (step, operation, refused), labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(enabled: &[&str], disabled: &[&str], expected: Option<UnknownPlugin>) {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(check_plugin_names(&owned(enabled), &owned(disabled)).err(), expected);
    }

    #[test]
    fn plugin_names_are_checked() {
        check(&["LimitRanger"], &["ServiceAccount"], None);
        check(&[], &["AlwaysPullImages"], None);
        check(&["AlwaysPullImages"], &[], Some(UnknownPlugin::Absent("AlwaysPullImages".to_owned())));
        check(&["LimitRange"], &[], Some(UnknownPlugin::Unknown("LimitRange".to_owned())));
        check(&[], &["LimitRange"], Some(UnknownPlugin::Unknown("LimitRange".to_owned())));
        check(&["LimitRanger"], &["LimitRanger"], Some(UnknownPlugin::Both("LimitRanger".to_owned())));
        // Part of the API: no flag can switch it off.
        check(&[], &["RoleEscalation"], Some(UnknownPlugin::Unknown("RoleEscalation".to_owned())));
    }

    #[test]
    fn quota_is_last_and_names_are_unique() {
        assert_eq!(PLUGINS.last().map(|it| it.name), Some("ResourceQuota"));
        let mut names: Vec<&str> = PLUGINS.iter().map(|it| it.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PLUGINS.len());
        let both = PLUGINS.iter().filter(|it| ABSENT.contains(&it.name));
        assert_eq!(both.map(|it| it.name).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
