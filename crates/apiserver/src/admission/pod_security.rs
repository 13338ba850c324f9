//! `PodSecurity`: pods are checked against the Pod Security Standards that the labels of their namespace name.
//!
//! The rules are those of [`registry::pod_security`]. This file looks up namespaces and pods, counts evaluations, and
//! answers: pods that violate the enforced standard are refused; workloads whose templates violate one are warned of.
//! Raising the standard of a namespace warns of its existing pods, within a bound of pods and of time.

mod metrics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::json::{self, Value};
use api::metadata;
use cache::stored::ServedObject;
use registry::pod_security::{self as rules, Configuration, Decision, Policy, Survey};
use telemetry::metrics::Registry;

use self::metrics::Metrics;
use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::resources;
use crate::wire::status::{Failure, Result};

/// Time that the check of existing pods may take.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(1);

/// Configuration and counters, which a server has from its start.
pub(crate) struct Setup {
    configuration: Configuration,
    is_default: bool,
    metrics: Metrics,
}

impl Setup {
    /// The setup of a server.
    pub(crate) fn new(configuration: Configuration, registry: &Registry) -> Arc<Self> {
        let is_default = configuration == Configuration::default();
        Arc::new(Self { configuration, is_default, metrics: Metrics::new(registry) })
    }
}

/// The plugin.
pub(super) struct PodSecurity {
    cluster: Arc<dyn Cluster>,
    setup: Arc<Setup>,
}

impl PodSecurity {
    pub(super) fn new(cluster: &Arc<dyn Cluster>) -> Self {
        Self { cluster: cluster.clone(), setup: cluster.pod_security().clone() }
    }
}

impl Plugin for PodSecurity {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return false;
        }
        let (group, plural) = attributes.resource_name();
        match (group, plural) {
            ("", "pods") => rules::evaluates_pod_subresource(attributes.subresource),
            ("", "namespaces") => attributes.subresource.is_empty(),
            _ => attributes.subresource.is_empty() && rules::has_template(group, plural),
        }
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        match attributes.resource_name() {
            ("", "namespaces") => Box::pin(self.validate_namespace(attributes)),
            _ if self.is_plainly_privileged(attributes) => done(Ok(())),
            _ => Box::pin(self.validate_workload(attributes)),
        }
    }
}

/// The name of the labels, which a namespace without a policy does not contain.
const LABEL: &[u8] = b"pod-security.kubernetes.io/";

impl PodSecurity {
    fn namespace(&self, name: &str) -> Option<Arc<ServedObject>> {
        let namespaces = resources::NAMESPACES;
        self.cluster.cache().resource(&namespaces.prefix()).get(&namespaces.key("", name))
    }

    /// Whether neither the configuration nor labels restrict anything, as for most requests.
    fn is_plainly_privileged(&self, attributes: &Attributes<'_>) -> bool {
        if !self.setup.is_default {
            return false;
        }
        let is_unlabeled = |namespace: Arc<ServedObject>| !contains(namespace.labels(), LABEL);
        if !self.namespace(attributes.namespace).is_some_and(is_unlabeled) {
            return false;
        }
        if attributes.resource.plural == "pods" {
            let decision = Decision::privileged(self.setup.configuration.defaults.enforce);
            self.report(attributes, &decision);
        }
        true
    }

    async fn validate_workload(&self, attributes: &Attributes<'_>) -> Result<()> {
        let is_pod = attributes.resource.plural == "pods";
        let Some(object) = attributes.object else { return Ok(()) };
        let exempt = [
            (self.setup.configuration.exempts_namespace(attributes.namespace), "namespace"),
            (self.setup.configuration.exempts_user(&attributes.user.name), "user"),
        ];
        if let Some((_, dimension)) = exempt.into_iter().find(|(is_exempt, _)| *is_exempt) {
            self.report(attributes, &Decision::exempt(dimension));
            return Ok(());
        }
        let mut namespace = self.namespace(attributes.namespace);
        if namespace.is_none() && self.cluster.catch_up().await {
            namespace = self.namespace(attributes.namespace);
        }
        let Some(namespace) = namespace else {
            self.setup.metrics.count_error(true, attributes);
            let why = format!("failed to lookup namespace {:?}", attributes.namespace);
            // Templates are only warned about: the pods made from them are refused.
            return if is_pod { Err(Failure::internal(why)) } else { Ok(()) };
        };
        let (policy, errors) = self.setup.configuration.defaults.of_namespace(&namespace.decode());
        if errors.is_empty() && policy.is_privileged() {
            if is_pod {
                self.report(attributes, &Decision::privileged(policy.enforce));
            }
            return Ok(());
        }
        if let (true, Some(old)) = (is_pod, attributes.old)
            && !rules::is_significant_update(object, old)
        {
            return Ok(());
        }
        let template = if is_pod { Some(object) } else { rules::template(attributes.resource.plural, object) };
        let Some(template) = template else { return Ok(()) };
        let errors = (!errors.is_empty()).then(|| errors.message());
        if errors.is_some() {
            self.setup.metrics.count_error(false, attributes);
        }
        let decision = rules::evaluate(&self.setup.configuration, &policy, errors.as_deref(), template, is_pod);
        self.report(attributes, &decision);
        match decision.denial {
            Some(why) => Err(attributes.forbidden(object, &why)),
            None => Ok(()),
        }
    }

