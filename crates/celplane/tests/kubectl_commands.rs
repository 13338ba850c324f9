//! The commands of `kubectl`, one by one: as recorded with a Kubernetes API server, and what a recording cannot hold.
//!
//! `data/kubectl.jsonl` has commands in order, with their files, what they printed and how they ended. Times, uids and
//! the width of columns are not compared; of `explain` only the fields are.

use crate::cluster;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use cluster::Cluster;
use regex::Regex;
use serde_json::Value;

const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: kt-k132}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: kt-k132}
automountServiceAccountToken: false
---
apiVersion: v1
kind: Namespace
metadata: {name: emptyns}
";

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: k132n, labels: {tier: gold}}
";

fn pods(names: &[&str], node: &str) -> String {
    let pod = |name: &&str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: kt-k132}}\n\
             spec: {{nodeName: '{node}', containers: [{{name: c, image: nginx}}]}}\n---\n"
        )
    };
    names.iter().map(pod).collect()
}

/// Actions of controllers, a kubelet or earlier commands before a recorded command.
fn prepare(cluster: &Cluster, scenario: &str) {
    let apply = |manifest: &str| cluster.kubectl(&["apply", "-f", "-"], manifest);
    let kubectl = |arguments: &[&str]| cluster.kubectl(arguments, "");
    match scenario {
        "apply-create" => apply(NAMESPACE),
        "taint-add" => apply(NODE),
        "wait-jsonpath" => {
            let patch = "--patch={\"status\":{\"phase\":\"Running\"}}";
            kubectl(&["-n", "kt-k132", "patch", "pod", "solo", "--subresource=status", "--type=merge", patch])
        }
        "drain-refused" => apply(&pods(&["ondrain", "ondrain-pdb"], "k132n")),
        "drain-dry-run" => {
            kubectl(&["-n", "kt-k132", "delete", "pod", "ondrain", "ondrain-pdb", "--grace-period=0", "--force"])
        }
        "delete-pod-force" => apply(&pods(&["f1"], "k132n")),
        "delete-no-wait" => apply(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: cd, namespace: kt-k132}
spec:
  selector: {matchLabels: {app: cd}}
  template: {metadata: {labels: {app: cd}}, spec: {containers: [{name: c, image: nginx}]}}
",
        ),
        _ => String::new(),
    };
}

/// Returns the comparable part of an output.
fn mask(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, shown) in [
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"(?m)\b(\d+[dhms])+(?P<end> *$|  )", "<age>$end"),
        (r" +", " "),
        (r"(?m) +$", ""),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, shown).into_owned();
    }
    text
}

