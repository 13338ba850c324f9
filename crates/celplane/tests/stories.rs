//! The user stories of the five proposals with a real `kubectl`: applied all at once and one by one, looked for with the
//! proposals' own queries, and rolled back and forth.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const LIMIT: Duration = Duration::from_secs(60);

/// Files with their pods, and the nodes on which they run; any node if not given.
const PODS: &[(&str, &[(&str, &str)])] = &[
    ("tolerations/story-1-key-prefix.yaml", &[("log-collector", "env-node-1")]),
    ("tolerations/story-2-kernel-version.yaml", &[("my-app", "")]),
    ("tolerations/story-3-regex.yaml", &[("zone-app", "rack-a1")]),
    ("tolerations-and-node-affinity/story-1-or.yaml", &[("monitoring-agent", "maintained")]),
    ("tolerations-and-node-affinity/story-2-taint-version.yaml", &[("compatible-workload", "cni-node-1")]),
    ("tolerations-and-node-affinity/story-3-rack.yaml", &[("regional-app", "new-kernel")]),
    ("tolerations-and-node-affinity/story-4-kubelet-version.yaml", &[("modern-app", "new-kernel")]),
    ("tolerations-and-node-affinity/story-5-volume.yaml", &[("storage-app", "new-kernel")]),
    ("semver-operators/story-1-kubelet-version.yaml", &[("kubelet-app", "new-kernel")]),
    ("semver-operators/story-2-older-cni.yaml", &[("tolerant-pod", "old-cni-node-1")]),
    ("semver-operators/story-3-container-runtime.yaml", &[("sensitive-app", "new-kernel")]),
    ("semver-operators/story-4-volume.yaml", &[("kernel-storage-app", "new-kernel")]),
    ("device-constraints/story-1-connected.yaml", &[("connected-pod", "accelerators")]),
    ("device-constraints/story-2-grid.yaml", &[("grid-pod", "accelerators")]),
];

const COLUMNS: &[(&str, &str, &[&str])] = &[
    ("story-1-nested-lists", "gateways", &["[[a.example, b.example], [c.example]]"]),
    ("story-2-ready-condition", "conditioneds", &["ready    True", "silent   Unknown"]),
    ("story-3-combined-fields", "combineds", &["both   left/right"]),
    ("story-4-duration", "runs", &["finished   1h30m0s"]),
];

fn path(file: &str) -> String {
    PathBuf::from(EXAMPLES).join(file).display().to_string()
}

