//! Lists that are rendered while they are sent equal short ones.

use crate::cluster::{Cluster, admin};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const COUNT: usize = 700;

async fn filled() -> Cluster {
    let cluster = Cluster::start().await;
    for number in 0..COUNT {
        let label = if number % 7 == 0 { "seven" } else { "other" };
        let body = json!({"metadata": {"name": format!("m-{number:03}"), "labels": {"of": label}},
            "data": {"k": "a: \"b\"\n".repeat(number % 5)}});
        cluster.make(MAPS, body).await;
    }
    cluster
}

async fn get(cluster: &Cluster, path: &str, headers: &[(&str, &str)]) -> (HeaderMap, Bytes) {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = cluster.0.handle(request.body(Full::new(Bytes::new())).unwrap(), Some(&admin())).await;
    assert_eq!(response.status(), 200);
    (response.headers().clone(), response.into_body().collect().await.unwrap().to_bytes())
}

async fn json(cluster: &Cluster, path: &str, accept: &str) -> Value {
    let (_, bytes) = get(cluster, path, &[("accept", accept)]).await;
    serde_json::from_slice(&bytes).unwrap()
}

/// All of it at once, and page by page.
async fn check(cluster: &Cluster, query: &str, accept: &str, field: &str, expected: usize) {
    let whole = json(cluster, &format!("{MAPS}?{query}"), accept).await;
    let (mut token, mut items) = (String::new(), Vec::new());
    let last = loop {
        let page = json(cluster, &format!("{MAPS}?{query}&limit=100&continue={token}"), accept).await;
        items.extend(page[field].as_array().cloned().unwrap_or_default());
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break page;
        }
    };
    let found = whole[field].as_array().cloned().unwrap_or_default();
    assert_eq!(found.len(), expected, "{query} {accept}");
    assert!(found == items, "{query} {accept}");
    assert_eq!((&whole["kind"], &whole["apiVersion"]), (&last["kind"], &last["apiVersion"]));
    assert!(whole["metadata"]["resourceVersion"].is_string() && whole["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn long_lists_equal_short_ones() {
    let cluster = filled().await;
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (query, expected) in [("", COUNT), ("labelSelector=of%3Dseven", 100), ("labelSelector=of%3Dnothing", 0)] {
        check(&cluster, query, "application/json", "items", expected).await;
        check(&cluster, query, metadata, "items", expected).await;
        check(&cluster, query, "application/vnd.kubernetes.protobuf;q=0.1,application/json", "items", expected).await;
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let shown = json(&cluster, &format!("{MAPS}?labelSelector=of%3Dseven"), table).await;
    assert_eq!(shown["rows"].as_array().unwrap().len(), 100);
    assert_eq!(shown["rows"][1]["cells"][0], "m-007");
    let none = json(&cluster, &format!("{MAPS}?labelSelector=of%3Dnothing"), table).await;
    assert_eq!((&none["rows"], none["columnDefinitions"].as_array().unwrap().len()), (&json!([]), 3));
}

/// Rows without their ages, which may differ by a second.
fn rows_without_age(table: &Value) -> Vec<Value> {
    let mut rows = table["rows"].as_array().unwrap().clone();
    for row in &mut rows {
        let age = row["cells"][2].take();
        assert!(age.as_str().is_some_and(|age| age.ends_with('s')), "{age}");
    }
    rows
}

#[tokio::test]
async fn table_rows_follow_changes_of_their_objects() {
    let cluster = filled().await;
    let form = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let first = rows_without_age(&json(&cluster, MAPS, form).await);
    // Rows are kept by then.
    assert!(rows_without_age(&json(&cluster, MAPS, form).await) == first);
    let none = json(&cluster, &format!("{MAPS}?includeObject=None"), form).await;
    assert_eq!((&none["rows"][3]["cells"][0], &none["rows"][3]["object"]), (&json!("m-003"), &Value::Null));
    let patch = json!({"data": {"more": "of it", "and": "more"}});
    cluster.ask(&admin(), "PATCH", &format!("{MAPS}/m-010"), patch).await;
    let changed = rows_without_age(&json(&cluster, MAPS, form).await);
    let count = |rows: &[Value]| rows[10]["cells"][1].as_i64().unwrap();
    assert_eq!(count(&changed), count(&first) + 2);
    assert!(changed[..10] == first[..10] && changed[11..] == first[11..]);
}

#[tokio::test]
async fn long_lists_are_compressed_and_written_as_yaml() {
    let cluster = filled().await;
    let (headers, plain) = get(&cluster, MAPS, &[]).await;
    assert!(headers.get("content-encoding").is_none());
    let (headers, compressed) = get(&cluster, MAPS, &[("accept-encoding", "gzip")]).await;
    assert_eq!(headers["content-encoding"], "gzip");
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*compressed), &mut text).unwrap();
    assert!(text == plain);
    let (headers, yaml) = get(&cluster, MAPS, &[("accept", "application/yaml")]).await;
    assert_eq!(headers["content-type"], "application/yaml");
    // What was sent as YAML is what was sent as JSON.
    let (documents, error) = api::yaml::parse_documents(std::str::from_utf8(&yaml).unwrap());
    assert!(error.is_none());
    let mut expected = api::json::parse(&plain).unwrap();
    expected.sort_keys();
    let [document] = documents.as_slice() else { panic!("{}", documents.len()) };
    let mut found = document.value.clone();
    found.sort_keys();
    assert!(api::json::to_string(&found) == api::json::to_string(&expected));
    let (_, none) = get(&cluster, &format!("{MAPS}?labelSelector=no"), &[("accept", "application/yaml")]).await;
    assert!(none.starts_with(b"apiVersion: v1\nitems: []\nkind: ConfigMapList\n"), "{none:?}");
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn long_lists_are_messages_of_protobuf() {
    let cluster = filled().await;
    let of = api::types::by_kind("", "v1", "ConfigMapList").unwrap();
    for query in [
        "",
        "labelSelector=of%3Dseven",
        "labelSelector=of%3Dnothing",
        "limit=600",
        "fieldSelector=metadata.name%3Dm-007",
    ] {
        let path = format!("{MAPS}?{query}");
        // The second time it is known how long they are.
        for _ in 0..2 {
            let (headers, bytes) = get(&cluster, &path, &[("accept", PROTOBUF)]).await;
            assert_eq!(headers["content-type"], PROTOBUF);
            let (_, plain) = get(&cluster, &path, &[]).await;
            let message = api::types::protobuf::write(of, &api::json::parse(&plain).unwrap());
            assert!(bytes == api::types::protobuf::write_envelope("v1", "ConfigMapList", &message), "{query}");
        }
    }
    // Compressed, and changed since.
    cluster.ask(&admin(), "PATCH", &format!("{MAPS}/m-010"), json!({"data": {"more": "of it"}})).await;
    let (_, plain) = get(&cluster, MAPS, &[]).await;
    let (_, compressed) = get(&cluster, MAPS, &[("accept", PROTOBUF), ("accept-encoding", "gzip")]).await;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*compressed), &mut bytes).unwrap();
    let message = api::types::protobuf::write(of, &api::json::parse(&plain).unwrap());
    assert!(bytes == api::types::protobuf::write_envelope("v1", "ConfigMapList", &message));
}

