//! Flow control from the perspective of users: objects, headers, metrics, and the order of requests.

use crate::cluster::{Cluster, admin};

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// A server with few seats, and a level of one seat for jane, who may do everything.
async fn small() -> Cluster {
    let store = std::sync::Arc::new(store::EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let options = Options { reads_max: 4, writes_max: 4, ..Options::without_controllers() };
    let cluster = Cluster(Server::start(store, options).await.unwrap());
    let level = json!({"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}}});
    cluster.make(&format!("{GROUP}/prioritylevelconfigurations"), level).await;
    let all =
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
    let schema = json!({"metadata": {"name": "jane"}, "spec": {
        "priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 50,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "jane"}}], "resourceRules": [all]}]}});
    cluster.make(&format!("{GROUP}/flowschemas"), schema).await;
    let binding = json!({"metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    cluster.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    cluster
}

async fn get(cluster: &Cluster, path: &str) -> Value {
    let (status, answer) = cluster.ask(&admin(), "GET", path, Value::Null).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Repeats the request until a condition on the response holds.
async fn until(cluster: &Cluster, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..500 {
        let (_, answer) = cluster.ask(&admin(), "GET", path, Value::Null).await;
        if holds(&answer) {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{path}: not in five seconds");
}

async fn headers(cluster: &Cluster, user: &User, path: &str) -> (u16, String, String) {
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let response = cluster.0.handle(request, Some(user)).await;
    let header = |name: &str| response.headers().get(name).map_or("", |it| it.to_str().unwrap()).to_owned();
    let (schema, level) = (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"));
    (response.status().as_u16(), schema, level)
}

#[tokio::test]
async fn the_built_in_objects_are_there() {
    let cluster = Cluster::start().await;
    let schemas = get(&cluster, &format!("{GROUP}/flowschemas")).await;
    assert_eq!(schemas["items"].as_array().unwrap().len(), 11);
    for schema in schemas["items"].as_array().unwrap() {
        let condition = &schema["status"]["conditions"][0];
        assert_eq!((condition["type"].as_str(), condition["status"].as_str()), (Some("Dangling"), Some("False")));
        assert_eq!(schema["metadata"]["generation"], 1);
        assert_eq!(schema["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"], "true");
        let managers: Vec<_> = schema["metadata"]["managedFields"].as_array().unwrap().iter().collect();
        assert_eq!(managers.len(), 2, "{schema}");
    }
    let levels = get(&cluster, &format!("{GROUP}/prioritylevelconfigurations")).await;
    assert_eq!(levels["items"].as_array().unwrap().len(), 8);
}

#[tokio::test]
async fn answers_name_schema_and_level() {
    let cluster = small().await;
    let uid = async |path: &str| get(&cluster, path).await["metadata"]["uid"].as_str().unwrap().to_owned();
    let exempt = (
        200,
        uid(&format!("{GROUP}/flowschemas/exempt")).await,
        uid(&format!("{GROUP}/prioritylevelconfigurations/exempt")).await,
    );
    assert_eq!(headers(&cluster, &admin(), "/api/v1/namespaces").await, exempt);
    let jane = (
        200,
        uid(&format!("{GROUP}/flowschemas/jane")).await,
        uid(&format!("{GROUP}/prioritylevelconfigurations/narrow")).await,
    );
    let (user, path) = (User::authenticated("jane", &[]), "/api/v1/namespaces");
    let mut found = headers(&cluster, &user, path).await;
    for _ in 0..500 {
        if found == jane {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        found = headers(&cluster, &user, path).await;
    }
    assert_eq!(found, jane);
    // Refusals, too.
    let (status, schema, level) = headers(&cluster, &User::authenticated("john", &[]), "/api/v1/secrets").await;
    assert_eq!((status, schema.len(), level.len()), (403, 36, 36));
}

#[tokio::test]
async fn rejected_request_gets_retry_after_and_others_continue() {
    let cluster = small().await;
    let jane = User::authenticated("jane", &[]);
    until(&cluster, &format!("{GROUP}/flowschemas/jane"), |it| it["status"]["conditions"][0]["status"] == "False")
        .await;
    // Enough for a list that is rendered while it is read; this one is not read, so that it keeps its seat for
    // a while.
    for number in 0..501 {
        let body = json!({"metadata": {"name": format!("m-{number}")}, "data": {"k": "v".repeat(500)}});
        cluster.make("/api/v1/namespaces/default/configmaps", body).await;
    }
    let ask = async |user: &User| {
        let request = Request::builder().uri("/api/v1/namespaces/default/configmaps").body(Full::new(Bytes::new()));
        cluster.0.handle(request.unwrap(), Some(user)).await
    };
    let unread = ask(&jane).await;
    assert_eq!(unread.status(), 200);
    let refused = ask(&jane).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    let text = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "Too many requests, please try again later.\n");
    assert_eq!(ask(&admin()).await.status(), 200);
    // Reading the response releases the seat.
    assert!(unread.into_body().collect().await.unwrap().to_bytes().len() > 250_000);
    let pause = || tokio::time::sleep(std::time::Duration::from_millis(10));
    let mut again = ask(&jane).await;
    for _ in 0..500 {
        if again.status() == 200 {
            break;
        }
        pause().await;
        again = ask(&jane).await;
    }
    assert_eq!(again.status(), 200);
    again.into_body().collect().await.unwrap();
    pause().await;
    let request = Request::builder().uri("/metrics").body(Full::new(Bytes::new())).unwrap();
    let metrics = cluster.0.handle(request, Some(&admin())).await;
    let metrics = metrics.into_body().collect().await.unwrap().to_bytes();
    let metrics = String::from_utf8_lossy(&metrics);
    for line in [
        "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"jane\",priority_level=\"narrow\",reason=\"concurrency-limit\"}",
        "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"jane\",priority_level=\"narrow\"}",
        "apiserver_flowcontrol_current_executing_seats{flow_schema=\"jane\",priority_level=\"narrow\"} 0",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"} 4",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test]
async fn built_in_objects_come_back_and_mandatory_ones_cannot_be_changed() {
    let cluster = Cluster::start().await;
    let probes = format!("{GROUP}/flowschemas/probes");
    let (status, _) = cluster.ask(&admin(), "DELETE", &probes, Value::Null).await;
    assert_eq!(status, 200);
    until(&cluster, &probes, |it| it["status"]["conditions"][0]["status"] == "False").await;
    // One that follows the server's version does so.
    let level = format!("{GROUP}/prioritylevelconfigurations/workload-low");
    let change = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    assert_eq!(cluster.ask(&admin(), "PATCH", &level, change.clone()).await.0, 200);
    until(&cluster, &level, |it| it["spec"]["limited"]["nominalConcurrencyShares"] == 100).await;
    let stays =
        json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}, "spec": (change["spec"])});
    let (status, changed) = cluster.ask(&admin(), "PATCH", &level, stays).await;
    assert_eq!((status, &changed["spec"]["limited"]["nominalConcurrencyShares"]), (200, &json!(7)));
    let (status, refusal) = cluster
        .ask(&admin(), "PATCH", &format!("{GROUP}/flowschemas/exempt"), json!({"spec": {"matchingPrecedence": 2}}))
        .await;
    assert_eq!(status, 422);
    assert!(refusal["message"].as_str().unwrap().ends_with("spec of 'exempt' must equal the fixed value"), "{refusal}");
}

#[tokio::test]
async fn a_schema_that_leads_nowhere_says_so() {
    let cluster = Cluster::start().await;
    let schema = json!({"metadata": {"name": "lost"}, "spec": {"priorityLevelConfiguration": {"name": "nowhere"}}});
    cluster.make(&format!("{GROUP}/flowschemas"), schema).await;
    let path = format!("{GROUP}/flowschemas/lost");
    let lost = until(&cluster, &path, |it| it["status"]["conditions"][0]["status"] == "True").await;
    assert_eq!(lost["status"]["conditions"][0]["reason"], "NotFound");
    assert_eq!(lost["spec"]["matchingPrecedence"], 1000);
}

#[tokio::test]
async fn flow_control_errors_are_those_of_kubernetes() {
    let cluster = Cluster::start().await;
    let refused = async |plural: &str, spec: Value| {
        let body = json!({"metadata": {"name": "x"}, "spec": spec});
        let (status, answer) = cluster.ask(&admin(), "POST", &format!("{GROUP}/{plural}"), body).await;
        assert_eq!(status, 422, "{answer}");
        answer["message"].as_str().unwrap().to_owned()
    };
    let spec = json!({"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 1, "rules": [{
        "subjects": [{"kind": "User", "group": {"name": "g"}}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["x"]}]}]});
    assert_eq!(
        refused("flowschemas", spec).await,
        "FlowSchema.flowcontrol.apiserver.k8s.io \"x\" is invalid: [spec.matchingPrecedence: Invalid value: 1: only the \
         schema named 'exempt' may have matchingPrecedence 1, spec.priorityLevelConfiguration.name: Required value: must \
         reference a priority level, spec.rules[0].subjects[0].user: Required value: user is required when subject kind is \
         'User', spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group', \
         spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"x\": must start with slash]"
    );
    let spec = json!({"type": "Limited", "limited": {"limitResponse": {
        "type": "Queue", "queuing": {"queues": 128, "handSize": 10, "queueLengthLimit": -1}}}});
    assert_eq!(
        refused("prioritylevelconfigurations", spec).await,
        "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io \"x\" is invalid: \
         [spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive, \
         spec.limited.limitResponse.queuing.handSize: Invalid value: 10: required entropy bits of deckSize 128 and handSize \
         10 should not be greater than 60]"
    );
}
