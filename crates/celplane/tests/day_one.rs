//! The first hour of a new user: manifests in any order, Jobs that end, volumes, load balancers and typing errors.

use crate::cluster::Cluster;
use crate::first_light::until;

const ACCOUNT_LAST: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: sat}
spec:
  selector: {matchLabels: {app: sat}}
  template:
    metadata: {labels: {app: sat}}
    spec: {serviceAccountName: sa, containers: [{name: c, image: nginx}]}
";

const JOBS: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: ends}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 0
  template: {metadata: {labels: {lane: bad}}, spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}
";

const STORAGE: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: nginx}]}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: at-once}
provisioner: sim.celplane.dev/volumes
volumeBindingMode: Immediate
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: early}
spec: {storageClassName: at-once, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {type: LoadBalancer, ports: [{port: 80}]}
";

const RULES: &str = "rules:\n- select: {labels: lane=bad, owner: Job}\n  exit-code: 3\n";

#[test]
fn a_new_cluster_behaves_as_clients_expect() {
    if Cluster::is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let arguments = ["--nodes", "1", "--ephemeral", "--simulation", rules.to_str().unwrap()];
    let arguments = [&arguments[..], &["--load-balancer-range", "192.0.2.7-192.0.2.9"]].concat();
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &arguments);
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    cluster.apply(JOBS);
    cluster.apply(STORAGE);
    storage_is_provisioned(&cluster);
    jobs_end(&cluster);
    let address = "jsonpath={.status.loadBalancer.ingress[0].ip}";
    until(&cluster, &["get", "service", "front", "-o", address], |text| text == "192.0.2.7");
    ends_are_reported(&cluster);
    debug_containers_start(&cluster);
    let run = ["run", "once", "--image=busybox", "--restart=Never", "--rm", "-i", "--", "true"];
    assert!(cluster.kubectl(&run, "").contains("pod \"once\" deleted"));
    typing_errors_are_events(&cluster);
}

fn storage_is_provisioned(cluster: &Cluster) {
    let phase = "jsonpath={.status.phase} {.status.capacity.storage}";
    until(cluster, &["get", "pvc", "early", "-o", phase], |text| text == "Bound 2Gi");
    until(cluster, &["get", "pod", "db-0"], |text| text.contains("Running"));
    until(cluster, &["get", "pvc", "data-db-0", "-o", phase], |text| text == "Bound 1Gi");
    let more = r#"{"spec": {"resources": {"requests": {"storage": "3Gi"}}}}"#;
    cluster.kubectl(&["patch", "pvc", "data-db-0", "-p", more], "");
    until(cluster, &["get", "pvc", "data-db-0", "-o", phase], |text| text == "Bound 3Gi");
    cluster.kubectl(&["delete", "pvc", "early"], "");
    let classes = "jsonpath={.items[*].spec.storageClassName}";
    until(cluster, &["get", "pv", "-o", classes], |text| text == "standard");
}

fn jobs_end(cluster: &Cluster) {
    let condition = |kind: &str| format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}}");
    until(cluster, &["get", "job", "ends", "-o", &condition("Complete")], |text| text == "True");
    until(cluster, &["get", "job", "fails", "-o", &condition("Failed")], |text| text == "True");
    cluster.apply(ACCOUNT_LAST);
    let events = ["get", "events", "-o", "custom-columns=:.reason,:.message"];
    until(cluster, &events, |text| text.contains("serviceaccount \"sa\" not found"));
    // The account ends the waiting, however long that has taken.
    cluster.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa}\n");
    until(cluster, &["get", "deployment", "sat", "-o", "jsonpath={.status.readyReplicas}"], |text| text == "1");
}

