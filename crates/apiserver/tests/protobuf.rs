//! Answers in protobuf: to watches, of metadata alone, and where there is no such form.

use api::types::protobuf::Envelope;
use api::types::{self, protobuf};
use serde_json::{Value, json};

use crate::cluster::{Cluster, admin, pod};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The document of an object in its envelope.
fn document(bytes: &[u8]) -> Value {
    let envelope = Envelope::read(bytes).unwrap();
    let of = types::by_api_version(&envelope.api_version, &envelope.kind)
        .or_else(|| types::partial(&envelope.api_version, &envelope.kind))
        .or_else(|| types::by_kind("meta.k8s.io", "v1", &envelope.kind))
        .unwrap();
    let value = protobuf::read(of, envelope.raw).unwrap();
    let mut value: Value = serde_json::from_str(&api::json::to_string(&value)).unwrap();
    value["kind"] = envelope.kind.into();
    value["apiVersion"] = envelope.api_version.into();
    value
}

/// The events of a stream, each with its type and its object.
fn events(mut stream: &[u8]) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while let Some((length, rest)) = stream.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        // A string and a message with the object's bytes: tags and lengths, which are short here or take two bytes.
        assert_eq!(frame[0], 0x0a);
        let (kind, object) = frame[2..].split_at(frame[1] as usize);
        assert_eq!(object[0], 0x12);
        let start = object.windows(4).position(|it| it == protobuf::MAGIC).unwrap();
        events.push((String::from_utf8(kind.to_vec()).unwrap(), document(&object[start..])));
        stream = rest;
    }
    assert!(stream.is_empty());
    events
}

async fn watch(cluster: &Cluster, path: &str, accept: &str) -> (u16, String, Vec<u8>) {
    let (code, headers, body) = cluster.raw("GET", path, &[("accept", accept)], Value::Null).await;
    let kind = headers.get("content-type").map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
    (code, kind, body.to_vec())
}

