//! `NodeRestriction`: what a node writes must be its own.
//!
//! Authorization lets nodes write kinds of objects; this plugin checks that it is the node's *own* Node, Lease,
//! pod, slice or request, and that it changes no more than a kubelet needs to. Follows Kubernetes'
//! `plugin/pkg/admission/noderestriction`.

mod labels;
mod pods;
mod tokens;

use std::sync::Arc;

use api::go_text::quote;
use api::json::Value;
use api::well_known::{NAMESPACE_NODE_LEASE, SIGNER_KUBELET_CLIENT, SIGNER_KUBELET_SERVING};

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::authorization::node;
use crate::resources::Resource;
use crate::wire::status::{Failure, Result};
use api::metadata;

pub use self::pods::mentioned;

/// The plugin.
pub(super) struct NodeRestriction(pub(super) Arc<dyn Cluster>);

impl Plugin for NodeRestriction {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Connect && node::node_of(attributes.user).is_some()
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        let old = attributes.old.unwrap_or(&Value::Null);
        let change = match attributes.operation {
            Operation::Create => Change::Create(object),
            Operation::Update => Change::Update(object, old),
            Operation::Delete | Operation::Connect => Change::Delete(old),
        };
        done(Attempt { cluster: &*self.0, attributes }.admit(change))
    }
}

/// A change of an object.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// A new object.
    Create(&'a Value),
    /// The new one, and the old one.
    Update(&'a Value, &'a Value),
    /// The object that goes.
    Delete(&'a Value),
}

impl<'a> Change<'a> {
    /// The object that the change is about.
    fn object(&self) -> &'a Value {
        match self {
            Change::Create(object) | Change::Update(object, _) | Change::Delete(object) => object,
        }
    }

    /// As Kubernetes calls it.
    fn name(&self) -> &'static str {
        match self {
            Change::Create(_) => "CREATE",
            Change::Update(..) => "UPDATE",
            Change::Delete(_) => "DELETE",
        }
    }
}

/// A request of a node.
struct Attempt<'a> {
    cluster: &'a dyn Cluster,
    attributes: &'a Attributes<'a>,
}