    /// Sends the warnings, annotations and metrics of a decision.
    fn report(&self, attributes: &Attributes<'_>, decision: &Decision) {
        for (key, value) in &decision.annotations {
            attributes.annotate(&format!("{}{key}", rules::ANNOTATION_PREFIX), value);
        }
        for warning in &decision.warnings {
            attributes.warn(warning.clone());
        }
        self.setup.metrics.count(decision, attributes);
    }

    async fn validate_namespace(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(namespace) = attributes.object else { return Ok(()) };
        let defaults = &self.setup.configuration.defaults;
        let (policy, errors) = defaults.of_namespace(namespace);
        let before = attributes.old.map(|old| defaults.of_namespace(old));
        // Labels that were invalid before may stay.
        let is_known = before.as_ref().is_some_and(|(_, before)| before.causes() == errors.causes());
        if !errors.is_empty() && !is_known {
            let name = metadata::name(namespace);
            return Err(Failure::invalid("", "Namespace", name, &errors));
        }
        let is_exempt = self.setup.configuration.exempts_namespace(metadata::name(namespace));
        let is_raised = before.as_ref().is_none_or(|(before, _)| policy.is_stricter_than(before));
        if is_exempt && is_raised {
            policy.exempt_warning(namespace, defaults).into_iter().for_each(|warning| attributes.warn(warning));
        } else if before.is_some() && is_raised {
            let warnings = self.survey(metadata::name(namespace), &policy).await;
            warnings.into_iter().for_each(|warning| attributes.warn(warning));
        }
        Ok(())
    }

    /// Returns the warnings about existing pods. It runs apart from the threads that serve connections.
    async fn survey(&self, namespace: &str, policy: &Policy) -> Vec<String> {
        let pods = resources::PODS;
        let prefix = pods.key(namespace, "");
        let listed = self.cluster.cache().resource(&pods.prefix()).list(&prefix, None, 0, |_, _| true).objects;
        let setup = self.setup.clone();
        let (namespace, enforce) = (namespace.to_owned(), policy.enforce);
        let deadline = Instant::now().checked_add(SURVEY_TIMEOUT);
        let survey = move || {
            let configuration = &setup.configuration;
            let checks_classes = configuration.has_exempt_runtime_classes();
            let is_exempt = |pod: &ServedObject| {
                checks_classes
                    && pod
                        .text_at(&["spec", "runtimeClassName"])
                        .is_some_and(|class| configuration.exempts_runtime_class(&class))
            };
            let pods = listed.into_iter().map(|(_, pod)| pod).filter(|pod| !is_exempt(pod));
            let pods = pods.map(|pod| (controller(&pod), pod)).collect();
            let survey = Survey { namespace: &namespace, enforce, max_pods: rules::MAX_PODS };
            survey.warnings(pods, |pod| pod.decode(), || deadline.is_some_and(|deadline| Instant::now() >= deadline))
        };
        let failed = vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()];
        tokio::task::spawn_blocking(survey).await.unwrap_or(failed)
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The uid of the controller of a pod, read from its metadata alone; empty if there is none.
fn controller(pod: &ServedObject) -> String {
    let owners = pod.metadata().and_then(|metadata| json::value_at(metadata, &["ownerReferences"]));
    let owners = owners.and_then(|owners| json::parse(owners).ok());
    let owners = owners.as_ref().and_then(Value::as_array).unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    controller.and_then(|owner| owner.str_at(&["uid"])).unwrap_or_default().to_owned()
}
