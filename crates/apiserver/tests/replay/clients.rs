//! Replays the requests of real clients, one by one: `kubectl`, the scheduler, the controllers, Python's
//! client.
//!
//! They did not start with an empty server, and other clients wrote at the same time. So each request is a
//! separate case: the recorded state of its objects is put into the store, the request is sent, and the
//! previous state is restored.

pub(crate) mod cases;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::json;
use apiserver::identity::Authenticator;
use apiserver::resources;
use apiserver::{Options, Server};
use bytes::Bytes;
use cache::stored;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use store::{EmbeddedStore, ListOptions, Outcome as Written, Store as _, Write};

use super::player::{KnownValues, Outcome, build, collect_events, compare, compare_events, compare_unrecorded};

/// Keys, and what they held when.
type Contents = BTreeMap<String, (u64, Bytes)>;

pub(crate) async fn play(cases: Vec<Value>) -> Vec<Outcome> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let tokens = "admin,admin,u-admin,system:masters\nalice,alice,u-alice,dev\n";
    let tokens = Authenticator::parse_tokens(tokens).unwrap();
    let runtime_config = "resource.k8s.io/v1alpha3=true".parse().unwrap();
    let server = Server::start(store.clone(), Options { tokens, runtime_config, ..Options::default() }).await.unwrap();
    server.settle().await.unwrap();
    let before = contents(&store).await;
    let mut outcomes = Vec::new();
    for case in &cases {
        let id = format!("{} {}", case["scenario"].as_str().unwrap(), case["step"]);
        let mut known = KnownValues::new();
        if let Some(namespace) = namespace_of(case) {
            let path = case["request"]["path"].as_str().unwrap();
            make_namespace(&server, namespace, !path.ends_with("/serviceaccounts")).await;
            if case["response"]["body"]["details"]["causes"][0]["reason"] == "NamespaceTerminating" {
                begin_deletion(&server, namespace).await;
            }
        }
        for object in case["given"].as_array().unwrap() {
            put(&store, object, &mut known).await;
        }
        server.settle().await.unwrap();
        let request = build(case, &known);
        let request = if case["response"]["status"] == 304 { with_own_etag(&server, request).await } else { request };
        if case["response"].get("stream").is_some() && case["status_only"] != true {
            let streamed = collect_events(server.clone(), request).await;
            outcomes.push(compare_events(case["scenario"].as_str().unwrap(), case, streamed));
        } else {
            let response = server.handle(request, None).await;
            let difference = if case["status_only"] == true {
                compare_outside(case, response).await
            } else {
                compare(case, response, &mut known).await
            };
            outcomes.push(Outcome { id, difference });
        }
        restore(&store, &before).await;
        server.settle().await.unwrap();
    }
    server.stop().await.unwrap();
    outcomes
}

/// The same request with the hash of this server's document: the recorded server had another one.
async fn with_own_etag(server: &Arc<Server>, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request.headers_mut().remove(http::header::IF_NONE_MATCH);
    let mut first = Request::builder().method("GET").uri(request.uri().clone());
    *first.headers_mut().unwrap() = request.headers().clone();
    let response = server.handle(first.body(Full::default()).unwrap(), None).await;
    if let Some(etag) = response.headers().get(http::header::ETAG) {
        request.headers_mut().insert(http::header::IF_NONE_MATCH, etag.clone());
    }
    request
}

/// Compares the code and the content type, and examines the body, which is not in the recording.
async fn compare_outside(case: &Value, response: http::Response<apiserver::Body>) -> Option<String> {
    let recorded = &case["response"];
    let status = u64::from(response.status().as_u16());
    if status != recorded["status"].as_u64().unwrap() {
        return Some(format!("status {status} instead of {}", recorded["status"]));
    }
    let found = response.headers().get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default();
    let wanted = recorded["headers"]["content-type"].as_str().unwrap_or_default();
    if found != wanted {
        return Some(format!("header content-type is `{found}` instead of `{wanted}`"));
    }
    let is_stream = recorded.get("stream").is_some();
    let (head, body) = response.into_parts();
    // A stream lasts.
    if is_stream {
        return None;
    }
    compare_unrecorded(case, &head.headers, &body.collect().await.unwrap().to_bytes())
}

