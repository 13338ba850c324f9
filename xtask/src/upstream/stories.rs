//! The stories of the proposals, from `examples`, in annotation form.

use super::Report;
use super::cluster::{Cluster, text};
use crate::command::root;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Files with a pod, and the node on which it runs; any but `old-kernel` if not given.
const PODS: &[(&str, &str, &str)] = &[
    ("tolerations/story-1-key-prefix.yaml", "log-collector", "env-node-1"),
    ("tolerations/story-2-kernel-version.yaml", "my-app", ""),
    ("tolerations/story-3-regex.yaml", "zone-app", "rack-a1"),
    ("tolerations-and-node-affinity/story-1-or.yaml", "monitoring-agent", "maintained"),
    ("tolerations-and-node-affinity/story-2-taint-version.yaml", "compatible-workload", "cni-node-1"),
    ("tolerations-and-node-affinity/story-3-rack.yaml", "regional-app", "new-kernel"),
    ("tolerations-and-node-affinity/story-4-kubelet-version.yaml", "modern-app", "new-kernel"),
    ("tolerations-and-node-affinity/story-5-volume.yaml", "storage-app", "new-kernel"),
    ("semver-operators/story-1-kubelet-version.yaml", "kubelet-app", "new-kernel"),
    ("semver-operators/story-2-older-cni.yaml", "tolerant-pod", "old-cni-node-1"),
    ("semver-operators/story-3-container-runtime.yaml", "sensitive-app", "new-kernel"),
    ("semver-operators/story-4-volume.yaml", "kernel-storage-app", "new-kernel"),
    ("device-constraints/story-1-connected.yaml", "connected-pod", "accelerators"),
    ("device-constraints/story-2-grid.yaml", "grid-pod", "accelerators"),
];

const COLUMNS: &[(&str, &str, &[&str])] = &[
    ("story-1-nested-lists", "gateways", &["[[a.example, b.example], [c.example]]"]),
    ("story-2-ready-condition", "conditioneds", &["ready    True", "silent   Unknown"]),
    ("story-3-combined-fields", "combineds", &["both   left/right"]),
    ("story-4-duration", "runs", &["finished   1h30m0s"]),
];

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?
        } else {
            std::fs::copy(entry.path(), target).map(drop)?
        }
    }
    Ok(())
}

/// The examples with annotations in place of fields.
fn converted(cluster: &Cluster) -> Result<PathBuf> {
    let directory = std::env::temp_dir().join(format!("examples-{}", std::process::id()));
    copy(&root().join("examples"), &directory)?;
    cluster.celplane(&["convert", "--to", "annotations", &directory.display().to_string(), "--in-place"])?;
    Ok(directory)
}

pub(crate) fn play(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let examples = converted(cluster)?;
    let file = |name: &str| examples.join(name).display().to_string();
    for name in ["cluster", "device-constraints/device-class.yaml", "device-constraints/accelerators.yaml"] {
        cluster.kubectl(&["apply", "-f", &file(name)], "")?;
    }
    for (name, pod, node) in PODS {
        report.story(name.trim_end_matches(".yaml"), || {
            // Pods without annotations of their own have to name the scheduler that reads those of their volumes.
            let manifests = std::fs::read_to_string(examples.join(name))?;
            let named = "  schedulerName: celplane\n  containers:\n";
            let is_by_volume = name.ends_with("-volume.yaml");
            cluster.apply(&if is_by_volume { manifests.replace("  containers:\n", named) } else { manifests })?;
            let place = ["get", "pod", pod, "-o", "jsonpath={.status.phase} {.spec.nodeName} {.spec.schedulerName}"];
            cluster.until(&format!("{pod} runs"), || Ok(cluster.kubectl(&place, "")?.starts_with("Running ")))?;
            let place = cluster.kubectl(&place, "")?;
            let found = place.trim_start_matches("Running ").trim_end_matches(" celplane");
            ensure!(place.ends_with(" celplane"), "another scheduler placed {pod}: {place}");
            ensure!(if node.is_empty() { found != "old-kernel" } else { found == *node }, "{pod} runs on {found}");
            Ok(format!("runs on {found}"))
        });
    }
    report.story("device-constraints: devices given out", || devices(cluster));
    report.story("a pod without annotations", || {
        let events = [
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=log-reader,reason=FailedScheduling",
            "-o",
            "jsonpath={.items[*].reportingComponent}{.items[*].source.component}",
        ];
        cluster.until("log-reader stays pending", || Ok(!cluster.kubectl(&events, "")?.is_empty()))?;
        let component = cluster.kubectl(&events, "")?;
        ensure!(component.contains("default-scheduler"), "{component}");
        Ok("left to kube-scheduler".to_owned())
    });
    Ok(std::fs::remove_dir_all(examples)?)
}