#[tokio::test]
async fn protobuf_watch_is_sent_in_frames() {
    let cluster = Cluster::start().await;
    let pods = "/api/v1/namespaces/ns/pods";
    cluster.make(pods, pod("a", "n")).await;
    let path = format!(
        "{pods}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    for accept in [PROTOBUF.to_owned(), format!("{PROTOBUF},application/json"), format!("{METADATA},application/json")]
    {
        let (code, kind, body) = watch(&cluster, &path, &accept).await;
        assert_eq!((code, kind.as_str()), (200, "application/vnd.kubernetes.protobuf;stream=watch"), "{accept}");
        let events = events(&body);
        let (kind, object) = &events[0];
        assert_eq!((kind.as_str(), &object["metadata"]["name"]), ("ADDED", &json!("a")), "{accept}");
        let is_metadata = accept.starts_with(METADATA);
        let wanted = if is_metadata { "PartialObjectMetadata" } else { "Pod" };
        assert_eq!(object["kind"], wanted);
        assert_eq!(object["spec"]["nodeName"] == "n", !is_metadata);
        let (kind, mark) = &events[1];
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(mark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
    // Changes as they happen, also those that leave the selection.
    let path = format!("{pods}?watch=1&timeoutSeconds=3&labelSelector=x!%3Dy&resourceVersion=");
    let list = cluster.ask(&admin(), "GET", pods, Value::Null).await.1;
    let path = format!("{path}{}", list["metadata"]["resourceVersion"].as_str().unwrap());
    let change = async {
        cluster.make(pods, pod("b", "")).await;
        let (code, _) =
            cluster.ask(&admin(), "PATCH", &format!("{pods}/b"), json!({"metadata": {"labels": {"x": "y"}}})).await;
        assert_eq!(code, 200);
    };
    let ((), (_, _, body)) = tokio::join!(change, watch(&cluster, &path, PROTOBUF));
    let kinds: Vec<String> = events(&body).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
    // Fatal errors are sent in the same form.
    let (_, _, body) =
        watch(&cluster, "/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=1", "application/json").await;
    let is_too_old = String::from_utf8_lossy(&body).contains("ERROR");
    let (_, _, body) = watch(&cluster, "/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=1", PROTOBUF).await;
    assert_eq!(events(&body).iter().any(|(kind, object)| kind == "ERROR" && object["kind"] == "Status"), is_too_old);
    // Tables have no such form.
    let table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io");
    let (code, _, _) = watch(&cluster, &format!("{pods}?watch=1&timeoutSeconds=1"), &table).await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn metadata_alone_is_sent_in_protobuf() {
    let cluster = Cluster::start().await;
    let pods = "/api/v1/namespaces/ns/pods";
    cluster.make(pods, pod("a", "n")).await;
    let one = format!("{pods}/a");
    let list = METADATA.replace("PartialObjectMetadata", "PartialObjectMetadataList");
    for (path, accept, kind) in [
        (one.as_str(), METADATA.to_owned(), "PartialObjectMetadata"),
        (pods, list.clone(), "PartialObjectMetadataList"),
        (pods, list.replace("v=v1", "v=v1beta1"), "PartialObjectMetadataList"),
    ] {
        let (code, content, body) = watch(&cluster, path, &format!("{accept},application/json")).await;
        assert_eq!((code, content.as_str()), (200, PROTOBUF), "{accept}");
        let found = document(&body);
        assert_eq!(found["kind"], kind);
        let object = if kind.ends_with("List") { &found["items"][0] } else { &found };
        assert_eq!(object["metadata"]["name"], "a", "{accept}");
    }
    // A rejection is not sent in the requested form of the object.
    let (code, content, _) = watch(&cluster, &format!("{pods}/b"), &format!("{METADATA},application/json")).await;
    assert_eq!((code, content.as_str()), (404, "application/json"));
    let (code, content, body) = watch(&cluster, &format!("{pods}/b"), PROTOBUF).await;
    assert_eq!((code, content.as_str()), (404, PROTOBUF));
    assert_eq!(document(&body)["reason"], "NotFound");
}

#[tokio::test]
async fn custom_resources_have_no_form_in_protobuf_but_that_of_their_metadata() {
    let cluster = Cluster::start().await;
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
            }]
        }
    });
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let widgets = "/apis/example.com/v1/namespaces/ns/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    cluster.make(widgets, widget).await;
    let one = format!("{widgets}/w");
    let watched = format!("{widgets}?watch=1&timeoutSeconds=1");
    for path in [one.as_str(), widgets, watched.as_str()] {
        let (code, content, body) = watch(&cluster, path, PROTOBUF).await;
        assert_eq!((code, content.as_str()), (406, PROTOBUF), "{path}");
        let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        assert_eq!(document(&body)["message"], message, "{path}");
        let (code, content, _) = watch(&cluster, path, &format!("{PROTOBUF},application/json")).await;
        assert_eq!((code, content.as_str()), (200, "application/json"), "{path}");
    }
    let (code, content, body) = watch(&cluster, &one, METADATA).await;
    assert_eq!((code, content.as_str()), (200, PROTOBUF));
    assert_eq!(document(&body)["metadata"]["name"], "w");
    let (code, _, body) = watch(&cluster, &watched, METADATA).await;
    assert_eq!((code, events(&body)[0].1["metadata"]["name"].as_str()), (200, Some("w")));
}

/// All built-in resources, as discovery names them.
#[tokio::test]
async fn the_list_of_every_built_in_resource_has_a_form_in_protobuf() {
    let cluster = Cluster::start().await;
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let mut count = 0;
    for root in ["/api", "/apis"] {
        let (_, _, body) = cluster.raw("GET", root, &accept, Value::Null).await;
        let found: Value = serde_json::from_slice(&body).unwrap();
        for group in found["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    if !resource["verbs"].as_array().unwrap().contains(&json!("list")) {
                        continue;
                    }
                    let group = group["metadata"]["name"].as_str().unwrap_or_default();
                    let group = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
                    let (version, resource) =
                        (version["version"].as_str().unwrap(), resource["resource"].as_str().unwrap());
                    let path = format!("{group}/{version}/{resource}");
                    let (code, headers, body) = cluster.raw("GET", &path, &[("accept", PROTOBUF)], Value::Null).await;
                    let kind = Envelope::read(&body).map(|it| it.kind).unwrap_or_default();
                    assert!(code == 200 && kind.ends_with("List"), "{path}: {code} {headers:?}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 60, "{count}");
}
