//! `celplane check`, `why` and `scan`, as they are called from a shell, on the examples and on made-up manifests.

use serde_json::Value;

use crate::shell::run;

fn json(arguments: &[&str], input: &str) -> (i32, Value) {
    let (code, output, errors) = run(arguments, input);
    (code, serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output} {errors}")))
}

#[test]
fn the_stories_are_accepted_with_their_gates_on() {
    let (code, output, _) = run(&["check", "-f", ".", "--feature-gates", "AllAlpha=true"], "");
    assert_eq!(code, 0, "{output}");
    assert!(output.ends_with(" 0 refused\n"), "{output}");
}

#[test]
fn the_stories_are_refused_with_the_documented_texts_when_gates_are_off() {
    let affinity = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
    let toleration_cel =
        "spec.tolerations[0].expression: Forbidden: toleration CEL expressions require feature gate TaintTolerationCEL";
    let affinity_cel = format!(
        "{affinity}.matchCELExpressions[0]: Forbidden: node affinity CEL expressions require feature gate TaintTolerationNodeAffinityCEL"
    );
    let affinity_semver =
        format!("{affinity}.matchExpressions[0].operator: Invalid value: \"SemverGt\": not a valid selector operator");
    let constraint = "spec.spec.devices.constraints[0].cel.expression: Forbidden: device constraint CEL expressions require feature gate DRACELDeviceConstraint";
    let column = |index: usize| {
        format!(
            "spec.additionalPrinterColumns[{index}].expression: Forbidden: CEL printer columns require feature gate CRDAdditionalPrinterColumnCEL"
        )
    };
    let cases: [(&str, &str); 17] = [
        ("tolerations/story-1-key-prefix.yaml", toleration_cel),
        ("tolerations/story-2-kernel-version.yaml", toleration_cel),
        ("tolerations/story-3-regex.yaml", toleration_cel),
        ("tolerations-and-node-affinity/story-1-or.yaml", toleration_cel),
        ("tolerations-and-node-affinity/story-2-taint-version.yaml", toleration_cel),
        ("tolerations-and-node-affinity/story-3-rack.yaml", &affinity_cel),
        ("tolerations-and-node-affinity/story-4-kubelet-version.yaml", &affinity_cel),
        ("semver-operators/story-1-kubelet-version.yaml", &affinity_semver),
        (
            "semver-operators/story-2-older-cni.yaml",
            "spec.tolerations[0].operator: Unsupported value: \"SemverLt\": supported values: \"Equal\", \"Exists\"",
        ),
        ("semver-operators/story-3-container-runtime.yaml", &affinity_semver),
        (
            "semver-operators/story-4-volume.yaml",
            "nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: \"SemverGt\": not a valid selector operator",
        ),
        ("device-constraints/story-1-connected.yaml", constraint),
        ("device-constraints/story-2-grid.yaml", constraint),
        ("printer-columns/story-1-nested-lists.yaml", &column(1)),
        ("printer-columns/story-2-ready-condition.yaml", &column(0)),
        ("printer-columns/story-3-combined-fields.yaml", &column(0)),
        ("printer-columns/story-4-duration.yaml", &column(0)),
    ];
    for (file, text) in cases {
        let (code, output, _) = run(&["check", "-f", file, "--feature-gates", "AllAlpha=false"], "");
        assert_eq!(code, 1, "{file}");
        assert!(output.contains(text), "{file}: {output}");
    }
    let story = "tolerations-and-node-affinity/story-5-volume.yaml";
    let (code, output, _) = run(&["check", "-f", story, "--feature-gates", "AllAlpha=false"], "");
    assert_eq!(code, 1);
    assert!(output.contains("matchCELExpressions[1]: Forbidden: node affinity CEL expressions require"), "{output}");
}

const BROKEN: &str = "apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i}]
  tolerations:
  - expression: taint.key ==
";

