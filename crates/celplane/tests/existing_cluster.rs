//! The proposals in annotations, on an API server that does not have their fields: a second scheduler, and resolved
//! tolerations.

mod stories;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::cluster::Cluster;
use crate::first_light::until;

/// A role in a process of its own, ended when dropped.
struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(cluster: &Cluster, arguments: &[&str]) -> Role {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    command.args(arguments).args(["--healthz-port", "0", "--kubeconfig"]).arg(cluster.kubeconfig());
    Role(command.stdin(Stdio::null()).spawn().unwrap())
}

const SCHEDULER: [&str; 4] = ["scheduler", "--scheduler-name", "celplane", "--placement-annotations"];

fn pod(name: &str, scheduler: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n{annotations}\
         spec:\n  schedulerName: {scheduler}\n  containers: [{{name: c, image: nginx}}]\n"
    )
}

const PLACED: &str = "    placement.celplane.dev/tolerations: |
      - expression: taint.key.startsWith('maintenance.example.com/')
        tolerationSeconds: 600
    placement.celplane.dev/node-affinity: |
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchCELExpressions: [\"node.labels['zone'].startsWith('a')\"]
";
const INVALID: &str = "    placement.celplane.dev/tolerations: '[{expression: taint.nope}]'\n";

#[test]
fn second_scheduler_places_pods_by_annotations() {
    if Cluster::is_missing() {
        return;
    }
    // The server knows the fields no more than upstream's does.
    let gates = ["--feature-gates", "TaintTolerationCEL=false"];
    let cluster = Cluster::start_with(tempfile::tempdir().unwrap(), &gates);
    cluster.kubectl(&["create", "serviceaccount", "default"], "");
    let _nodes = start(&cluster, &["kubelet", "--nodes", "2", "--log-port", "0"]);
    let names = until(&cluster, &["get", "nodes", "-o", "name"], |text| text.lines().count() == 2);
    let names: Vec<&str> = names.lines().map(|line| line.trim_start_matches("node/")).collect();
    let (tainted, other) = (names[0], names[1]);
    cluster.kubectl(&["label", "node", tainted, "zone=a1"], "");
    cluster.kubectl(&["label", "node", other, "zone=b1"], "");
    cluster.kubectl(&["taint", "node", tainted, "maintenance.example.com/disk=now:NoExecute"], "");
    until(&cluster, &["get", "nodes"], |text| text.matches(" Ready ").count() == 2);
    // No controller of ours runs that would do so.
    cluster.kubectl(&["taint", "nodes", "--all", "node.kubernetes.io/not-ready-"], "");

    let scheduler = start(&cluster, &SCHEDULER);
    let pods = pod("placed", "celplane", PLACED) + &pod("invalid", "celplane", INVALID);
    cluster.apply(&(pods + &pod("foreign", "default-scheduler", "    a: b\n")));
    let node = ["get", "pod", "placed", "-o", "jsonpath={.spec.nodeName}"];
    until(&cluster, &node, |text| text == tainted);
    let tolerations = ["get", "pod", "placed", "-o", "jsonpath={.spec.tolerations[*]}"];
    let found = cluster.kubectl(&tolerations, "");
    let resolved = r#""key":"maintenance.example.com/disk","operator":"Equal","tolerationSeconds":600,"value":"now""#;
    assert!(found.contains(resolved), "{found}");

    let message =
        ["get", "events", "--field-selector", "involvedObject.name=invalid", "-o", "jsonpath={.items[*].message}"];
    let text = until(&cluster, &message, |text| !text.is_empty());
    let expected = "0/2 nodes are available: metadata.annotations[placement.celplane.dev/tolerations][0].expression: \
                    Invalid value: \"taint.nope\": compilation failed: ERROR: <input>:1:6: undefined field 'nope'";
    assert!(text.starts_with(expected), "{text}");
    cluster.kubectl(&["annotate", "--overwrite", "pod", "invalid", "placement.celplane.dev/tolerations=[]"], "");
    until(&cluster, &["get", "pod", "invalid", "-o", "jsonpath={.spec.nodeName}"], |text| text == other);
    assert_eq!(cluster.kubectl(&["get", "pod", "foreign", "-o", "jsonpath={.spec.nodeName}"], ""), "");

    // The node of a running pod gets another taint.
    let arguments = ["controller-manager", "--controllers", "toleration-resolver", "--placement-annotations"];
    let _resolver = start(&cluster, &arguments);
    cluster.kubectl(&["taint", "node", tainted, "maintenance.example.com/fan=:NoExecute"], "");
    until(&cluster, &tolerations, |text| text.contains("maintenance.example.com/fan"));

    // A scheduler that was killed is followed by another one. `stories` waits until the lease expires; here it is deleted.
    drop(scheduler);
    cluster.kubectl(&["delete", "lease", "-n", "kube-system", "celplane-scheduler"], "");
    let _scheduler = start(&cluster, &SCHEDULER);
    cluster.apply(&pod("later", "celplane", PLACED));
    until(&cluster, &["get", "pod", "later", "-o", "jsonpath={.spec.nodeName}"], |text| text == tainted);
    check_refused_tolerations(&cluster, tainted);
}

/// Denies tolerations of one taint, as PodTolerationRestriction would.
const DENIAL: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-denied-tolerations}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]
  validations:
  - expression: object.spec.?tolerations.orValue([]).all(t, t.?key.orValue('') != 'maintenance.example.com/denied')
    message: this toleration is not permitted
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-denied-tolerations}
spec: {policyName: no-denied-tolerations, validationActions: [Deny]}
";

