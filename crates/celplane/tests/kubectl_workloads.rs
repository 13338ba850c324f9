//! Workloads through `kubectl`, on the whole control plane with simulated nodes.

use std::time::{Duration, Instant};

use crate::cluster;

use cluster::Cluster;

const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "app:1"}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "app:1"}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: "app:1"}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: plain}
spec:
  replicas: 1
  selector: {matchLabels: {app: plain}}
  template: {metadata: {labels: {app: plain}}, spec: {containers: [{name: c, image: "app:1"}]}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 1
  selector: {app: old}
  template: {metadata: {labels: {app: old}}, spec: {containers: [{name: c, image: "app:1"}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    metadata: {annotations: {sim.celplane.dev/run-seconds: "0.1"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: "app:1"}]}
"#;

fn start(arguments: &[&str]) -> Option<Cluster> {
    if Cluster::is_missing() {
        return None;
    }
    Some(Cluster::up(tempfile::tempdir().unwrap(), &[&["--ephemeral"], arguments].concat()))
}

/// Repeats the command until the result is as expected.
#[track_caller]
fn until(cluster: &Cluster, arguments: &[&str], holds: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        let output = cluster.run(arguments, "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if holds(&text) {
            return text;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(started.elapsed() < Duration::from_secs(90), "kubectl {arguments:?}: {text}{errors}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

#[test]
fn workloads_are_rolled_out_back_and_scaled() {
    let Some(cluster) = start(&[]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    cluster.apply(WORKLOADS);
    for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
        kubectl(&format!("rollout status {workload} --timeout=90s"));
        kubectl(&format!("set image {workload} c=app:2"));
        kubectl(&format!("rollout status {workload} --timeout=90s"));
        let history = kubectl(&format!("rollout history {workload}"));
        assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
        let second = kubectl(&format!("rollout history {workload} --revision=2"));
        assert!(second.contains("app:2"), "{second}");
        kubectl(&format!("rollout undo {workload}"));
        kubectl(&format!("rollout status {workload} --timeout=90s"));
        let image = kubectl(&format!("get {workload} -o jsonpath={{.spec.template.spec.containers[0].image}}"));
        assert_eq!(image, "app:1", "{workload}");
        kubectl(&format!("rollout restart {workload}"));
        kubectl(&format!("rollout status {workload} --timeout=90s"));
        let label = format!("app={}", workload.split('/').nth(1).unwrap());
        let annotation = "jsonpath={.items[*].metadata.annotations.kubectl\\.kubernetes\\.io/restartedAt}";
        let restarted = cluster.kubectl(&["get", "pods", "-l", &label, "-o", annotation], "");
        assert!(!restarted.is_empty(), "{workload} was not restarted");
    }
    kubectl("rollout pause deployment/web");
    kubectl("set image deployment/web c=app:3");
    assert!(cluster.refused(&["rollout", "restart", "deployment/web"], "").contains("paused"));
    let wide = kubectl("get replicasets -l app=web -o wide");
    assert!(!wide.contains("app:3"), "{wide}");
    kubectl("rollout resume deployment/web");
    kubectl("rollout status deployment/web --timeout=90s");
    let pods = kubectl("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}");
    assert_eq!(pods, "app:3 app:3 app:3");
    for workload in ["deployment/web", "statefulset/db", "replicaset/plain", "replicationcontroller/old"] {
        kubectl(&format!("scale {workload} --replicas=4"));
        kubectl(&format!("wait {workload} --for=jsonpath={{.status.readyReplicas}}=4 --timeout=90s"));
        kubectl(&format!("scale {workload} --current-replicas=4 --replicas=1"));
        kubectl(&format!("wait {workload} --for=jsonpath={{.status.replicas}}=1 --timeout=90s"));
    }
    kubectl("wait job/once --for=condition=Complete --timeout=90s");
    kubectl("wait pod -l app=web --for=condition=Ready --timeout=90s");
    kubectl("autoscale deployment/web --min=2 --max=5 --cpu-percent=80");
    kubectl("wait deployment/web --for=jsonpath={.status.readyReplicas}=2 --timeout=90s");
    // The containers have no requests: the bounds still apply.
    until(&cluster, &["describe", "hpa", "web"], |text| text.contains("FailedGetResourceMetric"));
    for workload in ["statefulset/db", "replicaset/plain", "replicationcontroller/old"] {
        kubectl(&format!("autoscale {workload} --min=2 --max=5"));
        kubectl(&format!("wait {workload} --for=jsonpath={{.status.readyReplicas}}=2 --timeout=90s"));
    }
}

#[test]
fn cron_jobs_are_started_by_hand_suspended_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "rules: [{select: {owner: Job}, run-seconds: never}]").unwrap();
    let Some(cluster) = start(&["--simulation", rules.to_str().unwrap()]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    // Never by itself while this runs.
    cluster.kubectl(&["create", "cronjob", "backup", "--image=app", "--schedule=0 0 29 2 *"], "");
    kubectl("create job --from=cronjob/backup now");
    kubectl("wait job/now --for=jsonpath={.status.ready}=1 --timeout=90s");
    assert_eq!(kubectl("get job now -o jsonpath={.metadata.ownerReferences[0].name}"), "backup");
    cluster.kubectl(&["patch", "job", "now", "-p", r#"{"spec":{"suspend":true}}"#], "");
    kubectl("wait job/now --for=condition=Suspended --timeout=90s");
    until(&cluster, &["get", "pods", "-l", "batch.kubernetes.io/job-name=now", "-o", "name"], str::is_empty);
    cluster.kubectl(&["patch", "job", "now", "-p", r#"{"spec":{"suspend":false}}"#], "");
    kubectl("wait job/now --for=jsonpath={.status.ready}=1 --timeout=90s");
    kubectl("delete cronjob backup");
    until(&cluster, &["get", "jobs,pods", "-o", "name"], str::is_empty);
}

#[test]
fn owner_deletion_follows_propagation_policy() {
    let Some(cluster) = start(&[]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    cluster.apply(WORKLOADS);
    kubectl("rollout status deployment/web --timeout=90s");
    kubectl("rollout status statefulset/db --timeout=90s");
    kubectl("rollout status daemonset/agent --timeout=90s");
    kubectl("delete deployment web --cascade=orphan");
    let sets = kubectl("get replicasets -l app=web -o name");
    assert_eq!(lines(&sets), 1, "{sets}");
    assert_eq!(lines(&kubectl("get pods -l app=web -o name")), 3);
    kubectl(&format!("delete {} --cascade=foreground", sets.trim()));
    assert_eq!(lines(&kubectl("get pods -l app=web -o name")), 0);
    let others = [
        ("statefulset/db", "app=db", 2),
        ("daemonset/agent", "app=agent", 3),
        ("replicaset/plain", "app=plain", 1),
        ("replicationcontroller/old", "app=old", 1),
        ("job/once", "batch.kubernetes.io/job-name=once", 1),
    ];
    for (workload, label, pods) in others {
        kubectl(&format!("delete {workload} --cascade=orphan"));
        assert_eq!(lines(&kubectl(&format!("get pods -l {label} -o name"))), pods, "{workload}");
        kubectl(&format!("delete pods -l {label}"));
    }
    for cascade in ["background", "foreground"] {
        cluster.apply(WORKLOADS);
        kubectl("rollout status statefulset/db --timeout=90s");
        kubectl("rollout status daemonset/agent --timeout=90s");
        kubectl("wait job/once --for=condition=Complete --timeout=90s");
        for (workload, label, _) in others {
            kubectl(&format!("delete {workload} --cascade={cascade}"));
            until(&cluster, &["get", "pods", "-l", label, "-o", "name"], str::is_empty);
        }
        kubectl("delete deployment web");
    }
    kubectl("create namespace short");
    for manifest in ["create deployment a --image=app --replicas=2 -n short", "create configmap b -n short"] {
        kubectl(manifest);
    }
    kubectl("rollout status deployment/a -n short --timeout=90s");
    kubectl("delete namespace short --timeout=90s");
    assert!(cluster.refused(&["get", "namespace", "short"], "").contains("not found"));
}

#[test]
fn a_controller_that_is_left_out_does_nothing() {
    let Some(cluster) = start(&["--controllers=*,-deployment"]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    cluster.apply(WORKLOADS);
    kubectl("wait replicaset/plain --for=jsonpath={.status.readyReplicas}=1 --timeout=90s");
    assert_eq!(kubectl("get replicasets -o name").trim(), "replicaset.apps/plain");
    assert_eq!(kubectl("get deployment web -o jsonpath={.status}"), "{}");
}

#[test]
fn drains_wait_for_budgets() {
    let Some(cluster) = start(&["--nodes", "2"]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    kubectl("create deployment web --image=app --replicas=4");
    kubectl("create poddisruptionbudget web --selector=app=web --min-available=3");
    kubectl("rollout status deployment/web --timeout=90s");
    kubectl("wait pdb/web --for=jsonpath={.status.disruptionsAllowed}=1 --timeout=90s");
    kubectl("drain node-0 --ignore-daemonsets --delete-emptydir-data --timeout=90s");
    kubectl("wait deployment/web --for=jsonpath={.status.readyReplicas}=4 --timeout=90s");
    let nodes = kubectl("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
    assert!(!nodes.contains("node-0"), "{nodes}");
    // With nowhere else to go, only one can be missing.
    let refused = cluster.refused(&["drain", "node-1", "--ignore-daemonsets", "--timeout=5s"], "");
    assert!(refused.contains("Cannot evict pod as it would violate the pod's disruption budget"), "{refused}");
    kubectl("uncordon node-0");
    kubectl("wait deployment/web --for=jsonpath={.status.readyReplicas}=4 --timeout=90s");
}

const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIV01INENBUUF3SERFS01BZ0dBMVVFQ2d3Qlp6RU9NQXdHQTFVRUF3d0Z\
    ZV3hwWTJVd1dUQVRCZ2NxaGtqTwpQUUlCQmdncWhrak9QUU1CQndOQ0FBU1dmM2QzR0cxbkJsbkRpaHRCZ0ViMGdhL2pGSzQ5ald3Z25WbG9uL3AyCmllTmIw\
    WldaSjg3NUI3YlU5VVBrQ1hPTjRVYkRqSTJFS0QrQi9UV1RKdU9yb0FBd0NnWUlLb1pJemowRUF3SUQKU0FBd1JRSWhBTUVSQlRxWE9VQUpGeElTcVI5cVoxcT\
    krWXl4a1VlT2toNTRVVTVpRk1ZRUFpQVlZdVNrQlBLSQpjZEtTNVNXVmNXaG9aQ2d4SXJweUpaNlVGYllkMFdQMWxBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUg\
    UkVRVUVTVC0tLS0tCg==";

#[test]
fn certificates_and_tokens_are_signed() {
    let Some(cluster) = start(&["--nodes", "0"]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    cluster.apply(&format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: alice}}\n\
         spec: {{request: {REQUEST}, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}}\n"
    ));
    assert!(kubectl("get csr alice").contains("Pending"));
    kubectl("certificate approve alice");
    until(&cluster, &["get", "csr", "alice"], |text| text.contains("Approved,Issued"));
    let certificate = kubectl("get csr alice -o jsonpath={.status.certificate}");
    let pem = api::base64::decode(&certificate).unwrap();
    let block = api::x509::pem_blocks(std::str::from_utf8(&pem).unwrap()).remove(0);
    let names = api::x509::certificate_subject(&block.bytes).unwrap();
    assert_eq!((names.common_name.as_str(), names.organizations.as_slice()), ("alice", &["g".to_owned()][..]));
    cluster.apply(&format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: bob}}\n\
         spec: {{request: {REQUEST}, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}}\n"
    ));
    kubectl("certificate deny bob");
    assert!(kubectl("get csr bob").contains("Denied"));
    kubectl("create serviceaccount robot");
    let token = kubectl("create token robot");
    let user = "jsonpath={.status.userInfo.username}";
    let who = cluster.kubectl(&["auth", "whoami", "--token", token.trim(), "-o", user], "");
    assert_eq!(who, "kubernetes-admin", "a certificate goes before a token");
    cluster.apply(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\n\
         metadata: {name: kept, annotations: {kubernetes.io/service-account.name: robot}}\n",
    );
    let kept = until(&cluster, &["get", "secret", "kept", "-o", "jsonpath={.data.token}"], |text| !text.is_empty());
    let kept = String::from_utf8(api::base64::decode(&kept).unwrap()).unwrap();
    // Without the administrator's certificate the token alone is the identity.
    let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let without: String =
        config.lines().filter(|line| !line.contains("client-")).map(|line| format!("{line}\n")).collect();
    let without = without.replace("  user:\n", "  user: {}\n");
    std::fs::write(cluster.directory.path().join("plain.kubeconfig"), without).unwrap();
    for token in [token.trim(), kept.as_str()] {
        let arguments = ["--kubeconfig", "plain.kubeconfig", "auth", "whoami", "--token", token, "-o", user];
        assert_eq!(cluster.kubectl(&arguments, ""), "system:serviceaccount:default:robot");
    }
    kubectl("delete secret kept");
    let arguments = ["--kubeconfig", "plain.kubeconfig", "auth", "whoami", "--token", &kept];
    assert!(cluster.refused(&arguments, "").contains("Unauthorized"));
}

#[test]
fn endpoints_without_a_service_stay_and_quotas_count_themselves() {
    let Some(cluster) = start(&["--nodes", "1"]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    cluster
        .apply("apiVersion: v1\nkind: Endpoints\nmetadata: {name: alone}\nsubsets: [{addresses: [{ip: 10.0.0.1}]}]\n");
    // By then the controller has observed both.
    kubectl("create service clusterip web --tcp=80");
    until(&cluster, &["get", "endpoints", "web"], |text| text.contains("web"));
    kubectl("delete service web");
    until(&cluster, &["get", "endpoints", "-o", "name"], |text| !text.contains("web"));
    assert_eq!(kubectl("get endpoints alone -o jsonpath={.subsets[0].addresses[0].ip}"), "10.0.0.1");

    for count in 0..8 {
        let namespace = format!("team-{count}");
        kubectl(&format!("create namespace {namespace}"));
        kubectl(&format!("create quota q --hard=resourcequotas=3,secrets=5 -n {namespace}"));
        let used = ["get", "quota", "q", "-n", &namespace, "-o", "jsonpath={.status.used.resourcequotas}"];
        until(&cluster, &used, |text| text == "1");
        kubectl(&format!("create quota other --hard=pods=3 -n {namespace}"));
        until(&cluster, &used, |text| text == "2");
        kubectl(&format!("delete quota other -n {namespace}"));
        until(&cluster, &used, |text| text == "1");
    }
}

#[test]
fn top_shows_the_usage_of_simulated_pods() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "memory-usage: 48Mi\n").unwrap();
    let Some(cluster) = start(&["--nodes", "1", "--simulation", rules.to_str().unwrap()]) else { return };
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    kubectl("run web --image=app:1 --labels=app=web");
    kubectl("wait pod web --for=condition=Ready --timeout=90s");
    let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    let pods = until(&cluster, &["top", "pods", "--no-headers"], |text| text.starts_with("web"));
    assert_eq!(words(&pods), ["web", "50m", "48Mi"]);
    kubectl("annotate pod web sim.celplane.dev/cpu-usage=1700m");
    let pods = until(&cluster, &["top", "pods", "-l", "app=web", "--no-headers"], |text| text.contains("1700m"));
    assert_eq!(words(&pods), ["web", "1700m", "48Mi"]);
    let nodes = words(&kubectl("top nodes --no-headers"));
    assert_eq!((nodes[0].as_str(), nodes[1].as_str(), nodes[3].as_str()), ("node-0", "1700m", "48Mi"));
    let table = kubectl("get pods.metrics.k8s.io");
    assert!(table.starts_with("NAME   CPU") && table.contains("1700m"), "{table}");
    assert!(kubectl("explain podmetrics.containers").contains("usage"), "no explanation");
    assert!(cluster.refused(&["top", "pod", "none"], "").contains("not found"));
}