fn ends_are_reported(cluster: &Cluster) {
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: going, finalizers: [example.com/watcher]}\n\
         spec: {containers: [{name: c, image: nginx}]}\n",
    );
    until(cluster, &["get", "pod", "going"], |text| text.contains("Running"));
    cluster.kubectl(&["delete", "pod", "going", "--wait=false"], "");
    let state = "jsonpath={.status.phase} {.status.containerStatuses[0].state.terminated.exitCode} \
                 {.status.conditions[?(@.type==\"Ready\")].status}";
    until(cluster, &["get", "pod", "going", "-o", state], |text| text == "Failed 143 False");
    cluster.kubectl(&["patch", "pod", "going", "-p", r#"{"metadata": {"finalizers": null}}"#], "");
}

fn debug_containers_start(cluster: &Cluster) {
    cluster.kubectl(&["debug", "db-0", "--image=busybox", "--container=look"], "");
    let state = "jsonpath={.status.ephemeralContainerStatuses[0].name} {.status.ephemeralContainerStatuses[0].state}";
    until(cluster, &["get", "pod", "db-0", "-o", state], |text| {
        text.starts_with("look ") && (text.contains("running") || text.contains("terminated"))
    });
}

fn typing_errors_are_events(cluster: &Cluster) {
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: typo, annotations: {sim.celplane.dev/run-secs: '3', sim/ready: maybe}}\n\
         spec: {containers: [{name: c, image: nginx}]}\n",
    );
    cluster.kubectl(&["annotate", "node", "node-0", "sim.celplane.dev/devices=rong:8"], "");
    let events = ["get", "events", "-A", "-o", "custom-columns=:.reason,:.message"];
    until(cluster, &events, |text| {
        let has = |message: &str| text.lines().any(|it| it.starts_with("InvalidSimulation") && it.contains(message));
        has("unknown annotation `sim.celplane.dev/run-secs` on a pod")
            && has("annotation `sim/ready` cannot be `maybe`")
            && has("annotation `sim.celplane.dev/devices` cannot be `rong:8`")
    });
}

/// A home directory with a kubeconfig of another cluster.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config"), FOREIGN).unwrap();
        Self(home)
    }

    /// Exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(arguments)
            .env("HOME", self.0.path())
            .env("XDG_DATA_HOME", self.0.path())
            .env("KUBECONFIG", self.0.path().join("config"))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.run(&["down", "--name", "a"]);
    }
}

const FOREIGN: &str = "apiVersion: v1
clusters:
- cluster:
    server: https://prod.invalid   # keep
  name: prod
contexts:
- context: {cluster: prod, user: me}
  name: prod
current-context: prod
kind: Config
users:
- name: me
  user: {token: 'a b'}
";

#[test]
fn named_clusters_keep_their_flags_and_contexts() {
    let home = Home::new();
    let start = ["up", "--name", "a", "--port", "0", "--nodes", "2", "--devices", "grid:2x2", "--wait"];
    let (code, output, errors) = home.run(&[&start[..], &["--merge-kubeconfig"]].concat());
    assert_eq!(code, 0, "{output}{errors}");
    let kubeconfig = home.0.path().join("celplane-clusters/a/admin.kubeconfig");
    assert!(output.contains(&format!("export KUBECONFIG={}", kubeconfig.display())), "{output}");
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains("current-context: celplane-a\n"));
    let merged = std::fs::read_to_string(home.0.path().join("config")).unwrap();
    for line in FOREIGN.lines().filter(|line| !line.starts_with("current-context")) {
        assert!(merged.lines().any(|it| it == line), "{line}\n{merged}");
    }
    assert!(merged.contains("current-context: celplane-a\n"), "{merged}");
    let (_, listed, _) = home.run(&["list"]);
    assert!(listed.lines().any(|line| line.starts_with("a ") && line.contains("running (")), "{listed}");
    asks_the_server_of_the_environment(&home);
    let (code, output, _) = home.run(&["down", "--name", "a"]);
    assert!(code == 0 && output.starts_with("Stopped process "), "{output}");
    let again = ["up", "--name", "a", "--port", "0", "--dry-run"];
    // The file of stored rules does not exist: without it, pods would run otherwise.
    let stored = home.0.path().join("celplane-clusters/a/flags.json");
    let flags = std::fs::read_to_string(&stored).unwrap();
    std::fs::write(&stored, flags.replacen('{', "{\"simulation\": \"/nowhere/rules.yaml\",", 1)).unwrap();
    let (code, output, errors) = home.run(&again);
    assert_eq!((code, output.as_str()), (2, ""), "{errors}");
    assert!(errors.starts_with("error: the last start used --simulation=/nowhere/rules.yaml, and this file does not"));
    std::fs::write(&stored, flags).unwrap();
    let (code, output, errors) = home.run(&again);
    assert_eq!(code, 0, "{output}{errors}");
    assert!(errors.contains("Using flags of the last start: --nodes=2 --devices=grid:2x2"), "{errors}");
    assert!(output.contains("Nodes: node-0 to node-1."), "{output}");
    let (_, output, _) = home.run(&[&again[..], &["--nodes", "5"]].concat());
    assert!(output.contains("Nodes: node-0 to node-4."), "{output}");
    let (_, output, errors) = home.run(&[&again[..], &["--forget-flags"]].concat());
    assert!(output.contains("Nodes: node-0 to node-2.") && errors.is_empty(), "{output}{errors}");
}