/// The devices of both stories are adjacent, and disjoint.
fn devices(cluster: &Cluster) -> Result<String> {
    let mut found = Vec::new();
    for claim in cluster.items(&["resourceclaims"])? {
        let results = claim.pointer("/status/allocation/devices/results").and_then(serde_json::Value::as_array);
        let names: Vec<&str> = results.into_iter().flatten().map(|result| text(result, "/device")).collect();
        found.push(names.join(" "));
    }
    found.sort();
    let mut all: Vec<&str> = found.iter().flat_map(|names| names.split(' ')).collect();
    all.sort_unstable();
    all.dedup();
    ensure!(found.len() == 2 && all.len() == 8, "{found:?}");
    Ok(found.join("; "))
}

pub(crate) fn columns(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let examples = converted(cluster)?;
    for (name, plural, expected) in COLUMNS {
        report.story(&format!("printer-columns/{name}"), || {
            let file = |folder: &str| examples.join(folder).join(format!("{name}.yaml")).display().to_string();
            cluster.kubectl(&["apply", "-f", &file("printer-columns")], "")?;
            let objects = file("printer-columns/objects");
            cluster.until("the definition is served", || {
                Ok(cluster.run(&["apply", "-f", &objects], "")?.status.success())
            })?;
            let table = cluster.celplane(&["get", plural])?;
            for line in *expected {
                ensure!(table.contains(line), "`{line}` is not in: {table}");
            }
            Ok(format!("`{}`", expected.join("`, `")))
        });
    }
    report.story("`celplane get` with `-A`, `-o wide`, `--sort-by`, `-l`, names", || selections(cluster));
    report.story("`celplane get -w`", || watch(cluster));
    Ok(std::fs::remove_dir_all(examples)?)
}

/// A definition whose columns by expression are in its annotation, as a server without the proposals stores it.
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: shelves.upstream.example.com
  annotations:
    columns.celplane.dev/v1: |
      - {name: BOOKS, type: integer, expression: self.spec.books.size()}
      - {name: TITLES, type: string, expression: 'self.spec.books.map(b, b.upperAscii()).join(\"+\")', priority: 1}
spec:
  group: upstream.example.com
  names: {plural: shelves, singular: shelf, kind: Shelf}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {books: {type: array, items: {type: string}}}}
";

fn shelf(namespace: &str, name: &str, books: &str) -> String {
    format!(
        "---\napiVersion: upstream.example.com/v1\nkind: Shelf\nmetadata: {{name: {name}, namespace: {namespace}, \
         labels: {{shelf: {name}}}}}\nspec: {{books: {books}}}\n"
    )
}