fn namespace_of(case: &Value) -> Option<&str> {
    let path = case["request"]["path"].as_str().unwrap().split('?').next().unwrap();
    let mut parts = path.split('/').skip_while(|it| *it != "namespaces").skip(1);
    let name = parts.next()?;
    // A request about the namespace itself contains it.
    parts.next().filter(|part| !matches!(*part, "status" | "finalize")).map(|_| name)
}

/// A namespace as the controllers keep it.
async fn make_namespace(server: &Arc<Server>, name: &str, with_account: bool) {
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    let all = [("/api/v1/namespaces", name), (accounts.as_str(), "default")];
    for (path, name) in all.into_iter().take(if with_account { 2 } else { 1 }) {
        let body = serde_json::json!({"metadata": {"name": name}}).to_string();
        let request = Request::builder().method("POST").uri(path).header("Authorization", "Bearer admin");
        let response = server.handle(request.body(Full::new(Bytes::from(body))).unwrap(), None).await;
        let code = response.status().as_u16();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert!(matches!(code, 201 | 409), "{path} {name}: {code} {}", String::from_utf8_lossy(&answer));
    }
}

/// Deletes a namespace, which keeps its finalizer: no controller empties it.
async fn begin_deletion(server: &Arc<Server>, name: &str) {
    let path = format!("/api/v1/namespaces/{name}");
    let request = Request::builder().method("DELETE").uri(path).header("Authorization", "Bearer admin");
    let response = server.handle(request.body(Full::default()).unwrap(), None).await;
    assert_eq!(response.status(), 200);
}

/// Puts an object into the store as it was recorded.
async fn put(store: &EmbeddedStore, object: &Value, known: &mut KnownValues) {
    let mut document = json::parse(object.to_string().as_bytes()).unwrap();
    let text = |path: &[&str]| document.text_at(path).to_owned();
    let (api_version, kind) = (text(&["apiVersion"]), text(&["kind"]));
    let (namespace, name) = (text(&["metadata", "namespace"]), text(&["metadata", "name"]));
    let recorded = text(&["metadata", "resourceVersion"]);
    let key = match resources::find_by_api_version(&api_version, &kind) {
        Some(resource) => {
            let version = api_version.rsplit('/').next().unwrap();
            registry::conversion::to_stored(resource, version, &mut document);
            let stored = registry::conversion::stored_api_version(resource);
            let of = api::types::by_api_version(&stored, &kind).unwrap();
            document = api::types::decode(of, &document).unwrap().value;
            resource.key(&namespace, &name)
        }
        None => {
            let group = api_version.split('/').next().unwrap();
            let plural = cases::custom_plural(&kind);
            format!("/registry/{group}/{plural}/{namespace}/{name}")
        }
    };
    let value = stored::encode(&mut document).unwrap();
    let write = match store.get(&key, 0).await.unwrap().entry {
        Some(entry) => Write::update(key.as_str(), entry.revision, value),
        None => Write::create(key.as_str(), value),
    };
    let Written::Done { revision, .. } = store.write(write).await.unwrap() else { panic!("{key} was written before") };
    known.insert(format!("rv:{recorded}"), revision.to_string());
}

async fn contents(store: &EmbeddedStore) -> Contents {
    let page = store.list("/registry/", ListOptions::default()).await.unwrap();
    page.entries.into_iter().map(|entry| (entry.key.to_string(), (entry.revision, entry.value))).collect()
}

/// Makes everything as it was.
async fn restore(store: &EmbeddedStore, before: &Contents) {
    // Others write too: what keeps itself is written again.
    for _ in 0..100 {
        let mut is_done = true;
        for (key, (revision, value)) in contents(store).await {
            let write = match before.get(&key) {
                None => Write::delete(key.as_str(), revision),
                Some((_, old)) if *old != value => Write::update(key.as_str(), revision, old.clone()),
                Some(_) => continue,
            };
            is_done &= matches!(store.write(write).await.unwrap(), Written::Done { .. });
        }
        let now = contents(store).await;
        for (key, (_, value)) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
            let write = Write::create(key.as_str(), value.clone());
            is_done &= matches!(store.write(write).await.unwrap(), Written::Done { .. });
        }
        if is_done {
            return;
        }
    }
    panic!("the store does not come to rest");
}
