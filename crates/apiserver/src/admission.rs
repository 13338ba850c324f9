//! Admission: the chain of plugins that every write and every connection passes before anything is stored.
//!
//! A verb describes its request in `Attributes` and runs the `Chain` twice: `Chain::mutate` before the object is
//! prepared and validated by its kind, `Chain::validate` on the object as it will be stored. Both run the plugins of
//! `PLUGINS` in Kubernetes' order. The first refusal ends the request.
//!
//! | verb | operation | object | old object |
//! |---|---|---|---|
//! | create, apply of a new object | Create | the object | – |
//! | update, patch, apply; `status`, `approval`, `finalize`, `ephemeralcontainers`, `resize` | Update | the object | the stored one |
//! | `scale` | Update | the `Scale` | the `Scale` before |
//! | `binding`, `eviction`, `token`, reviews | Create | the `Binding`, `Eviction`, … | – |
//! | delete; deletecollection, once for each object | Delete | – | the object |
//! | `exec`, `attach`, `portforward`, `proxy` | Connect | the options, such as `PodExecOptions` | – |
//!
//! # Adding a plugin
//!
//! 1. A file in `admission/` with a type that implements `Plugin`. It holds an `Arc<dyn Cluster>` if it reads other
//!    objects, rights or the time; it never sees the server. Rules that need none of these belong into `registry`.
//! 2. A row in `PLUGINS`, at the place that Kubernetes' `AllOrderedPlugins` gives it, with Kubernetes' name.
//!
//! `Plugin::handles` runs for every request: it compares operation, resource and subresource, and returns before
//! anything is allocated. A plugin names a resource by its constant in `registry::resources`, so that a missing row does
//! not compile.
//! Warnings go through `Attributes::warn`, audit annotations through `Attributes::annotate`. Documents of built-in
//! resources are in the stored version, those of custom resources in the version of the request;
//! `Attributes::requested` converts the former. `metadata.managedFields` is present in both phases.

mod certificates;
mod chain;
mod cluster;
mod default_storage_class;
mod default_toleration_seconds;
mod limit_ranger;
mod match_conditions;
mod namespace_lifecycle;
pub(crate) mod node_restriction;
mod node_taints;
pub(crate) mod pod_security;
mod policies;
mod priority;
mod resource_quota;
mod role_escalation;
mod runtime_class;
mod service_account;
mod storage_in_use;
pub(crate) mod webhooks;

use std::sync::Arc;

use api::field::Errors;
use api::json::Value;
use futures::future::BoxFuture;

use crate::audit;
use crate::identity::User;
use crate::objects::conversion::convert;
use crate::resources::Resource;
use crate::wire::status::{Failure, Result};
use crate::wire::warnings;

pub(crate) use self::chain::Chain;
pub use self::chain::{UnknownPlugin, check_plugin_names};
pub(crate) use self::cluster::{Cluster, State};
pub(crate) use self::match_conditions::ConditionMetrics;
pub use self::node_restriction::mentioned;
pub(crate) use self::policies::PolicyMetrics;
pub use crate::outbound::backends::{ServicePort, SimulatedBackends};

/// An operation, as Kubernetes groups the verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object is deleted, or its deletion starts.
    Delete,
    /// A connection is opened.
    Connect,
}

impl Operation {
    /// The name in reviews, rules and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// Group, version and kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind<'a> {
    /// The group, empty for core.
    pub(crate) group: &'a str,
    /// The version.
    pub(crate) version: &'a str,
    /// The kind.
    pub(crate) kind: &'a str,
}

/// A request as plugins see it.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    /// The operation.
    pub(crate) operation: Operation,
    /// The resource of the path.
    pub(crate) resource: &'a Resource<'a>,
    /// The version of the path.
    pub(crate) version: &'a str,
    /// The subresource of the path, empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// The kind of the object in the version of the request: that of the resource, or for example `Scale`.
    pub(crate) kind: Kind<'a>,
    /// The name: that of the path, or the one that a new object has. Empty if a name will be generated, and for the
    /// objects of a deleted collection.
    pub(crate) name: &'a str,
    /// The name in the path, empty for a create.
    pub(crate) path_name: &'a str,
    /// The namespace; empty for resources outside of namespaces.
    pub(crate) namespace: &'a str,
    /// The object to validate; none for deletions, and none while plugins mutate it.
    pub(crate) object: Option<&'a Value>,
    /// The stored object; none for new ones and connections.
    pub(crate) old: Option<&'a Value>,
    /// The user, after impersonation.
    pub(crate) user: &'a User,
    /// Whether nothing will be stored.
    pub(crate) dry_run: bool,
    /// Makes the options of the request, such as `CreateOptions`; null for connections.
    pub(crate) options: &'a (dyn Fn() -> Value + Sync),
}

