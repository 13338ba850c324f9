//! The controllers against the real server in one process, with simulated nodes.
//!
//! Replays recorded scenarios: requests are sent, and the resulting objects and writes of the controllers are
//! compared with those of Kubernetes' controllers. [`cluster`] is server, controllers, scheduler and nodes;
//! [`driver`] plays the steps; [`mask`] hides parts that differ between any two runs; [`compare`] reports the
//! differences. Known differences are listed in `known_gaps.txt`: `id # why`. A listed scenario that agrees
//! fails the test as well, so that the list only shrinks. Scenarios that depend on the order in which
//! controllers run are listed as `id # at times REGEX # why`: such a scenario may agree, and every difference
//! that the expression does not match fails. `CELPLANE_SCENARIOS=deployment-` plays only IDs that contain the
//! text and shows differences; with `CELPLANE_SHOW_WRITES=1` the writes as well.

pub(crate) mod cluster;
mod compare;
mod driver;
mod kubelet;
mod mask;
mod nodes;
mod record;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Resource;
use client::objects::Selection;
use regex::Regex;
use serde_json::{Value, json};

/// Number of scenarios that are played at a time.
const AT_A_TIME: usize = 24;

/// A scenario is played this often at the most until it agrees.
const ROUNDS_MAX: usize = 4;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controllers")
}

