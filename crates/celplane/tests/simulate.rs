//! `celplane simulate` and `celplane demo`, as they are called from a shell.

use serde_json::Value;

use crate::shell::run;

#[track_caller]
fn json(arguments: &[&str], input: &str) -> (i32, Value) {
    let (code, output, errors) = run(&[arguments, &["-o", "json"]].concat(), input);
    (code, serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output} {errors}")))
}

fn node_of<'r>(report: &'r Value, pod: &str) -> Option<&'r str> {
    let placed = report["placed"].as_array().unwrap().iter().find(|it| it["pod"] == format!("default/{pod}"))?;
    placed["node"].as_str()
}

#[test]
fn every_story_is_placed_as_its_comment_says() {
    let (code, report) = json(&["simulate", "-f", "."], "");
    assert_eq!(code, 1, "one pod waits: {report}");
    for (pod, node) in [
        ("log-collector", "env-node-1"),
        ("zone-app", "rack-a1"),
        ("monitoring-agent", "maintained"),
        ("compatible-workload", "cni-node-1"),
        ("regional-app", "new-kernel"),
        ("modern-app", "new-kernel"),
        ("storage-app", "new-kernel"),
        ("kubelet-app", "new-kernel"),
        ("tolerant-pod", "old-cni-node-1"),
        ("sensitive-app", "new-kernel"),
        ("kernel-storage-app", "new-kernel"),
        ("connected-pod", "accelerators"),
        ("grid-pod", "accelerators"),
    ] {
        assert_eq!(node_of(&report, pod), Some(node), "{pod}: {report}");
    }
    let pending = report["pending"].as_array().unwrap();
    assert_eq!(pending.len(), 1, "{report}");
    assert_eq!(pending[0]["pod"], "default/log-reader");
    let why = pending[0]["message"].as_str().unwrap();
    assert!(why.contains("1 node(s) had untolerated taint {env.example.com/dev: }"), "{why}");
    let connected =
        report["placed"].as_array().unwrap().iter().find(|it| it["pod"] == "default/connected-pod").unwrap();
    let devices: Vec<&str> =
        connected["devices"]["connected-pod-mla"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let ids = devices.iter().map(|it| it.rsplit('-').next().unwrap().parse::<i32>().unwrap());
    let ids: Vec<i32> = ids.collect();
    assert_eq!(ids.iter().max().unwrap() - ids.iter().min().unwrap(), 3, "{devices:?}");
}

const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: box, annotations: {sim.celplane.dev/replicas: '4'}}
status: {capacity: {cpu: '4', memory: 8Gi, pods: '110'}}
";

fn deployment(name: &str, replicas: usize, more: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: {name}}}}}\n  \
         template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      containers: [{{name: c, image: i, resources: {{requests: {{cpu: '1', memory: 1Gi}}}}}}]\n{more}"
    )
}

#[test]
fn templates_expand_and_pending_pods_have_reasons() {
    let (code, report) = json(&["simulate", "-f", "-"], &format!("{CLUSTER}{}", deployment("web", 16, "")));
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["placed"].as_array().unwrap().len(), 16);
    for node in report["nodes"].as_array().unwrap() {
        assert_eq!(node["milliCPU"]["used"], 4000, "{node}");
    }
    assert!(report["placed"][0]["scores"]["NodeResourcesFit"].as_i64().is_some(), "{report}");
    let (code, output, _) = run(&["simulate", "-f", "-"], &format!("{CLUSTER}{}", deployment("web", 18, "")));
    assert_eq!(code, 1);
    assert!(output.contains("2 pending: default/web-"), "{output}");
    assert!(output.contains("0/4 nodes are available: 4 Insufficient cpu."), "{output}");
    assert!(output.contains("16 placed, 2 pending, 4 nodes; "), "{output}");
    assert!(output.contains("box-0   4/110   4/4   100%   4Gi/8Gi   50%"), "{output}");
}

#[test]
fn the_same_seed_gives_the_same_placements_and_wide_shows_scores() {
    let input = format!("{CLUSTER}{}", deployment("web", 9, ""));
    let wide = |seed: &str| run(&["simulate", "-f", "-", "-o", "wide", "--seed", seed], &input).1;
    let placements =
        |text: String| text.lines().take_while(|line| !line.is_empty()).map(ToOwned::to_owned).collect::<Vec<_>>();
    let one = placements(wide("1"));
    assert_eq!(one, placements(wide("1")));
    assert_eq!(one[0].split_whitespace().collect::<Vec<_>>(), ["POD", "NODE", "SCORE", "BY", "PLUGIN", "DEVICES"]);
    assert!(one[1].contains("NodeResourcesFit="), "{one:?}");
}

#[test]
fn more_pods_can_be_added_and_may_take_the_place_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let more = directory.path().join("more.yaml");
    let class = "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: gold}\nvalue: 1000\n";
    std::fs::write(&more, class.to_owned() + &deployment("vip", 1, "      priorityClassName: gold\n")).unwrap();
    let bound = (0..16).map(|number| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: old-{number}, uid: u{number}, namespace: default}}\nspec: {{nodeName: box-{}, priority: 0, containers: [{{name: c, image: i, resources: {{requests: {{cpu: '1'}}}}}}]}}\nstatus: {{phase: Running}}\n",
            number % 4
        )
    });
    let input = CLUSTER.to_owned() + &bound.collect::<String>();
    let (code, report) = json(&["simulate", "-f", "-", "--add", more.to_str().unwrap()], &input);
    assert_eq!(code, 1, "somebody had to go: {report}");
    assert_eq!(report["preempted"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["preempted"][0]["by"], "default/vip-0");
    assert_eq!(report["placed"].as_array().unwrap().len(), 1);
    let (code, report) = json(&["simulate", "-f", "-"], &input);
    assert_eq!((code, report["attempts"].as_i64()), (0, Some(0)), "nothing is pending: {report}");
}

