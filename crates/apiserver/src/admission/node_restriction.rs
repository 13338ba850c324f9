//! `NodeRestriction`: what a node writes must be its own.
//!
//! Authorization lets nodes write kinds of objects; here is asked whether it is *its* Node, Lease, pod, slice or request,
//! and whether it changes no more than a kubelet needs to. Follows Kubernetes' `plugin/pkg/admission/noderestriction`.

mod labels;
mod pods;
mod tokens;

use std::sync::Arc;

use api::go_text::quote;
use api::json::Value;

use crate::authorization::node;
use crate::http::request::Target;
use crate::http::status::{Failure, Result};
use crate::identity::User;
use crate::objects::metadata;
use crate::resources::{self, Resource};
use crate::server::Server;

pub use self::pods::mentioned;

const LEASES: &str = "kube-node-lease";

/// What happens to an object.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// It is new.
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

/// Who changes what.
pub(crate) struct Attempt<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) resource: &'a Resource<'a>,
    pub(crate) target: &'a Target,
    pub(crate) subresource: &'a str,
    pub(crate) user: &'a User,
}

impl Attempt<'_> {
    /// Lets a change pass if it does not come from a node, or if the node may make it.
    ///
    /// # Errors
    /// 403 with the reason, 404 if an object that it needs does not exist.
    pub(crate) fn admit(&self, change: Change<'_>) -> Result<()> {
        let Some(node) = node::node_of(self.user) else { return Ok(()) };
        if node.is_empty() {
            return self.refuse(change, &format!("could not determine node from user {}", quote(&self.user.name)));
        }
        match (self.resource.group, self.resource.plural) {
            ("", "pods") => match self.subresource {
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
                Change::Create(request) if self.subresource == "token" => tokens::admit(self, node, request),
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
        if self.target.name.is_empty() { metadata::text(change.object(), "name") } else { &self.target.name }
    }

    fn refuse(&self, change: Change<'_>, why: &str) -> Result<()> {
        let name = match self.name(change) {
            "" => super::shown_name(change.object()),
            name => name,
        };
        Err(Failure::forbidden(self.resource.group, self.resource.plural, name, why))
    }

    fn object(&self, plural: &str, namespace: &str, name: &str) -> Result<Value> {
        let row = resources::find("", "v1", plural).ok_or_else(Failure::no_resource)?;
        let found = self.server.cache.resource(&row.prefix()).get(&row.key(namespace, name));
        found.map(|object| object.decode()).ok_or_else(|| not_found(row.singular, name))
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
                    if list(object, &path) != list(old, &path) {
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
        if self.subresource != "status" {
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
        if self.target.namespace != LEASES {
            return self.refuse(change, &format!("can only access leases in the \"{LEASES}\" system namespace"));
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
        let signer = request.str_at(&["spec", "signerName"]).unwrap_or_default();
        if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
            return Ok(());
        }
        match registry::certificates::subject_of_request(request) {
            Err(error) => self.refuse(change, &format!("unable to parse csr: {error}")),
            Ok(names) if names.common_name == format!("system:node:{node}") => Ok(()),
            Ok(_) => self.refuse(change, &format!("can only create a node CSR with CN=system:node:{node}")),
        }
    }
}

/// Missing and empty lists are the same.
fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

/// Kubernetes names what admission does not find by its singular.
fn not_found(singular: &str, name: &str) -> Box<Failure> {
    let message = format!("{singular} {} not found", quote(name));
    Failure::new(404, "NotFound", message).with_detail("name", name).with_detail("kind", singular)
}
