//! The webhooks of the cache, compiled and found by group, resource and operation.

use locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

use api::json::Value;
use api::metadata;
use cache::ResourceCache;
use cel_kubernetes::environments::admission::Compiler;
use registry::admission::Operation;
use registry::admission::index::RuleIndex;
use registry::admission::webhook::Filter;
use store::Revision;

use super::super::Cluster;
use crate::outbound::backends::Backend;

const GROUP: &str = "/registry/admissionregistration.k8s.io";

/// A webhook.
pub(super) struct Webhook {
    /// The name.
    pub(super) name: String,
    /// The name of its configuration.
    pub(super) configuration: String,
    /// The uid of its configuration.
    pub(super) configuration_uid: String,
    /// Configuration and name, unique in the server.
    pub(super) uid: String,
    /// The requests that it is called for.
    pub(super) filter: Filter,
    /// Its server.
    pub(super) backend: Backend,
    /// Whether a failed call is ignored.
    pub(super) ignores_failures: bool,
    /// Whether it may be called for requests that store nothing.
    pub(super) allows_dry_run: bool,
    /// The most that a call may take.
    pub(super) timeout_seconds: u64,
    /// The version of reviews that it is sent: `v1` or `v1beta1`; none if it names no known one.
    pub(super) version: Option<&'static str>,
    /// Whether the webhook is called again if a later one changed the object (`reinvocationPolicy: IfNeeded`).
    pub(super) is_reinvoked: bool,
}

impl Webhook {
    fn new(configuration: &Value, webhook: &Value, index: usize, compiler: &Compiler) -> Self {
        let text = |path: &[&str]| webhook.text_at(path).to_owned();
        let versions = webhook.get("admissionReviewVersions").and_then(Value::as_array).unwrap_or_default();
        let known = ["v1", "v1beta1"];
        let name = text(&["name"]);
        let configuration_uid = metadata::text(configuration, "uid").to_owned();
        let configuration = metadata::name(configuration).to_owned();
        Self {
            uid: format!("{configuration}/{name}/{index}"),
            filter: Filter::new(webhook, compiler),
            backend: Backend::of(webhook.get("clientConfig").unwrap_or(&Value::Null)),
            ignores_failures: webhook.str_at(&["failurePolicy"]) == Some("Ignore"),
            allows_dry_run: matches!(webhook.str_at(&["sideEffects"]), Some("None" | "NoneOnDryRun")),
            timeout_seconds: webhook
                .get("timeoutSeconds")
                .and_then(Value::as_i64)
                .unwrap_or(10)
                .clamp(1, 30)
                .unsigned_abs(),
            version: versions.iter().find_map(|it| known.into_iter().find(|known| it.as_str() == Some(known))),
            is_reinvoked: webhook.str_at(&["reinvocationPolicy"]) == Some("IfNeeded"),
            name,
            configuration,
            configuration_uid,
        }
    }
}

/// The webhooks of a configuration, with the revision that it was read at.
type WebhooksByKey = HashMap<Arc<str>, (Revision, Vec<Arc<Webhook>>)>;

/// Webhooks in the order of their calls, and their index.
#[derive(Default)]
pub(super) struct CompiledWebhooks {
    version: Option<u64>,
    known: WebhooksByKey,
    webhooks: Vec<Arc<Webhook>>,
    index: RuleIndex,
}

impl CompiledWebhooks {
    fn new(version: u64, known: WebhooksByKey) -> Self {
        let mut keys: Vec<&Arc<str>> = known.keys().collect();
        keys.sort_unstable();
        let configurations = keys.into_iter().filter_map(|key| known.get(key));
        let webhooks: Vec<Arc<Webhook>> = configurations.flat_map(|(_, webhooks)| webhooks.iter().cloned()).collect();
        let mut compiled = Self { version: Some(version), webhooks, ..Self::default() };
        for (place, webhook) in (0_u32..).zip(&compiled.webhooks) {
            webhook.filter.add_to(&mut compiled.index, place);
        }
        compiled.known = known;
        compiled
    }

    /// The webhooks that may be called for an operation on a resource, in the order of their calls, each with its place among
    /// all webhooks.
    pub(super) fn candidates(
        &self,
        (group, resource): (&str, &str),
        operation: Operation,
    ) -> Vec<(usize, Arc<Webhook>)> {
        let places = self.index.places(group, resource, operation).into_iter();
        let places = places.filter_map(|place| usize::try_from(place).ok());
        places.filter_map(|place| Some((place, self.webhooks.get(place)?.clone()))).collect()
    }

    fn may_match(&self, (group, resource): (&str, &str), operation: Operation) -> bool {
        self.index.may_match(group, resource, operation)
    }
}

/// The source of compiled webhooks of one kind.
pub(super) struct Source {
    cluster: Arc<dyn Cluster>,
    configurations: Arc<ResourceCache>,
    prefix: String,
    compiled: RwLock<Arc<CompiledWebhooks>>,
    /// Held while something is compiled, so that one request does it for all.
    compiling: Mutex<()>,
}

impl Source {
    /// The webhooks of configurations of a plural name.
    pub(super) fn new(cluster: &Arc<dyn Cluster>, plural: &str) -> Self {
        let prefix = format!("{GROUP}/{plural}/");
        Self {
            cluster: cluster.clone(),
            configurations: cluster.cache().resource(&prefix),
            prefix,
            compiled: RwLock::default(),
            compiling: Mutex::default(),
        }
    }

    fn compiled(&self) -> Arc<CompiledWebhooks> {
        self.compiled.read().clone()
    }

    /// Whether there is no configuration.
    pub(super) fn is_empty(&self) -> bool {
        self.configurations.is_empty()
    }

    /// Whether a webhook may be called for a request. Compiles nothing: it may be, if that is not known.
    pub(super) fn may_match(&self, resource: (&str, &str), operation: Operation) -> bool {
        let compiled = self.compiled();
        compiled.version != Some(self.configurations.change_count()) || compiled.may_match(resource, operation)
    }

    /// The webhooks as of now. May compile.
    pub(super) fn current(&self) -> Arc<CompiledWebhooks> {
        let compiled = self.compiled();
        if compiled.version == Some(self.configurations.change_count()) {
            return compiled;
        }
        let _compiling = self.compiling.lock();
        let (compiled, version) = (self.compiled(), self.configurations.change_count());
        if compiled.version == Some(version) {
            return compiled;
        }
        let Some(compiler) = self.cluster.meaning().policies() else { return compiled };
        let mut known = WebhooksByKey::new();
        for (key, object) in self.configurations.list(&self.prefix, None, 0, |_, _| true).objects {
            let webhooks = match compiled.known.get(&key) {
                Some((revision, webhooks)) if *revision == object.revision => webhooks.clone(),
                _ => read(&object.decode(), compiler),
            };
            known.insert(key, (object.revision, webhooks));
        }
        let compiled = Arc::new(CompiledWebhooks::new(version, known));
        *self.compiled.write() = compiled.clone();
        compiled
    }
}

fn read(configuration: &Value, compiler: &Compiler) -> Vec<Arc<Webhook>> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array).unwrap_or_default();
    let webhook = |(index, it)| Arc::new(Webhook::new(configuration, it, index, compiler));
    webhooks.iter().enumerate().map(webhook).collect()
}
