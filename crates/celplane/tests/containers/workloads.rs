//! Workloads of real containers: jobs, daemons, state on local volumes, probes, secrets, and the draining of the node.

use super::machine::Machine;

/// Objects that run beside each other. `NODE` and `DISK` are replaced.
const OBJECTS: &str = r#"
apiVersion: batch/v1
kind: CronJob
metadata: {name: minutely}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.local/busybox:1", command: [echo, tick]}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: "registry.local/busybox:1", command: [sh, -c, "echo index $JOB_COMPLETION_INDEX"]}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 0
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.local/busybox:1", command: [sh, -c, "exit 2"]}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "registry.local/busybox:1", command: [sleep, "1000"]}]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: DISK}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchCELExpressions: ["node.labels['kubernetes.io/hostname'].startsWith('machine-')"]}]}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "registry.local/busybox:1", command: [sh, -c, "hostname >> /data/starts; exec sleep 1000"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Gi}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {key: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: registry.local/busybox:1
    command: [sh, -c, "touch /tmp/alive /tmp/ready; exec sleep 1000"]
    startupProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 1, failureThreshold: 30}
    livenessProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 1, failureThreshold: 1}
    readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}
    volumeMounts: [{name: key, mountPath: /key}, {name: shared, mountPath: /shared}]
  volumes:
  - {name: key, secret: {secretName: key, defaultMode: 256}}
  - {name: shared, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 600
  containers: [{name: c, image: "registry.local/busybox:1", command: [sh, -c, "trap '' TERM; while :; do sleep 1; done"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: leaves}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "registry.local/busybox:1", command: ["true"], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(OUT)}], env: [{name: OUT, value: "../../../.."}]}]
  volumes: [{name: v, emptyDir: {}}]
"#;

/// Creates all objects.
pub(super) fn create(machine: &Machine) {
    let disk = machine.path("disk");
    std::fs::create_dir(&disk).unwrap();
    machine.apply(&OBJECTS.replace("DISK", &disk.display().to_string()));
}

fn read(machine: &Machine, what: &str, path: &str) -> String {
    machine.kubectl(&["get", what, "-o", &format!("jsonpath={path}")])
}

pub(super) fn jobs_end_and_daemons_run(machine: &Machine) {
    machine.wait("job/sums", "condition=Complete");
    let mut lines: Vec<String> =
        machine.kubectl(&["logs", "-l", "job-name=sums"]).lines().map(ToOwned::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["index 0", "index 1", "index 2"]);
    machine.wait("job/fails", "condition=Failed");
    machine.wait("daemonset/daemon", "jsonpath={.status.numberReady}=1");
}

/// A set's pod keeps its volume when it is replaced.
pub(super) fn sets_keep_their_local_volumes(machine: &Machine) {
    machine.wait("pod/db-0", "condition=Ready");
    machine.kubectl(&["delete", "pod", "db-0", "--wait"]);
    machine.wait("pod/db-0", "create");
    machine.wait("pod/db-0", "condition=Ready");
    assert_eq!(machine.kubectl(&["exec", "db-0", "--", "cat", "/data/starts"]), "db-0\ndb-0\n");
    assert_eq!(std::fs::read_to_string(machine.path("disk/starts")).unwrap(), "db-0\ndb-0\n");
}

pub(super) fn probes_decide_readiness_and_restarts(machine: &Machine) {
    machine.wait("pod/probed", "condition=Ready");
    machine.kubectl(&["exec", "probed", "--", "rm", "/tmp/ready"]);
    machine.wait("pod/probed", "condition=Ready=false");
    machine.kubectl(&["exec", "probed", "--", "rm", "/tmp/alive"]);
    machine.wait("pod/probed", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    machine.wait("pod/probed", "condition=Ready");
    let events = machine.kubectl(&[
        "get",
        "events",
        "--field-selector=involvedObject.name=probed",
        "-o",
        "jsonpath={.items[*].message}",
    ]);
    assert!(events.contains("Container c failed liveness probe, will be restarted"), "{events}");
}

/// Secrets are in memory, and readable by the container's user only; limits of volumes hold.
pub(super) fn secrets_stay_in_memory(machine: &Machine) {
    let shown = machine.kubectl(&[
        "exec",
        "probed",
        "--",
        "sh",
        "-c",
        "cat /key/key; echo; stat -Lc %a /key/key; stat -fc %T /key; stat -fc %T /shared",
    ]);
    assert_eq!(shown, "s3cret\n400\ntmpfs\ntmpfs\n");
    let output =
        machine.try_kubectl(&["exec", "probed", "--", "sh", "-c", "head -c 2000000 /dev/zero > /shared/big"], "");
    assert!(!output.status.success(), "{output:?}");
    let size = machine.kubectl(&["exec", "probed", "--", "stat", "-c", "%s", "/shared/big"]);
    assert_eq!(size.trim(), (1 << 20).to_string());
    let uid = read(machine, "pod/probed", "{.metadata.uid}");
    let directory = machine.path(&format!("data/kubelet/pods/{uid}"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&directory).unwrap().permissions());
    assert_eq!(mode & 0o007, 0, "other users enter the pod's directory");
    // Outside of the machine's namespace the files are not there: they were never on the disk.
    assert!(!directory.join("volumes/kubernetes.io~secret/key/key").exists());
}

/// A path that leads out of its volume is refused, and nothing of the pod runs.
pub(super) fn volumes_are_not_left(machine: &Machine) {
    machine
        .wait("pod/leaves", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError");
    let direct = "apiVersion: v1\nkind: Pod\nmetadata: {name: direct}\nspec: {containers: [{name: c, image: i, volumeMounts: \
                  [{name: v, mountPath: /v, subPath: ../x}]}], volumes: [{name: v, hostPath: {path: /tmp/../etc}}]}\n";
    let output = machine.try_kubectl(&["create", "-f", "-"], direct);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("spec.volumes[0].hostPath.path") && why.contains("volumeMounts.subPath"), "{why}");
}

/// A process that ignores SIGTERM is killed after the grace period of its deletion, which is shorter than that of the pod.
pub(super) fn grace_periods_end(machine: &Machine) {
    machine.wait("pod/stubborn", "condition=Ready");
    machine.kubectl(&["delete", "pod", "stubborn", "--grace-period=2", "--wait", "--timeout=90s"]);
}

pub(super) fn cron_jobs_start_jobs(machine: &Machine) {
    machine.wait("cronjob/minutely", "jsonpath={.status.lastSuccessfulTime}");
}

/// A drained node has daemons only, and takes pods again afterwards.
pub(super) fn node_drains(machine: &Machine) {
    let node = &machine.name;
    machine.kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s"]);
    let left = machine.kubectl(&[
        "get",
        "pods",
        "-o",
        "jsonpath={range .items[?(@.spec.nodeName)]}{.metadata.labels.app} {end}",
    ]);
    assert!(left.split_whitespace().all(|app| app == "daemon"), "{left}");
    machine.kubectl(&["uncordon", node]);
    machine.wait("pod/db-0", "condition=Ready");
    assert_eq!(machine.kubectl(&["exec", "db-0", "--", "wc", "-l", "/data/starts"]).trim(), "3 /data/starts");
}