#[tokio::test]
async fn custom_resource_lists_stay_json_for_protobuf_clients() {
    let cluster = filled().await;
    let accept = format!("{PROTOBUF},application/json");
    let (headers, _) = get(&cluster, MAPS, &[("accept", &accept)]).await;
    assert_eq!(headers["content-type"], PROTOBUF);
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let things = "/apis/example.com/v1/namespaces/ns/things";
    for number in 0..510 {
        let thing =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": format!("t-{number}")}});
        cluster.make(things, thing).await;
    }
    let (headers, bytes) = get(&cluster, things, &[("accept", &accept)]).await;
    assert_eq!(headers["content-type"], "application/json");
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 510);
}

#[tokio::test]
async fn long_lists_have_line_breaks_and_tables_are_yaml() {
    let cluster = filled().await;
    for query in ["", "labelSelector=of%3Dseven", "labelSelector=of%3Dnothing"] {
        let (_, plain) = get(&cluster, &format!("{MAPS}?{query}"), &[]).await;
        let (headers, pretty) = get(&cluster, &format!("{MAPS}?{query}&pretty=true"), &[]).await;
        assert_eq!(headers["content-type"], "application/json");
        let expected = api::json::to_pretty_string(&api::json::parse(&plain).unwrap(), "  ");
        assert!(pretty == expected.as_bytes(), "{query}");
        let form = "as=Table;v=v1;g=meta.k8s.io";
        let (_, plain) =
            get(&cluster, &format!("{MAPS}?{query}"), &[("accept", &format!("application/json;{form}"))]).await;
        let (headers, yaml) =
            get(&cluster, &format!("{MAPS}?{query}"), &[("accept", &format!("application/yaml;{form}"))]).await;
        assert_eq!(headers["content-type"], "application/yaml");
        let mut expected = api::json::parse(&plain).unwrap();
        expected.sort_keys();
        let (mut found, mut wanted) = (String::from_utf8(yaml.to_vec()).unwrap(), api::yaml::to_string(&expected));
        // The age of the objects may differ by a second.
        for text in [&mut found, &mut wanted] {
            *text = text.lines().filter(|line| !line.trim_start_matches(['-', ' ']).ends_with('s')).collect();
        }
        assert_eq!(found, wanted, "{query}");
    }
}