/// The scenarios of a file.
fn scenarios(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(format!("data/{file}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Known difference of a scenario.
enum Gap {
    /// It never agrees.
    Always,
    /// It agrees, or differs only in this.
    AtTimes(Regex),
}

impl Gap {
    fn new(why: &str) -> Self {
        let allowed = why.strip_prefix("at times ").map(|rest| rest.split_once(" # ").expect("a reason").0);
        allowed.map_or(Gap::Always, |allowed| Gap::AtTimes(Regex::new(&format!("^(?:{allowed})$")).unwrap()))
    }

    fn allows(&self, differences: &[String]) -> bool {
        match self {
            Gap::Always => !differences.is_empty(),
            Gap::AtTimes(allowed) => differences.iter().all(|it| allowed.is_match(it)),
        }
    }
}

/// Plays scenarios together on one cluster and holds the differences against the list.
async fn replay(files: &[&str]) {
    let known = std::fs::read_to_string(folder().join("known_gaps.txt")).unwrap_or_default();
    let split = |line: &str| line.split_once(" # ").map(|(id, why)| (id.to_owned(), why.to_owned()));
    let known: BTreeMap<String, Gap> = known.lines().filter_map(split).map(|(id, why)| (id, Gap::new(&why))).collect();
    let only = std::env::var("CELPLANE_SCENARIOS").unwrap_or_default();
    let cluster = cluster::Cluster::start().await;
    let permits = Arc::new(tokio::sync::Semaphore::new(AT_A_TIME));
    let all = files.iter().flat_map(|file| scenarios(file));
    let chosen = all.filter(|scenario| scenario["id"].as_str().unwrap().contains(&only));
    let known = Arc::new(known);
    let rounds = if only.is_empty() { ROUNDS_MAX } else { 1 };
    let playing: Vec<_> = chosen
        .map(|scenario| {
            let (cluster, permits, known) = (cluster.clone(), permits.clone(), known.clone());
            tokio::spawn(async move {
                let _permit = permits.acquire().await.unwrap();
                let id = scenario["id"].as_str().unwrap().to_owned();
                let mut differences = driver::play(&cluster, &scenario).await;
                let mut tries = 1;
                for _ in 1..rounds {
                    if known.get(&id).map_or(differences.is_empty(), |gap| gap.allows(&differences)) {
                        break;
                    }
                    // Controllers race with each other, in the recordings as here: differing scenarios are
                    // played again, alone on a new cluster.
                    let alone = cluster::Cluster::start().await;
                    differences = driver::play(&alone, &scenario).await;
                    tries += 1;
                }
                (id, differences, tries)
            })
        })
        .collect();
    let (mut wrong, mut agreed, mut repeated) = (Vec::new(), 0, Vec::new());
    for playing in playing {
        let (id, differences, tries) = playing.await.unwrap();
        if tries > 1 {
            repeated.push(format!("{id} ({tries})"));
        }
        match (known.get(&id).filter(|_| only.is_empty()), differences.is_empty()) {
            (None, true) => agreed += 1,
            (Some(gap), _) if gap.allows(&differences) => {}
            (Some(_), true) => wrong.push(format!("{id}: agrees now, take it off the list")),
            (_, false) => wrong.push(format!("{id}:\n  {}", differences.join("\n  "))),
        }
    }
    // Agreement after many tries is no agreement: the count is part of the result.
    let again = format!("{} after more than one try: {}", repeated.len(), repeated.join(", "));
    println!("{agreed} scenarios agree, {again}");
    assert!(wrong.is_empty(), "{} of {} scenarios:\n{}\n{again}", wrong.len(), agreed + wrong.len(), wrong.join("\n"));
    // Races make a few scenarios differ at times. Many at once are a fault of the controllers, whatever the last try says.
    assert!(repeated.len() <= (agreed / 2).max(6), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_workloads_agree() {
    replay(&["deployment", "replicaset", "replicationcontroller"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_stateful_sets_and_jobs_agree() {
    replay(&["statefulset", "job", "cronjob", "ttl-after-finished"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_housekeeping_agrees() {
    replay(&[
        "clusterrole-aggregation",
        "csr",
        "disruption",
        "endpointslice",
        "ephemeral-volume",
        "garbage-collector",
        "misc",
        "namespace",
        "persistentvolume-binder",
        "podgc",
        "pvc-pv-protection",
        "resourceclaim",
        "resourcequota",
        "serviceaccount",
        "token-cleaner",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_nodes_agree() {
    replay(&["daemonset", "node-lifecycle", "taint-eviction"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_cluster_gets_its_trust_bundle_and_its_range_of_addresses() {
    let cluster = cluster::Cluster::start().await;
    let admin = cluster.client("admin");
    let bundles = Resource::new("certificates.k8s.io", "v1", "clustertrustbundles", "ClusterTrustBundle");
    let ranges = Resource::new("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR");
    let started = Instant::now();
    loop {
        let range = admin.documents(ranges.clone()).get("", "kubernetes").await.unwrap();
        let made = admin.documents(bundles.clone()).list(&Selection::default()).await.unwrap().items;
        let conditions = range.at(&["status", "conditions"]).unwrap().as_array().unwrap().to_vec();
        if let ([bundle], [ready]) = (made.as_slice(), conditions.as_slice())
            && ready.str_at(&["message"]) == Some("Kubernetes Service CIDR is ready")
            && range.at(&["metadata", "finalizers"]) == Some(&api::json!(["networking.k8s.io/service-cidr-finalizer"]))
        {
            let name = bundle.str_at(&["metadata", "name"]).unwrap();
            assert!(name.starts_with("kubernetes.io:kube-apiserver-serving:"), "{name}");
            assert_eq!(bundle.str_at(&["spec", "signerName"]), Some("kubernetes.io/kube-apiserver-serving"));
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{range} {made:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused: Vec<_> = cluster.log.of("", 0).into_iter().filter(|write| write.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Waits until the controller has written the status of a generation.
async fn checked_types(policies: &client::objects::Objects<api::json::Value>, name: &str, generation: i64) -> Value {
    let started = Instant::now();
    loop {
        let status = cluster::from_value(&policies.get("", name).await.unwrap())["status"].clone();
        if status["observedGeneration"] == generation {
            return status;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{name}: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn types_of_policies_are_checked_as_recorded() {
    let cluster = cluster::Cluster::start().await;
    let plural = "validatingadmissionpolicies";
    let resource = Resource::new("admissionregistration.k8s.io", "v1", plural, "ValidatingAdmissionPolicy");
    let policies = cluster.client("admin").documents(resource);
    let cases = scenarios("policy-types");
    let body = |case: &Value| case["setup"][0]["body"].clone();
    for case in &cases {
        policies.create("", &cluster::to_value(&body(case))).await.unwrap();
    }
    let mut wrong = Vec::new();
    for case in &cases {
        let body = body(case);
        let status = checked_types(&policies, body["metadata"]["name"].as_str().unwrap(), 1).await;
        let expected = &case["expect"]["body"]["status"];
        if status != *expected {
            wrong.push(format!("{}: {status} instead of {expected}", case["id"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    // A changed policy is checked again.
    let name = "tc-wrong-type.example.com";
    let mut policy = cluster::from_value(&policies.get("", name).await.unwrap());
    policy["spec"]["validations"][0]["expression"] = "object.spec.replicas == 1".into();
    policies.update("", name, &cluster::to_value(&policy)).await.unwrap();
    let status = checked_types(&policies, name, 2).await;
    // As in Kubernetes, applying the status removes the field whose only part was the warnings.
    assert_eq!(status, json!({"observedGeneration": 2}));
}

/// Repeats a read until the object is as wanted.
async fn until(objects: &client::objects::Objects<api::json::Value>, name: &str, is_wanted: impl Fn(&Value) -> bool) {
    loop {
        let found = match objects.get("", name).await {
            Ok(object) => cluster::from_value(&object),
            Err(error) if error.is_not_found() => Value::Null,
            Err(error) => panic!("{name}: {error}"),
        };
        if is_wanted(&found) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_end_beside_simulated_api_servers() {
    let simulated_backends = apiserver::admission::SimulatedBackends::Skip;
    let options = apiserver::Options { simulated_backends, ..apiserver::Options::default() };
    let cluster = cluster::Cluster::start_with(options).await;
    let client = cluster.client("admin");
    let make = async |resource: Resource, namespace: &str, object: Value| {
        client.documents(resource).create(namespace, &cluster::to_value(&object)).await.unwrap();
    };
    let node = json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {"kernelVersion": "simulated"}}});
    make(cluster::NODE, "", node).await;
    let service = json!({"metadata": {"name": "sim"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    make(Resource::new("", "v1", "services", "Service"), "default", service).await;
    let slice = json!({"metadata": {"name": "sim-1", "labels": {"kubernetes.io/service-name": "sim"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.10"], "nodeName": "n"}],
        "ports": [{"name": "https", "port": 443}]});
    make(Resource::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"), "default", slice).await;
    let spec = json!({"group": "sim.example.net", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "sim"}});
    let services = Resource::new("apiregistration.k8s.io", "v1", "apiservices", "APIService");
    make(services.clone(), "", json!({"metadata": {"name": "v1.sim.example.net"}, "spec": spec})).await;
    let is_simulated = |object: &Value| object["status"]["conditions"][0]["reason"] == "SimulatedBackend";
    until(&client.documents(services), "v1.sim.example.net", is_simulated).await;
    let namespaces = Resource::new("", "v1", "namespaces", "Namespace");
    make(namespaces.clone(), "", json!({"metadata": {"name": "ends"}})).await;
    let map = json!({"metadata": {"name": "c"}});
    make(Resource::new("", "v1", "configmaps", "ConfigMap"), "ends", map).await;
    let namespaces = client.documents(namespaces);
    namespaces.delete("", "ends", &client::objects::Deletion::default()).await.unwrap();
    until(&namespaces, "ends", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_controller_has_an_account_with_rights_of_its_own() {
    let cluster = cluster::Cluster::start().await;
    let admin = cluster.client("admin");
    let rbac = |plural, kind| Resource::new("rbac.authorization.k8s.io", "v1", plural, kind);
    // The one that makes tokens acts as the manager itself, and the last one on clusters that are not ours.
    let accounts = controllers::manager::CONTROLLERS.iter().map(|entry| entry.account);
    for account in accounts.filter(|account| !["service-account-token", "toleration-resolver"].contains(account)) {
        let name = format!("system:controller:{account}");
        let everywhere = admin.documents(rbac("clusterrolebindings", "ClusterRoleBinding")).get("", &name).await;
        let binding = match everywhere {
            Ok(binding) => binding,
            Err(_) => admin.documents(rbac("rolebindings", "RoleBinding")).get("kube-system", &name).await.unwrap(),
        };
        assert_eq!(
            binding.at(&["subjects"]),
            Some(&api::json!([{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}])),
            "{account}"
        );
        let own = cluster.client(&format!("system:serviceaccount:kube-system:{account}"));
        let role = api::json!({"metadata": {"name": "mine"}});
        let refusal = own.documents(rbac("clusterroles", "ClusterRole")).create("", &role).await.unwrap_err();
        assert_eq!(refusal.code(), 403, "{account}");
    }
}
