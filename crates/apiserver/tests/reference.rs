//! Single answers that once differed from the reference's.

use serde_json::{Value, json};

use crate::cluster::{Cluster, admin};

async fn message(cluster: &Cluster, method: &str, path: &str, body: Value) -> (u16, String) {
    let (code, answer) = cluster.ask(&admin(), method, path, body).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

#[tokio::test]
async fn json_patch_cannot_add_the_whole_document() {
    let cluster = Cluster::start().await;
    let map = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
    cluster.make(MAPS, map).await;
    let whole = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"z": "1"}});
    let patch = json!([{"op": "add", "path": "", "value": whole}]);
    let headers = [("content-type", "application/json-patch+json")];
    let (code, answer) = cluster.ask_as(&admin(), "PATCH", &format!("{MAPS}/c"), &headers, patch).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(answer["message"], "the server rejected our request due to an error in our request");
    let (_, answer) = cluster.ask(&admin(), "GET", &format!("{MAPS}/c"), Value::Null).await;
    assert_eq!(answer["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn resource_version_of_a_new_object_is_ignored_unless_a_number() {
    let cluster = Cluster::start().await;
    for (name, version, code) in [("a", "v1", 201), ("b", "0", 201), ("c", "7", 500)] {
        let map = json!({"metadata": {"name": name, "resourceVersion": version}});
        let (found, answer) = cluster.ask(&admin(), "POST", MAPS, map).await;
        assert_eq!(found, code, "{answer}");
        assert_ne!(answer["metadata"]["resourceVersion"], version);
    }
}

#[tokio::test]
async fn query_errors_have_the_texts_of_the_reference() {
    let cluster = Cluster::start().await;
    for (query, expected) in [
        (
            "resourceVersion=abc",
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        ("labelSelector=app%3Dbad+value", "found 'value', expected: ',' or 'end of string'"),
        (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
            "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
        ),
    ] {
        assert_eq!(message(&cluster, "GET", &format!("{MAPS}?{query}"), Value::Null).await.1, expected, "{query}");
    }
}

#[tokio::test]
async fn object_of_a_namespace_is_not_found_outside_of_it() {
    let cluster = Cluster::start().await;
    let expected = (404, "the server could not find the requested resource".to_owned());
    for method in ["GET", "DELETE"] {
        assert_eq!(message(&cluster, method, "/api/v1/pods/x", Value::Null).await, expected, "{method}");
    }
}

/// A Deployment whose pods name their AppArmor profile in an annotation.
fn annotated_deployment() -> Value {
    let mut deployment = deployment("armored");
    let annotations = json!({"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"});
    deployment["spec"]["template"]["metadata"]["annotations"] = annotations;
    deployment
}

/// `kubectl rollout undo` of current releases drops `matchCELExpressions` from the template.
#[tokio::test]
async fn updates_that_drop_expressions_are_warned_of() {
    let features = api::features::Features::all_proposals();
    let cluster = Cluster::with(apiserver::Options { features, ..apiserver::Options::without_controllers() }).await;
    let path = "/apis/apps/v1/namespaces/ns/deployments";
    let plain = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    let mut narrow = plain.clone();
    narrow["matchCELExpressions"] = json!(["node.labels['a'] == 'b'"]);
    let with_term = |term: &Value| {
        let mut deployment = deployment("d");
        let required = json!({"nodeSelectorTerms": [term]});
        deployment["spec"]["template"]["spec"]["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        deployment
    };
    cluster.make(path, with_term(&narrow)).await;
    let whole = format!("{path}/d");
    let template = |term: &Value| json!({"spec": {"template": with_term(term)["spec"]["template"]}});
    assert_eq!(cluster.warnings("PATCH", &whole, template(&narrow)).await, Vec::<String>::new());
    let expected = "299 - \"spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: this update \
         removes all matchCELExpressions, so that pods may run on more nodes; clients that do not know the field drop it \
         (kubectl rollout undo, create job --from)\"";
    assert_eq!(cluster.warnings("PATCH", &whole, template(&plain)).await, [expected]);
}

#[tokio::test]
async fn known_formats_of_schemas_are_not_warned_of() {
    let cluster = Cluster::start().await;
    let formats = [("string", "date-time"), ("string", "uuid"), ("integer", "int64"), ("number", "double")];
    let mut properties = serde_json::Map::new();
    for (index, (kind, format)) in formats.into_iter().enumerate() {
        properties.insert(format!("f{index}"), json!({"type": kind, "format": format}));
    }
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
    let names = json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    let definition = json!({"metadata": {"name": "as.example.com"}, "spec": spec});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(cluster.warnings("POST", path, definition).await, Vec::<String>::new());
}

#[tokio::test]
async fn deprecated_uses_are_warned_of() {
    let features = api::features::Features::all_proposals();
    let options = apiserver::Options { features, node_fleet: true, ..apiserver::Options::without_controllers() };
    let cluster = Cluster::with(options).await;
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let tls = json!({"tls.crt": "eA==", "tls.key": "eA=="});
    let version = |format: &str, kind: &str| {
        let schema = json!({"type": "object", "properties": {"a": {"type": kind, "format": format}}});
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
    };
    let mut with_column = version("", "string");
    with_column["additionalPrinterColumns"] = json!([{"name": "X", "type": "integer", "expression": "self.a"}]);
    let names = json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"});
    for (path, body, expected) in [
        (
            "/apis/networking.k8s.io/v1/namespaces/ns/ingresses",
            json!({"metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "x"}}, "spec": {"defaultBackend": backend}}),
            "annotation \\\"kubernetes.io/ingress.class\\\" is deprecated, please use 'spec.ingressClassName' instead",
        ),
        (
            "/api/v1/namespaces/ns/secrets",
            json!({"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "data": tls}),
            "tls: failed to find any PEM data in certificate input",
        ),
        (
            "/api/v1/namespaces/ns/services",
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}}),
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (
            "/api/v1/namespaces/ns/services",
            json!({"metadata": {"name": "d"}, "spec": {"ports": [{"port": 80}], "trafficDistribution": "PreferClose"}}),
            "spec.trafficDistribution: \\\"PreferClose\\\" is deprecated; use \\\"PreferSameZone\\\"",
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({"metadata": {"name": "as.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version("int64", "string")]}}),
            "unrecognized format \\\"int64\\\"",
        ),
        (
            "/apis/apps/v1/namespaces/ns/deployments",
            annotated_deployment(),
            "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \\\"appArmorProfile\\\" field instead",
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({"metadata": {"name": "as.text.example.com"}, "spec": {"group": "text.example.com", "scope": "Namespaced", "names": names, "versions": [with_column]}}),
            "spec.additionalPrinterColumns[0].expression: the column has type integer, but its expression is a string: its cells stay empty",
        ),
    ] {
        assert_eq!(cluster.warnings("POST", path, body).await, [format!("299 - \"{expected}\"")], "{path}");
    }
}

const STRATEGIC: [(&str, &str); 1] = [("content-type", "application/strategic-merge-patch+json")];

/// Asks as the administrator with a body that need not be JSON; returns the code and the message.
async fn send(cluster: &Cluster, method: &str, path: &str, media: &str, body: &str) -> (u16, String) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    let body = http_body_util::Full::new(bytes::Bytes::from(body.to_owned()));
    let response = cluster.0.handle(request.body(body).unwrap(), Some(&admin())).await;
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

fn deployment(name: &str) -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
}

#[tokio::test]
async fn strategic_patch_of_a_scale_may_name_the_workload() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/ns/deployments";
    cluster.make(path, deployment("d")).await;
    let scale = format!("{path}/d/scale");
    let patch = json!({"kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"}, "spec": {"replicas": 3}});
    let (code, answer) = cluster.ask_as(&admin(), "PATCH", &scale, &STRATEGIC, patch.clone()).await;
    assert_eq!((code, &answer["kind"], &answer["spec"]["replicas"]), (200, &json!("Scale"), &json!(3)), "{answer}");
    let (code, message) = message(&cluster, "PATCH", &scale, patch).await;
    assert_eq!(code, 422, "{message}");
    let start = " \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\":\\\"autoscaling/v1\\\",\\\"kind\\\":\\\"Deployment\\\"";
    assert!(message.starts_with(start), "{message}");
}

#[tokio::test]
async fn bindings_have_no_paths_of_their_own() {
    let cluster = Cluster::start().await;
    let expected = (404, "the server could not find the requested resource".to_owned());
    for method in ["GET", "PATCH", "PUT", "DELETE"] {
        let path = "/api/v1/namespaces/ns/bindings/x";
        assert_eq!(message(&cluster, method, path, json!({})).await, expected, "{method}");
    }
}

#[tokio::test]
async fn quota_counted_by_admission_belongs_to_the_server() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/ns/resourcequotas";
    cluster.make(path, json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}})).await;
    let status = json!({"status": {"hard": {"configmaps": "5"}, "used": {"configmaps": "0"}}});
    let (code, answer) = cluster.ask(&admin(), "PATCH", &format!("{path}/q/status"), status).await;
    assert_eq!(code, 200, "{answer}");
    cluster.0.settle().await.unwrap();
    cluster.make(MAPS, json!({"metadata": {"name": "c"}})).await;
    let (_, quota) = cluster.ask(&admin(), "GET", &format!("{path}/q"), Value::Null).await;
    assert_eq!(quota["status"]["used"]["configmaps"], "1");
    let entries = quota["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|it| it["manager"] == "kube-apiserver").expect("an entry of the server");
    assert_eq!((&own["operation"], &own["subresource"]), (&json!("Update"), &json!("status")));
    assert_eq!(own["fieldsV1"], json!({"f:status": {"f:used": {"f:configmaps": {}}}}));
}

#[tokio::test]
async fn bodies_that_do_not_decode_are_explained_as_by_the_reference() {
    let cluster = Cluster::start().await;
    cluster.make(MAPS, json!({"metadata": {"name": "c"}})).await;
    let one = format!("{MAPS}/c");
    let (json, yaml) = ("application/json", "application/yaml");
    let unregistered = "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\"";
    let cases = [
        (
            "DELETE",
            one.as_str(),
            json,
            "{bad",
            "couldn't get version/kind; json parse error: invalid character 'b' looking for beginning of object key string",
        ),
        ("DELETE", &one, json, "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"}", unregistered),
        (
            "DELETE",
            &one,
            json,
            "{\"gracePeriodSeconds\":\"x\"}",
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (
            "POST",
            MAPS,
            yaml,
            "a: b: c",
            "the object provided is unrecognized (must be of type ConfigMap): yaml: mapping values are not allowed in this context (613a20623a2063)",
        ),
    ];
    for (method, path, media, body, expected) in cases {
        assert_eq!(send(&cluster, method, path, media, body).await, (400, expected.to_owned()), "{body}");
    }
}

#[tokio::test]
async fn bytes_and_quantities_are_read_as_go_reads_them() {
    let cluster = Cluster::start().await;
    let secrets = "/api/v1/namespaces/ns/secrets";
    let made = cluster.make(secrets, json!({"metadata": {"name": "n"}, "data": {"k": [104, 105]}})).await;
    assert_eq!(made["data"]["k"], "aGk=");
    let bad = json!({"metadata": {"name": "s"}, "data": {"k": ["a"]}});
    let start = "Secret in version \"v1\" cannot be handled as a Secret: ";
    let expected = format!("{start}json: cannot unmarshal string into Go struct field Secret.data of type uint8");
    assert_eq!(message(&cluster, "POST", secrets, bad).await, (400, expected));
    let apply = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "!"}});
    let path = format!("{secrets}/a?fieldManager=m");
    let (code, message_) = send(&cluster, "PATCH", &path, "application/apply-patch+yaml", &apply.to_string()).await;
    assert_eq!(code, 500, "{message_}");
    assert!(message_.ends_with(": error decoding from json: illegal base64 data at input byte 0"), "{message_}");
    for cpu in [json!({}), json!([])] {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
        let (code, message) = message(&cluster, "POST", "/api/v1/namespaces/ns/pods", pod).await;
        let expected = "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        assert_eq!((code, message.as_str()), (400, expected));
    }
}