#[test]
fn an_error_has_file_line_path_and_a_caret_in_the_expression() {
    let (code, output, _) = run(&["check", "-f", "-", "--feature-gates", "TaintTolerationCEL=true"], BROKEN);
    assert_eq!(code, 1);
    let expected = "<stdin>:7:5: Pod p: spec.tolerations[0].expression: Invalid value: \"taint.key ==\": \
        compilation failed: ERROR: <input>:1:13: Syntax error:";
    assert!(output.starts_with(expected), "{output}");
    assert!(output.contains("\n | taint.key ==\n | ............^\n"), "{output}");
    assert!(output.ends_with("1 object in 1 file: 1 refused\n"), "{output}");
}

#[test]
fn machine_readable_reports_agree() {
    let gates = ["--feature-gates", "TaintTolerationCEL=true"];
    let (code, report) = json(&["check", "-f", "-", "-o", "json", gates[0], gates[1]], BROKEN);
    assert_eq!(code, 1);
    let error = &report["files"][0]["objects"][0]["errors"][0];
    assert_eq!((&error["line"], &error["path"]), (&7.into(), &"spec.tolerations[0].expression".into()));
    let (code, report) = json(&["check", "-f", "-", "-o", "sarif", gates[0], gates[1]], BROKEN);
    assert_eq!(code, 1);
    assert_eq!(report["version"], "2.1.0");
    let result = &report["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "FieldValueInvalid");
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 7);
}

#[test]
fn unreadable_input_has_its_own_exit_code() {
    for arguments in [
        &["check", "-f", "no-such-file"][..],
        &["check", "-f", "-", "--feature-gates", "Bogus=true"],
        &["scan", "-f", "no-such-file"],
        &["why", "--pod", "no-such-file"],
        &["why", "--pod", "cluster/nodes.yaml"],
        &["cel", "eval", "--input", "no-such-file", "1"],
        &["store", "check", "--backup", "no-such-file"],
    ] {
        assert_eq!(run(arguments, "").0, 2, "{arguments:?}");
    }
    let (code, output, _) = run(&["check", "-f", "-"], "a: [1\nb: 2\n");
    assert_eq!(code, 2, "{output}");
}

#[test]
fn json_streams_and_lists_are_unpacked() {
    let pod = |name: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}"#
        )
    };
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{},{}]}}"#, pod("a"), pod("b"));
    let (code, output, _) = run(&["check", "-f", "-"], &format!("{list}\n{}", pod("c")));
    assert_eq!(code, 0);
    assert!(output.ends_with("3 objects in 1 file: 0 refused\n"), "{output}");
}