#[tokio::test]
async fn lists_of_the_past_are_as_long_as_they_were() {
    let cluster = filled().await;
    let (_, before) = get(&cluster, MAPS, &[]).await;
    let before: Value = serde_json::from_slice(&before).unwrap();
    let version = before["metadata"]["resourceVersion"].as_str().unwrap();
    for number in 0..10 {
        let (status, _) = cluster.ask(&admin(), "DELETE", &format!("{MAPS}/m-{number:03}"), Value::Null).await;
        assert_eq!(status, 200);
    }
    let exact = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert!(json(&cluster, &exact, "application/json").await == before);
    let seven = json(&cluster, &format!("{exact}&labelSelector=of%3Dseven"), "application/json").await;
    assert_eq!(seven["items"].as_array().unwrap().len(), 100);
    // Few of them are selected: one page is read until it is full.
    let first = json(&cluster, &format!("{exact}&labelSelector=of%3Dseven&limit=2"), "application/json").await;
    let names: Vec<_> = first["items"].as_array().unwrap().iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["m-000", "m-007"]);
    assert!(first["metadata"]["continue"].is_string());
    let none = json(&cluster, &format!("{exact}&labelSelector=of%3Dnothing&limit=1"), "application/json").await;
    assert_eq!((&none["items"], &none["metadata"]["continue"]), (&json!([]), &Value::Null));
    let (_, message) = get(&cluster, &exact, &[("accept", PROTOBUF)]).await;
    let of = api::types::by_kind("", "v1", "ConfigMapList").unwrap();
    let (_, plain) = get(&cluster, &exact, &[]).await;
    let expected = api::types::protobuf::write(of, &api::json::parse(&plain).unwrap());
    assert!(message == api::types::protobuf::write_envelope("v1", "ConfigMapList", &expected));
}

#[tokio::test]
async fn many_events_are_listed_and_watched_page_by_page() {
    let cluster = Cluster::start().await;
    let events = "/api/v1/namespaces/ns/events";
    for number in 0..600 {
        let body = json!({"metadata": {"name": format!("e-{number:03}")}, "reason": "R", "type": "Normal",
            "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"}});
        cluster.make(events, body).await;
    }
    let list = json(&cluster, events, "application/json").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 600);
    let request = Request::builder().uri(format!("{events}?watch=1&timeoutSeconds=30"));
    let response = cluster.0.handle(request.body(Full::new(Bytes::new())).unwrap(), Some(&admin())).await;
    let (mut body, mut lines) = (response.into_body(), 0);
    while lines < 600 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        lines += frame.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(lines, 600);
}
