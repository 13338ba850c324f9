//! Logs and metrics for operators: requests, clients in a hot loop, watchers that fell behind.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use store::EmbeddedStore;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::cluster::{Cluster, admin};

/// The lines of this process. All tests share them, and look for their own words.
static LINES: OnceLock<Arc<Mutex<Vec<String>>>> = OnceLock::new();

struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("celplane_apiserver")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Starts recording log lines, if not done yet.
pub(crate) fn listen() {
    LINES.get_or_init(|| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Recorder(lines.clone())).unwrap();
        lines
    });
}

/// The lines in which all of these words stand.
pub(crate) fn lines_with(words: &[&str]) -> Vec<String> {
    let lines = LINES.get().unwrap().lock().unwrap();
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
}

#[tokio::test]
async fn requests_are_logged_at_the_requested_verbosity() {
    listen();
    for logs_requests in [false, true] {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let server = Server::start(store, Options { logs_requests, ..Options::without_controllers() }).await.unwrap();
        let headers = [("user-agent", "curious/1.0"), ("audit-id", "the-name-of-it")];
        let path = "/api/v1/namespaces/none/configmaps/none?pretty=true";
        let (code, _) = Cluster(server).ask_as(&admin(), "GET", path, &headers, json!(null)).await;
        assert_eq!(code, 404);
        let found = lines_with(&["curious/1.0"]);
        assert_eq!(found.len(), usize::from(logs_requests), "{found:?}");
        for word in ["INFO", "message=HTTP", "verb=\"GET\"", path, "auditID=the-name-of-it", "resp=404", "latency="] {
            assert!(found.iter().all(|line| line.contains(word)), "{word}: {found:?}");
        }
    }
}

#[tokio::test]
async fn hot_loop_client_is_logged_once() {
    listen();
    let cluster = Cluster::start().await;
    let user = User::authenticated("looping", &["system:masters"]);
    for number in 0..20 {
        let pod = json!({"metadata": {"name": format!("p-{number}")}, "spec": {"containers": []}});
        assert_eq!(cluster.ask(&user, "POST", "/api/v1/namespaces/ns/pods", pod).await.0, 422);
    }
    let found = lines_with(&["keeps rejecting", "looping"]);
    assert_eq!(found.len(), 1, "{found:?}");
    for word in ["WARN", "resource=\"pods\"", "namespace=\"ns\"", "count=5", "spec.containers: Required value"] {
        assert!(found[0].contains(word), "{word}: {found:?}");
    }
}

#[tokio::test]
async fn a_watcher_that_fell_behind_is_cut_off_and_counted() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/ns/configmaps";
    let get = async |path: &str| {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        cluster.0.handle(request, Some(&admin())).await.into_body()
    };
    let unread = get(&format!("{maps}?watch=1")).await;
    for round in 0..80 {
        let map = json!({"metadata": {"name": format!("m-{round}")}, "data": {"long": "x".repeat(100_000)}});
        cluster.make(maps, map).await;
    }
    // It ends although the client would continue to read: events were lost.
    let read = tokio::time::timeout(Duration::from_secs(20), unread.collect()).await.unwrap().unwrap().to_bytes();
    assert!(read.len() < 80 * 100_000, "{}", read.len());
    let metrics = get("/metrics").await.collect().await.unwrap().to_bytes();
    let counted = r#"apiserver_terminated_watchers_total{group="",resource="configmaps"} 1"#;
    assert!(String::from_utf8_lossy(&metrics).lines().any(|line| line == counted));
}
