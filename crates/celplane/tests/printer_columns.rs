//! KEP-4595 as its users see it: the proposal's stories, its example and its test plan, with a real `kubectl`.

use crate::cluster;

use cluster::Cluster;

/// A definition of one kind: its schema and columns in YAML's flow style, indented as given.
fn definition(plural: &str, kind: &str, properties: &str, columns: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{plural: {plural}, kind: {kind}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {properties}
    additionalPrinterColumns:
{columns}
"#
    )
}

/// An object of a kind that was defined; `rest` is what stands beside its metadata.
fn object(kind: &str, name: &str, rest: &str) -> String {
    format!("---\napiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{rest}\n")
}

/// A table with one space between words, so that ages of any width compare; ages are replaced.
fn squeezed(table: &str) -> Vec<String> {
    let is_age = |word: &str| {
        word.len() > 1 && word.ends_with('s') && word[..word.len() - 1].bytes().all(|byte| byte.is_ascii_digit())
    };
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().map(|word| if is_age(word) { "AGE" } else { word }).collect();
        words.join(" ")
    };
    table.lines().map(line).collect()
}

#[test]
fn the_example_of_the_proposal_prints_as_it_says() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&definition(
        "apps",
        "App",
        "{spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}",
        r#"
    - name: Replicas
      type: string
      expression: '"%d/%d".format([self.status.replicas, self.spec.replicas])'
    - name: Age
      type: date
      jsonPath: .metadata.creationTimestamp
    - name: Status
      type: string
      expression: 'self.status.replicas == self.spec.replicas ? "READY" : "WAITING"'
"#,
    ));
    for (name, ready) in [("myresource", 1), ("myresource2", 0)] {
        let rest = format!("spec: {{replicas: 1}}\nstatus: {{replicas: {ready}}}");
        cluster.apply(&object("App", name, &rest));
    }
    let table = cluster.kubectl(&["get", "apps.example.com"], "");
    assert_eq!(
        squeezed(&table),
        ["NAME REPLICAS AGE STATUS", "myresource 1/1 AGE READY", "myresource2 0/1 AGE WAITING"]
    );
}

#[test]
fn story_1_nested_lists_are_shown_whole() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&definition(
        "gateways",
        "Gateway",
        "{spec: {type: object, properties: {servers: {type: array, items: {type: object, properties: {hosts: {type: array, items: {type: string}}}}}}}}",
        r#"
    - name: hosts
      jsonPath: .spec.servers[*].hosts
      type: string
    - name: hosts CEL
      type: string
      description: "All hosts from all servers"
      expression: "self.spec.servers.map(s, s.hosts)"
"#,
    ));
    let hosts = "spec: {servers: [{hosts: [foo.example.com, bar.example.com]}, {hosts: [baz.example.com]}]}";
    cluster.apply(&object("Gateway", "foo0", hosts));
    let table = cluster.kubectl(&["get", "gateways"], "");
    assert_eq!(
        table,
        "NAME   HOSTS                                   HOSTS CEL\n\
         foo0   [\"foo.example.com\",\"bar.example.com\"]   [[foo.example.com, bar.example.com], [baz.example.com]]\n"
    );
}

#[test]
fn story_2_a_condition_is_picked_from_a_list() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&definition(
        "things",
        "Thing",
        "{status: {type: object, properties: {conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}}}}",
        r#"
    - name: READY
      type: string
      description: 'Status of the Ready condition'
      expression: 'self.status.conditions.exists(c, c.type == "Ready") ? self.status.conditions.filter(c, c.type == "Ready")[0].status : "Unknown"'
"#,
    ));
    let ready = "status: {conditions: [{type: Synced, status: 'False'}, {type: Ready, status: 'True'}]}";
    cluster.apply(&object("Thing", "example-resource", ready));
    cluster.apply(&object("Thing", "example-resource2", "status: {conditions: [{type: Synced, status: 'False'}]}"));
    let table = cluster.kubectl(&["get", "things"], "");
    assert_eq!(table, "NAME                READY\nexample-resource    True\nexample-resource2   Unknown\n");
}

