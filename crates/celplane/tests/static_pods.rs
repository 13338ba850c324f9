//! Pods from files of a node: what `kubectl` sees of them, and that they need no server.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::core::v1::{Node, Pod};
use api::features::Features;
use client::Client;
use client::objects::Patch;
use kubelet::Fleet;
use kubelet::logs;
use kubelet::simulation::{Rules, Simulation};
use kubelet::static_pods::Options;
use kubelet::template::Template;
use matching::CompileCache;

use crate::cluster::{Cluster, free_port};
use crate::first_light::until;
use crate::fleet;

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: \"{image}\"}}]\n"
    )
}

/// `celplane kubelet`, ended when dropped.
struct Agent(Child);

impl Agent {
    /// Plays one node, `node-0`, with the pods of a directory. Logs are at this port.
    fn start(cluster: &Cluster, manifests: &Path, log_port: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args(["kubelet", "--nodes", "1", "--secure-port", "0", "--log-port", log_port, "--kubeconfig"]);
        command.arg(cluster.kubeconfig()).arg("--pod-manifest-path").arg(manifests);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pods_from_files_are_shown_kept_replaced_and_ended() {
    if Cluster::is_missing() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(manifests.path().join(name), text).unwrap();
    write("web.yaml", &manifest("web", "app:1"));
    write("other.yaml", &manifest("other", "app:1"));
    let port = free_port().to_string();
    let cluster =
        Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "0", "--ephemeral", "--node-log-ports", &port]);
    let agent = Agent::start(&cluster, manifests.path(), &port);
    let get = |pod: &str, path: &str, holds: &dyn Fn(&str) -> bool| {
        until(&cluster, &["get", "pod", pod, "-o", &format!("jsonpath={path}")], holds)
    };
    let runs = |text: &str| text == "Running";
    get("web-node-0", "{.status.phase}", &runs);
    let words = get("web-node-0", "{.metadata.annotations} {.metadata.ownerReferences} {.spec.tolerations}", &|_| true);
    for word in ["config.source\":\"file", "config.hash", "config.mirror", "config.seen", "\"kind\":\"Node\""] {
        assert!(words.contains(word), "{word} in {words}");
    }
    assert!(words.contains(r#"{"effect":"NoExecute","operator":"Exists"}"#), "{words}");
    let logs = until(&cluster, &["logs", "web-node-0"], |_| true);
    assert_eq!(logs, "simulated container c started (app:1)\n");
    let described = until(&cluster, &["describe", "pod", "web-node-0"], |text| text.contains("Started"));
    assert!(described.contains("Controlled By:  Node/node-0"), "{described}");

    // What is deleted is shown again, and its containers run on.
    let since = "{.status.containerStatuses[0].state.running.startedAt}";
    let started = get("web-node-0", since, &|text| !text.is_empty());
    let uid = get("web-node-0", "{.metadata.uid}", &|_| true);
    cluster.kubectl(&["delete", "pod", "web-node-0", "--wait=false"], "");
    get("web-node-0", "{.metadata.uid}", &|text| text != uid);
    assert_eq!(get("web-node-0", since, &|text| !text.is_empty()), started);

    // A taint evicts others only.
    cluster.kubectl(&["taint", "node", "node-0", "maint:NoExecute"], "");
    // Another process resumes where this one ended.
    drop(agent);
    let agent = Agent::start(&cluster, manifests.path(), &port);
    until(&cluster, &["logs", "web-node-0"], |_| true);
    assert_eq!(get("web-node-0", since, &|text| !text.is_empty()), started);
    cluster.kubectl(&["taint", "node", "node-0", "maint:NoExecute-"], "");

    // An invalid file is reported, without effect on the other pods.
    write("bad.yaml", "metadata: [");
    write("web.yaml", &manifest("web", "app:2"));
    get("web-node-0", "{.status.containerStatuses[0].image} {.status.phase}", &|text| text == "app:2 Running");
    get("other-node-0", "{.status.phase}", &runs);
    std::fs::remove_file(manifests.path().join("web.yaml")).unwrap();
    let names = until(&cluster, &["get", "pods", "-o", "name"], |text| !text.contains("web"));
    assert_eq!(names, "pod/other-node-0\n");

    // The mirror of a file that was removed meanwhile is deleted at the next start.
    drop(agent);
    std::fs::remove_file(manifests.path().join("other.yaml")).unwrap();
    let _agent = Agent::start(&cluster, manifests.path(), &port);
    until(&cluster, &["get", "pods", "-o", "name"], str::is_empty);
}

fn options(client: &Client, manifests: &Path) -> kubelet::Options {
    let node = client.clone();
    let start = Instant::now();
    kubelet::Options {
        nodes: vec!["node-0".to_owned()],
        template: Template::default(),
        adopts: false,
        adopted: None,
        devices: None,
        client: client.clone(),
        client_for: Arc::new(move |_| node.clone()),
        cache: Arc::new(CompileCache::new(64.try_into().unwrap(), Arc::new(move || start.elapsed())).unwrap()),
        features: matching::Features::default(),
        clock: client.clock().clone(),
        endpoint: None,
        reports: None,
        static_pods: Some(Options {
            path: manifests.to_owned(),
            period: Duration::from_millis(100),
            check: Arc::new(|document, _| Ok(document.clone())),
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_from_files_run_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let nobody = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n\
                  users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n";
    std::fs::write(&kubeconfig, nobody).unwrap();
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("web.yaml"), manifest("web", "app:1")).unwrap();
    let client = Client::from_kubeconfig(&kubeconfig, None, "kubelet").await.unwrap();
    let fleet = Fleet::new(options(&client, manifests.path()), Simulation::new(Rules::default()));
    let working = fleet.clone();
    let task = tokio::spawn(async move { working.run(std::future::pending()).await });
    let logs = async |name: &str| fleet.logs("default", name, "c", &logs::Options::default()).await;
    let until = async |holds: &dyn Fn(&Result<String, String>) -> bool| {
        let started = Instant::now();
        loop {
            let answer = logs("web-node-0").await;
            if holds(&answer) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(90), "{answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(&|answer| answer.as_deref() == Ok("simulated container c started (app:1)\n")).await;
    std::fs::write(manifests.path().join("web.yaml"), manifest("web", "app:2")).unwrap();
    until(&|answer| answer.as_deref() == Ok("simulated container c started (app:2)\n")).await;
    std::fs::remove_file(manifests.path().join("web.yaml")).unwrap();
    until(&|answer| answer.as_ref().is_err_and(|why| why == "pod \"web-node-0\" not found on this node")).await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn critical_pod_preempts_and_cannot_be_faked() {
    let cluster = fleet::Cluster::start(Features::all_proposals()).await;
    let _fleet = cluster.fleet(1, Features::all_proposals());
    fleet::until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some()).await;
    let nodes = cluster.admin.objects::<Node>();
    let small = api::json!({"status": {"allocatable": {"cpu": "1"}}});
    nodes.patch("", "node-0", "status", Patch::Merge, &small).await.unwrap();
    let has_one = |node: &Node| node.status.allocatable.get("cpu").is_some_and(|it| it.value() == 1);
    fleet::until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some_and(|it| has_one(&it))).await;
    let spec = |class: &str| {
        api::json!({"nodeName": "node-0", "priorityClassName": class,
            "containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "800m"}}}]})
    };
    cluster.create("first", spec("")).await;
    let phase = |name: &str| cluster.pod(name).map(|pod| pod.status.phase.to_string()).unwrap_or_default();
    fleet::until(&cluster.pods, || phase("first") == "Running").await;
    cluster.create("second", spec("")).await;
    fleet::until(&cluster.pods, || phase("second") == "Failed").await;
    assert_eq!(cluster.pod("second").unwrap().status.reason, "OutOfcpu");
    // A pod from the server is never a static pod, regardless of its annotations.
    let pods = cluster.admin.documents(<Pod as client::resources::ServedView>::RESOURCE);
    let posing = api::json!({"metadata": {"name": "posing", "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": (spec(""))});
    pods.create("default", &posing).await.unwrap();
    fleet::until(&cluster.pods, || phase("posing") == "Failed").await;
    assert_eq!(phase("first"), "Running");
    cluster.create("critical", spec("system-node-critical")).await;
    fleet::until(&cluster.pods, || phase("critical") == "Running").await;
    fleet::until(&cluster.pods, || phase("first") == "Failed").await;
    let first = cluster.pod("first").unwrap();
    let words = (first.status.reason.as_str(), first.status.message.as_str());
    assert_eq!(words, ("Preempting", "Preempted in order to admit critical pod"));
    assert!(first.status.conditions.iter().any(|it| it.reason == "TerminationByKubelet"));
}