impl Attempt<'_> {
    /// Lets a change pass if it does not come from a node, or if the node may make it.
    ///
    /// # Errors
    /// 403 with the reason, 404 if an object that it needs does not exist.
    fn admit(&self, change: Change<'_>) -> Result<()> {
        let Some(node) = node::node_of(self.attributes.user) else { return Ok(()) };
        if node.is_empty() {
            return self
                .refuse(change, &format!("could not determine node from user {}", quote(&self.attributes.user.name)));
        }
        match self.attributes.resource_name() {
            ("", "pods") => match self.attributes.subresource {
                "" => pods::admit(self, node, change),
                "status" => pods::admit_status(self, node, change),
                "eviction" => pods::admit_eviction(self, node, change),
                other => {
                    let why = format!(
                        "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                        quote(other)
                    );
                    self.refuse(change, &why)
                }
            },
            ("", "nodes") => self.admit_node(node, change),
            ("", "persistentvolumeclaims") => self.admit_claim(node, change),
            ("", "serviceaccounts") => match change {
                Change::Create(request) if self.attributes.subresource == "token" => tokens::admit(self, node, request),
                _ => Ok(()),
            },
            ("certificates.k8s.io", "podcertificaterequests") => tokens::admit_certificate_request(self, node, change),
            ("coordination.k8s.io", "leases") => self.admit_lease(node, change),
            ("storage.k8s.io", "csinodes") => self.admit_csi_node(node, change),
            ("resource.k8s.io", "resourceslices") => self.admit_slice(node, change),
            ("certificates.k8s.io", "certificatesigningrequests") => self.admit_signing_request(node, change),
            _ => Ok(()),
        }
    }

    /// The name that the change is about, empty if it will be generated.
    fn name<'a>(&'a self, change: Change<'a>) -> &'a str {
        if self.attributes.name.is_empty() { metadata::text(change.object(), "name") } else { self.attributes.name }
    }

    fn refuse(&self, change: Change<'_>, why: &str) -> Result<()> {
        let name = match self.name(change) {
            "" => super::shown_name(change.object()),
            name => name,
        };
        let (group, plural) = self.attributes.resource_name();
        Err(Failure::forbidden(group, plural, name, why))
    }

    fn object(&self, row: &Resource<'_>, namespace: &str, name: &str) -> Result<Value> {
        self.cluster.object(row, namespace, name).ok_or_else(|| not_found(row.singular, name))
    }

    fn admit_node(&self, node: &str, change: Change<'_>) -> Result<()> {
        let name = self.name(change);
        if name != node {
            let why = format!("node {} is not allowed to modify node {}", quote(node), quote(name));
            return self.refuse(change, &why);
        }
        match change {
            Change::Create(object) => {
                if object.at(&["spec", "configSource"]).is_some_and(|it| !it.is_null()) {
                    let why = format!("node {} is not allowed to create pods with a non-nil configSource", quote(node));
                    return self.refuse(change, &why);
                }
                let labels = labels::forbidden(object, None);
                if !labels.is_empty() {
                    let why = format!("node {} is not allowed to set the following labels: {labels}", quote(node));
                    return self.refuse(change, &why);
                }
            }
            Change::Update(object, old) => {
                let source = object.at(&["spec", "configSource"]).filter(|it| !it.is_null());
                if source.is_some() && source != old.at(&["spec", "configSource"]) {
                    let why = format!(
                        "node {} is not allowed to update configSource to a new non-nil configSource",
                        quote(node)
                    );
                    return self.refuse(change, &why);
                }
                for (what, path) in
                    [("taints", ["spec", "taints"]), ("ownerReferences", ["metadata", "ownerReferences"])]
                {
                    if object.list_at(&path) != old.list_at(&path) {
                        return self.refuse(change, &format!("node {} is not allowed to modify {what}", quote(node)));
                    }
                }
                let labels = labels::forbidden(object, Some(old));
                if !labels.is_empty() {
                    return self.refuse(change, &format!("is not allowed to modify labels: {labels}"));
                }
            }
            Change::Delete(_) => {}
        }
        Ok(())
    }

    fn admit_claim(&self, node: &str, change: Change<'_>) -> Result<()> {
        if self.attributes.subresource != "status" {
            return self.refuse(change, "may only update PVC status");
        }
        let Change::Update(new, old) = change else {
            return self.refuse(change, &format!("unexpected operation {}", quote(change.name())));
        };
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            for field in ["resourceVersion", "managedFields"] {
                metadata::remove(&mut claim, field);
            }
            if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
                for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
                    status.remove(field);
                }
            }
            super::role_escalation::without_empty(claim)
        };
        if rest(new) == rest(old) {
            return Ok(());
        }
        let why = format!(
            "node {} is not allowed to update fields other than status.quantity and status.conditions",
            quote(node)
        );
        self.refuse(change, &why)
    }

    fn admit_lease(&self, node: &str, change: Change<'_>) -> Result<()> {
        if self.attributes.namespace != NAMESPACE_NODE_LEASE {
            return self
                .refuse(change, &format!("can only access leases in the \"{NAMESPACE_NODE_LEASE}\" system namespace"));
        }
        if self.name(change) != node {
            return self.refuse(change, "can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn admit_csi_node(&self, node: &str, change: Change<'_>) -> Result<()> {
        if self.name(change) != node {
            return self.refuse(change, "can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    fn admit_slice(&self, node: &str, change: Change<'_>) -> Result<()> {
        let verb = match change {
            Change::Create(_) => "create",
            Change::Delete(_) => "delete",
            // The node of a slice cannot change.
            Change::Update(..) => return Ok(()),
        };
        if change.object().str_at(&["spec", "nodeName"]) == Some(node) {
            return Ok(());
        }
        let why = format!("can only {verb} ResourceSlice with the same NodeName as the requesting node");
        self.refuse(change, &why)
    }

    fn admit_signing_request(&self, node: &str, change: Change<'_>) -> Result<()> {
        let Change::Create(request) = change else { return Ok(()) };
        let signer = request.text_at(&["spec", "signerName"]);
        if !matches!(signer, SIGNER_KUBELET_SERVING | SIGNER_KUBELET_CLIENT) {
            return Ok(());
        }
        match registry::certificates::subject_of_request(request) {
            Err(error) => self.refuse(change, &format!("unable to parse csr: {error}")),
            Ok(names) if names.common_name == format!("system:node:{node}") => Ok(()),
            Ok(_) => self.refuse(change, &format!("can only create a node CSR with CN=system:node:{node}")),
        }
    }
}

/// Kubernetes names what admission does not find by its singular.
fn not_found(singular: &str, name: &str) -> Box<Failure> {
    let message = format!("{singular} {} not found", quote(name));
    Failure::new(404, "NotFound", message).with_detail("name", name).with_detail("kind", singular)
}
