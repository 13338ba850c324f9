//! Whole requests into the API server, without a network: method, path, headers and body are the fuzzer's.

use std::cell::RefCell;
use std::sync::Arc;

use api::features::{Features, Gate};
use api::json;
use apiserver::identity::User;
use apiserver::{Body, Options, Server};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use store::EmbeddedStore;
use tokio::runtime::Runtime;

/// Requests of one input are separated by this byte.
const NEXT: u8 = 0x1e;
/// Maximum number of requests of an input.
const REQUESTS_MAX: usize = 8;
/// A server is used for this many inputs, because making one takes much longer than a request; then its store is emptied.
const INPUTS_PER_SERVER: usize = 200;

struct RunningServer {
    runtime: Runtime,
    server: Arc<Server>,
    inputs: usize,
}

thread_local! {
    static RUNNING: RefCell<Option<RunningServer>> = const { RefCell::new(None) };
}

impl RunningServer {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(async {
            let store = EmbeddedStore::in_memory(store::Options::default()).expect("a store");
            let features = Features::all_proposals().with(Gate::CBORServingAndStorage, true);
            Server::start(Arc::new(store), Options { features, ..Options::without_controllers() })
                .await
                .expect("a server")
        });
        Self { runtime, server, inputs: 0 }
    }
}

/// Every request is answered, with JSON if declared; all written objects can be listed, as objects and as a
/// table.
pub fn apiserver_request(data: &[u8]) {
    RUNNING.with_borrow_mut(|running| {
        let mut it = running.take().filter(|it| it.inputs < INPUTS_PER_SERVER).unwrap_or_else(RunningServer::start);
        it.inputs += 1;
        for text in data.split(|byte| *byte == NEXT).take(REQUESTS_MAX) {
            it.runtime.block_on(request(&it.server, text));
        }
        *running = Some(it);
    });
}

/// `METHOD /path`, headers, an empty line, the body.
async fn request(server: &Arc<Server>, text: &[u8]) {
    let split = text.windows(2).position(|window| window == b"\n\n");
    let (head, body) = split.map_or((text, &[][..]), |at| (&text[..at], &text[at + 2..]));
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let (method, path) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or(("GET", "/api/v1/pods"));
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        builder = builder.header(name.trim(), value.trim());
    }
    // What is not HTTP does not get this far.
    let Ok(request) = builder.body(Full::new(bytes::Bytes::copy_from_slice(body))) else { return };
    let writes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let collection = collection_of(request.uri().path());
    let status = answer(server, request).await;
    if writes && status < 300 {
        for accept in ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            let again = Request::get(collection.as_str()).header("Accept", accept).body(Full::default());
            let Ok(again) = again else { continue };
            let status = answer(server, again).await;
            assert!(matches!(status, 200 | 404 | 405), "{collection} can no longer be listed: {status}");
        }
    }
}

/// The path without what stands behind the resource.
fn collection_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let prefix = if path.starts_with("/apis/") { 4 } else { 3 };
    let length = match parts.get(prefix) {
        Some(&"namespaces") if parts.len() > prefix + 2 => prefix + 3,
        _ => prefix + 1,
    };
    parts[..parts.len().min(length)].join("/")
}

async fn answer(server: &Arc<Server>, request: Request<Full<bytes::Bytes>>) -> u16 {
    let user = User { name: "fuzz".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
    let answer = server.handle(request, Some(&user)).await;
    let status = answer.status().as_u16();
    let is_json = answer.headers().get("content-type").is_some_and(|it| it == "application/json");
    let is_plain = !answer.headers().contains_key("content-encoding");
    // A stream lasts.
    if matches!(answer.body(), Body::Stream(_)) {
        return status;
    }
    let body = answer.into_body().collect().await.expect("a body cannot fail").to_bytes();
    if is_json && is_plain && !body.is_empty() {
        assert!(json::parse(&body).is_ok(), "{status} is not JSON: {}", String::from_utf8_lossy(&body));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_found_in_paths() {
        let check = |path: &str, expected: &str| assert_eq!(collection_of(path), expected);
        check("/api/v1/namespaces/a/pods/b/status", "/api/v1/namespaces/a/pods");
        check("/apis/apps/v1/namespaces/a/deployments", "/apis/apps/v1/namespaces/a/deployments");
        check("/api/v1/nodes/n", "/api/v1/nodes");
        check("/api/v1/namespaces/a", "/api/v1/namespaces");
        check("/healthz", "/healthz");
    }

    #[test]
    fn requests_are_sent_in_turn() {
        apiserver_request(
            b"POST /api/v1/namespaces/default/configmaps\n\n{\"metadata\":{\"name\":\"a\"}}\x1e\
              PATCH /api/v1/namespaces/default/configmaps/a\nContent-Type: application/merge-patch+json\n\n{\"data\":{\"a\":\"b\"}}",
        );
        let status = RUNNING.with_borrow(|running| {
            let running = running.as_ref().unwrap();
            let request = Request::get("/api/v1/namespaces/default/configmaps/a").body(Full::default()).unwrap();
            running.runtime.block_on(answer(&running.server, request))
        });
        assert_eq!(status, 200);
    }
}