#[track_caller]
fn until(cluster: &Cluster, arguments: &[&str], holds: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        let output = cluster.run(arguments, "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && holds(&text) {
            return text;
        }
        assert!(started.elapsed() < LIMIT, "kubectl {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn runs(cluster: &Cluster, pod: &str, node: &str) {
    let place = ["get", "pod", pod, "-o", "jsonpath={.status.phase} {.spec.nodeName}"];
    let place = until(cluster, &place, |text| text.starts_with("Running "));
    assert!(node.is_empty() || place == format!("Running {node}"), "{pod}: {place}");
    assert_ne!(place, "Running old-kernel", "{pod}");
}

#[track_caller]
fn columns_are_shown(cluster: &Cluster) {
    for (_, plural, expected) in COLUMNS {
        let table = cluster.kubectl(&["get", plural], "");
        for line in *expected {
            assert!(table.contains(line), "{plural}: {table}");
        }
    }
}

fn up(arguments: &[&str]) -> Option<Cluster> {
    if Cluster::is_missing() { None } else { Some(Cluster::up(tempfile::tempdir().unwrap(), arguments)) }
}

#[test]
fn all_stories_can_be_applied_at_once_and_found_with_the_proposals_queries() {
    let Some(cluster) = up(&[]) else { return };
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    // kubectl looks kinds up before it applies: the first time it cannot know the custom ones.
    let first = cluster.refused(&["apply", "-R", "-f", EXAMPLES], "");
    assert!(first.contains("ensure CRDs are installed first"), "{first}");
    until(&cluster, &["apply", "-R", "-f", EXAMPLES], |_| true);
    for (_, pods) in PODS {
        for (pod, node) in *pods {
            runs(&cluster, pod, node);
        }
    }
    let waits = until(&cluster, &["describe", "pod", "log-reader"], |text| text.contains("FailedScheduling"));
    assert!(waits.contains("had untolerated taint {env.example.com/dev: }"), "{waits}");
    columns_are_shown(&cluster);
    for claim in ["advanced-storage", "kernel-storage"] {
        until(&cluster, &["get", "pvc", claim], |text| text.contains("Bound"));
    }
    queries(&cluster);
    series(&cluster);
}

/// The proposals' queries, as written. `grep -v ": \[\]$"` of KEP-5500 drops nothing, because JSONPath prints
/// nothing for missing fields: every pod is listed. The corrected ones require a non-empty rest of the line.
#[track_caller]
fn queries(cluster: &Cluster) {
    let listed = |path: &str, kind: &[&str]| {
        let text = cluster.kubectl(&[&["get"], kind, &["-o", path]].concat(), "");
        let of = |line: &str| line.split_once(": ").map(|(name, found)| (name.to_owned(), found.trim().to_owned()));
        let lines: Vec<(String, String)> = text.lines().filter_map(of).collect();
        let found: Vec<String> =
            lines.iter().filter(|(_, found)| !found.is_empty()).map(|(name, _)| name.clone()).collect();
        (text.lines().count(), found)
    };
    let all = &["pods", "-A"];
    let tolerations = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}: {.spec.tolerations[?(@.expression)]}{\"\\n\"}{end}";
    let (lines, found) = listed(tolerations, all);
    assert!(lines > found.len(), "as written, pods without an expression are listed too");
    let expected = ["compatible-workload", "log-collector", "monitoring-agent", "my-app", "zone-app"];
    assert_eq!(found, expected.map(|name| format!("default/{name}")));
    let affinity = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}: {.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[*].matchCELExpressions}{\"\\n\"}{end}";
    assert_eq!(listed(affinity, all).1, ["default/modern-app", "default/regional-app"]);
    let volumes = "jsonpath={range .items[*]}{.metadata.name}: {.spec.nodeAffinity.required.nodeSelectorTerms[*].matchCELExpressions}{\"\\n\"}{end}";
    assert_eq!(listed(volumes, &["pv"]).1, ["advanced-storage-pv"]);
    for (operator, tolerating, choosing) in [
        ("SemverLt", &["tolerant-pod"][..], &[][..]),
        ("SemverGt", &[], &["kubelet-app", "sensitive-app"]),
        ("SemverEq", &[], &[]),
    ] {
        let tolerations = format!(
            "jsonpath={{range .items[*]}}{{.metadata.name}}{{\": \"}}{{.spec.tolerations[?(@.operator==\"{operator}\")]}}{{\"\\n\"}}{{end}}"
        );
        assert_eq!(listed(&tolerations, all).1, tolerating, "{operator}");
        let affinity = format!(
            "jsonpath={{range .items[*]}}{{.metadata.name}}{{\": \"}}{{.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[*].matchExpressions[?(@.operator==\"{operator}\")]}}{{\"\\n\"}}{{end}}"
        );
        assert_eq!(listed(&affinity, all).1, choosing, "{operator}");
    }
    // KEP-5254 and KEP-4595 recommend to search for the field.
    let constraints =
        "jsonpath={range .items[*]}{.metadata.name}{\": \"}{.spec.devices.constraints[*].cel.expression}{\"\\n\"}{end}";
    assert_eq!(listed(constraints, &["resourceclaims"]).1.len(), 2);
    let columns = "jsonpath={range .items[*]}{.metadata.name}{\": \"}{.spec.versions[*].additionalPrinterColumns[*].expression}{\"\\n\"}{end}";
    assert_eq!(listed(columns, &["crd"]).1.len(), COLUMNS.len());
}

/// The series that the proposals' PromQL and our guide name.
#[track_caller]
fn series(cluster: &Cluster) {
    let scheduler = cluster.kubectl(&["get", "--raw", "/metrics/kube-scheduler"], "");
    let value = |parts: &[&str]| {
        let lines = scheduler.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let evaluations =
        ["scheduler_plugin_evaluation_total{", "plugin=\"TaintToleration\"", "extension_point=\"Filter\""];
    assert!(value(&[&evaluations[..], &["status=\"Success\""]].concat()) > 0.0, "{scheduler}");
    assert!(value(&[&evaluations[..], &["status=\"Unschedulable"]].concat()) > 0.0, "{scheduler}");
    assert!(
        value(&["scheduler_scheduling_attempt_duration_seconds_count{", "result=\"scheduled\""]) >= 14.0,
        "{scheduler}"
    );
    assert!(value(&["scheduler_schedule_attempts_total{", "result=\"unschedulable\""]) > 0.0, "{scheduler}");
    assert!((value(&["scheduler_pending_pods{queue=\"unschedulable\"}"]) - 1.0).abs() < 0.1, "{scheduler}");
    assert!(
        value(&["scheduler_framework_extension_point_duration_seconds_count{", "extension_point=\"Filter\""]) > 0.0
    );
    assert!(value(&["scheduler_unschedulable_pods{", "plugin=\"TaintToleration\""]) > 0.0, "{scheduler}");
    let devices = ["scheduler_plugin_evaluation_total{", "plugin=\"DynamicResources\"", "status=\"Success\""];
    assert!(value(&devices) > 0.0, "{scheduler}");
    // A refusal is a series, too.
    let bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {tolerations: [{expression: '1'}], containers: [{name: c, image: i}]}\n";
    cluster.refused(&["create", "-f", "-"], bad);
    let server = cluster.kubectl(&["get", "--raw", "/metrics"], "");
    let all = [scheduler, server].concat();
    let queries =
        selectors(GUIDE.split("## Metrics to watch").nth(1).unwrap().split("The proposals name").next().unwrap());
    assert!(queries.len() > 5, "{queries:?}");
    for (name, labels) in queries {
        let is_it = |line: &&str| line.starts_with(&name) && labels.iter().all(|label| line.contains(label.as_str()));
        assert!(all.lines().any(|line| is_it(&line)), "{name} with {labels:?} is not there");
    }
}

const GUIDE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md"));

/// The series in the queries of a text, with their labels as a server prints them; of a pattern only its start.
fn selectors(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |it: char| it.is_ascii_lowercase() || it == '_';
    let mut found = Vec::new();
    for start in ["scheduler_", "apiserver_"].iter().flat_map(|prefix| text.match_indices(prefix).map(|(at, _)| at)) {
        let rest = &text[start..];
        let end = rest.find(|it| !is_name(it)).unwrap_or(rest.len());
        let labels =
            rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| match label.split_once("=~") {
            Some((name, pattern)) => format!("{name}={}", pattern.trim_end_matches("\"").trim_end_matches(".*")),
            None => label.to_owned(),
        });
        found.push((rest[..end].to_owned(), labels.collect()));
    }
    found
}

#[test]
fn stories_can_be_applied_one_by_one() {
    let Some(cluster) = up(&["--ephemeral", "--nodes", "0"]) else { return };
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    cluster.kubectl(&["apply", "-f", &path("cluster")], "");
    until(&cluster, &["get", "nodes"], |text| text.matches(" Ready ").count() == 6);
    for file in ["device-class.yaml", "accelerators.yaml"] {
        cluster.kubectl(&["apply", "-f", &path(&format!("device-constraints/{file}"))], "");
    }
    for (file, pods) in PODS {
        cluster.kubectl(&["apply", "-f", &path(file)], "");
        for (pod, node) in *pods {
            runs(&cluster, pod, node);
        }
        cluster.kubectl(&["delete", "-f", &path(file), "--wait=false"], "");
    }
    for (file, plural, _) in COLUMNS {
        cluster.kubectl(&["apply", "-f", &path(&format!("printer-columns/{file}.yaml"))], "");
        until(&cluster, &["get", plural], |_| true);
        cluster.kubectl(&["apply", "-f", &path(&format!("printer-columns/objects/{file}.yaml"))], "");
    }
    columns_are_shown(&cluster);
}

/// The sections on rollback of all five proposals: gates on, off, and on again, on one set of data.
#[test]
fn gates_can_be_turned_off_and_on_again_under_stored_objects() {
    let Some(cluster) = up(&[]) else { return };
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    let _ = cluster.run(&["apply", "-R", "-f", EXAMPLES], "");
    until(&cluster, &["apply", "-R", "-f", EXAMPLES], |_| true);
    let all = || PODS.iter().flat_map(|(_, pods)| pods.iter());
    all().for_each(|(pod, node)| runs(&cluster, pod, node));
    let pending = "apiVersion: v1\nkind: Pod\nmetadata: {name: later}\nspec:\n  nodeSelector: {kubernetes.io/hostname: late}\n  \
                   tolerations: [{expression: \"taint.key == 'maintenance'\"}]\n  containers: [{name: c, image: i}]\n";
    cluster.apply(pending);

    // Off: what runs runs on, what waits waits, and nothing new is accepted.
    let cluster = Cluster::up(cluster.stop(), &["--feature-gates", "AllAlpha=false"]);
    let late = "apiVersion: v1\nkind: Node\nmetadata: {name: late, annotations: {sim.celplane.dev/node: 'true'}}\nspec: {taints: [{key: maintenance, effect: NoSchedule}]}\n";
    cluster.apply(late);
    until(&cluster, &["get", "node", "late"], |text| text.contains(" Ready "));
    all().for_each(|(pod, node)| runs(&cluster, pod, node));
    let why = [
        "get",
        "pod",
        "later",
        "-o",
        "jsonpath={.status.phase} {.status.conditions[?(@.type==\"PodScheduled\")].message}",
    ];
    let waits = until(&cluster, &why, |text| text.contains("untolerated taint {maintenance: }"));
    assert!(waits.starts_with("Pending "), "{waits}");
    for (pod, gate) in [
        ("tolerations: [{expression: 'true'}]", "toleration CEL expressions require feature gate TaintTolerationCEL"),
        ("tolerations: [{key: a, operator: SemverLt, value: 1.2.3}]", "Unsupported value: \"SemverLt\""),
    ] {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: new}}\nspec: {{{pod}, containers: [{{name: c, image: i}}]}}\n"
        );
        let refused = cluster.refused(&["create", "-f", "-"], &pod);
        assert!(refused.contains(gate), "{refused}");
    }
    // Stored objects can be changed as long as they use no more of it, and go.
    cluster.kubectl(&["label", "pod", "my-app", "tolerant-pod", "connected-pod", "seen=yes"], "");
    cluster.kubectl(&["label", "crd", "gateways.stories.example.com", "seen=yes"], "");
    cluster.kubectl(&["label", "resourceclaimtemplate", "4-connected-devices", "seen=yes"], "");
    cluster.kubectl(&["delete", "pod", "my-app", "--force", "--grace-period=0"], "");
    let claims = cluster.kubectl(
        &["get", "resourceclaims", "-o", "jsonpath={.items[*].status.allocation.devices.results[*].device}"],
        "",
    );
    assert_eq!(claims.split_whitespace().count(), 8, "allocated claims stay: {claims}");
    let table = cluster.kubectl(&["get", "gateways"], "");
    assert!(!table.contains("[[a.example"), "the column is not shown: {table}");

    // On again: no migration, no manual step.
    let cluster = Cluster::up(cluster.stop(), &[]);
    runs(&cluster, "later", "late");
    columns_are_shown(&cluster);
    cluster.kubectl(&["apply", "-f", &path("tolerations/story-2-kernel-version.yaml")], "");
    runs(&cluster, "my-app", "");
}
