//! Workloads whose pods, or whatever they make, need a gate.

use api::core::v1::{Node, Pod};
use api::json;
use api::json::Value;
use client::objects::Patch;
use client::resources::ServedView as _;
use client::{Client, Resource};

const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const CONTROLLERS: Resource = Resource::new("", "v1", "replicationcontrollers", "ReplicationController");
const REPLICA_SETS: Resource = Resource::new("apps", "v1", "replicasets", "ReplicaSet");
const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments", "Deployment");
const DAEMON_SETS: Resource = Resource::new("apps", "v1", "daemonsets", "DaemonSet");
const STATEFUL_SETS: Resource = Resource::new("apps", "v1", "statefulsets", "StatefulSet");
const JOBS: Resource = Resource::new("batch", "v1", "jobs", "Job");
const CRON_JOBS: Resource = Resource::new("batch", "v1", "cronjobs", "CronJob");
const TEMPLATES: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");

/// A workload whose template the server rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ReplicationController,
    ReplicaSet,
    /// Its ReplicaSet is rejected.
    Deployment,
    /// Its ReplicaSet exists, and its pods are rejected.
    LiveDeployment,
    DaemonSet,
    StatefulSet,
    Job,
    CronJob,
    /// A pod whose claim is refused.
    ResourceClaim,
}

impl Kind {
    /// The controllers that take part.
    pub(super) fn controllers(self) -> &'static [&'static str] {
        match self {
            Kind::ReplicationController => &["replicationcontroller"],
            Kind::ReplicaSet => &["replicaset"],
            Kind::Deployment | Kind::LiveDeployment => &["deployment", "replicaset"],
            Kind::DaemonSet => &["daemonset"],
            Kind::StatefulSet => &["statefulset"],
            Kind::Job => &["job"],
            Kind::CronJob => &["cronjob", "job"],
            Kind::ResourceClaim => &["resourceclaim"],
        }
    }

    /// The controllers that work before the gate goes off, and what they make.
    pub(super) fn prepared_by(self) -> &'static [&'static str] {
        if self == Kind::LiveDeployment { &["deployment"] } else { &[] }
    }

    pub(super) fn prepares(self) -> &'static str {
        "replicasets"
    }

    /// The kind of object that each of them finally creates.
    pub(super) fn makes(self) -> &'static str {
        if self == Kind::ResourceClaim { "resourceclaims" } else { "pods" }
    }

    /// Makes as many of them, and what they need.
    pub(super) async fn create(self, admin: &Client, count: usize) {
        let account = json!({"metadata": {"name": "default"}});
        admin.documents(SERVICE_ACCOUNTS).create("default", &account).await.unwrap();
        if self == Kind::DaemonSet {
            admin.documents(Node::RESOURCE).create("", &json!({"metadata": {"name": "node"}})).await.unwrap();
            // A new node is not ready, which keeps daemon pods away.
            let free = json!({"spec": {"taints": null}});
            admin.documents(Node::RESOURCE).patch("", "node", "", Patch::Merge, &free).await.unwrap();
        }
        if self == Kind::ResourceClaim {
            let template = json!({"metadata": {"name": "template"}, "spec": {"spec": {"devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "class"}}],
                "constraints": [{"requests": ["r"], "cel": {"expression": "devices.size() == 1"}}],
            }}}});
            admin.documents(TEMPLATES).create("default", &template).await.unwrap();
        }
        for number in 0..count {
            let name = format!("w{number}");
            let (resource, spec) = self.object(&name);
            let object = json!({"metadata": {"name": (name.clone())}, "spec": spec});
            admin.documents(resource).create("default", &object).await.unwrap();
            if self == Kind::CronJob {
                // One of its times has passed, and no other comes while the test runs.
                let earlier = clock::Clock::system().now().plus_seconds(-366 * 24 * 3600).to_string();
                let status = json!({"status": {"lastScheduleTime": earlier}});
                admin.documents(CRON_JOBS).patch("default", &name, "status", Patch::Merge, &status).await.unwrap();
            }
        }
    }

    fn object(self, name: &str) -> (Resource, Value) {
        let labels = json!({"app": name});
        let spec = |policy: &str| {
            json!({
                "containers": [{"name": "c", "image": "app:1"}],
                "restartPolicy": policy,
                "tolerations": [{"expression": "taint.key == 'maint'"}],
            })
        };
        let template = json!({"metadata": {"labels": (labels.clone())}, "spec": (spec("Always"))});
        let replicated = json!({
            "replicas": 1, "selector": {"matchLabels": (labels.clone())}, "template": (template.clone()),
        });
        let job = json!({"template": {"spec": (spec("Never"))}});
        match self {
            Kind::ReplicationController => {
                (CONTROLLERS, json!({"replicas": 1, "selector": labels, "template": template}))
            }
            Kind::ReplicaSet => (REPLICA_SETS, replicated),
            Kind::Deployment | Kind::LiveDeployment => (DEPLOYMENTS, replicated),
            Kind::DaemonSet => (DAEMON_SETS, json!({"selector": {"matchLabels": labels}, "template": template})),
            Kind::StatefulSet => (
                STATEFUL_SETS,
                json!({"serviceName": "s", "replicas": 1, "selector": {"matchLabels": labels}, "template": template}),
            ),
            Kind::Job => (JOBS, job),
            Kind::CronJob => (CRON_JOBS, json!({"schedule": "0 0 1 7 *", "jobTemplate": {"spec": job}})),
            Kind::ResourceClaim => (
                Pod::RESOURCE,
                json!({
                    "containers": [{"name": "c", "image": "app:1", "resources": {"claims": [{"name": "d"}]}}],
                    "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "template"}],
                }),
            ),
        }
    }
}

/// Creates a service account.
pub(super) async fn create_account(admin: &Client, name: &str) {
    let account = json!({"metadata": {"name": name}});
    admin.documents(SERVICE_ACCOUNTS).create("default", &account).await.unwrap();
}

/// Creates a Deployment with two pods that run as an account.
pub(super) async fn create_deployment(admin: &Client, account: &str) {
    let labels = json!({"app": "late"});
    let pod = json!({"serviceAccountName": account, "containers": [{"name": "c", "image": "app:1"}]});
    let template = json!({"metadata": {"labels": (labels.clone())}, "spec": pod});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": "late"}, "spec": spec});
    admin.documents(DEPLOYMENTS).create("default", &deployment).await.unwrap();
}

/// Creates a DaemonSet with these tolerations.
pub(super) async fn create_daemon_set(admin: &Client, name: &str, tolerations: Value) {
    let labels = json!({"app": name});
    let pod = json!({"tolerations": tolerations, "containers": [{"name": "c", "image": "app:1"}]});
    let template = json!({"metadata": {"labels": (labels.clone())}, "spec": pod});
    let set = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    admin.documents(DAEMON_SETS).create("default", &set).await.unwrap();
}