impl<'a> Attributes<'a> {
    /// Group and plural of the resource.
    pub(crate) fn resource_name(&self) -> (&'a str, &'a str) {
        (self.resource.group, self.resource.plural)
    }

    /// Whether the request is about objects of a resource themselves, not about a subresource.
    pub(crate) fn is_for(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource_name() == (group, plural)
    }

    /// Whether the object is a document of the resource, not one of a subresource with its own kind.
    pub(crate) fn is_whole(&self) -> bool {
        self.kind.kind == self.resource.kind && self.kind.group == self.resource.group
    }

    /// A document of the resource in the version of the request.
    pub(crate) fn requested(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.is_whole() && self.resource.custom.is_none() {
            convert(self.resource, self.version, &mut object);
        }
        object
    }

    /// Sends a warning with the answer.
    pub(crate) fn warn(&self, text: String) {
        warnings::add([text]);
    }

    /// Adds an annotation to the audit event of the request. The first value of a key is kept.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        audit::annotate(key, value);
    }

    /// As [`Attributes::annotate`], for a value with parts of the object: events below the level `Request` omit it.
    pub(crate) fn annotate_contents(&self, key: &str, value: &str) {
        audit::annotate_contents(key, value);
    }

    /// A refusal in Kubernetes' words; `object` is the one that is admitted.
    pub(crate) fn forbidden(&self, object: &Value, why: &str) -> Box<Failure> {
        let name = if self.name.is_empty() { shown_name(object) } else { self.name };
        Failure::forbidden(self.resource.group, self.resource.plural, name, why)
    }
}

/// The result of a plugin, once it is known.
pub(crate) type Verdict<'a> = BoxFuture<'a, Result<()>>;

/// An outcome that needs no waiting.
pub(crate) fn done<'a>(result: Result<()>) -> Verdict<'a> {
    Box::pin(std::future::ready(result))
}

/// A plugin of the admission chain.
pub(crate) trait Plugin: Send + Sync {
    /// Whether the plugin has anything to do for a request. Cheap: it runs for every request, before any phase.
    fn handles(&self, attributes: &Attributes<'_>) -> bool;

    /// Changes or refuses the object. For deletions `object` is null, and changes of it are lost.
    fn mutate<'a>(&'a self, _attributes: &'a Attributes<'a>, _object: &'a mut Value) -> Verdict<'a> {
        done(Ok(()))
    }

    /// Refuses the object as it will be stored.
    fn validate<'a>(&'a self, _attributes: &'a Attributes<'a>) -> Verdict<'a> {
        done(Ok(()))
    }
}

/// The phases that a plugin takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phases {
    /// Only [`Plugin::mutate`] is called.
    Mutation,
    /// Only [`Plugin::validate`] is called.
    Validation,
    /// Both are called.
    Both,
}

/// The initial state of a plugin, and its switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    /// On unless `--disable-admission-plugins` names it.
    DefaultOn,
    /// Off unless `--enable-admission-plugins` names it.
    #[allow(dead_code, reason = "every plugin so far is on by default")]
    DefaultOff,
    /// Part of the API: Kubernetes has no name for it, and it cannot be switched off.
    Always,
}

/// A row of the table of plugins.
pub(crate) struct Registration {
    /// Kubernetes' name.
    pub(crate) name: &'static str,
    /// The initial state, and the switch.
    pub(crate) switch: Switch,
    /// The phases it takes part in.
    pub(crate) phases: Phases,
    /// Whether a rejection may be due to an outdated cache: then the plugin runs again once the cache has
    /// caught up.
    pub(crate) retries: bool,
    /// Makes the plugin.
    pub(crate) make: fn(&Arc<dyn Cluster>) -> Box<dyn Plugin>,
}