#[test]
fn story_3_fields_are_combined() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&definition(
        "pairs",
        "Pair",
        "{spec: {type: object, properties: {sub: {type: object, properties: {foo: {type: string}, bar: {type: string}}}}}}",
        r#"
    - name: "Combined"
      type: string
      description: "Combined Foo and Bar values"
      expression: 'format("%s/%s", self.spec.sub.foo, self.spec.sub.bar)'
    - name: Age
      type: date
      jsonPath: .metadata.creationTimestamp
"#,
    ));
    cluster.apply(&object("Pair", "myresource", "spec: {sub: {foo: foo, bar: bar}}"));
    let table = cluster.kubectl(&["get", "pairs"], "");
    assert_eq!(squeezed(&table), ["NAME COMBINED AGE", "myresource foo/bar AGE"]);
}

#[test]
fn story_4_durations_are_computed_from_timestamps() {
    let Some(cluster) = Cluster::start() else { return };
    let column = r#"
    - name: Duration
      type: string
      description: Duration between start and completion
      expression: 'timestamp(self.status.completionTimestamp) - timestamp(self.status.startTimestamp)'
"#;
    let properties = "{status: {type: object, properties: {startTimestamp: {type: string, format: date-time}, completionTimestamp: {type: string, format: date-time}}}}";
    cluster.apply(&definition("tasks", "Task", properties, column));
    let both = "status: {startTimestamp: '2024-01-01T00:00:00Z', completionTimestamp: '2024-01-02T00:07:10Z'}";
    cluster.apply(&object("Task", "sample-job", both));
    cluster.apply(&object("Task", "unfinished", "status: {startTimestamp: '2024-01-01T00:00:00Z'}"));
    // What is not there yet leaves the cell empty; the others are not affected.
    let table = cluster.kubectl(&["get", "tasks"], "");
    assert_eq!(squeezed(&table), ["NAME DURATION", "sample-job 24h7m10s", "unfinished"]);
}

#[test]
fn metadata_beyond_the_name_is_refused_with_the_picture_of_the_proposal() {
    let Some(cluster) = Cluster::start() else { return };
    let manifest = definition(
        "jobs",
        "Job",
        "{spec: {type: object, properties: {size: {type: integer}}}}",
        r#"
    - name: Size
      type: integer
      jsonPath: .spec.size
    - name: Age
      type: date
      description: Time since creation
      expression: self.metadata.creationTimestamp
"#,
    );
    assert_eq!(
        cluster.refused(&["apply", "-f", "-"], &manifest),
        "The CustomResourceDefinition \"jobs.example.com\" is invalid: spec.additionalPrinterColumns[1]: Internal error: CEL compilation failed for self.metadata.creationTimestamp rules: compilation failed: ERROR: <input>:1:14: undefined field 'creationTimestamp'\n | self.metadata.creationTimestamp\n | .............^\n"
    );
}