/// The lines of `explain` that name kinds and fields.
fn fields_only(text: &str) -> String {
    let shown = Regex::new(r"^(KIND|VERSION|GROUP|RESOURCE|FIELDS):|^ *\S+\t<").unwrap();
    text.lines().filter(|line| shown.is_match(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn recorded_commands_print_the_same() {
    let Some(cluster) = Cluster::start() else { return };
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kubectl.jsonl");
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in std::fs::read_to_string(data).unwrap().lines() {
        let step: Value = serde_json::from_str(line).unwrap();
        let scenario = step["scenario"].as_str().unwrap();
        for (name, content) in step["files"].as_object().unwrap() {
            let text = content.as_str().map_or_else(|| content.to_string(), ToOwned::to_owned);
            std::fs::write(cluster.directory.path().join(name), text).unwrap();
        }
        prepare(&cluster, scenario);
        let arguments: Vec<&str> = step["argv"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let output = cluster.run(&arguments, "");
        let printed = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            mask(&if scenario.starts_with("explain") { fields_only(&text) } else { text })
        };
        let recorded = |name: &str| {
            let text = step[name].as_str().unwrap();
            mask(&if scenario.starts_with("explain") { fields_only(text) } else { text.to_owned() })
        };
        count += 1;
        let real = (output.status.code().unwrap(), printed(&output.stdout), printed(&output.stderr));
        let wanted = (i32::try_from(step["rc"].as_i64().unwrap()).unwrap(), recorded("stdout"), recorded("stderr"));
        if real != wanted {
            wrong.push(format!("{scenario}: {arguments:?}\n  {real:?}\ninstead of\n  {wanted:?}"));
        }
    }
    assert!(count > 50, "{count}");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

const THINGS: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: p1, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, image: 'nginx:1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p2, labels: {app: db}}
spec: {containers: [{name: c, image: 'postgres:1'}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'nginx:1'}]}}
---
apiVersion: v1
kind: Event
metadata: {name: p1.1, namespace: default}
involvedObject: {kind: Pod, name: p1, namespace: default, apiVersion: v1}
reason: Pulled
message: Image is here
type: Normal
firstTimestamp: '2026-01-01T00:00:00Z'
lastTimestamp: '2026-01-01T00:00:00Z'
count: 3
source: {component: kubelet}
";

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn objects_are_shown_in_all_forms() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], THINGS);
    let get = |arguments: &str| {
        let arguments: Vec<&str> = ["get"].into_iter().chain(arguments.split(' ')).collect();
        cluster.kubectl(&arguments, "")
    };
    assert_eq!(get("pods -o name"), "pod/p1\npod/p2\n");
    assert_eq!(get("pods -l app=db -o name"), "pod/p2\n");
    assert_eq!(get("pods -l app!=db -o name"), "pod/p1\n");
    assert_eq!(get("pods --field-selector spec.nodeName=n1 -o name"), "pod/p1\n");
    assert_eq!(get("pods --sort-by=.metadata.name -o name"), "pod/p1\npod/p2\n");
    assert_eq!(get("pods -o jsonpath={.items[*].metadata.name}"), "p1 p2");
    let columns = get("pods -o custom-columns=N:.metadata.name,I:.spec.containers[0].image");
    assert_eq!(mask(&columns), "N I\np1 nginx:1\np2 postgres:1\n");
    let wide = mask(&get("pods -o wide"));
    has(&wide, &["NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES", "p1 0/1 Pending 0"]);
    has(&wide, &["<none> n1 <none> <none>"]);
    has(&mask(&get("pods -A --show-labels")), &["NAMESPACE NAME READY STATUS RESTARTS AGE LABELS", "default p2"]);
    has(&get("pod p1 -o yaml"), &["apiVersion: v1\nkind: Pod\n", "\n  nodeName: n1\n", "\n  phase: Pending\n"]);
    let json: Value = serde_json::from_str(&get("deployment web -o json")).unwrap();
    assert_eq!((&json["spec"]["replicas"], &json["kind"]), (&2.into(), &"Deployment".into()));
    has(&mask(&get("nodes,services")), &["node/n1 Unknown <none>", "service/web ClusterIP"]);
    has(&mask(&get("events")), &["LAST SEEN TYPE REASON OBJECT MESSAGE", "Normal Pulled pod/p1 Image is here"]);
    has(&mask(&cluster.kubectl(&["events", "--for", "pod/p1"], "")), &["Normal Pulled Pod/p1 Image is here"]);
    has(&mask(&get("deploy web --subresource=scale")), &["NAME DESIRED AVAILABLE AGE\nweb 2 0"]);
    has(&get("--raw /api/v1/namespaces/default/pods/p1"), &["\"kind\":\"Pod\""]);
}

#[test]
fn objects_are_described_and_explained() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], THINGS);
    let uid = cluster.kubectl(&["get", "pod", "p1", "-o", "jsonpath={.metadata.uid}"], "");
    let patch = format!("--patch={{\"involvedObject\":{{\"uid\":\"{uid}\"}}}}");
    cluster.kubectl(&["patch", "event", "p1.1", "--type=merge", &patch], "");
    let describe = |what: &[&str]| mask(&cluster.kubectl(&[&["describe"], what].concat(), ""));
    has(
        &describe(&["pod", "p1"]),
        &["Name: p1\n", "Node: n1/\n", "Image: nginx:1\n", "Normal Pulled", "kubelet Image is"],
    );
    has(&describe(&["node", "n1"]), &["Name: n1\n", "zone=a\n", "default p1", "Taints: node.kubernetes.io/not-ready"]);
    has(&describe(&["deployment", "web"]), &["Replicas: 2 desired | 0 updated", "Image: nginx:1\n"]);
    has(&describe(&["pvc", "data"]), &["Name: data\n", "Status: Pending\n", "Used By: <none>\n"]);
    has(&describe(&["namespace", "default"]), &["Name: default\n", "Status: Active\n", "No resource quota.\n"]);
    has(&describe(&["service", "web"]), &["Selector: app=web\n", "Port: <unset> 80/TCP\n"]);
    let explained = cluster.kubectl(&["explain", "pod.spec.tolerations"], "");
    has(&explained, &["FIELD: tolerations <[]Toleration>", "matching operator", "expression\t<string>"]);
    has(
        &cluster.kubectl(&["explain", "deployment"], ""),
        &["DESCRIPTION:\n    Deployment enables declarative updates"],
    );
    let resources = mask(&cluster.kubectl(&["api-resources"], ""));
    has(&resources, &["pods po v1 true Pod\n", "deployments deploy apps/v1 true Deployment\n"]);
    has(&cluster.kubectl(&["api-versions"], ""), &["\napps/v1\n", "\nresource.k8s.io/v1\n", "\nv1\n"]);
    has(&cluster.kubectl(&["cluster-info"], ""), &["Kubernetes control plane", "https://127.0.0.1:"]);
}

