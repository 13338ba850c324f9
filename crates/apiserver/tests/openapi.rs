//! OpenAPI: what generators and `kubectl` read of it, for built-in and custom resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::Cluster;

const OLDER: &str = "/openapi/v2";

fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {
                        "type": "object", "required": ["size", "note"],
                        "properties": {
                            "size": {"type": "integer", "minimum": 1},
                            "note": {"type": "string", "nullable": true},
                            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
                        }
                    }}
                }}
            }]
        }
    })
}

async fn older(cluster: &Cluster) -> (Value, String) {
    let (code, headers, body) = cluster.raw("GET", OLDER, &[], Value::Null).await;
    assert_eq!(code, 200);
    assert!(headers["last-modified"].to_str().unwrap().ends_with(" GMT"));
    (serde_json::from_slice(&body).unwrap(), headers["etag"].to_str().unwrap().to_owned())
}

#[tokio::test]
async fn the_older_document_has_custom_resources_and_an_edition() {
    let cluster = Cluster::start().await;
    let (before, etag) = older(&cluster).await;
    assert!(before["definitions"]["com.example.v1.Widget"].is_null());
    let same = cluster.raw("GET", OLDER, &[("if-none-match", &etag)], Value::Null).await;
    assert_eq!((same.0, same.2.len()), (304, 0));
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await;
    let (code, headers, _) = cluster.raw("GET", OLDER, &[("if-none-match", &etag)], Value::Null).await;
    assert_eq!(code, 200);
    assert_ne!(headers["etag"].to_str().unwrap(), etag);
    let (document, _) = older(&cluster).await;
    let schema = &document["definitions"]["com.example.v1.Widget"];
    // Keywords that OpenAPI v2 lacks are omitted, as in Kubernetes.
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1}, "note": {},
            "any": {"x-kubernetes-preserve-unknown-fields": true}
        }
    });
    assert_eq!(schema["properties"]["spec"], spec);
    let kinds = json!([{"group": "example.com", "kind": "Widget", "version": "v1"}]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], kinds);
    assert_eq!(
        schema["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let path = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"];
    assert_eq!(path["patch"]["operationId"], "patchComExampleV1NamespacedWidget");
    assert!(document["paths"]["/apis/example.com/v1/widgets"]["get"].is_object());
    assert!(document["definitions"]["com.example.v1.WidgetList"].is_object());
}

#[tokio::test]
async fn the_older_document_has_every_path_and_every_reference_leads_somewhere() {
    let cluster = Cluster::start().await;
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await;
    let (document, _) = older(&cluster).await;
    for path in [
        "/api/",
        "/api/v1/",
        "/apis/",
        "/apis/apps/",
        "/apis/apps/v1/",
        "/version/",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks/",
        "/api/v1/pods",
        "/api/v1/namespaces/{namespace}/pods/{name}/exec",
        "/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}",
        "/api/v1/nodes/{name}/status",
        "/api/v1/watch/pods",
        "/api/v1/watch/namespaces/{namespace}/pods/{name}",
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/storagemigration.k8s.io/v1/storageversionmigrations/{name}/status",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    let mut ids = std::collections::HashSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (_, operation) in item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{path}: {}", operation["operationId"]);
            if operation["x-kubernetes-action"] == "list" {
                let schema = operation["responses"]["200"]["schema"]["$ref"].as_str().unwrap();
                assert!(schema.ends_with("List"), "{path} is answered with {schema}");
            }
        }
    }
    check_references(&document, &document);
    // Server-side dry run and strict validation are found here by older clients.
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]["parameters"];
    let names: Vec<&str> = patch.as_array().unwrap().iter().filter_map(|it| it["$ref"].as_str()).collect();
    assert!(names.contains(&"#/parameters/dryRun") && names.contains(&"#/parameters/fieldValidation"), "{names:?}");
}

/// Every `$ref` names something that is there.
fn check_references(value: &Value, document: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            fields.values().for_each(|value| check_references(value, document));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(item, document)),
        _ => {}
    }
}

#[tokio::test]
async fn the_older_document_is_the_same_in_protobuf() {
    let cluster = Cluster::start().await;
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await;
    let (document, etag) = older(&cluster).await;
    let accept = [("accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")];
    let (code, headers, body) = cluster.raw("GET", OLDER, &accept, Value::Null).await;
    assert_eq!((code, headers["etag"].to_str().unwrap()), (200, etag.as_str()));
    let fields = fields(&body);
    let of = |number: u64, of: &[(u64, Vec<u8>)]| -> Vec<Vec<u8>> {
        of.iter().filter(|(it, _)| *it == number).map(|(_, bytes)| bytes.clone()).collect()
    };
    let names = |entries: Vec<Vec<u8>>| -> Vec<String> {
        let name = |entry: &Vec<u8>| String::from_utf8(of(1, &self::fields(entry))[0].clone()).unwrap();
        entries.iter().map(name).collect()
    };
    let keys = |field: &str| document[field].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let inside = |number: u64| self::fields(&of(number, &fields)[0]);
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(names(of(2, &inside(8)))), sorted(keys("paths")));
    assert_eq!(sorted(names(of(1, &inside(9)))), sorted(keys("definitions")));
    assert_eq!(sorted(names(of(1, &inside(10)))), sorted(keys("parameters")));
}