fn selections(cluster: &Cluster) -> Result<String> {
    cluster.apply(DEFINITION)?;
    let shelves =
        shelf("default", "a", "[x, y, z]") + &shelf("default", "b", "[y]") + &shelf("kube-public", "c", "[a]");
    cluster.until("the definition is served", || Ok(cluster.run(&["apply", "-f", "-"], &shelves)?.status.success()))?;
    let cases: [(&[&str], &str); 6] = [
        (&["shelves"], "NAME   BOOKS\na      3\nb      1\n"),
        (
            &["shelves", "-A", "-o", "wide", "--sort-by", ".spec.books[0]"],
            "NAMESPACE     NAME   BOOKS   TITLES\nkube-public   c      1       A\ndefault       a      3       X+Y+Z\ndefault       b      1       Y\n",
        ),
        (&["shelf", "-l", "shelf=b"], "NAME   BOOKS\nb      1\n"),
        (&["shelves.upstream.example.com", "a", "--no-headers"], "a     3\n"),
        (&["shelves", "--field-selector", "metadata.name=b"], "NAME   BOOKS\nb      1\n"),
        (&["shelves", "-n", "kube-public"], "NAME   BOOKS\nc      1\n"),
    ];
    for (arguments, expected) in cases {
        let table = cluster.celplane(&[&["get"], arguments].concat())?;
        ensure!(table == expected, "celplane get {}: {table}", arguments.join(" "));
    }
    Ok("the cells of the expressions".to_owned())
}

/// Every change of an object is one line.
fn watch(cluster: &Cluster) -> Result<String> {
    let mut watch = cluster.follow(&["get", "shelves", "-w"])?;
    watch.expect("NAME   BOOKS")?;
    watch.expect("a      3")?;
    watch.expect("b      1")?;
    cluster.apply(&shelf("default", "b", "[x, y]"))?;
    watch.expect("b      2")?;
    cluster.apply(&shelf("default", "d", "[x]"))?;
    watch.expect("d      1")?;
    cluster.kubectl(&["delete", "shelf", "a"], "")?;
    watch.expect("a      3")?;
    cluster.kubectl(&["delete", "crd", "shelves.upstream.example.com"], "")?;
    Ok("one line with the cells for each change".to_owned())
}

const NODE: &str = "---
apiVersion: v1
kind: Node
metadata: {name: maintenance, labels: {part: no-execute}}
spec: {taints: [{key: maintenance.example.com/disk, value: now, effect: NoExecute}]}
";

/// Pods on a node with a `NoExecute` taint that only an expression tolerates.
pub(crate) fn no_execute(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let pod = |name: &str, expression: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    \
             placement.celplane.dev/tolerations: |\n      - expression: {expression}\n\
             spec:\n  nodeSelector: {{part: no-execute}}\n  containers: [{{name: c, image: example.com/i}}]\n"
        )
    };
    cluster.apply(NODE)?;
    report.story("`NoExecute` taint, tolerated by an expression", || {
        cluster.apply(&pod("kept", "taint.key.startsWith('maintenance.example.com/')"))?;
        let place = ["get", "pod", "kept", "-o", "jsonpath={.status.phase} {.spec.tolerations[*].key}"];
        cluster.until("the pod runs", || Ok(cluster.kubectl(&place, "")?.starts_with("Running")))?;
        ensure!(cluster.kubectl(&place, "")?.contains("maintenance.example.com/disk"));
        Ok("toleration added before the binding; upstream's eviction leaves the pod".to_owned())
    });
    report.story("`NoExecute` taint, not tolerated by the expression", || {
        cluster.apply(&pod("away", "taint.key == 'other'"))?;
        let events = [
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=away,reason=FailedScheduling",
            "-o",
            "jsonpath={.items[*].message}",
        ];
        cluster.until("an event", || Ok(cluster.kubectl(&events, "")?.contains("untolerated taint")))?;
        Ok("stays pending with `FailedScheduling`".to_owned())
    });
    report.story("a scheduler that was killed", || {
        cluster.kill("scheduler")?;
        cluster.start_scheduler()?;
        cluster.apply(&pod("later", "taint.key.startsWith('maintenance.example.com/')"))?;
        let place = ["get", "pod", "later", "-o", "jsonpath={.status.phase}"];
        cluster.until("the pod runs", || Ok(cluster.kubectl(&place, "")? == "Running"))?;
        Ok("the next one places pods after the lease expired".to_owned())
    });
    Ok(())
}