macro_rules! plugins {
    ($($name:literal $switch:ident $phases:ident $($retries:ident)? => $make:expr,)*) => {
        &[$(Registration {
            name: $name,
            switch: Switch::$switch,
            phases: Phases::$phases,
            retries: false $(|| !stringify!($retries).is_empty())?,
            make: $make,
        },)*]
    };
}

/// The plugins in the order of Kubernetes' `AllOrderedPlugins`. The escalation check stands after everything that can
/// change an object, the quota after everything that can refuse it.
#[rustfmt::skip]
pub(crate) const PLUGINS: &[Registration] = plugins! {
    "NamespaceLifecycle"            DefaultOn Mutation => |cluster| Box::new(namespace_lifecycle::NamespaceLifecycle(cluster.clone())),
    "LimitRanger"                   DefaultOn Both => |cluster| Box::new(limit_ranger::LimitRanger(cluster.clone())),
    "ServiceAccount"                DefaultOn Mutation retries => |cluster| Box::new(service_account::ServiceAccount(cluster.clone())),
    "NodeRestriction"               DefaultOn Mutation => |cluster| Box::new(node_restriction::NodeRestriction(cluster.clone())),
    "TaintNodesByCondition"         DefaultOn Mutation => |_| Box::new(node_taints::TaintNodesByCondition),
    "PodSecurity"                   DefaultOn Validation => |cluster| Box::new(pod_security::PodSecurity::new(cluster)),
    "Priority"                      DefaultOn Mutation retries => |cluster| Box::new(priority::Priority(cluster.clone())),
    "DefaultTolerationSeconds"      DefaultOn Mutation => |_| Box::new(default_toleration_seconds::DefaultTolerationSeconds),
    "DefaultStorageClass"           DefaultOn Mutation => |cluster| Box::new(default_storage_class::DefaultStorageClass(cluster.clone())),
    "StorageObjectInUseProtection"  DefaultOn Mutation => |_| Box::new(storage_in_use::StorageObjectInUseProtection),
    "RuntimeClass"                  DefaultOn Both retries => |cluster| Box::new(runtime_class::RuntimeClass(cluster.clone())),
    "CertificateApproval"           DefaultOn Validation => |cluster| Box::new(certificates::CertificateApproval(cluster.clone())),
    "CertificateSigning"            DefaultOn Validation => |cluster| Box::new(certificates::CertificateSigning(cluster.clone())),
    "ClusterTrustBundleAttest"      DefaultOn Validation => |cluster| Box::new(certificates::ClusterTrustBundleAttest(cluster.clone())),
    "CertificateSubjectRestriction" DefaultOn Validation => |_| Box::new(certificates::CertificateSubjectRestriction),
    "MutatingAdmissionPolicy"       DefaultOn Mutation => |cluster| Box::new(policies::MutatingAdmissionPolicy::new(cluster)),
    "MutatingAdmissionWebhook"      DefaultOn Mutation => |cluster| Box::new(webhooks::Webhooks::mutating(cluster)),
    "ValidatingAdmissionPolicy"     DefaultOn Validation => |cluster| Box::new(policies::ValidatingAdmissionPolicy::new(cluster)),
    "ValidatingAdmissionWebhook"    DefaultOn Validation => |cluster| Box::new(webhooks::Webhooks::validating(cluster)),
    "RoleEscalation"                Always Mutation => |cluster| Box::new(role_escalation::RoleEscalation(cluster.clone())),
    "ResourceQuota"                 DefaultOn Validation => |cluster| Box::new(resource_quota::ResourceQuota(cluster.clone())),
};

/// Writes the sender into a new object, as only the server can.
pub(crate) fn name_sender(resource: &Resource<'_>, object: &mut Value, user: &User) {
    certificates::name_requester(resource, object, user);
}

/// Adds the errors of a new object that its kind alone cannot find.
pub(crate) fn complain(resource: &Resource<'_>, object: &Value, errors: Errors) -> Errors {
    certificates::validate_signature(resource, object, errors)
}

/// The name of an object in refusals, also if its name will be generated.
fn shown_name(object: &Value) -> &str {
    let names = ["name", "generateName"].map(|field| api::metadata::text(object, field));
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}