/// A resolved toleration that admission refuses gives an event, before and after the binding.
fn check_refused_tolerations(cluster: &Cluster, node: &str) {
    cluster.apply(DENIAL);
    // A policy takes effect some time after it was created.
    let toleration = "key: maintenance.example.com/denied, operator: Exists, effect: NoExecute, tolerationSeconds: 600";
    let current = cluster.kubectl(&["get", "pod", "placed", "-o", "jsonpath={.spec.tolerations}"], "");
    let patch = format!("{{spec: {{tolerations: {}, {{{toleration}}}]}}}}", current.trim_end_matches(']'));
    let attempt = ["patch", "pod", "placed", "--dry-run=server", "--type=merge", "-p", &patch];
    let started = std::time::Instant::now();
    while cluster.run(&attempt, "").status.success() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "the policy has no effect");
    }
    cluster.kubectl(&["taint", "node", node, "maintenance.example.com/denied=:NoExecute"], "");
    let messages = |pod: &str, reason: &str| {
        let selector = format!("involvedObject.name={pod},reason={reason}");
        let arguments = ["get", "events", "--field-selector", &selector, "-o", "jsonpath={.items[*].message}"];
        until(cluster, &arguments, |text| text.contains("this toleration is not permitted"))
    };
    let text = messages("placed", "TolerationNotAdded");
    assert!(text.starts_with(&format!("Could not add tolerations for the taints of node {node}: ")), "{text}");
    cluster.apply(&pod("denied", "celplane", PLACED));
    messages("denied", "FailedScheduling");
    assert_eq!(cluster.kubectl(&["get", "pod", "denied", "-o", "jsonpath={.spec.nodeName}"], ""), "");
}

