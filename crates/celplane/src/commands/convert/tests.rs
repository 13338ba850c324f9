//! Conversions in both directions.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// Converts fields to annotations, compares with the expected text, and converts back to the original.
#[track_caller]
fn check(fields: &str, annotations: &str) {
    let converted = convert(fields, Direction::Annotations).unwrap();
    assert_eq!(converted, annotations);
    assert_eq!(convert(&converted, Direction::Annotations).unwrap(), annotations, "a second time");
    assert_eq!(convert(&converted, Direction::Fields).unwrap(), fields, "and back");
}

#[test]
fn tolerations_keep_comments_and_order() {
    check(
        "# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: a # its name
spec:
  tolerations:
  # Maintenance is short.
  - expression: taint.key.startsWith('maintenance/')
    tolerationSeconds: 60 # a minute

  - key: plain
    operator: Exists
  - key: version
    operator: SemverLt
    value: 1.2.0
  containers:
  - name: c
    image: nginx
---
kind: Service
apiVersion: v1
",
        "# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: a # its name
  annotations:
    placement.celplane.dev/tolerations: |
      # Maintenance is short.
      - expression: taint.key.startsWith('maintenance/')
        tolerationSeconds: 60 # a minute

      - key: version
        operator: SemverLt
        value: 1.2.0
    placement.celplane.dev/tolerations.positions: \"0,2\"
spec:
  tolerations:
  - key: plain
    operator: Exists
  containers:
  - name: c
    image: nginx
---
kind: Service
apiVersion: v1
",
    );
}

#[test]
fn affinity_of_a_template_moves_and_keeps_its_place() {
    check(
        "apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    metadata:
      labels: {a: b}
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchCELExpressions:
                  - node.labels['a'] == 'b'
      containers:
        - name: c
          image: nginx
",
        "apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    metadata:
      labels: {a: b}
      annotations:
        placement.celplane.dev/node-affinity: |
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchCELExpressions:
                  - node.labels['a'] == 'b'
    spec:
      affinity:
        nodeAffinity: {}
      containers:
        - name: c
          image: nginx
",
    );
}

#[test]
fn columns_and_constraints_move() {
    check(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - name: Size
      type: string
      expression: self.spec.size
    - name: Age
      type: date
      jsonPath: .metadata.creationTimestamp
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: string}}}}
",
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  annotations:
    columns.celplane.dev/v1: |
      - name: Size
        type: string
        expression: self.spec.size
    columns.celplane.dev/v1.positions: \"0\"
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - name: Age
      type: date
      jsonPath: .metadata.creationTimestamp
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: string}}}}
",
    );
    check(
        "apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: t
spec:
  spec:
    devices:
      requests:
      - name: r
        exactly: {deviceClassName: c, count: 2}
      constraints:
      - cel: {expression: devices.size() == 2}
",
        "apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: t
spec:
  spec:
    devices:
      requests:
      - name: r
        exactly: {deviceClassName: c, count: 2}
      constraints: []
  metadata:
    annotations:
      placement.celplane.dev/device-constraints: |
        - cel: {expression: devices.size() == 2}
",
    );
}

#[test]
fn flow_style_and_json_are_converted() {
    let flow = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  tolerations: [{expression: 'true'}, {key: b, operator: Exists}]\n  containers: [{name: c, image: i}]\n";
    let converted = convert(flow, Direction::Annotations).unwrap();
    assert!(converted.contains("placement.celplane.dev/tolerations: |"), "{converted}");
    let back = convert(&converted, Direction::Fields).unwrap();
    assert!(!back.contains("celplane.dev"), "{back}");
    let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"tolerations": [{"expression": "true"}]}}"#;
    let converted = convert(json, Direction::Annotations).unwrap();
    assert!(converted.contains(r#""placement.celplane.dev/tolerations": "- expression: "#), "{converted}");
    let comment = flow.replace("}]\n  containers", "}] # both\n  containers");
    assert!(convert(&comment, Direction::Annotations).unwrap_err().to_string().contains("Pod a"));
}

/// An API server rejects an empty node affinity of a volume.
#[test]
fn affinity_of_a_volume_leaves_null() {
    check(
        "apiVersion: v1
kind: PersistentVolume
metadata:
  name: v
spec:
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchCELExpressions: [\"node.labels['a'] == 'b'\"]
  storageClassName: s
",
        "apiVersion: v1
kind: PersistentVolume
metadata:
  name: v
  annotations:
    placement.celplane.dev/node-affinity: |
      required:
        nodeSelectorTerms:
        - matchCELExpressions: [\"node.labels['a'] == 'b'\"]
spec:
  nodeAffinity: null
  storageClassName: s
",
    );
}

#[test]
fn both_required_selectors_become_one() {
    let both = "apiVersion: v1
kind: PersistentVolume
metadata:
  name: v
  annotations:
    placement.celplane.dev/node-affinity: |
      required:
        nodeSelectorTerms:
        - matchCELExpressions: [\"node.labels['a'] == 'b'\"]
spec:
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: zone, operator: Exists}
";
    let converted = convert(both, Direction::Fields).unwrap();
    assert!(!converted.contains("celplane.dev"), "{converted}");
    assert!(converted.contains("key: zone") && converted.contains("matchCELExpressions"), "{converted}");
}

#[test]
fn documents_are_converted_one_by_one() {
    let pod = |number: usize| {
        format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: p{number}\nspec:\n  tolerations:\n  - expression: taint.key == 'a'\n")
    };
    let all: Vec<String> = (0..200).map(pod).collect();
    let text = format!("# A comment.\n---\n{}", all.join("--- # another one\n"));
    let converted = convert(&text, Direction::Annotations).unwrap();
    let single = convert(&pod(7), Direction::Annotations).unwrap();
    assert!(single.contains("placement.celplane.dev/tolerations: |") && converted.contains(&single), "{converted}");
    assert_eq!(converted.matches("--- # another one\n").count(), 199);
    assert_eq!(convert(&converted, Direction::Fields).unwrap(), text);
}

#[test]
fn texts_with_other_markers_are_one_part() {
    let parts = |text: &str| document_parts(text).len();
    assert_eq!(parts("a: 1\n---\nb: 2\n"), 3);
    assert_eq!(parts("%YAML 1.2\n---\na: 1\n---\nb: 2\n"), 1);
    assert_eq!(parts("a: 1\n--- {b: 2}\n"), 1);
    assert_eq!(parts("a: 1\n...\n---\nb: 2\n"), 1);
}
