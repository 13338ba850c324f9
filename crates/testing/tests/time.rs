//! Moved time.

use std::time::Duration;

use celplane_testing::{Cluster, Error};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn read<T: serde::de::DeserializeOwned>(document: Value) -> T {
    serde_json::from_value(document).unwrap()
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let answered = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answered).await.unwrap()
}

async fn ready_nodes(cluster: &Cluster) -> usize {
    let nodes = Api::<Node>::all(cluster.client().await.unwrap()).list(&Default::default()).await.unwrap();
    let is_ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|list| list.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
    };
    nodes.items.iter().filter(|node| is_ready(node)).count()
}

#[tokio::test]
async fn cron_job_starts_when_time_is_moved() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
    let cron: CronJob = read(json!({
        "metadata": {"name": "often"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template}}}
    }));
    let jobs = Api::<Job>::default_namespaced(client.clone());
    Api::<CronJob>::default_namespaced(client).create(&PostParams::default(), &cron).await.unwrap();
    cluster.advance(MINUTE * 6).await.unwrap();
    let job = until(async || jobs.list(&Default::default()).await.unwrap().items.into_iter().next()).await;
    assert!(job.metadata.name.unwrap().starts_with("often-"));
}

#[tokio::test]
async fn pod_is_evicted_when_its_toleration_has_expired() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let pod: Pod = read(json!({
        "metadata": {"name": "web"},
        "spec": {
            "containers": [{"name": "a", "image": "a"}], "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]
        }
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until(async || {
        let phase = pods.get("web").await.unwrap().status.and_then(|status| status.phase);
        (phase.as_deref() == Some("Running")).then_some(())
    })
    .await;
    let taint = Patch::Merge(json!({"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}}));
    Api::<Node>::all(client).patch("node-0", &PatchParams::default(), &taint).await.unwrap();
    cluster.advance(MINUTE * 4).await.unwrap();
    assert!(pods.get("web").await.unwrap().metadata.deletion_timestamp.is_none(), "one minute is left");
    cluster.advance(MINUTE * 2).await.unwrap();
    until(async || pods.get_opt("web").await.unwrap().is_none().then_some(())).await;
}

#[tokio::test]
async fn pod_of_a_stopped_node_is_evicted_after_five_minutes() {
    // Kubernetes: where all nodes are silent, nothing is evicted.
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    let pods = Api::<Pod>::default_namespaced(cluster.client().await.unwrap());
    let pod: Pod = read(json!({
        "metadata": {"name": "web"}, "spec": {"nodeName": "node-0", "containers": [{"name": "a", "image": "a"}]}
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    cluster.node("node-0").stop().await.unwrap();
    cluster.advance(MINUTE * 4).await.unwrap();
    assert_eq!(ready_nodes(&cluster).await, 1, "the grace period of the other is over");
    assert!(pods.get("web").await.unwrap().metadata.deletion_timestamp.is_none(), "it tolerates that for five minutes");
    // The five minutes begin when the controller sees the taint, which may be after time was moved.
    until(async || {
        cluster.advance(MINUTE).await.unwrap();
        pods.get("web").await.unwrap().metadata.deletion_timestamp
    })
    .await;
}

#[tokio::test]
async fn nodes_stay_ready_when_time_is_moved() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    cluster.advance(MINUTE * 10).await.unwrap();
    assert_eq!(ready_nodes(&cluster).await, 2);
}

#[tokio::test]
async fn time_is_moved_by_a_day_at_most() {
    let cluster = Cluster::builder().start().await.unwrap();
    let refused = cluster.advance(Duration::from_secs(24 * 3600 + 1)).await;
    assert!(matches!(refused, Err(Error::TooFar)), "{refused:?}");
    cluster.advance(Duration::ZERO).await.unwrap();
}

/// A client with these credentials, on a connection of its own.
async fn client_of(cluster: &Cluster, user: Value) -> kube::Client {
    let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    for info in &mut kubeconfig.auth_infos {
        info.auth_info = Some(read(user.clone()));
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// The name under which the server knows the user; none if it does not.
async fn name_of(cluster: &Cluster, user: &Value) -> Option<String> {
    let reviews = Api::<SelfSubjectReview>::all(client_of(cluster, user.clone()).await);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.ok()?;
    review.status?.user_info?.username
}

/// A client certificate that the controllers sign.
async fn certificate(cluster: &Cluster, name: &str, seconds: i32) -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let text = params.serialize_request(&key).unwrap().pem().unwrap();
    let requests = Api::<CertificateSigningRequest>::all(cluster.client().await.unwrap());
    let request: CertificateSigningRequest = read(json!({
        "metadata": {"name": name},
        "spec": {
            "request": (ByteString(text.into_bytes())), "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"], "expirationSeconds": seconds
        }
    }));
    requests.create(&PostParams::default(), &request).await.unwrap();
    let approved = json!({"status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "Test", "message": ""
    }]}});
    requests.patch_approval(name, &PatchParams::default(), &Patch::Merge(approved)).await.unwrap();
    let signed = until(async || requests.get(name).await.unwrap().status.and_then(|status| status.certificate)).await;
    json!({"client-certificate-data": signed, "client-key-data": (ByteString(key.serialize_pem().into_bytes()))})
}

#[tokio::test]
async fn credentials_expire_by_moved_time() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.advance(MINUTE * 20).await.unwrap();

    let jane = certificate(&cluster, "jane", 600).await;
    assert_eq!(name_of(&cluster, &jane).await.as_deref(), Some("jane"), "the certificate is valid from now on");
    let accounts = Api::<ServiceAccount>::default_namespaced(cluster.client().await.unwrap());
    until(async || accounts.get_opt("default").await.unwrap()).await;
    let request: TokenRequest = read(json!({"spec": {"audiences": [], "expirationSeconds": 600}}));
    let token = accounts.create_token_request("default", &PostParams::default(), &request).await.unwrap();
    let account = json!({"token": (token.status.unwrap().token)});
    assert_eq!(name_of(&cluster, &account).await.as_deref(), Some("system:serviceaccount:default:default"));

    cluster.advance(MINUTE * 12).await.unwrap();
    assert_eq!(name_of(&cluster, &jane).await, None);
    assert_eq!(name_of(&cluster, &account).await, None);
}

#[tokio::test]
async fn lease_of_the_server_is_renewed_by_moved_time() {
    let cluster = Cluster::builder().start().await.unwrap();
    let leases = Api::<Lease>::namespaced(cluster.client().await.unwrap(), "kube-system");
    let labeled = ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    let renewed = async || {
        let found = leases.list(&labeled).await.unwrap().items.into_iter().next();
        found.and_then(|lease| lease.spec?.renew_time).map(|time| time.0)
    };
    let before = until(renewed).await;
    cluster.advance(MINUTE * 15).await.unwrap();
    let after = until(renewed).await;
    assert!(after.duration_since(before).as_secs() >= 14 * 60, "{before} {after}");
}