/// The exit code and the output of an offline tool about a file.
fn tool(arguments: &[&str], manifests: &str) -> (i32, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    std::fs::write(&file, manifests).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    let output = command.args(arguments).arg(&file).env_remove("KUBECONFIG").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

const NODES: &str = "---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a1}}
spec: {taints: [{key: maintenance.example.com/disk, effect: NoExecute}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {zone: b1}}
";

#[test]
fn offline_tools_read_annotations() {
    let (placed, invalid) = (pod("placed", "celplane", PLACED), pod("invalid", "celplane", INVALID));
    let (code, text) = tool(&["check"], &(placed.clone() + &invalid));
    assert_eq!(code, 1, "{text}");
    let path = "metadata.annotations[placement.celplane.dev/tolerations][0].expression";
    assert!(text.contains("a.yaml:23:5: ") && text.contains(path), "{text}");
    let (code, text) = tool(&["check"], &placed);
    assert_eq!(code, 0, "{text}");
    let (code, text) =
        tool(&["check", "--feature-gates", "TaintTolerationCEL=false,TaintTolerationNodeAffinityCEL=false"], &placed);
    assert!(code == 1 && text.contains("toleration CEL expressions require feature gate TaintTolerationCEL"), "{text}");

    let (code, text) = tool(&["scan", "-f"], &placed);
    assert!(code == 1 && text.contains(path), "{text}");
    assert!(text.contains("metadata.annotations[placement.celplane.dev/node-affinity].requiredDuring"), "{text}");

    let (code, text) = tool(&["why", "--pod"], &(placed.clone() + NODES));
    assert!(code == 0 && text.contains("n1"), "{text}");
    let (code, text) = tool(&["why", "--pod"], &(invalid + NODES));
    assert!(code == 2 && text.contains(path), "{text}");
    // A pod of the second scheduler need not have annotations of its own.
    let plain = pod("plain", "celplane", "    a: b\n");
    let (code, text) = tool(&["why", "--pod"], &(plain.clone() + NODES));
    assert!(code == 0 && text.contains("n2"), "{text}");
    let (code, text) = tool(&["why", "--pod"], &(plain.replace("celplane", "other") + NODES));
    assert!(code == 2 && text.contains("no profile for scheduler name \"other\""), "{text}");
    let (code, text) = tool(&["simulate", "-o", "json", "-f"], &(placed + NODES));
    assert!(code == 0 && text.contains("\"node\": \"n1\""), "{text}");
}

const DEFINITION: &str = "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  annotations:
    columns.celplane.dev/v1: |
      - {name: Sizes, type: string, expression: 'self.spec.sizes.map(s, s * 2)'}
      - {name: Detail, type: string, priority: 1, expression: \"'x' + string(self.spec.sizes.size())\"}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: First, type: integer, jsonPath: '.spec.sizes[0]'}]
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {sizes: {type: array, items: {type: integer}}}}}
";

fn widget(name: &str, sizes: &str) -> String {
    format!("---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: {name}}}\nspec: {{sizes: {sizes}}}\n")
}

fn celplane(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    let output = command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap()
}

#[test]
fn webhook_applies_the_rules_of_fields_to_annotations() {
    if Cluster::is_missing() {
        return;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let backend = format!("celplane-system/celplane-webhook:443={free}");
    let flags = ["--feature-gates", "TaintTolerationCEL=false", "--backend", &backend];
    let cluster = Cluster::start_with(tempfile::tempdir().unwrap(), &flags);
    cluster.kubectl(&["create", "serviceaccount", "default"], "");
    let install = ["webhook", "install", "--image", "example.com/celplane:1", "--assign-scheduler", "--volumes"];
    let manifests = celplane(&cluster, &install);
    cluster.apply(&manifests);
    let listen = free.to_string();
    let webhook = start(&cluster, &["webhook", "--assign-scheduler", "--volumes", "--listen", &listen]);
    let bundle = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    until(&cluster, &["get", "mutatingwebhookconfiguration", "celplane-placement", "-o", bundle], |text| {
        !text.is_empty()
    });

    let refused = cluster.refused(&["apply", "-f", "-"], &pod("invalid", "celplane", INVALID));
    let expected = "The Pod \"invalid\" is invalid: \
                    metadata.annotations[placement.celplane.dev/tolerations][0].expression: Invalid value: \"taint.nope\"";
    assert!(refused.contains(expected), "{refused}");
    let refused = cluster.refused(&["apply", "-f", "-"], &pod("other", "other", PLACED));
    let expected = "spec.schedulerName: Invalid value: \"other\": the pod has placement annotations, which only these \
                    schedulers read: \"celplane\"";
    assert!(refused.contains(expected), "{refused}");
    cluster.apply(&pod("placed", "default-scheduler", PLACED));
    let name = cluster.kubectl(&["get", "pod", "placed", "-o", "jsonpath={.spec.schedulerName}"], "");
    assert_eq!(name, "celplane");
    let change = ["annotate", "--overwrite", "pod", "placed", "placement.celplane.dev/node-affinity={}"];
    let refused = cluster.refused(&change, "");
    let expected = "metadata.annotations[placement.celplane.dev/node-affinity]: Forbidden: pod updates may not change";
    assert!(refused.contains(expected), "{refused}");

    // Annotations that no scheduler would read cannot be added later, either.
    cluster.apply(&pod("foreign", "other", "    a: b\n"));
    let addition = "placement.celplane.dev/tolerations=[{expression: 'true'}]";
    let refused = cluster.refused(&["annotate", "pod", "foreign", addition], "");
    let expected = "spec.schedulerName: Invalid value: \"other\": the pod has placement annotations, which only these \
                    schedulers read: \"celplane\"";
    assert!(refused.contains(expected), "{refused}");
    cluster.kubectl(&["annotate", "pod", "foreign", "a.example.com/b=c"], "");

    check_volumes(&cluster);
    check_claims(&cluster);
    check_templates(&cluster);
    check_policy(&cluster);
    check_columns(&cluster);

    // Without the webhook, only objects with annotations are refused.
    drop(webhook);
    cluster.apply(&pod("plain", "default-scheduler", "    a: b\n"));
    let refused = cluster.refused(&["apply", "-f", "-"], &pod("later", "celplane", PLACED));
    assert!(refused.contains("failed calling webhook"), "{refused}");
    cluster.kubectl(&["delete", "--wait=false", "-f", "-"], &manifests);
    let left = "validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies";
    until(&cluster, &["get", left, "-o", "name"], str::is_empty);
}

const VOLUMES: &str = "apiVersion: v1
kind: PersistentVolume
metadata:
  name: disk
  annotations:
    placement.celplane.dev/node-affinity: |
      required: {nodeSelectorTerms: [{matchCELExpressions: [\"node.labels['zone'].startsWith('a')\"]}]}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: x, hostPath: {path: /disk}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: plain}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: x, hostPath: {path: /plain}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: annotated}
spec: {accessModes: [ReadWriteOnce], storageClassName: x, volumeName: disk, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: plain}
spec: {accessModes: [ReadWriteOnce], storageClassName: x, volumeName: plain, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: unbound}
spec: {accessModes: [ReadWriteOnce], storageClassName: x, resources: {requests: {storage: 1Gi}}}
";

/// Pods without annotations go to the scheduler that reads those of their volumes.
fn check_volumes(cluster: &Cluster) {
    let pod = |name: &str, claim: &str, scheduler: &str| {
        let volumes = format!("  volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]\n");
        pod(name, scheduler, "    a: b\n") + &volumes
    };
    cluster.apply(VOLUMES);
    for (claim, expected) in
        [("annotated", "celplane"), ("plain", "default-scheduler"), ("unbound", "default-scheduler")]
    {
        let name = format!("with-{claim}");
        cluster.apply(&pod(&name, claim, "default-scheduler"));
        let scheduler = cluster.kubectl(&["get", "pod", &name, "-o", "jsonpath={.spec.schedulerName}"], "");
        assert_eq!(scheduler, expected, "{claim}");
    }
    let refused = cluster.refused(&["apply", "-f", "-"], &pod("elsewhere", "annotated", "other"));
    let expected = "spec.schedulerName: Invalid value: \"other\": persistent volume \"disk\" has placement annotations, \
                    which only these schedulers read: \"celplane\"";
    assert!(refused.contains(expected), "{refused}");
}

const REQUESTS: &str = "{devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}";
const CONSTRAINTS: &str =
    "annotations: {placement.celplane.dev/device-constraints: \"[{cel: {expression: 'devices.size() == 1'}}]\"}";

/// A claim and a template of claims, in a namespace.
fn claims(name: &str, namespace: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n\
         metadata: {{name: {name}, namespace: {namespace}, {annotations}}}\nspec: {REQUESTS}\n\
         ---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n\
         metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{metadata: {{{annotations}}}, spec: {REQUESTS}}}\n"
    )
}

/// Pods without annotations go to the scheduler that reads those of their claims and of the templates of claims.
fn check_claims(cluster: &Cluster) {
    cluster.apply(&(claims("annotated", "default", CONSTRAINTS) + &claims("plain", "default", "")));
    let pod = |name: &str, scheduler: &str, source: &str| {
        let claims = format!("  resourceClaims: [{{name: c, {source}}}]\n");
        pod(name, scheduler, "    a: b\n") + &claims
    };
    for (source, expected) in [
        ("resourceClaimName: annotated", "celplane"),
        ("resourceClaimTemplateName: annotated", "celplane"),
        ("resourceClaimName: plain", "default-scheduler"),
        ("resourceClaimTemplateName: plain", "default-scheduler"),
        ("resourceClaimName: missing", "default-scheduler"),
    ] {
        let (field, name) = source.split_once(": ").unwrap();
        let pod_name = format!("{}-{name}", field.to_lowercase());
        cluster.apply(&pod(&pod_name, "default-scheduler", source));
        let scheduler = cluster.kubectl(&["get", "pod", &pod_name, "-o", "jsonpath={.spec.schedulerName}"], "");
        assert_eq!(scheduler, expected, "{source}");
    }
    for source in ["resourceClaimName: annotated", "resourceClaimTemplateName: annotated"] {
        let refused = cluster.refused(&["apply", "-f", "-"], &pod("elsewhere", "other", source));
        let expected = "spec.schedulerName: Invalid value: \"other\": resource claim \"annotated\" has placement annotations, \
                        which only these schedulers read: \"celplane\"";
        assert!(refused.contains(expected), "{refused}");
    }
    let path = "metadata.annotations[placement.celplane.dev/device-constraints]";
    let change =
        ["annotate", "--overwrite", "resourceclaim", "annotated", "placement.celplane.dev/device-constraints=[]"];
    let refused = cluster.refused(&change, "");
    assert!(refused.contains(path) && refused.contains("immutable"), "{refused}");

    // Claims of the system's namespaces do not depend on the webhook.
    let invalid = CONSTRAINTS.replace("devices.size()", "nope");
    let refused = cluster.refused(&["apply", "-f", "-"], &claims("invalid", "default", &invalid));
    assert_eq!(refused.matches(path).count(), 2, "{refused}");
    for namespace in ["kube-system", "celplane-system"] {
        cluster.apply(&claims("invalid", namespace, &invalid));
    }
    // Objects without a namespace are sent nevertheless.
    let volume = VOLUMES.split("---").next().unwrap().replace("node.labels", "nope").replace("disk", "invalid");
    let refused = cluster.refused(&["apply", "-f", "-"], &volume);
    assert!(refused.contains("metadata.annotations[placement.celplane.dev/node-affinity]"), "{refused}");
}

/// Templates of pods are validated wherever they stand.
fn check_templates(cluster: &Cluster) {
    let template = |annotations: &str| {
        format!(
            "metadata: {{labels: {{a: b}}, annotations: {{{annotations}}}}}, \
             spec: {{containers: [{{name: c, image: example.com/i}}]}}"
        )
    };
    let own = |annotations: &str| format!("name: t, annotations: {{{annotations}}}");
    let pod_template = |metadata: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: PodTemplate\nmetadata: {{{metadata}}}\ntemplate: {{{}}}\n",
            template(annotations)
        )
    };
    let deployment = |metadata: &str, annotations: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{{metadata}}}\n\
             spec: {{selector: {{matchLabels: {{a: b}}}}, template: {{{}}}}}\n",
            template(annotations)
        )
    };
    let invalid = "placement.celplane.dev/tolerations: \"[{expression: taint.nope}]\"";
    for (manifest, path) in [
        (
            pod_template("name: t", invalid),
            "template.metadata.annotations[placement.celplane.dev/tolerations][0].expression",
        ),
        (
            pod_template(&own(invalid), ""),
            "metadata.annotations[placement.celplane.dev/tolerations]: Forbidden: has no effect",
        ),
        (
            deployment("name: t", invalid),
            "spec.template.metadata.annotations[placement.celplane.dev/tolerations][0].expression",
        ),
        (
            deployment(&own(invalid), ""),
            "metadata.annotations[placement.celplane.dev/tolerations]: Forbidden: has no effect",
        ),
    ] {
        let refused = cluster.refused(&["apply", "-f", "-"], &manifest);
        assert!(refused.contains(path), "{refused}");
    }
    let valid = invalid.replace("taint.nope", "'true'").replace("\"", "").replace("[{", "\"[{").replace("}]", "}]\"");
    for manifest in [pod_template("name: t", &valid), deployment("name: t", &valid), pod_template("name: u", "")] {
        cluster.apply(&manifest);
    }
}

