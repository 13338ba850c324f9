//! Lists that are made while they are sent say what short ones say.

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
async fn long_lists_say_what_short_ones_say() {
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

#[tokio::test]
async fn protobuf_needs_the_whole_list_and_gets_it() {
    let cluster = filled().await;
    let accept = "application/vnd.kubernetes.protobuf";
    let (headers, bytes) = get(&cluster, MAPS, &[("accept", accept)]).await;
    assert_eq!(headers["content-type"], accept);
    assert!(bytes.starts_with(b"k8s\0"));
}