#[test]
fn objects_are_changed_in_all_ways() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], THINGS);
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    assert_eq!(kubectl("set image deployment/web c=nginx:2"), "deployment.apps/web image updated\n");
    assert_eq!(kubectl("expose deployment web --name=web2 --port=81"), "service/web2 exposed\n");
    assert_eq!(kubectl("run solo --image=nginx"), "pod/solo created\n");
    let autoscaled = "horizontalpodautoscaler.autoscaling/web autoscaled\n";
    assert_eq!(kubectl("autoscale deployment web --max=3 --min=2"), autoscaled);
    has(&mask(&kubectl("get hpa")), &["web Deployment/web", "2 3 0"]);
    assert_eq!(kubectl("rollout pause deployment/web"), "deployment.apps/web paused\n");
    has(&kubectl("rollout history deployment/web"), &["deployment.apps/web"]);
    assert_eq!(kubectl("rollout resume deployment/web"), "deployment.apps/web resumed\n");
    // The editor is a script that changes what it is given.
    let editor = cluster.directory.path().join("editor.sh");
    std::fs::write(&editor, "#!/bin/sh\nsed -i 's/image: postgres:1/image: postgres:2/' \"$1\"\n").unwrap();
    let editor = format!("sh {}", editor.display());
    let output = cluster.command(&["edit", "pod", "p2"]).env("KUBE_EDITOR", editor).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "pod/p2 edited\n", "{output:?}");
    let image = "get pod p2 -o jsonpath={.spec.containers[0].image}";
    assert_eq!(kubectl(image), "postgres:2");
    let changed = THINGS.replace("replicas: 2", "replicas: 4");
    let output = cluster.run(&["diff", "-f", "-"], &changed);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    has(&String::from_utf8_lossy(&output.stdout), &["-  replicas: 2\n", "+  replicas: 4\n"]);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: b}\n";
    cluster.kubectl(&["create", "-f", "-"], map);
    assert_eq!(cluster.kubectl(&["replace", "-f", "-"], &map.replace("a: b", "a: c")), "configmap/m replaced\n");
    let generated = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: gen-}\n";
    for _ in 0..2 {
        has(&cluster.kubectl(&["create", "-f", "-"], generated), &["configmap/gen-", " created\n"]);
    }
    assert_eq!(kubectl("get cm -o name").lines().filter(|line| line.starts_with("configmap/gen-")).count(), 2);
}

#[test]
fn kubectl_wait_observes_the_end() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], THINGS);
    let kubectl = |arguments: &str| cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>(), "");
    // Someone has rolled the deployment out.
    let status = "{\"status\":{\"observedGeneration\":1,\"replicas\":2,\"updatedReplicas\":2,\"readyReplicas\":2,\
                  \"availableReplicas\":2,\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}";
    let mut waiting = cluster.command(&["rollout", "status", "deployment/web", "--timeout=30s"]);
    let mut waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    has(&lines.next().unwrap().unwrap(), &["Waiting for deployment"]);
    kubectl(&format!("patch deployment web --subresource=status --type=merge -p {}", status.replace(' ', "")));
    assert_eq!(lines.last().unwrap().unwrap(), "deployment \"web\" successfully rolled out");
    assert!(waiting.wait().unwrap().success());
    has(&kubectl("wait --for=condition=Available deployment/web --timeout=30s"), &["condition met"]);
    has(&kubectl("wait --for=create pod/p1 --timeout=30s"), &["condition met"]);
    let mut gone = cluster.command(&["wait", "--for=delete", "pod/p2", "--timeout=30s"]).spawn().unwrap();
    assert_eq!(kubectl("delete pod p2"), "pod \"p2\" deleted\n");
    assert!(gone.wait().unwrap().success());
    // A pod on a node ends when its kubelet reports it, or at once on request.
    assert_eq!(kubectl("delete pod p1 --wait=false"), "pod \"p1\" deleted\n");
    has(&mask(&kubectl("get pod p1")), &["p1 0/1 Terminating"]);
    has(&kubectl("delete pod p1 --grace-period=0 --force"), &["pod \"p1\" force deleted\n"]);
    has(&cluster.refused(&["get", "pod", "p1"], ""), &["not found"]);
    // Dependents are handled by a controller; until then the object contains the policy.
    assert_eq!(kubectl("delete deployment web --cascade=orphan --wait=false"), "deployment.apps \"web\" deleted\n");
    assert_eq!(kubectl("get deployment web -o jsonpath={.metadata.finalizers}"), "[\"orphan\"]");
    assert_eq!(kubectl("delete service web --cascade=background"), "service \"web\" deleted\n");
}

#[test]
fn a_node_is_drained() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], THINGS);
    let drained = cluster.run(&["drain", "n1", "--force", "--grace-period=0", "--timeout=30s"], "");
    let text = String::from_utf8_lossy(&drained.stdout);
    assert!(drained.status.success(), "{drained:?}");
    assert_eq!(text, "node/n1 cordoned\nevicting pod default/p1\npod/p1 evicted\nnode/n1 drained\n");
    has(&mask(&cluster.kubectl(&["get", "node", "n1"], "")), &["n1 Unknown,SchedulingDisabled"]);
    assert_eq!(cluster.kubectl(&["uncordon", "n1"], ""), "node/n1 uncordoned\n");
}
