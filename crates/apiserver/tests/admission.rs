//! Defaults, rejections and warnings of admission.

use api::features::Features;
use apiserver::Options;
use serde_json::{Value, json};

use crate::cluster::{Cluster, admin, pod};

const PODS: &str = "/api/v1/namespaces/ns/pods";

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (at, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(at).unwrap()[field] = value;
    object
}

#[tokio::test]
async fn a_pod_runs_as_its_runtime_class_says() {
    let cluster = Cluster::start().await;
    let named = |name: &str, class: &str| with(pod(name, ""), "/spec/runtimeClassName", json!(class));
    let (code, answer) = cluster.ask(&admin(), "POST", PODS, named("p", "none")).await;
    assert_eq!(code, 403);
    assert_eq!(answer["message"], "pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found");
    let class = json!({
        "metadata": {"name": "sandbox"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m", "memory": "1Gi"}},
        "scheduling": {"nodeSelector": {"runtime": "sandbox"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
    });
    cluster.make("/apis/node.k8s.io/v1/runtimeclasses", class).await;
    let made = cluster.make(PODS, named("p", "sandbox")).await;
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m", "memory": "1Gi"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"runtime": "sandbox"}));
    assert!(made["spec"]["tolerations"].as_array().unwrap().iter().any(|it| it["key"] == "sandbox"));
    let other = with(named("q", "sandbox"), "/spec/overhead", json!({"cpu": "1"}));
    let (code, answer) = cluster.ask(&admin(), "POST", PODS, other).await;
    let why = "pods \"q\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    // The same amount, written in another way, is the same.
    let same = with(named("r", "sandbox"), "/spec/overhead", json!({"cpu": "0.25", "memory": "1024Mi"}));
    assert_eq!(cluster.ask(&admin(), "POST", PODS, same).await.0, 201);
    let (code, answer) =
        cluster.ask(&admin(), "POST", PODS, with(pod("s", ""), "/spec/overhead", json!({"cpu": "1"}))).await;
    let why =
        "pods \"s\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    let contrary = with(named("t", "sandbox"), "/spec/nodeSelector", json!({"runtime": "other"}));
    let (code, answer) = cluster.ask(&admin(), "POST", PODS, contrary).await;
    let why = "pods \"t\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[runtime] = sandbox; pod.spec.nodeSelector[runtime] = other";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
}

#[tokio::test]
async fn expressions_of_the_runtime_class_count_for_its_pods() {
    let features = Features::none().with_flag("TaintTolerationCEL=true").unwrap();
    let cluster = Cluster::with(Options { features, ..Options::without_controllers() }).await;
    let tolerations = |range: std::ops::Range<u32>| -> Value {
        range.map(|it| json!({"expression": format!("taint.key == '{it}'")})).collect()
    };
    let class = json!({"metadata": {"name": "r"}, "handler": "h", "scheduling": {"tolerations": tolerations(0..40)}});
    cluster.make("/apis/node.k8s.io/v1/runtimeclasses", class).await;
    let named = |count: u32| {
        let pod = with(pod("p", ""), "/spec/runtimeClassName", json!("r"));
        with(pod, "/spec/tolerations", tolerations(100..100 + count))
    };
    let (code, answer) = cluster.ask(&admin(), "POST", PODS, named(25)).await;
    let message = answer["message"].as_str().unwrap();
    let expected = "spec.tolerations: Forbidden: must have at most 64 expressions in total, has 65; the costliest is `taint.key == '";
    assert!(code == 422 && message.contains(expected), "{code} {message}");
    assert_eq!(cluster.ask(&admin(), "POST", PODS, named(24)).await.0, 201);
}

#[tokio::test]
async fn pod_waits_for_its_account_and_is_refused_without() {
    let cluster = Cluster::with(Options::default()).await;
    let (code, answer) = cluster.ask(&admin(), "POST", PODS, pod("p", "")).await;
    let why =
        "pods \"p\" is forbidden: error looking up service account ns/default: serviceaccount \"default\" not found";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    // One that is made while the pod waits is in time.
    let account = async {
        tokio::task::yield_now().await;
        cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "default"}})).await
    };
    let user = admin();
    let (answer, _) = tokio::join!(cluster.ask(&user, "POST", PODS, pod("p", "")), account);
    assert_eq!(answer.0, 201, "{}", answer.1);
}

async fn quota(cluster: &Cluster, name: &str, spec: Value) {
    let path = "/api/v1/namespaces/ns/resourcequotas";
    let hard = spec["hard"].clone();
    cluster.make(path, json!({"metadata": {"name": name}, "spec": spec})).await;
    let used: serde_json::Map<String, Value> =
        hard.as_object().unwrap().keys().map(|key| (key.clone(), json!("0"))).collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{path}/{name}/status"), status).await.0, 200);
    cluster.0.settle().await.unwrap();
}