#[tokio::test]
async fn a_document_of_version_3_is_the_same_in_protobuf() {
    let cluster = Cluster::start().await;
    let path = "/openapi/v3/apis/apps/v1";
    let (_, headers, body) = cluster.raw("GET", path, &[("accept", "application/json")], Value::Null).await;
    let document: Value = serde_json::from_slice(&body).unwrap();
    for accept in ["@v1.0", ".v1.0"] {
        let accept = format!("application/com.github.proto-openapi.spec.v3{accept}+protobuf");
        let (code, found, body) = cluster.raw("GET", path, &[("accept", &accept)], Value::Null).await;
        assert_eq!((code, &found["etag"]), (200, &headers["etag"]));
        assert_eq!(found["content-type"], "application/com.github.proto-openapi.spec.v3.v1.0+protobuf");
        let inside = |number: u64, bytes: &[u8]| -> Vec<Vec<u8>> {
            fields(bytes).into_iter().filter(|(it, _)| *it == number).map(|(_, bytes)| bytes).collect()
        };
        let named = |entries: Vec<Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
            let name = |entry: &Vec<u8>| String::from_utf8(inside(1, entry)[0].clone()).unwrap();
            entries.iter().map(|entry| (name(entry), inside(2, entry)[0].clone())).collect()
        };
        assert_eq!(inside(1, &body), [b"3.0.0"]);
        let paths = named(inside(1, &inside(4, &body)[0]));
        assert!(paths.keys().eq(document["paths"].as_object().unwrap().keys().collect::<BTreeSet<_>>()));
        let schemas = named(inside(1, &inside(1, &inside(5, &body)[0])[0]));
        let wanted = document["components"]["schemas"].as_object().unwrap();
        assert!(schemas.keys().eq(wanted.keys().collect::<BTreeSet<_>>()));
        // A schema, its properties, and what one of them refers to.
        let deployment = &inside(1, &schemas["io.k8s.api.apps.v1.Deployment"])[0];
        assert_eq!(inside(25, deployment), [b"object"]);
        let properties = named(inside(1, &inside(31, deployment)[0]));
        assert!(properties.keys().eq(["apiVersion", "kind", "metadata", "spec", "status"]));
        let spec = &inside(26, &inside(1, &properties["spec"])[0])[0];
        assert_eq!(inside(1, &inside(2, spec)[0]), [b"#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"]);
        // A path, its method, and what it answers.
        let get = &inside(4, &paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"])[0];
        assert_eq!(inside(5, get), [b"readAppsV1NamespacedDeployment"]);
        let answers = named(inside(2, &inside(8, get)[0]));
        assert_eq!(answers.keys().collect::<Vec<_>>(), ["200", "401"]);
    }
    let (code, _, _) = cluster.raw("GET", path, &[("accept", "text/html")], Value::Null).await;
    assert_eq!(code, 406);
}

/// Numbers and contents of a message's fields.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                varint(&mut bytes);
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).unwrap(),
            other => panic!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at(length);
        found.push((key >> 3, content.to_vec()));
        bytes = rest;
    }
    found
}

#[tokio::test]
async fn documents_of_version_3_are_complete() {
    let cluster = Cluster::start().await;
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await;
    let (_, headers, body) = cluster.raw("GET", "/openapi/v3", &[], Value::Null).await;
    assert!(headers.contains_key("last-modified"));
    let index: Value = serde_json::from_slice(&body).unwrap();
    let paths = index["paths"].as_object().unwrap();
    for path in
        ["api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "version", "openid/v1/jwks", "apis/example.com/v1"]
    {
        assert!(paths.contains_key(path), "{path}");
    }
    assert!(!paths.contains_key("apis/resource.k8s.io/v1alpha3"));
    for (path, link) in paths {
        let (code, headers, body) =
            cluster.raw("GET", link["serverRelativeURL"].as_str().unwrap(), &[], Value::Null).await;
        assert_eq!(code, 200, "{path}");
        let etag = headers["etag"].to_str().unwrap();
        let document: Value = serde_json::from_slice(&body).unwrap();
        check_references(&document, &document);
        let again = cluster.raw("GET", &format!("/openapi/v3/{path}"), &[("if-none-match", etag)], Value::Null).await;
        assert_eq!((again.0, again.2.len()), (304, 0), "{path}");
    }
}
