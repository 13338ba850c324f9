//! Permissions of nodes, alone and as a fleet.

use apiserver::identity::User;
use serde_json::{Value, json};

use crate::cluster::{Cluster, node, pod};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

#[tokio::test]
async fn node_reads_references_of_its_running_pods() {
    let cluster = Cluster::start().await;
    let (a, b) = (node("a"), node("b"));
    cluster.make("/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": "s"}})).await;
    let secret = "/api/v1/namespaces/ns/secrets/s";
    assert_eq!(cluster.ask(&a, "GET", secret, Value::Null).await.0, 403);
    // A pod without a node gives no permission, regardless of its labels.
    let mut waiting = pod("p", "");
    waiting["metadata"]["labels"] = json!({"nodeName": "b"});
    waiting["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    cluster.make("/api/v1/namespaces/ns/pods", waiting).await;
    assert_eq!(cluster.ask(&a, "GET", secret, Value::Null).await.0, 403);
    assert_eq!(cluster.ask(&b, "GET", secret, Value::Null).await.0, 403);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "a"}});
    cluster.make("/api/v1/namespaces/ns/pods/p/binding", binding).await;
    assert_eq!(cluster.ask(&a, "GET", secret, Value::Null).await.0, 200);
    assert_eq!(cluster.ask(&b, "GET", secret, Value::Null).await.0, 403);
    assert_eq!(cluster.ask(&a, "PUT", secret, json!({"metadata": {"name": "s"}})).await.0, 403);
    let gone = "/api/v1/namespaces/ns/pods/p?gracePeriodSeconds=0";
    assert_eq!(cluster.ask(&a, "DELETE", gone, Value::Null).await.0, 200);
    // After this read the server has observed the deletion.
    assert_eq!(cluster.ask(&a, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Da", Value::Null).await.0, 200);
    assert_eq!(cluster.ask(&a, "GET", secret, Value::Null).await.0, 403);
}

#[tokio::test]
async fn volumes_lead_to_their_secrets() {
    let cluster = Cluster::start().await;
    let secrets = "/api/v1/namespaces/ns/secrets";
    cluster.make(secrets, json!({"metadata": {"name": "publish"}})).await;
    cluster.make(secrets, json!({"metadata": {"name": "controller"}})).await;
    cluster.make(secrets, json!({"metadata": {"name": "late"}})).await;
    // The second claim does not name its volume yet; the volume names the claim.
    for (claim, volume, secret) in [("c", "v", "publish"), ("d", "", "late")] {
        let claim = json!({"metadata": {"name": claim}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "", "volumeName": volume}});
        cluster.make("/api/v1/namespaces/ns/persistentvolumeclaims", claim.clone()).await;
        let name = if volume.is_empty() { "w" } else { volume };
        let volume = json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "ns", "name": (claim["metadata"]["name"])},
            "csi": {"driver": "d.example.com", "volumeHandle": "h",
                "nodePublishSecretRef": {"namespace": "ns", "name": secret},
                "controllerPublishSecretRef": {"namespace": "ns", "name": "controller"}}
        }});
        cluster.make("/api/v1/persistentvolumes", volume).await;
    }
    let mut user = pod("p", "a");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "w", "persistentVolumeClaim": {"claimName": "d"}}]);
    cluster.make("/api/v1/namespaces/ns/pods", user).await;
    for (path, code) in [
        ("/api/v1/persistentvolumes/v", 200),
        ("/api/v1/persistentvolumes/w", 200),
        ("/api/v1/namespaces/ns/persistentvolumeclaims/c", 200),
        ("/api/v1/namespaces/ns/secrets/publish", 200),
        ("/api/v1/namespaces/ns/secrets/late", 200),
        ("/api/v1/namespaces/ns/secrets/controller", 403),
    ] {
        assert_eq!(cluster.ask(&node("a"), "GET", path, Value::Null).await.0, code, "{path}");
        assert_eq!(cluster.ask(&node("b"), "GET", path, Value::Null).await.0, 403, "{path}");
    }
}