async fn used(cluster: &Cluster, name: &str) -> Value {
    let path = format!("/api/v1/namespaces/ns/resourcequotas/{name}");
    cluster.ask(&admin(), "GET", &path, Value::Null).await.1["status"]["used"].clone()
}

#[tokio::test]
async fn quotas_count_objects_in_their_scopes() {
    let cluster = Cluster::start().await;
    quota(&cluster, "idle", json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})).await;
    quota(&cluster, "short", json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]})).await;
    cluster.make(PODS, pod("a", "")).await;
    let (code, answer) = cluster.ask(&admin(), "POST", PODS, pod("b", "")).await;
    let why = "pods \"b\" is forbidden: exceeded quota: idle, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    let busy = with(
        pod("c", ""),
        "/spec/containers",
        json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]),
    );
    cluster.make(PODS, busy.clone()).await;
    assert_eq!(used(&cluster, "short").await, json!({"pods": "0"}));
    let short =
        |name: &str| with(with(busy.clone(), "/spec/activeDeadlineSeconds", json!(9)), "/metadata/name", json!(name));
    cluster.make(PODS, short("d")).await;
    assert_eq!(cluster.ask(&admin(), "POST", PODS, short("e")).await.0, 403);
    assert_eq!(used(&cluster, "idle").await, json!({"pods": "1"}));
}

#[tokio::test]
async fn quotas_count_the_ports_of_services() {
    let cluster = Cluster::start().await;
    let hard = json!({"services.nodeports": "3", "services.loadbalancers": "2", "services": "9"});
    quota(&cluster, "ports", json!({"hard": hard})).await;
    let service = |name: &str, spec: Value| {
        let mut spec = spec;
        spec["ports"] = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let path = "/api/v1/namespaces/ns/services";
    cluster.make(path, service("a", json!({"type": "LoadBalancer"}))).await;
    assert_eq!(
        used(&cluster, "ports").await,
        json!({"services": "1", "services.loadbalancers": "1", "services.nodeports": "2"})
    );
    let (code, answer) = cluster.ask(&admin(), "POST", path, service("b", json!({"type": "NodePort"}))).await;
    assert_eq!(code, 403, "{answer}");
    let without = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    cluster.make(path, service("c", without)).await;
    assert_eq!(used(&cluster, "ports").await["services.nodeports"], "2");
}

#[tokio::test]
async fn a_pod_that_is_not_ready_can_be_evicted() {
    let cluster = Cluster::start().await;
    let budgets = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets";
    for (name, policy, healthy, ready, code) in [
        ("a", json!("AlwaysAllow"), 0, false, 201),
        ("b", json!("AlwaysAllow"), 0, true, 429),
        ("c", json!("IfHealthyBudget"), 1, false, 201),
        ("d", Value::Null, 0, false, 429),
    ] {
        let labels = json!({"app": name});
        let spec =
            json!({"minAvailable": 1, "selector": {"matchLabels": labels}, "unhealthyPodEvictionPolicy": policy});
        cluster.make(budgets, json!({"metadata": {"name": name}, "spec": spec})).await;
        let status = json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": 1
        }});
        assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{budgets}/{name}/status"), status).await.0, 200);
        cluster.make(PODS, with(pod(name, "n"), "/metadata/labels", labels)).await;
        let one = format!("{PODS}/{name}");
        let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
        let running = json!({"status": {"phase": "Running", "conditions": conditions}});
        assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{one}/status"), running).await.0, 200);
        let eviction = json!({"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 0}});
        let (found, answer) = cluster.ask(&admin(), "POST", &format!("{one}/eviction"), eviction).await;
        assert_eq!(found, code, "{name}: {answer}");
        let (found, _) = cluster.ask(&admin(), "GET", &one, Value::Null).await;
        assert_eq!(found, if code == 201 { 404 } else { 200 }, "{name}");
    }
}

#[tokio::test]
async fn an_eviction_of_a_version_goes_on_after_its_own_note() {
    let cluster = Cluster::start().await;
    let made = cluster.make(PODS, pod("p", "n")).await;
    let eviction = |version: &Value| {
        let options = json!({"preconditions": {"resourceVersion": version}, "gracePeriodSeconds": 0});
        json!({"metadata": {"name": "p"}, "deleteOptions": options})
    };
    let path = format!("{PODS}/p/eviction");
    assert_eq!(cluster.ask(&admin(), "POST", &path, eviction(&json!("1"))).await.0, 409);
    assert_eq!(cluster.ask(&admin(), "POST", &path, eviction(&made["metadata"]["resourceVersion"])).await.0, 201);
}