fn asks_the_server_of_the_environment(home: &Home) {
    let (code, output, errors) = home.run(&["why", "--pod", "tolerations/story-2-kernel-version.yaml"]);
    assert_eq!(code, 0, "{output}{errors}");
    assert!(output.contains(" of 2 nodes fit\n"), "{output}");
    let (code, _, errors) = home.run(&["why", "deploy/none"]);
    assert_eq!((code, errors.as_str()), (2, "error: there is no deployment `default/none`\n"));
    let (code, _, errors) = home.run(&["why", "secret/none"]);
    assert!(code == 2 && errors.contains("`secret` has no pods"), "{errors}");
    let (code, output, errors) = home.run(&["scan"]);
    assert_eq!((code, output.as_str()), (0, "no object uses a field that these gates disable\n"), "{errors}");
}

#[test]
fn failed_starts_leave_nothing_behind_and_dry_runs_warn() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let directory = home.0.path().join("new");
    let (code, _, errors) = home.run(&["up", "--data-dir", directory.to_str().unwrap(), "--port", &port]);
    assert!(code == 1 && errors.contains("is in use by another program"), "{errors}");
    assert!(!directory.exists());
    let (code, _, errors) = home.run(&["up", "--wait", "--data-dir", directory.to_str().unwrap(), "--port", &port]);
    assert!(code == 1 && errors.contains("is in use by another program"), "{errors}");
    assert!(!directory.exists());
    let (code, output, _) = home.run(&["up", "--dry-run", "--port", "0", "--bind-address", "0.0.0.0"]);
    assert_eq!(code, 0);
    assert!(output.contains("The port would be open to the network: --bind-address is 0.0.0.0."), "{output}");
    let etcd = ["up", "--dry-run", "--port", "0", "--etcd-servers", "http://127.0.0.1:1"];
    let (code, _, errors) = home.run(&etcd);
    assert!(code == 1 && errors.contains("etcd does not answer at http://127.0.0.1:1"), "{errors}");
    for arguments in [&["gates"][..], &["up", "--feature-gates", "help"]] {
        let (code, output, _) = home.run(arguments);
        assert!(code == 0 && output.contains("TaintTolerationCEL"), "{output}");
    }
    let broken = home.0.path().join("scheduler.yaml");
    let profile = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  \
        - name: NodeAffinity\n    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
        {nodeSelectorTerms: [{matchCELExpressions: [\"node.labels['a'] == 'b'\"]}]}}}\n";
    std::fs::write(&broken, profile).unwrap();
    let start = ["up", "--dry-run", "--port", "0", "--scheduler-config", broken.to_str().unwrap()];
    let (code, output, errors) = home.run(&start);
    assert_eq!(code, 0, "{output}{errors}");
    let off = ["--scheduler-feature-gates", "TaintTolerationNodeAffinityCEL=false"];
    let (code, _, errors) = home.run(&[&start[..], &off].concat());
    let why = "addedAffinity: nodeSelectorTerms[0].matchCELExpressions[0]: requires feature gate";
    assert!(code != 0 && errors.contains(why), "{errors}");
}

#[test]
fn system_workloads_run_on_request() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "1", "--system-pods"]);
    let pods = ["get", "pods", "-n", "kube-system", "--no-headers"];
    until(&cluster, &pods, |text| text.matches("Running").count() == 3);
    until(&cluster, &["get", "service", "kube-dns", "-n", "kube-system"], |text| text.contains("53/UDP,53/TCP"));
}
