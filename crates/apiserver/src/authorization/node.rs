//! Authorization of nodes: access only to objects that concern them.
//!
//! A node is a user `system:node:NAME` in the group `system:nodes`. Which objects concern it is found in [`relations`];
//! what a write may change is checked in admission (`NodeRestriction`). Follows Kubernetes'
//! `plugin/pkg/auth/authorizer/node`.

mod references;
mod relations;

use std::sync::Arc;

use api::metadata;
use api::well_known::{GROUP_NODES, NAMESPACE_NODE_LEASE};

pub(crate) use self::references::References;
use self::relations::{Kind, Relations};
use super::{Request, Rule};
use crate::identity::User;
use crate::initial_objects;
use crate::wire::request::Target;
use cache::Cache;

const USER_PREFIX: &str = "system:node:";

/// The node that a user is.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.is_in(GROUP_NODES))
}

/// Authorizes requests of nodes.
pub(super) struct Nodes {
    relations: Relations,
    /// Rules that all nodes share.
    rules: Vec<Rule>,
}

/// The rules that all nodes share: those of the built-in role `system:node`, regardless of changes by an
/// administrator.
fn node_rules() -> Vec<Rule> {
    let mut roles = initial_objects::built_in("clusterroles").iter();
    roles.find(|role| metadata::name(role) == "system:node").map(Rule::of_role).unwrap_or_default()
}

/// Reason of a rejection; may be empty.
type RejectionReason = String;

impl Nodes {
    pub(super) fn new(cache: &Arc<Cache>) -> Self {
        Self { relations: Relations::new(cache.clone()), rules: node_rules() }
    }

    /// Lets a request of a node pass.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn authorize(&self, node: &str, request: &Request<'_>) -> Result<(), RejectionReason> {
        if node.is_empty() {
            return refuse(format!("unknown node for user {}", api::go_text::quote(USER_PREFIX)));
        }
        if let Request::Resource { verb, target } = request {
            let ask = NodeQuestion { nodes: self, node, verb, target, part: target.first_subresource() };
            match (target.group.as_str(), target.resource.as_str()) {
                ("", "secrets") => return ask.read_one(Kind::Secret),
                ("", "configmaps") => return ask.read_one(Kind::ConfigMap),
                ("", "persistentvolumeclaims") if ask.part == "status" => return ask.write_status(Kind::VolumeClaim),
                ("", "persistentvolumeclaims") => return ask.get(Kind::VolumeClaim),
                ("", "persistentvolumes") => return ask.get(Kind::Volume),
                ("resource.k8s.io", "resourceclaims") => return ask.get(Kind::DeviceClaim),
                ("storage.k8s.io", "volumeattachments") => return ask.get(Kind::Attachment),
                ("", "serviceaccounts") => return ask.service_account(),
                ("coordination.k8s.io", "leases") => return ask.lease(),
                ("storage.k8s.io", "csinodes") => return ask.csi_node(),
                ("resource.k8s.io", "resourceslices") => return ask.slice(),
                ("", "nodes") => return ask.node(),
                ("", "pods") => return ask.pod(),
                ("certificates.k8s.io", "podcertificaterequests") => return ask.certificate_request(),
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(request)) { Ok(()) } else { refuse("") }
    }
}

fn refuse(why: impl Into<String>) -> Result<(), RejectionReason> {
    Err(why.into())
}

/// One question of a node about a resource that is divided among them.
struct NodeQuestion<'a> {
    nodes: &'a Nodes,
    node: &'a str,
    verb: &'a str,
    target: &'a Target,
    part: &'a str,
}