#[tokio::test]
async fn quotas_count_additions_of_updates() {
    let cluster = Cluster::start().await;
    let hard = json!({"services": "5", "services.loadbalancers": "1", "requests.storage": "3Gi", "requests.cpu": "2"});
    quota(&cluster, "q", json!({"hard": hard})).await;
    let services = "/api/v1/namespaces/ns/services";
    for name in ["a", "b"] {
        cluster.make(services, json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})).await;
    }
    let balanced = json!({"spec": {"type": "LoadBalancer"}});
    let (code, answer) = cluster.ask(&admin(), "PATCH", &format!("{services}/a"), balanced.clone()).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(used(&cluster, "q").await["services.loadbalancers"], "1");
    assert_eq!(used(&cluster, "q").await["services"], "2");
    let (code, answer) = cluster.ask(&admin(), "PATCH", &format!("{services}/b"), balanced.clone()).await;
    let why = "services \"b\" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=1, limited: services.loadbalancers=1";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    // A change that adds nothing is not counted.
    let labelled = json!({"metadata": {"labels": {"x": "y"}}});
    assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{services}/a"), labelled).await.0, 200);
    assert_eq!(used(&cluster, "q").await["services"], "2");

    let pods = cluster
        .make(PODS, with(pod("p", "n"), "/spec/containers/0/resources", json!({"requests": {"cpu": "1"}})))
        .await;
    assert_eq!(pods["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    let resize = |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let path = format!("{PODS}/p/resize");
    let (code, answer) = cluster.ask_as(&admin(), "PATCH", &path, &strategic, resize("1500m")).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(used(&cluster, "q").await["requests.cpu"], "1500m");
    let (code, answer) = cluster.ask_as(&admin(), "PATCH", &path, &strategic, resize("3")).await;
    let why = "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=1500m, limited: requests.cpu=2";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
}

#[tokio::test]
async fn a_claim_that_grows_is_counted() {
    let cluster = Cluster::start().await;
    quota(&cluster, "q", json!({"hard": {"requests.storage": "3Gi"}})).await;
    let class = json!({"metadata": {"name": "s"}, "provisioner": "x.y/z", "allowVolumeExpansion": true});
    cluster.make("/apis/storage.k8s.io/v1/storageclasses", class).await;
    let claims = "/api/v1/namespaces/ns/persistentvolumeclaims";
    let size = |size: &str| json!({"requests": {"storage": size}});
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "s", "resources": size("1Gi"), "volumeName": "v"
    });
    cluster.make(claims, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    let one = format!("{claims}/c");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{one}/status"), bound).await.0, 200);
    let (code, answer) = cluster.ask(&admin(), "PATCH", &one, json!({"spec": {"resources": size("2Gi")}})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(used(&cluster, "q").await["requests.storage"], "2Gi");
    let (code, answer) = cluster.ask(&admin(), "PATCH", &one, json!({"spec": {"resources": size("4Gi")}})).await;
    let why = "persistentvolumeclaims \"c\" is forbidden: exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
}

#[tokio::test]
async fn every_plugin_that_ran_has_a_duration() {
    const NAME: &str = "apiserver_admission_controller_admission_duration_seconds";
    let cluster = Cluster::with(Options::default()).await;
    let count = async |plugin: &str, operation: &str, rejected: &str, step: &str| {
        let (_, _, body) = cluster.raw("GET", "/metrics", &[], Value::Null).await;
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(&format!("# TYPE {NAME} histogram")));
        let labels = [
            format!("name=\"{plugin}\""),
            format!("operation=\"{operation}\""),
            format!("rejected=\"{rejected}\""),
            format!("type=\"{step}\""),
        ];
        let start = format!("{NAME}_count{{");
        let mut lines = text.lines().filter(|line| line.starts_with(&start));
        let line = lines.find(|line| labels.iter().all(|label| line.contains(label)));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    let before = count("Priority", "CREATE", "false", "admit").await;
    let refused = count("ServiceAccount", "CREATE", "true", "admit").await;
    let named = |name: &str, account: &str| with(pod(name, ""), "/spec/serviceAccountName", json!(account));
    cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "a"}})).await;
    cluster.make(PODS, named("p", "a")).await;
    assert_eq!(cluster.ask(&admin(), "POST", PODS, named("q", "missing")).await.0, 403);
    assert_eq!(count("Priority", "CREATE", "false", "admit").await, before + 1);
    assert_eq!(count("ServiceAccount", "CREATE", "true", "admit").await, refused + 1);
    assert!(count("PodSecurity", "CREATE", "false", "validate").await > 0);
    assert_eq!(count("Priority", "CREATE", "false", "validate").await, 0, "the plugin only changes objects");
}
