//! `NamespaceLifecycle`: nothing is created in a namespace that does not exist or is being deleted, and the namespaces of
//! the system are not deleted.

use std::sync::Arc;

use api::json::Value;
use api::well_known::{NAMESPACE_PUBLIC, NAMESPACE_SYSTEM};

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::resources;
use crate::wire::status::{Failure, Result};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", NAMESPACE_SYSTEM, NAMESPACE_PUBLIC];

/// The plugin.
pub(super) struct NamespaceLifecycle(pub(super) Arc<dyn Cluster>);

impl Plugin for NamespaceLifecycle {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Delete => attributes.is_for("", "namespaces"),
            Operation::Create => {
                let is_namespaced = attributes.resource.namespaced && !attributes.namespace.is_empty();
                // A response about the namespace would reveal its existence.
                is_namespaced && attributes.resource_name() != ("authorization.k8s.io", "localsubjectaccessreviews")
            }
            Operation::Update | Operation::Connect => false,
        }
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        if attributes.operation == Operation::Delete {
            return done(protect(attributes));
        }
        Box::pin(self.check(attributes, object))
    }
}

fn protect(attributes: &Attributes<'_>) -> Result<()> {
    if IMMORTAL.contains(&attributes.name) {
        return Err(Failure::forbidden("", "namespaces", attributes.name, "this namespace may not be deleted"));
    }
    Ok(())
}

impl NamespaceLifecycle {
    async fn check(&self, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
        let (name, namespaces) = (attributes.namespace, resources::NAMESPACES);
        let find = || self.0.cache().resource(&namespaces.prefix()).get(&namespaces.key("", name));
        let mut found = find();
        // It may have been created a moment ago.
        if found.is_none() && self.0.catch_up().await {
            found = find();
        }
        let Some(namespace) = found else { return Err(Failure::not_found(namespaces, name)) };
        // The text of a namespace that is not being deleted cannot hold this.
        let may_be_terminating = namespace.contains(b"\"Terminating\"");
        if may_be_terminating && namespace.decode().str_at(&["status", "phase"]) == Some("Terminating") {
            let why = format!("unable to create new content in namespace {name} because it is being terminated");
            let cause = api::json!({
                "reason": "NamespaceTerminating",
                "message": (format!("namespace {name} is being terminated")),
                "field": "metadata.namespace"
            });
            return Err(attributes.forbidden(object, &why).with_detail("causes", Value::Array(vec![cause])));
        }
        Ok(())
    }
}