/// The accounts that may patch pods can add tolerations for `NoExecute` taints, and nothing else.
fn check_policy(cluster: &Cluster) {
    let account = "--as=system:serviceaccount:celplane-system:celplane-toleration-resolver";
    let patch = |patch: &str| cluster.run(&["patch", "pod", "placed", account, "--type=merge", "-p", patch], "");
    let current = cluster.kubectl(&["get", "pod", "placed", "-o", "jsonpath={.spec.tolerations}"], "");
    let current = current.trim_start_matches('[').trim_end_matches(']').to_owned();
    let with = |more: &str| {
        let all = if current.is_empty() { more.to_owned() } else { format!("{current},{more}") };
        format!(r#"{{"spec":{{"tolerations":[{all}]}}}}"#)
    };
    let resolved = r#"{"key":"a","operator":"Equal","value":"b","effect":"NoExecute"}"#;
    for (change, message) in [
        (r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned(), "metadata may not be changed"),
        (with(r#"{"operator":"Exists"}"#), "only tolerations of one NoExecute taint may be added"),
    ] {
        let output = patch(&change);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(message), "{text}");
    }
    let output = patch(&with(resolved));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `celplane get` prints columns by expression that the server does not know.
fn check_columns(cluster: &Cluster) {
    let wrong = DEFINITION.replace("self.spec.sizes.map", "self.spec.nope.map");
    let refused = cluster.refused(&["apply", "-f", "-"], &wrong);
    assert!(refused.contains("metadata.annotations[columns.celplane.dev/v1][0]: Internal error"), "{refused}");
    cluster.apply(DEFINITION);
    until(cluster, &["get", "crd", "widgets.example.com", "-o", "yaml"], |text| text.contains("Established"));
    until(cluster, &["get", "widgets"], |_| true);
    cluster.apply(&(widget("b", "[3, 4]") + &widget("a", "[10]")));
    let table = celplane(cluster, &["get", "wd"]);
    assert_eq!(table, "NAME   FIRST   SIZES\na      10      [20]\nb      3       [6, 8]\n");
    let table = celplane(cluster, &["get", "widgets.example.com", "-A", "-o", "wide", "--sort-by", ".spec.sizes[0]"]);
    let expected = "NAMESPACE   NAME   FIRST   SIZES    DETAIL\n\
                    default     b      3       [6, 8]   x2\n\
                    default     a      10      [20]     x1\n";
    assert_eq!(table, expected);
    let table = celplane(cluster, &["get", "widget", "a", "--no-headers"]);
    assert_eq!(table, "a     10    [20]\n");
    assert!(celplane(cluster, &["get", "gadgets"]).contains("the server has no custom resource \"gadgets\""));
    assert_eq!(celplane(cluster, &["get", "wd", "-l", "a=b"]), "No resources found in default namespace.\n");
    assert_eq!(celplane(cluster, &["get", "wd", "-A", "-l", "a=b"]), "No resources found\n");
    check_watch(cluster);
}

/// `celplane get -w` prints every change with its columns.
fn check_watch(cluster: &Cluster) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    command.args(["get", "wd", "-w"]).env("KUBECONFIG", cluster.kubeconfig()).stdout(Stdio::piped());
    let mut watch = Role(command.stdin(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |expected: &str| assert_eq!(lines.next().unwrap(), expected);
    next("NAME   FIRST   SIZES");
    next("a      10      [20]");
    next("b      3       [6, 8]");
    cluster.apply(&widget("a", "[7]"));
    next("a      7       [14]");
    cluster.apply(&widget("c", "[1, 2]"));
    next("c      1       [2, 4]");
    cluster.kubectl(&["delete", "wd", "b"], "");
    next("b      3       [6, 8]");
}

#[test]
fn webhook_deleted_under_load_places_no_pod_wrongly() {
    const COUNT: usize = 40;
    if Cluster::is_missing() {
        return;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let backend = format!("celplane-system/celplane-webhook:443={free}");
    let flags = ["--feature-gates", "TaintTolerationCEL=false", "--backend", &backend];
    let cluster = Cluster::start_with(tempfile::tempdir().unwrap(), &flags);
    cluster.kubectl(&["create", "serviceaccount", "default"], "");
    let _nodes = start(&cluster, &["kubelet", "--nodes", "2", "--log-port", "0"]);
    let names = until(&cluster, &["get", "nodes", "-o", "name"], |text| text.lines().count() == 2);
    let names: Vec<&str> = names.lines().map(|line| line.trim_start_matches("node/")).collect();
    cluster.kubectl(&["label", "node", names[0], "zone=a1"], "");
    cluster.kubectl(&["label", "node", names[1], "zone=b1"], "");
    until(&cluster, &["get", "nodes"], |text| text.matches(" Ready ").count() == 2);
    cluster.kubectl(&["taint", "nodes", "--all", "node.kubernetes.io/not-ready-"], "");
    let manifests = celplane(&cluster, &["webhook", "install", "--image", "example.com/celplane:1"]);
    cluster.apply(&manifests);
    let webhook = start(&cluster, &["webhook", "--listen", &free]);
    let bundle = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    until(&cluster, &["get", "mutatingwebhookconfiguration", "celplane-placement", "-o", bundle], |text| {
        !text.is_empty()
    });
    let _scheduler = start(&cluster, &SCHEDULER);

    let pods: String = (0..COUNT).map(|number| pod(&format!("p{number}"), "celplane", PLACED)).collect();
    let refused = std::thread::scope(|scope| {
        // Creates the pods one after the other, past those that are refused.
        let load = scope.spawn(|| cluster.run(&["create", "-f", "-"], &pods));
        until(&cluster, &["get", "pods", "-o", "name"], |text| text.lines().count() >= 5);
        drop(webhook);
        let configurations = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
        cluster.kubectl(&["delete", configurations, "celplane-placement"], "");
        let output = load.join().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.lines().all(|line| line.contains("failed calling webhook")), "{text}");
        text.lines().count()
    });
    let placed = ["get", "pods", "-o", "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}"];
    let nodes = until(&cluster, &placed, |text| text.lines().all(|node| !node.is_empty()));
    assert_eq!(nodes.lines().count() + refused, COUNT);
    assert!(nodes.lines().all(|node| node == names[0]), "{nodes}");
}