/// One line per test of the proposal's plan: the applied object, and the start of `kubectl`'s output.
#[test]
fn the_test_plan_of_the_proposal_holds() {
    let Some(cluster) = Cluster::start() else { return };
    let properties =
        "{spec: {type: object, properties: {size: {type: integer}, hosts: {type: array, items: {type: string}}}}}";
    let path = "    - {name: A, type: integer, jsonPath: .spec.size}";
    let valid = "    - {name: B, type: string, expression: \"self.spec.hosts.map(h, h + '!')\"}";
    let invalid = "    - {name: C, type: string, expression: self.spec.nothing}";
    let both = "    - {name: D, type: string, jsonPath: .spec.size, expression: self.spec.size}";
    let neither = "    - {name: E, type: string}";
    let cases = [
        (valid.to_owned(), None),
        (path.to_owned(), None),
        (format!("{path}\n{valid}"), None),
        (invalid.to_owned(), Some("undefined field 'nothing'")),
        (both.to_owned(), Some("only one of jsonPath or expression may be specified")),
        (neither.to_owned(), Some("either JSONPath or CEL expression must be specified")),
        (
            format!("{path}\n{invalid}"),
            Some("spec.additionalPrinterColumns[1]: Internal error: CEL compilation failed"),
        ),
    ];
    for (index, (columns, expected)) in cases.iter().enumerate() {
        let (plural, kind) = (format!("plan{index}s"), format!("Plan{index}"));
        let manifest = definition(&plural, &kind, properties, columns);
        match expected {
            None => {
                cluster.apply(&manifest);
                cluster.apply(&object(&kind, "x", "spec: {size: 3, hosts: [h]}"));
                let table = cluster.kubectl(&["get", &plural], "");
                let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
                let wanted: Vec<&str> = match (columns.contains(".spec.size"), columns.contains("hosts")) {
                    (true, true) => vec!["x", "3", "[h!]"],
                    (true, false) => vec!["x", "3"],
                    _ => vec!["x", "[h!]"],
                };
                assert_eq!(row, wanted);
            }
            Some(text) => {
                let message = cluster.refused(&["apply", "-f", "-"], &manifest);
                assert!(message.contains(text), "{message}");
            }
        }
    }
}

#[test]
fn the_gate_can_be_turned_off_and_on_again() {
    let Some(cluster) = Cluster::start() else { return };
    let columns = "    - {name: Double, type: integer, expression: self.spec.size * 2}\n    - {name: Size, type: integer, jsonPath: .spec.size, priority: 1}";
    let properties = "{spec: {type: object, properties: {size: {type: integer}}}}";
    cluster.apply(&definition("widgets", "Widget", properties, columns));
    cluster.apply(&object("Widget", "a", "spec: {size: 4}"));
    assert_eq!(squeezed(&cluster.kubectl(&["get", "widgets"], "")), ["NAME DOUBLE", "a 8"]);
    assert_eq!(squeezed(&cluster.kubectl(&["get", "widgets", "-o", "wide"], "")), ["NAME DOUBLE SIZE", "a 8 4"]);
    let flags = ["--feature-gates", "CRDAdditionalPrinterColumnCEL=false"];
    let cluster = Cluster::start_with(cluster.stop(), &flags);
    assert_eq!(squeezed(&cluster.kubectl(&["get", "widgets", "-o", "wide"], "")), ["NAME SIZE", "a 4"]);
    let refused = cluster.refused(&["apply", "-f", "-"], &definition("others", "Other", properties, columns));
    assert!(refused.contains("CEL printer columns require feature gate CRDAdditionalPrinterColumnCEL"), "{refused}");
    cluster.kubectl(&["label", "crd", "widgets.example.com", "a=b"], "");
    let cluster = Cluster::start_in(cluster.stop());
    assert_eq!(squeezed(&cluster.kubectl(&["get", "widgets"], "")), ["NAME DOUBLE", "a 8"]);
}

#[test]
fn exceeded_request_budget_yields_a_warning() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::start_with(tempfile::tempdir().unwrap(), &["--cel-table-budget", "100"]);
    let columns = "    - {name: Hosts, type: string, expression: 'self.spec.hosts.map(h, h + h)'}";
    let properties = "{spec: {type: object, properties: {hosts: {type: array, items: {type: string}}}}}";
    cluster.apply(&definition("widgets", "Widget", properties, columns));
    for name in ["a", "b", "c"] {
        cluster.apply(&object("Widget", name, "spec: {hosts: [p, q, r]}"));
    }
    let output = cluster.run(&["get", "widgets"], "");
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(errors.contains("exceeded the cost budget of this request"), "{errors}");
    let rows = squeezed(&table);
    assert_eq!((rows[1].as_str(), rows[3].as_str()), ("a [pp, qq, rr]", "c"));
}