#[test]
fn compared_configuration_lists_moved_pods() {
    let directory = tempfile::tempdir().unwrap();
    let packed = directory.path().join("packed.yaml");
    std::fs::write(
        &packed,
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}\n",
    )
    .unwrap();
    let input = format!("{CLUSTER}{}", deployment("web", 4, "      topologySpreadConstraints: []\n"));
    let (code, report) = json(&["simulate", "-f", "-", "--compare", packed.to_str().unwrap()], &input);
    assert_eq!(code, 0, "{report}");
    let full =
        |report: &Value| report["nodes"].as_array().unwrap().iter().filter(|it| it["milliCPU"]["used"] != 0).count();
    assert!(full(&report) > full(&report["compared"]), "packed uses fewer nodes: {report}");
    assert!(!report["moves"].as_array().unwrap().is_empty());
    let (_, output, _) = run(&["simulate", "-f", "-", "--compare", packed.to_str().unwrap()], &input);
    assert!(output.contains("pods move\n"), "{output}");
    let figures = output.lines().find(|line| line.starts_with("nodes without pods")).expect("figures side by side");
    let empty: Vec<u32> = figures.split_whitespace().skip(3).map(|it| it.parse().unwrap()).collect();
    assert!(empty.len() == 2 && empty[0] < empty[1], "{figures}");
}

#[test]
fn number_of_nodes_that_fit_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("node.yaml");
    let node =
        "apiVersion: v1\nkind: Node\nmetadata: {name: box}\nstatus: {capacity: {cpu: '3', memory: 8Gi, pods: '110'}}\n";
    std::fs::write(&template, node).unwrap();
    let arguments = ["simulate", "-f", "-", "--fit-nodes", template.to_str().unwrap()];
    // Four nodes hold 16 of 26 pods, and each further node 3.
    let input = format!("{CLUSTER}{}", deployment("web", 26, ""));
    let (code, report) = json(&arguments, &input);
    let expected = serde_json::json!({"template": "box", "nodes": 4, "isEnough": true, "pendingWithOneLess": 1});
    assert_eq!((code, &report["fitNodes"]), (0, &expected), "{report}");
    assert_eq!((report["placed"].as_array().unwrap().len(), report["nodes"].as_array().unwrap().len()), (26, 8));
    let (_, output, _) = run(&arguments, &input);
    assert!(output.ends_with("4 more nodes like box are enough (with 3: 1 pending)\n"), "{output}");
    // A cluster without nodes is planned the same way, and a pod that is too large is named.
    let (code, output, _) = run(&arguments, &deployment("large", 2, "      nodeSelector: {a: b}\n"));
    assert_eq!(code, 1);
    assert!(output.contains("2 more nodes like box would not be enough: 2 pods stay pending"), "{output}");
    let (code, _, errors) = run(&arguments[..4], &input);
    assert!(code == 2 && errors.contains("--fit-nodes"), "{errors}");
}

#[test]
fn unreadable_input_has_its_own_exit_code() {
    for (input, why) in [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}\n", "spec.containers: Required value"),
        ("kind: Node\napiVersion: v9\nmetadata: {name: box}\n", "no matches for kind \"Node\" in version \"v9\""),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {priorityClassName: x, containers: [{name: c, image: i}]}\n",
            "there are no nodes",
        ),
        (
            "kind: Node\napiVersion: v1\nmetadata: {name: box, annotations: {sim.celplane.dev/replicas: many}}\n",
            "sim.celplane.dev/replicas is not a number",
        ),
    ] {
        let (code, output, errors) = run(&["simulate", "-f", "-"], input);
        assert_eq!(code, 2, "{output}{errors}");
        assert!(errors.contains(why), "{why}: {errors}");
    }
}

#[test]
fn demo_runs_all_stories() {
    let (code, list, _) = run(&["demo", "--list"], "");
    assert_eq!((code, list.lines().count()), (0, 18), "{list}");
    let (code, output, errors) = run(&["demo"], "");
    assert_eq!(code, 0, "{output}{errors}");
    assert!(output.contains("18 stories passed in "), "{output}");
    assert!(
        output.contains("  pod log-collector is Running on env-node-1, which has env.example.com/dev:NoSchedule"),
        "{output}"
    );
    assert!(output.contains("  pod log-reader is Pending: 0/"), "{output}");
    assert!(output.contains("    its claim has the devices mla-00, mla-01, mla-02, mla-03\n"), "{output}");
    assert!(output.contains("1h30m0s"), "{output}");
    let (code, output, _) = run(&["demo", "--story", "ready"], "");
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("1 story passed in "), "{output}");
    let (code, _, errors) = run(&["demo", "--story", "unheard"], "");
    assert_eq!(code, 1);
    assert!(errors.contains("unknown story `unheard`"), "{errors}");
}
