//! `celplane check` in CI: all errors with their places, dead APIs, files as arguments, reports and strictness.

use crate::shell::run;

const MISTAKES: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: \"3\"
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx
        env: [{name: A, value: 1}]
        resources: {limits: {memory: 1GB}}
        imagePullPolicy: Sometimes
        prots: []
";

#[test]
fn all_errors_have_line_and_path() {
    let (code, output, _) = run(&["check", "-"], MISTAKES);
    assert_eq!(code, 1, "{output}");
    let container = "spec.template.spec.containers[0]";
    let expected = [
        "<stdin>:5:3: Deployment web: spec.replicas: expected an integer of 32 bits, found string \"3\"".to_owned(),
        format!("<stdin>:13:25: Deployment web: {container}.env[0].value: expected a string, found number 1"),
        format!(
            "<stdin>:14:30: Deployment web: {container}.resources.limits[memory]: expected a quantity such as 500m, 2 or 1Gi, \
             found string \"1GB\""
        ),
        format!("<stdin>:15:9: Deployment web: {container}.imagePullPolicy: Unsupported value: \"Sometimes\""),
        format!("<stdin>:16:9: Deployment web: {container}.prots: unknown field \"{container}.prots\""),
    ];
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), expected.len() + 1, "{output}");
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.starts_with(expected.as_str()), "{line}\n{expected}");
    }
    assert_eq!(lines[5], "1 object in 1 file: 1 refused");
}

#[test]
fn dead_and_misspelt_groups_are_refused_with_their_replacement() {
    let manifest = |version: &str| format!("apiVersion: {version}\nkind: Deployment\nmetadata: {{name: a}}\n");
    for (version, advice) in [
        ("extensions/v1beta1", ": removed in Kubernetes 1.16, use apps/v1\n"),
        ("apps/v1beta2", ": removed in Kubernetes 1.16, use apps/v1\n"),
        ("app/v1", ": use apps/v1\n"),
    ] {
        let (code, output, _) = run(&["check", "-f", "-"], &manifest(version));
        assert_eq!(code, 1, "{version}");
        let expected = format!("no matches for kind \"Deployment\" in version \"{version}\"{advice}");
        assert!(output.contains(&expected), "{output}");
    }
}

#[test]
fn objects_without_a_schema_are_counted_and_refused_if_strict() {
    let custom = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n";
    let (code, output, _) = run(&["check", "-"], custom);
    assert_eq!((code, output.as_str()), (0, "1 object in 1 file: 0 refused, 1 not validated (no schema)\n"));
    let (code, output, _) = run(&["check", "--strict", "-"], custom);
    assert_eq!(code, 1, "{output}");
    assert!(output.starts_with("<stdin>:1:1: Widget w: not validated: no schema of this kind is known\n"), "{output}");
}

#[test]
fn files_are_arguments_lists_and_may_be_ignored() {
    let stories = ["tolerations/story-1-key-prefix.yaml", "tolerations/story-2-kernel-version.yaml"];
    let joined = stories.join(",");
    for arguments in [
        &["check", stories[0], stories[1]][..],
        &["check", "-f", stories[0], "-f", stories[1]],
        &["check", "-f", stories[0], stories[1]],
        &["check", "-f", &joined],
        &["check", "-R", "-f", "tolerations", "--ignore", "*story-3*"],
    ] {
        let (code, output, errors) = run(arguments, "");
        assert_eq!(code, 0, "{arguments:?}: {output}{errors}");
        assert!(output.contains(" in 2 files: 0 refused"), "{arguments:?}: {output}");
    }
    assert_eq!(run(&["check"], "").0, 2);
}

#[test]
fn junit_has_a_case_for_each_object() {
    let (code, output, _) = run(&["check", "-o", "junit", "-"], MISTAKES);
    assert_eq!(code, 1);
    assert!(output.contains("<testsuite name=\"&lt;stdin&gt;\" tests=\"1\" failures=\"1\" errors=\"0\">"), "{output}");
    assert!(output.contains("<failure type=\"BadRequest\" message=\"spec.replicas: expected an integer"), "{output}");
    let (_, output, _) = run(&["check", "-o", "sarif", "-"], "apiVersion: v1\nkind: Pod\nmetadata: 3\n");
    assert!(!output.contains(": : "), "{output}");
}

#[test]
fn numeric_columns_over_text_are_warned_of() {
    let definition = |source: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: ws.example.com}}\nspec:\n  \
             group: example.com\n  scope: Namespaced\n  names: {{plural: ws, kind: W}}\n  versions:\n  - name: v1\n    served: true\n    \
             storage: true\n    additionalPrinterColumns: [{{name: X, type: integer, {source}}}]\n    schema: {{openAPIV3Schema: \
             {{type: object, properties: {{spec: {{type: object, properties: {{name: {{type: string}}}}}}}}}}}}\n"
        )
    };
    for (source, what) in [("jsonPath: .spec.name", ".spec.name"), ("expression: self.spec.name", "self.spec.name")] {
        let (code, output, _) = run(&["check", "-"], &definition(source));
        assert_eq!(code, 0, "{output}");
        let warning =
            format!("column \"X\" of version v1 has type integer, but {what} is a string: its cells stay empty");
        assert!(output.contains(&warning), "{output}");
        assert!(output.starts_with("<stdin>:12:42: "), "{output}");
    }
}

#[test]
fn warnings_have_the_position_of_their_field() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports: [{port: 80}]\n  externalIPs:\n  - 1.2.3.4\n";
    let (code, output, _) = run(&["check", "-"], text);
    assert_eq!(code, 0, "{output}");
    assert!(output.starts_with("<stdin>:6:3: Service s: warning: spec.externalIPs is deprecated"), "{output}");
    let (_, output, _) = run(&["check", "-o", "sarif", "-"], text);
    assert!(output.contains("\"startLine\": 6"), "{output}");
    let annotated = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: i\n  annotations:\n    \
                     kubernetes.io/ingress.class: nginx\nspec:\n  defaultBackend: {service: {name: s, port: {number: 80}}}\n";
    let secret = "kind: Secret\napiVersion: v1\nmetadata: {name: t}\ntype: kubernetes.io/tls\ndata:\n  tls.crt: eA==\n  tls.key: eA==\n";
    let deprecated = "kind: DeviceClass\napiVersion: resource.k8s.io/v1beta1\nmetadata: {name: d}\nspec: {}\n";
    let boolean = "kind: Namespace\napiVersion: v1\nmetadata:\n  name: a\n  labels:\n    on-call: yes\n";
    for (text, warning) in [
        (annotated, "<stdin>:6:5: Ingress i: warning: annotation \"kubernetes.io/ingress.class\" is deprecated"),
        (secret, "<stdin>:6:3: Secret t: warning: tls: failed to find any PEM data"),
        (deprecated, "<stdin>:2:1: DeviceClass d: warning: resource.k8s.io/v1beta1 DeviceClass is deprecated"),
        (boolean, "<stdin>:6:5: Namespace a: warning: in YAML, y, n, yes"),
    ] {
        let (_, output, _) = run(&["check", "-"], text);
        assert!(output.contains(warning), "{warning}: {output}");
    }
}
