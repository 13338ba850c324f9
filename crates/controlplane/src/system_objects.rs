//! Workloads that clients look for in `kube-system`: CoreDNS and kube-proxy, which simulated nodes play.

use anyhow::{Context as _, Result};
use api::apps::v1::{DaemonSet, Deployment};
use api::json::Value;
use api::kubernetes::VERSION;
use api::well_known::{EFFECT_NO_SCHEDULE, LABEL_CONTROL_PLANE, NAMESPACE_SYSTEM};
use client::resources::ServedView as _;
use client::{Client, Resource};

const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps", "ConfigMap");
const SERVICES: Resource = Resource::new("", "v1", "services", "Service");
const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");

const COREFILE: &str = ".:53 {\n    errors\n    health\n    ready\n    kubernetes cluster.local in-addr.arpa ip6.arpa\n    cache 30\n    loop\n    reload\n}\n";

/// Creates the objects, unless they exist.
///
/// # Errors
/// Objects that the server rejects.
pub(crate) async fn ensure(client: &Client) -> Result<()> {
    for (resource, object) in objects() {
        match client.documents(resource).create(NAMESPACE_SYSTEM, &object).await {
            Err(error) if !error.is_already_exists() => {
                return Err(error).context("cannot create the system workloads");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Lets the agents of real nodes read what a service proxy needs, as `kubeadm` does for kube-proxy.
///
/// # Errors
/// The server rejects the binding.
pub(crate) async fn ensure_node_proxier(client: &Client) -> Result<()> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let bindings = Resource::new(GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding");
    let binding = api::json!({
        "metadata": {"name": "celplane:node-proxier"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:node-proxier"},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "system:nodes"}],
    });
    match client.documents(bindings).create("", &binding).await {
        Err(error) if !error.is_already_exists() => Err(error).context("cannot let nodes read Services"),
        _ => Ok(()),
    }
}

fn objects() -> Vec<(Resource, Value)> {
    let dns = || api::json!({"k8s-app": "kube-dns"});
    let proxy = || api::json!({"k8s-app": "kube-proxy"});
    let account = |name: &str| (SERVICE_ACCOUNTS, api::json!({"metadata": {"name": name}}));
    vec![
        account("coredns"),
        account("kube-proxy"),
        (CONFIG_MAPS, api::json!({"metadata": {"name": "coredns"}, "data": {"Corefile": COREFILE}})),
        (
            SERVICES,
            api::json!({
                "metadata": {"name": "kube-dns", "labels": (dns())},
                "spec": {"selector": (dns()), "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ]},
            }),
        ),
        (
            Deployment::RESOURCE,
            api::json!({
                "metadata": {"name": "coredns", "labels": (dns())},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": (dns())},
                    "template": {"metadata": {"labels": (dns())}, "spec": {
                        "serviceAccountName": "coredns",
                        "priorityClassName": "system-cluster-critical",
                        "tolerations": [
                            {"key": "CriticalAddonsOnly", "operator": "Exists"},
                            {"key": LABEL_CONTROL_PLANE, "effect": EFFECT_NO_SCHEDULE},
                        ],
                        "containers": [{
                            "name": "coredns", "image": "registry.k8s.io/coredns/coredns:v1.12.1",
                            "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}},
                        }],
                    }},
                },
            }),
        ),
        (
            DaemonSet::RESOURCE,
            api::json!({
                "metadata": {"name": "kube-proxy", "labels": (proxy())},
                "spec": {
                    "selector": {"matchLabels": (proxy())},
                    "template": {"metadata": {"labels": (proxy())}, "spec": {
                        "serviceAccountName": "kube-proxy",
                        "priorityClassName": "system-node-critical",
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "kube-proxy", "image": (format!("registry.k8s.io/kube-proxy:v{VERSION}.0"))}],
                    }},
                },
            }),
        ),
    ]
}