#[tokio::test]
async fn empty_table_of_definitions_has_null_rows() {
    let cluster = Cluster::start().await;
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    for (path, rows) in [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Value::Null),
        ("/apis/storage.k8s.io/v1/csistoragecapacities", Value::Null),
        ("/apis/storage.k8s.io/v1/csidrivers", json!([])),
    ] {
        let (_, table) = cluster.ask_as(&admin(), "GET", path, &headers, Value::Null).await;
        assert_eq!(table.get("rows"), Some(&rows), "{path}");
    }
}

#[tokio::test]
async fn openapi_of_the_groups_names_their_kind() {
    let cluster = Cluster::start().await;
    let (code, document) = cluster.ask(&admin(), "GET", "/openapi/v3/apis", Value::Null).await;
    assert_eq!(code, 200);
    for kind in ["APIGroup", "APIGroupList"] {
        let schema = &document["components"]["schemas"][format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")];
        let expected = json!([{"group": "", "kind": kind, "version": "v1"}]);
        assert_eq!(schema["x-kubernetes-group-version-kind"], expected, "{kind}");
    }
    let (code, headers, body) = cluster.raw("GET", "/openapi/v3/apis/no.such.group/v1", &[], Value::Null).await;
    assert_eq!((code, headers.get("content-type"), body.len()), (404, None, 0));
}

#[tokio::test]
async fn custom_resource_of_another_kind_is_refused_by_its_own_kind() {
    let cluster = Cluster::start().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 0}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.make(definitions, json!({"metadata": {"name": "widgets.example.com"}, "spec": spec})).await;
    cluster.0.settle().await.unwrap();
    let path = "/apis/example.com/v1/namespaces/ns/widgets";
    let object = |kind: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "w"}, "n": 7});
    for (kind, expected) in [
        ("Gadget", "Gadget.example.com \"w\" is invalid: kind: Invalid value: \"Gadget\": must be Widget"),
        (
            "Widget",
            "Widget.example.com \"w\" is invalid: n: Invalid value: 0: factor MultipleOf declared for n must be positive: 0",
        ),
    ] {
        assert_eq!(message(&cluster, "POST", path, object(kind)).await, (422, expected.to_owned()));
    }
}

