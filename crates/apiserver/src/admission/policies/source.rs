//! The policies and bindings of the cache, compiled.
//!
//! An object is compiled once per version: a change among thousands costs one compilation and a new index. Requests that
//! come in between wait for it on threads for blocking work, never on those that serve connections.

use locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use api::json::Value;
use cel_kubernetes::environments::admission::Compiler;
use registry::admission::{Binding, Catalog, Operation, Policy};
use store::Revision;

use super::super::Cluster;
use cache::ResourceCache;

const GROUP: &str = "/registry/admissionregistration.k8s.io";

/// The key of a policy or binding, the revision that it was read at, and its compiled form.
type Entry<T> = (Arc<str>, Revision, Arc<T>);

/// A catalog, and the changes that it holds.
pub(super) struct CompiledCatalog<B> {
    versions: (u64, u64),
    /// In the order of their keys, as the bindings.
    policies: Vec<Entry<Policy<B>>>,
    bindings: Vec<Entry<Binding>>,
    catalog: Catalog<B>,
}

impl<B> CompiledCatalog<B> {
    pub(super) fn catalog(&self) -> &Catalog<B> {
        &self.catalog
    }
}

/// The source of the compiled policies of one kind.
pub(super) struct Source<B> {
    cluster: Arc<dyn Cluster>,
    policies: (Arc<ResourceCache>, String),
    bindings: (Arc<ResourceCache>, String),
    compile: fn(&Value, &Compiler) -> Policy<B>,
    compiled: RwLock<Arc<CompiledCatalog<B>>>,
    /// Held while something is compiled, so that one request does it for all.
    compiling: Mutex<()>,
}

impl<B> Source<B> {
    /// Reads the policies of a resource, given by its plural name, and their bindings.
    pub(super) fn new(cluster: &Arc<dyn Cluster>, plural: &str, compile: fn(&Value, &Compiler) -> Policy<B>) -> Self {
        let of = |plural: &str| {
            let prefix = format!("{GROUP}/{plural}/");
            (cluster.cache().resource(&prefix), prefix)
        };
        let singular = plural.strip_suffix("ies").unwrap_or(plural);
        let compiled = CompiledCatalog {
            // Unlike any that is counted: the first request reads.
            versions: (u64::MAX, u64::MAX),
            policies: Vec::new(),
            bindings: Vec::new(),
            catalog: Catalog::default(),
        };
        Self {
            cluster: cluster.clone(),
            policies: of(plural),
            bindings: of(&format!("{singular}ybindings")),
            compile,
            compiled: RwLock::new(Arc::new(compiled)),
            compiling: Mutex::default(),
        }
    }

    fn versions(&self) -> (u64, u64) {
        (self.policies.0.change_count(), self.bindings.0.change_count())
    }

    fn compiled(&self) -> Arc<CompiledCatalog<B>> {
        self.compiled.read().clone()
    }

    /// Whether no policy is bound.
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.0.is_empty() || self.policies.0.is_empty()
    }

    /// Whether a policy may be about a request. Compiles nothing: what is not known may be.
    pub(super) fn may_match(&self, (group, resource): (&str, &str), operation: Operation) -> bool {
        let compiled = self.compiled();
        compiled.versions != self.versions() || compiled.catalog.may_match(group, resource, operation)
    }

    /// The catalog as of now. May compile.
    pub(super) fn current(&self) -> Arc<CompiledCatalog<B>> {
        let compiled = self.compiled();
        if compiled.versions == self.versions() {
            return compiled;
        }
        let _compiling = self.compiling.lock();
        let (compiled, versions) = (self.compiled(), self.versions());
        if compiled.versions == versions {
            return compiled;
        }
        let Some(compiler) = self.cluster.meaning().policies() else { return compiled };
        let policies = read(&self.policies, &compiled.policies, |policy| {
            let started = Instant::now();
            let compiled = (self.compile)(policy, compiler);
            self.cluster.policy_metrics().compilations.observe_duration(started.elapsed());
            compiled
        });
        // All bindings of a policy have its name in common.
        let names: HashMap<&str, &Arc<str>> =
            policies.iter().map(|(_, _, policy)| (&*policy.name, &policy.name)).collect();
        let bindings = read(&self.bindings, &compiled.bindings, |binding| {
            let name = binding.text_at(&["spec", "policyName"]);
            Binding::of_policy(binding, names.get(name).map_or_else(|| name.into(), |name| Arc::clone(name)))
        });
        let catalog = Catalog::new(values(&policies), values(&bindings));
        let compiled = Arc::new(CompiledCatalog { versions, policies, bindings, catalog });
        *self.compiled.write() = compiled.clone();
        compiled
    }
}

fn values<T>(known: &[Entry<T>]) -> Vec<Arc<T>> {
    known.iter().map(|(_, _, value)| value.clone()).collect()
}

/// Reads the objects of a cache that are not known yet.
fn read<T>(
    (cache, prefix): &(Arc<ResourceCache>, String),
    before: &[Entry<T>],
    make: impl Fn(&Value) -> T,
) -> Vec<Entry<T>> {
    let objects = cache.list(prefix, None, 0, |_, _| true).objects;
    let mut before = before.iter().peekable();
    let mut known = Vec::with_capacity(objects.len());
    for (key, object) in objects {
        while before.next_if(|(other, _, _)| **other < *key).is_some() {}
        let value = match before.next_if(|(other, _, _)| *other == key) {
            Some((_, revision, value)) if *revision == object.revision => value.clone(),
            _ => Arc::new(make(&object.decode())),
        };
        known.push((key, object.revision, value));
    }
    known
}