impl NodeQuestion<'_> {
    fn name(&self) -> &str {
        self.target.asked_name()
    }

    /// Checks that the object concerns the node.
    fn related(&self, kind: Kind) -> Result<(), RejectionReason> {
        if self.name().is_empty() {
            return refuse("No Object name found");
        }
        self.concerned(kind)
    }

    fn concerned(&self, kind: Kind) -> Result<(), RejectionReason> {
        if self.nodes.relations.concerns(self.node, kind, &self.target.namespace, self.name()) {
            return Ok(());
        }
        refuse(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn get(&self, kind: Kind) -> Result<(), RejectionReason> {
        match (self.verb, self.part) {
            ("get", "") => self.related(kind),
            ("get", _) => refuse("cannot get subresource"),
            _ => refuse("can only get individual resources of this type"),
        }
    }

    fn read_one(&self, kind: Kind) -> Result<(), RejectionReason> {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return refuse("can only read resources of this type");
        }
        if !self.part.is_empty() {
            return refuse("cannot read subresource");
        }
        if self.target.namespace.is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.related(kind)
    }

    fn write_status(&self, kind: Kind) -> Result<(), RejectionReason> {
        match self.verb {
            "update" | "patch" => self.related(kind),
            _ => refuse("can only get/update/patch this type"),
        }
    }

    fn service_account(&self) -> Result<(), RejectionReason> {
        if self.verb == "get" && self.part.is_empty() {
            return self.read_one(Kind::ServiceAccount);
        }
        if self.verb != "create" || self.name().is_empty() {
            return refuse("can only create tokens for individual service accounts");
        }
        if self.part != "token" {
            return refuse("can only create token subresource of serviceaccount");
        }
        self.concerned(Kind::ServiceAccount)
    }

    fn lease(&self) -> Result<(), RejectionReason> {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return refuse("can only get, create, update, patch, or delete a node lease");
        }
        if self.target.namespace != NAMESPACE_NODE_LEASE {
            return refuse(format!("can only access leases in the \"{NAMESPACE_NODE_LEASE}\" system namespace"));
        }
        // The name of a new one is checked in admission.
        if self.verb != "create" && self.name() != self.node {
            return refuse("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn csi_node(&self) -> Result<(), RejectionReason> {
        match self.part {
            "" if matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") => {}
            "" => return refuse("can only get, create, update, patch, or delete a CSINode"),
            "status" => return refuse("CSINode status access requires CSIVolumeHealth feature"),
            _ => return refuse("cannot authorize CSINode subresources"),
        }
        if self.verb != "create" && self.name() != self.node {
            return refuse("can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    fn slice(&self) -> Result<(), RejectionReason> {
        if !self.part.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(Kind::Slice),
            "watch" | "list" | "deletecollection" if self.target.is_limited_to("spec.nodeName", self.node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn certificate_request(&self) -> Result<(), RejectionReason> {
        if !self.part.is_empty() {
            return refuse("nodes may not access the status subresource of PodCertificateRequests");
        }
        match self.verb {
            "create" => Ok(()),
            "get" => self.related(Kind::CertificateRequest),
            "list" | "watch" if self.target.is_limited_to("spec.nodeName", self.node) => Ok(()),
            "list" | "watch" => refuse("can only list/watch podcertificaterequests with nodeName field selector"),
            verb => refuse(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn node(&self) -> Result<(), RejectionReason> {
        let node = self.node;
        match (self.part, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match self.name() {
                name if name == node => Ok(()),
                "" => refuse(format!("node '{node}' cannot read all nodes, only its own Node object")),
                name => refuse(format!("node '{node}' cannot read '{name}', only its own Node object")),
            },
            _ => refuse(""),
        }
    }

    fn pod(&self) -> Result<(), RejectionReason> {
        match (self.part, self.verb) {
            ("", "get") => self.get(Kind::Pod),
            ("", "list" | "watch") => {
                if self.target.is_limited_to("spec.nodeName", self.node) {
                    return Ok(());
                }
                if !self.name().is_empty() {
                    return self.related(Kind::Pod);
                }
                refuse("can only list/watch pods with spec.nodeName field selector")
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => refuse(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_rules() {
        assert!(node_rules().len() > 20);
    }
}