#[tokio::test]
async fn a_node_lives_with_its_own_rights() {
    let cluster = Cluster::start().await;
    let a = node("a");
    let own = json!({"metadata": {"name": "a", "labels": {"kubernetes.io/hostname": "a"}}});
    assert_eq!(cluster.ask(&a, "POST", "/api/v1/nodes", own).await.0, 201);
    let other = json!({"metadata": {"name": "b"}});
    assert_eq!(cluster.ask(&a, "POST", "/api/v1/nodes", other).await.0, 403);
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(cluster.ask(&a, "PATCH", "/api/v1/nodes/a/status", ready).await.0, 200);
    let untainted = json!({"spec": {"taints": null}});
    assert_eq!(cluster.ask(&a, "PATCH", "/api/v1/nodes/a", untainted).await.0, 403);
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}});
    assert_eq!(cluster.ask(&a, "POST", LEASES, lease.clone()).await.0, 201);
    assert_eq!(cluster.ask(&node("b"), "PUT", &format!("{LEASES}/a"), lease).await.0, 403);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "a"}});
    assert_eq!(cluster.ask(&a, "POST", "/api/v1/namespaces/default/events", event).await.0, 201);

    cluster.make("/api/v1/namespaces/ns/pods", pod("mine", "a")).await;
    cluster.make("/api/v1/namespaces/ns/pods", pod("theirs", "b")).await;
    let running = json!({"status": {"phase": "Running"}});
    for (name, code) in [("mine", 200), ("theirs", 403)] {
        let path = format!("/api/v1/namespaces/ns/pods/{name}");
        assert_eq!(cluster.ask(&a, "GET", &path, Value::Null).await.0, code);
        assert_eq!(cluster.ask(&a, "PATCH", &format!("{path}/status"), running.clone()).await.0, code);
        let evict = json!({"metadata": {"name": name}});
        assert_eq!(cluster.ask(&a, "POST", &format!("{path}/eviction?dryRun=All"), evict).await.0, code.max(201));
    }
    // The name without the group is an ordinary user.
    let impostor = User::authenticated("system:node:a", &["dev"]);
    assert_eq!(cluster.ask(&impostor, "GET", "/api/v1/nodes/a", Value::Null).await.0, 403);
}

#[tokio::test]
async fn node_tokens_need_its_pods_and_their_audiences() {
    let cluster = Cluster::with(apiserver::Options { node_fleet: true, ..apiserver::Options::default() }).await;
    cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let mut user = pod("p", "a");
    user["spec"]["serviceAccountName"] = json!("robot");
    user["spec"]["volumes"] =
        json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}]);
    let made = cluster.make("/api/v1/namespaces/ns/pods", user).await;
    let ask = async |who: &str, uid: &Value, audiences: Value| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
        let request = json!({"spec": {"audiences": audiences, "boundObjectRef": bound}});
        let path = "/api/v1/namespaces/ns/serviceaccounts/robot/token";
        let (code, answer) = cluster.ask(&node(who), "POST", path, request).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let uid = &made["metadata"]["uid"];
    assert_eq!(ask("a", uid, json!([])).await, (201, String::new()));
    assert_eq!(ask("a", uid, json!(["vault"])).await, (201, String::new()));
    let why = "serviceaccounts \"robot\" is forbidden: system:node:a is not authorized to request tokens for audience \"other\"";
    assert_eq!(ask("a", uid, json!(["other"])).await, (403, why.to_owned()));
    assert_eq!(ask("a", uid, json!(["vault", "other"])).await.0, 403);
    assert_eq!(ask("a", &json!("7"), json!([])).await.0, 403);
    assert_eq!(ask("b", uid, json!([])).await.0, 403);
}

#[tokio::test]
async fn the_fleet_reads_all_and_writes_as_its_nodes() {
    let cluster = Cluster::start().await;
    let fleet = User::authenticated("system:celplane:node-fleet", &[]);
    let as_node = [("impersonate-user", "system:node:a")];
    assert_eq!(cluster.ask(&fleet, "GET", "/api/v1/pods", Value::Null).await.0, 200);
    assert_eq!(cluster.ask(&fleet, "GET", "/api/v1/nodes?watch=1&timeoutSeconds=1", Value::Null).await.0, 200);
    assert_eq!(cluster.ask(&fleet, "GET", "/api/v1/secrets", Value::Null).await.0, 403);
    let own = json!({"metadata": {"name": "a"}});
    assert_eq!(cluster.ask(&fleet, "POST", "/api/v1/nodes", own.clone()).await.0, 403);
    assert_eq!(cluster.ask_with(&fleet, "POST", "/api/v1/nodes", &as_node, own).await.0, 201);
    let other = json!({"metadata": {"name": "b"}});
    assert_eq!(cluster.ask_with(&fleet, "POST", "/api/v1/nodes", &as_node, other).await.0, 403);
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}});
    assert_eq!(cluster.ask_with(&fleet, "POST", LEASES, &as_node, lease).await.0, 201);
    cluster.make("/api/v1/namespaces/ns/pods", pod("p", "a")).await;
    let running = json!({"status": {"phase": "Running"}});
    let status = "/api/v1/namespaces/ns/pods/p/status";
    assert_eq!(cluster.ask_with(&fleet, "PATCH", status, &as_node, running.clone()).await.0, 200);
    // It can impersonate nodes, and no other user.
    for wanted in ["admin", "system:kube-scheduler", "system:serviceaccount:ns:robot", "system:node:"] {
        let headers = [("impersonate-user", wanted)];
        assert_eq!(cluster.ask_with(&fleet, "PATCH", status, &headers, running.clone()).await.0, 403, "{wanted}");
    }
    let headers = [("impersonate-user", "system:node:a"), ("impersonate-group", "system:masters")];
    assert_eq!(cluster.ask_with(&fleet, "PATCH", status, &headers, running).await.0, 403);
}