#[test]
fn why_shows_a_table_and_the_reasons() {
    let arguments = ["why", "--pod", "tolerations/story-2-kernel-version.yaml", "-f", "cluster"];
    let (code, output, _) = run(&arguments, "");
    assert_eq!(code, 0, "{output}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = output.lines().map(words).collect();
    assert_eq!(lines[..2], ["Pod my-app: 2 of 6 nodes fit", "NODE FITS SCORE TAINTS NODE AFFINITY VOLUMES OTHER"]);
    let row = |name: &str| lines.iter().find(|line| line.starts_with(&format!("{name} "))).unwrap().clone();
    assert!(row("plain").starts_with("plain yes ") && row("plain").ends_with(" none none none none"), "{output}");
    assert!(row("new-kernel").starts_with("new-kernel yes ") && row("new-kernel").contains(" tolerated "), "{output}");
    let untolerated = "untolerated {node.example.com/kernel-version: 5.4.0}:NoSchedule none none none";
    assert_eq!(row("old-kernel"), format!("old-kernel no - {untolerated}"));
    let (code, output, _) = run(&[&arguments[..], &["--node", "old-kernel"]].concat(), "");
    assert_eq!(code, 0, "other nodes fit: {output}");
    assert!(output.starts_with("Pod my-app: 2 of 6 nodes fit\n") && !output.contains("new-kernel"), "{output}");
    let details = "
node old-kernel
  TaintToleration: node(s) had untolerated taint {node.example.com/kernel-version: 5.4.0}
  taint {node.example.com/kernel-version: 5.4.0}:NoSchedule: not tolerated
    toleration 0: taint.key == 'node.example.com/kernel-version' && semver(taint.value).isGreaterThan(semver('5.15.0')) → false  (cost 11 of at most 17)
      taint.key = \"node.example.com/kernel-version\"  (cost so far 2)
      taint.key == 'node.example.com/kernel-version' = true  (cost so far 6)
      taint.value = \"5.4.0\"  (cost so far 8)
      semver(taint.value) = 5.4.0  (cost so far 9)
      semver('5.15.0') = 5.15.0  (cost so far 10)
      semver(taint.value).isGreaterThan(semver('5.15.0')) = false  (cost so far 11)
";
    assert!(output.ends_with(details), "{output}");
}

#[test]
fn why_knows_the_label_that_every_node_has() {
    let (code, output, _) = run(&["why", "--pod", "tolerations/story-1-key-prefix.yaml", "-f", "cluster"], "");
    assert_eq!(code, 0, "{output}");
    assert!(output.starts_with("Pod log-collector: 1 of 7 nodes fit\n"), "{output}");
}

#[test]
fn why_names_single_changes_that_would_help() {
    let cluster = "
apiVersion: v1
kind: Node
metadata: {name: small}
status: {allocatable: {cpu: '1', memory: 4Gi, pods: '10'}}
---
apiVersion: v1
kind: Node
metadata: {name: gpu}
spec: {taints: [{key: gpu, value: a100, effect: NoSchedule}]}
status: {allocatable: {cpu: '8', memory: 4Gi, pods: '10'}}
---
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec: {nodeName: small, priority: 0, containers: [{name: c, image: i, resources: {requests: {cpu: 600m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: wanted}
spec: {priority: 100, containers: [{name: c, image: i, resources: {requests: {cpu: 700m}}}]}
";
    let (code, report) = json(&["why", "--pod", "-", "--name", "wanted", "-o", "json"], cluster);
    assert_eq!(code, 1);
    let message = report["message"].as_str().unwrap();
    let expected = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {gpu: a100}.";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(report["preemption"], serde_json::json!({"node": "small", "victims": ["default/victim"]}));
    let remedies = [
        "a toleration of the taint gpu=a100:NoSchedule: then 1 node (gpu) would fit",
        "300m more of cpu on node small",
    ];
    assert_eq!(report["remedies"], serde_json::json!(remedies));
    let small = report["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "small").unwrap();
    let against = small["plugins"].as_array().unwrap().iter().find(|plugin| plugin["passes"] == false).unwrap();
    assert_eq!((&against["plugin"], &against["reasons"][0]), (&"NodeResourcesFit".into(), &"Insufficient cpu".into()));
}

#[test]
fn missing_cluster_is_reported_with_the_flags_that_name_one() {
    let home = tempfile::tempdir().unwrap();
    for command in ["scan", "simulate"] {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_celplane"));
        let output = program.arg(command).env_remove("KUBECONFIG").env("HOME", home.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        let wanted = "no cluster given: specify files with -f, or a server with --kubeconfig or KUBECONFIG";
        assert!(errors.contains(wanted), "{errors}");
    }
}

#[test]
fn changes_of_other_nodes_are_omitted_for_one_node() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  nodeSelector: {disk: ssd}\n  containers: [{name: c, image: i}]\n---\n\
               apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n2}\n";
    let (code, all) = json(&["why", "--pod", "-", "-o", "json"], pod);
    assert_eq!(code, 1);
    assert!(all["remedies"].to_string().contains("the label disk=ssd on any of the nodes n1, n2"), "{all}");
    let (_, one) = json(&["why", "--pod", "-", "--node", "n1", "-o", "json"], pod);
    let remedies = one["remedies"].as_array().unwrap();
    let labels: Vec<&str> =
        remedies.iter().filter_map(|it| it.as_str()).filter(|it| it.starts_with("the label")).collect();
    assert_eq!(labels, ["the label disk=ssd on node n1"], "{one}");
}

#[test]
fn why_reports_the_missing_gate_and_no_fitting_node() {
    let arguments = [
        "why",
        "--pod",
        "tolerations-and-node-affinity/story-4-kubelet-version.yaml",
        "-f",
        "cluster",
        "--all",
        "--feature-gates",
        "AllAlpha=false",
    ];
    let (code, output, _) = run(&arguments, "");
    assert_eq!(code, 1);
    assert!(output.contains("0 of 6 nodes fit"), "{output}");
    assert!(output.contains("needs feature gate TaintTolerationNodeAffinityCEL, which is off"), "{output}");
}

#[test]
fn why_judges_volumes_and_preferences() {
    let (code, report) =
        json(&["why", "--pod", "tolerations-and-node-affinity/story-5-volume.yaml", "-f", "cluster", "-o", "json"], "");
    assert_eq!(code, 0);
    let fits: Vec<&str> = report["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["fits"] == true)
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    assert_eq!(fits, ["new-kernel"]);

    let pod = "
apiVersion: v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 7, preference: {matchCELExpressions: [\"'storage-optimized' in node.labels\"]}}
          - {weight: 3, preference: {matchCELExpressions: [\"node.labels['nowhere'] == 'x'\"]}}
";
    let (_, report) = json(&["why", "--pod", "-", "-f", "cluster", "-o", "json"], pod);
    let node = report["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "new-kernel").unwrap();
    assert_eq!(node["preferred"]["score"], 7);
    let failing = &node["preferred"]["terms"][1]["parts"][0];
    assert_eq!(failing["detail"], "error: no such key: nowhere");
}

#[test]
fn scan_lists_breaking_uses() {
    let (code, report) = json(&["scan", "-f", ".", "-o", "json"], "");
    assert_eq!(code, 1);
    let uses = report["uses"].as_array().unwrap();
    assert_eq!(uses.len(), 19);
    assert!(uses.iter().all(|it| it["breaks"] == true));
    let (code, output, _) = run(&["scan", "-f", ".", "--feature-gates", "AllAlpha=true"], "");
    assert_eq!((code, output.as_str()), (0, "no object uses a field that these gates disable\n"));
}

#[test]
fn scan_reports_running_pods_as_unaffected() {
    let pod = |tolerations: &str, affinity: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  nodeName: node-1\n  tolerations: [{tolerations}]\n  affinity: {{nodeAffinity: {affinity}}}\nstatus: {{phase: Running}}\n"
        )
    };
    let affinity =
        "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchCELExpressions: ['true']}]}}";
    let (code, output, _) = run(&["scan", "-f", "-"], &pod("", affinity));
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("the pod keeps running\n"), "{output}");
    let (code, output, _) = run(&["scan", "-f", "-"], &pod("{expression: 'true'}", "{}"));
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("then it is evicted"), "{output}");
}

#[test]
fn scan_lists_objects_above_the_limits_on_expressions() {
    let class = |count: usize| {
        let tolerations: Vec<String> =
            (0..count).map(|it| format!("{{expression: \"taint.key == '{it}'\"}}")).collect();
        format!(
            "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: r}}\nhandler: h\nscheduling: {{tolerations: [{}]}}\n",
            tolerations.join(", ")
        )
    };
    let gates = ["--feature-gates", "AllAlpha=true"];
    let (code, report) = json(&["scan", "-f", "-", "-o", "json", gates[0], gates[1]], &class(64));
    assert_eq!((code, report["limits"].as_array().unwrap().len()), (0, 0));
    let (code, report) = json(&["scan", "-f", "-", "-o", "json", gates[0], gates[1]], &class(65));
    let message = report["limits"][0]["message"].as_str().unwrap();
    assert!(code == 1 && message.starts_with("must have at most 64 expressions in total, has 65"), "{message}");
    let (code, output, _) = run(&["scan", "-f", "-", gates[0], gates[1]], &class(65));
    assert!(code == 1 && output.starts_with("above the limits on expressions: 1 objects\n"), "{output}");
}

#[test]
fn the_gates_are_those_of_up_and_the_report_says_so() {
    let (code, output, _) = run(&["check", "-f", ".", "-v"], "");
    assert_eq!(code, 0, "{output}");
    let gates = "feature gates: TaintTolerationCEL=true,";
    assert!(output.contains(gates), "{output}");
    let (_, report) = json(&["check", "-f", ".", "-o", "json", "--feature-gates", "TaintTolerationCEL=false"], "");
    assert_eq!(report["featureGates"]["TaintTolerationCEL"], false);
    assert_eq!(report["featureGates"]["DRACELDeviceConstraint"], true);
}

#[test]
fn kinds_and_versions_that_a_known_group_does_not_have_are_errors() {
    for (api_version, kind) in [
        ("v1", "Podd"),
        ("apps/v2", "Deployment"),
        ("batch/v1", "Deployment"),
        // It exists, but is disabled.
        ("resource.k8s.io/v1alpha3", "DeviceTaintRule"),
    ] {
        let text = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n");
        let (code, output, _) = run(&["check", "-f", "-"], &text);
        let expected =
            format!("<stdin>:2:1: {kind} a: kind: no matches for kind \"{kind}\" in version \"{api_version}\"");
        assert!(code == 1 && output.starts_with(&expected), "{output}");
    }
    let (code, output, _) =
        run(&["check", "-f", "-"], "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n");
    assert_eq!(code, 0, "nothing is known of other groups: {output}");
}

const THINGS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Count, type: integer, jsonPath: .spec.count}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: string, maxLength: 3}
              count: {type: integer}
            x-kubernetes-validations:
            - {rule: 'self.count > 0', message: 'some are needed'}
";

#[test]
fn definitions_judge_the_objects_beside_them() {
    let thing = |version: &str, spec: &str| {
        format!("{THINGS}---\napiVersion: example.com/{version}\nkind: Thing\nmetadata: {{name: a}}\nspec: {spec}\n")
    };
    let check = |text: &str| run(&["check", "-f", "-"], text);
    let (code, output, _) = check(&thing("v1", "{size: big, count: 1}"));
    assert_eq!(code, 0, "{output}");
    let warning =
        "warning: column \"Size\" of version v1 has type integer, but .spec.size is a string: its cells stay empty";
    assert!(output.contains(warning) && !output.contains("\"Count\""), "{output}");
    for (version, spec, expected) in [
        ("v1", "{size: large, count: 1}", "spec.size: Too long: may not be more than 3 bytes"),
        ("v1", "{count: 1}", "spec.size: Required value"),
        ("v1", "{size: big, count: 0}", "some are needed"),
        ("v1", "{size: big, count: 1, other: 2}", "unknown field \"spec.other\""),
        ("v2", "{}", "no matches for kind \"Thing\" in version \"example.com/v2\""),
    ] {
        let (code, output, _) = check(&thing(version, spec));
        assert!(code == 1 && output.contains(expected), "{spec}: {output}");
    }
    // The definition may stand in another file, and after the object.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("z.yaml"), THINGS).unwrap();
    let thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: {}\n";
    std::fs::write(directory.path().join("a.yaml"), thing).unwrap();
    let (code, output, _) = run(&["check", "-f", directory.path().to_str().unwrap()], "");
    assert!(code == 1 && output.contains("spec.size: Required value"), "{output}");
}

#[test]
fn findings_come_in_the_order_of_lines() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  bogus: 1\n  restartPolicy: Sometimes\n  containers:\n  - name: A\n    image: i\n    extra: 1\n  tolerations:\n  - {key: a, operator: Odd}\n";
    let (code, report) = json(&["check", "-f", "-", "-o", "json"], pod);
    assert_eq!(code, 1);
    let errors = report["files"][0]["objects"][0]["errors"].as_array().unwrap();
    let lines: Vec<u64> = errors.iter().map(|it| it["line"].as_u64().unwrap()).collect();
    assert!(lines.len() >= 4 && lines.is_sorted(), "{lines:?}");
}

#[test]
fn why_names_all_gates_that_would_do() {
    let pod = "tolerations/story-2-kernel-version.yaml";
    let off = "AllAlpha=false";
    let (_, output, _) =
        run(&["why", "--pod", pod, "-f", "cluster", "--node", "old-kernel", "--feature-gates", off], "");
    let needs = "needs feature gate TaintTolerationCEL or TaintTolerationNodeAffinityCEL, which are off";
    assert!(output.contains(needs), "{output}");
    // The overview names them as well.
    let (_, output, _) = run(&["why", "--pod", pod, "-f", "cluster", "--feature-gates", off], "");
    let closed =
        "expression has no effect: TaintTolerationCEL or TaintTolerationNodeAffinityCEL is off in the scheduler";
    assert!(output.contains(closed), "{output}");
    let one = "TaintTolerationCEL=false,TaintTolerationNodeAffinityCEL=true";
    let (_, output, _) =
        run(&["why", "--pod", pod, "-f", "cluster", "--node", "old-kernel", "--feature-gates", one], "");
    assert!(!output.contains("needs feature gate"), "{output}");
}

const POLICIES: &str = r"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
  validations:
  - expression: object.spec.replicas <= int(params.data.most)
    messageExpression: '''at most '' + params.data.most'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few}
spec: {policyName: few, validationActions: [Deny], paramRef: {name: most, namespace: policy, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: rights}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
  validations:
  - expression: authorizer.group('').resource('secrets').namespace('team').check('get').allowed()
    messageExpression: request.userInfo.username + ' may not read secrets'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: rights}
spec: {policyName: rights, validationActions: [Warn], matchResources: {namespaceSelector: {matchLabels: {env: dev}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: scale}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
  matchConditions: [{name: small, expression: object.spec.replicas < 2}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{spec: Object.spec{replicas: 9}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: scale}
spec: {policyName: scale}
";

const NEEDED: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: most, namespace: policy}
data: {most: '5'}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {env: dev}}
---
apiVersion: authorization.k8s.io/v1
kind: SubjectAccessReview
spec: {user: alice, resourceAttributes: {resource: secrets, namespace: team, verb: get}}
status: {allowed: false}
";

fn deployment(replicas: u32) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web","namespace":"team"}},"spec":{{"replicas":{replicas},
        "selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
    )
}

#[test]
fn policies_apply_to_manifests_as_on_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("policies.yaml"), POLICIES).unwrap();
    let check = |replicas: u32, more: &[&str]| {
        let (policies, needed) = (path("policies.yaml"), path("needed.yaml"));
        let mut arguments = vec!["check", "-f", "-", "--policies", &policies];
        if std::path::Path::new(&needed).exists() {
            arguments.extend(["--policies", &needed]);
        }
        arguments.extend(more);
        run(&arguments, &deployment(replicas))
    };
    // Nothing defines the parameter, the labels of the namespace, or the permissions of the user.
    let (code, output, _) = check(3, &["--as", "alice"]);
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("not evaluated: policy 'few': no file contains the parameter ConfigMap `most`"),
        "{output}"
    );
    assert!(output.ends_with("0 refused, 2 policy checks not evaluated\n"), "{output}");
    assert_eq!(check(3, &["--strict"]).0, 1);
    std::fs::write(path("needed.yaml"), NEEDED).unwrap();
    let (code, output, _) = check(3, &["--as", "alice", "--strict"]);
    assert_eq!(code, 0, "{output}");
    let warning =
        "Validation failed for ValidatingAdmissionPolicy 'rights' with binding 'rights': alice may not read secrets";
    assert!(output.contains(warning) && output.ends_with(" 0 refused, 1 with warnings\n"), "{output}");
    let denied = "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'few' with binding 'few' denied request: at most 5";
    let (code, output, _) = check(6, &["--as", "alice"]);
    assert!(code == 1 && output.contains(denied), "{output}");
    // The mutation comes first, and the validation sees it.
    let (code, output, _) = check(1, &["--as", "alice"]);
    assert!(code == 1 && output.contains(denied), "{output}");
    // A review about another user answers nothing.
    let (code, output, _) = check(3, &["--as", "bob", "--strict"]);
    assert!(code == 1 && output.contains("no SubjectAccessReview answers whether `bob` may get secrets"), "{output}");
    let (code, _, errors) = run(&["check", "-f", "-", "--policies", &path("needed.yaml")], &deployment(3));
    assert!(code == 2 && errors.contains("no policy with a binding"), "{errors}");
}