#[tokio::test]
async fn missing_values_are_shown_as_go_shows_them() {
    let cluster = Cluster::start().await;
    let spec = json!({"signerName": "example.com/s", "usages": ["client auth"]});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (code, text) = message(&cluster, "POST", path, json!({"metadata": {"name": "r"}, "spec": spec})).await;
    assert_eq!(code, 422, "{text}");
    assert!(text.contains("spec.request: Invalid value: null: "), "{text}");
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    cluster.make(classes, json!({"metadata": {"name": "c"}, "spec": {"controller": "example.com/c"}})).await;
    let patch = json!({"spec": {"controller": null}});
    let (code, text) = message(&cluster, "PATCH", &format!("{classes}/c"), patch).await;
    assert_eq!(code, 422, "{text}");
    assert!(text.contains("spec.controller: Invalid value: \"\": field is immutable"), "{text}");
}

#[tokio::test]
async fn data_of_a_controller_revision_keeps_its_order() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/ns/controllerrevisions";
    let head = "{\"apiVersion\":\"apps/v1\",\"kind\":\"ControllerRevision\",\"metadata\":{\"name\":\"r\"},\"revision\":1,\"data\":";
    assert_eq!(send(&cluster, "POST", path, "application/json", &format!("{head}{{\"b\":1,\"a\":2}}}}")).await.0, 201);
    let one = format!("{path}/r");
    for (data, code) in [("{\"b\":1,\"a\":2}", 200), ("{\"a\":2,\"b\":1}", 422)] {
        assert_eq!(send(&cluster, "PUT", &one, "application/json", &format!("{head}{data}}}")).await.0, code, "{data}");
    }
}
