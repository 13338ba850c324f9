//! Several API servers on one real etcd: guarantees for clients that switch between them, and errors while etcd
//! is unavailable.
//!
//! Without `etcd` the tests print a note and pass, unless `CELPLANE_REQUIRE_TOOLS=1` is set.

#[path = "../../store/tests/support/etcd_server.rs"]
mod etcd_server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apiserver::identity::User;
use apiserver::{Body, Options, Server};
use bytes::Bytes;
use etcd_server::is_missing;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::etcd::Etcd;

/// Two servers on one etcd.
struct Replicas {
    etcd: etcd_server::Server,
    servers: [Arc<Server>; 2],
}

async fn open(etcd: &etcd_server::Server, compaction: Option<Duration>) -> Arc<Server> {
    let options = store::etcd::Options {
        timeout: Duration::from_secs(2),
        progress_interval: Duration::from_millis(100),
        ..store::etcd::Options::new(etcd.endpoints())
    };
    let store = Arc::new(Etcd::new(options).unwrap());
    let started = Instant::now();
    loop {
        let options = Options { store_name: "etcd", compaction_interval: compaction, ..Options::without_controllers() };
        match Server::start(store.clone(), options).await {
            Ok(server) => return server,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(90), "etcd does not start: {error:?}"),
        }
    }
}

impl Replicas {
    async fn start(compaction: Option<Duration>) -> Self {
        Self::start_on(1, compaction).await
    }

    async fn start_on(members: usize, compaction: Option<Duration>) -> Self {
        let etcd = etcd_server::Server::start(members, None);
        let servers = [open(&etcd, compaction).await, open(&etcd, compaction).await];
        Self { etcd, servers }
    }

    async fn stop(self) {
        for server in &self.servers {
            server.stop().await.unwrap();
        }
    }
}

async fn send(server: &Arc<Server>, method: &str, path: &str, body: &Value) -> Response<Body> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).body(Full::new(body)).unwrap();
    server.handle(request, Some(&User::authenticated("admin", &["system:masters"]))).await
}

async fn ask(server: &Arc<Server>, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let response = send(server, method, path, body).await;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)))
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("{object}")).parse().unwrap()
}

/// An open watch.
struct Watch {
    body: Body,
    text: Vec<u8>,
}

impl Watch {
    async fn open(server: &Arc<Server>, after: u64) -> Self {
        let path = format!("/api/v1/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion={after}");
        let response = send(server, "GET", &path, &Value::Null).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), text: Vec::new() }
    }

    /// The next event, `None` at the end of the stream or after `wait`.
    async fn next(&mut self, wait: Duration) -> Option<Value> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout_at(deadline, self.body.frame()).await.ok()??;
            self.text.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }
}

/// Writes to an object: the acknowledged versions, and their counts.
type History = BTreeMap<u64, u64>;

/// Counts up in one object, through one server after the other, and reads it back through the other.
async fn write_and_read(servers: [Arc<Server>; 2], name: String, stop: Arc<AtomicBool>) -> History {
    let path = format!("/api/v1/namespaces/default/configmaps/{name}");
    let mut history = History::new();
    let (mut count, mut seen) = (0_u64, 0_u64);
    let body = json!({"metadata": {"name": name}, "data": {"count": "0"}});
    let (status, made) = ask(&servers[0], "POST", "/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!(status, 201, "{made}");
    history.insert(version(&made), 0);
    for turn in 0_usize.. {
        if stop.load(Ordering::SeqCst) {
            return history;
        }
        let (here, there) = (&servers[turn % 2], &servers[(turn + 1) % 2]);
        count += 1;
        let body = json!({"metadata": {"name": name}, "data": {"count": count.to_string()}});
        let (status, written) = ask(here, "PUT", &path, &body).await;
        assert_eq!(status, 200, "{written}");
        assert!(version(&written) > seen);
        seen = version(&written);
        history.insert(seen, count);
        // A consistent read elsewhere returns it, and so does one with a minimum version.
        for query in [String::new(), format!("?resourceVersion={seen}")] {
            let (status, read) = ask(there, "GET", &format!("{path}{query}"), &Value::Null).await;
            assert_eq!(status, 200, "{read}");
            assert_eq!((version(&read), read["data"]["count"].as_str().unwrap()), (seen, &*count.to_string()));
        }
        let list = "/api/v1/namespaces/default/configmaps";
        let (_, listed) = ask(there, "GET", list, &Value::Null).await;
        assert!(version(&listed) >= seen, "a list is not older than what its client has written");
        let own = listed["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == name.as_str());
        assert_eq!(version(own.unwrap()), seen);
    }
    history
}

/// Watches all objects from a version on; moves to the other server after every few events.
async fn watch_and_move(
    servers: [Arc<Server>; 2],
    after: u64,
    until: Arc<AtomicU64>,
    events_per_stay: usize,
) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let mut reached = after;
    for stay in 0_usize.. {
        let mut watch = Watch::open(&servers[stay % 2], reached).await;
        for _ in 0..events_per_stay {
            let end = until.load(Ordering::SeqCst);
            if end != 0 && reached >= end {
                return events;
            }
            let Some(event) = watch.next(Duration::from_millis(500)).await else { break };
            assert_ne!(event["type"], "ERROR", "{event}");
            let at = version(&event["object"]);
            if event["type"] == "BOOKMARK" {
                assert!(at >= reached, "a bookmark steps back from {reached} to {at}");
            } else {
                assert!(at > reached, "a watch steps back or repeats: {reached}, then {event}");
                events.push(event);
            }
            reached = at;
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_moves_sees_every_change_once_and_never_an_older_state() {
    if is_missing("a_client_that_moves_sees_every_change_once_and_never_an_older_state") {
        return;
    }
    let replicas = Replicas::start(None).await;
    let servers = &replicas.servers;
    let (_, list) = ask(&servers[0], "GET", "/api/v1/configmaps", &Value::Null).await;
    let start = version(&list);
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::new(AtomicU64::new(0));
    let watchers: Vec<_> = [3, 40, usize::MAX]
        .map(|stay| tokio::spawn(watch_and_move(servers.clone(), start, until.clone(), stay)))
        .into();
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let mut order = servers.clone();
            order.rotate_left(n % 2);
            tokio::spawn(write_and_read(order, format!("w{n}"), stop.clone()))
        })
        .collect();
    let seconds = std::env::var("CELPLANE_REPLICAS_SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(4);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::SeqCst);
    let mut histories = BTreeMap::new();
    for (n, writer) in writers.into_iter().enumerate() {
        histories.insert(format!("w{n}"), writer.await.unwrap());
    }
    let last = histories.values().filter_map(|history| history.keys().next_back()).max().unwrap();
    until.store(*last, Ordering::SeqCst);
    let written: usize = histories.values().map(History::len).sum();
    for (n, watcher) in watchers.into_iter().enumerate() {
        let events = watcher.await.unwrap();
        let mut seen: BTreeMap<String, History> = BTreeMap::new();
        for event in &events {
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            let count = event["object"]["data"]["count"].as_str().unwrap().parse().unwrap();
            let history = seen.entry(name).or_default();
            assert_eq!(event["type"], if history.is_empty() { "ADDED" } else { "MODIFIED" });
            history.insert(version(&event["object"]), count);
        }
        assert_eq!(seen, histories, "watcher {n} saw what was written");
        assert_eq!(events.len(), written);
    }
    println!("{written} writes, each seen once by 3 watchers");
    assert!(written > 40, "{written}");
    replicas.stop().await;
}

/// Counts up in one object, through one server after the other, while writes may be cut off. Gives back what was
/// acknowledged.
async fn write_through_trouble(servers: [Arc<Server>; 2], name: String, stop: Arc<AtomicBool>) -> History {
    let path = format!("/api/v1/namespaces/default/configmaps/{name}");
    let mut history = History::new();
    let body = json!({"metadata": {"name": name}, "data": {"count": "0"}});
    let (status, made) = ask(&servers[0], "POST", "/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!(status, 201, "{made}");
    history.insert(version(&made), 0);
    for turn in 1_usize.. {
        if stop.load(Ordering::SeqCst) {
            return history;
        }
        let body = json!({"metadata": {"name": name}, "data": {"count": turn.to_string()}});
        let (status, written) = ask(&servers[turn % 2], "PUT", &path, &body).await;
        if status == 200 {
            history.insert(version(&written), turn as u64);
        } else {
            assert!(status == 500 || status == 504, "{status} {written}");
        }
    }
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_one_of_three_members_lost_nothing_acknowledged_is() {
    if is_missing("with_one_of_three_members_lost_nothing_acknowledged_is") {
        return;
    }
    let mut replicas = Replicas::start_on(3, None).await;
    let servers = replicas.servers.clone();
    let (_, list) = ask(&servers[0], "GET", "/api/v1/configmaps", &Value::Null).await;
    let (stop, until) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watcher = tokio::spawn(watch_and_move(servers.clone(), version(&list), until.clone(), 25));
    let writers: Vec<_> =
        (0..3).map(|n| tokio::spawn(write_through_trouble(servers.clone(), format!("w{n}"), stop.clone()))).collect();
    for member in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if member == 1 {
            replicas.etcd.pause(member, true);
            tokio::time::sleep(Duration::from_secs(2)).await;
            replicas.etcd.pause(member, false);
        } else {
            replicas.etcd.kill(member);
            tokio::time::sleep(Duration::from_secs(2)).await;
            replicas.etcd.run(member);
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = BTreeMap::new();
    for (n, writer) in writers.into_iter().enumerate() {
        for (at, count) in writer.await.unwrap() {
            acknowledged.insert(at, (format!("w{n}"), count));
        }
    }
    // One more, so that there is something to wait for.
    let started = Instant::now();
    let last = loop {
        let body = json!({"metadata": {"name": "end"}, "data": {"count": "0"}});
        let (status, made) = ask(&servers[0], "POST", "/api/v1/namespaces/default/configmaps", &body).await;
        if status == 201 {
            break version(&made);
        }
        assert!(started.elapsed() < Duration::from_secs(90), "{status} {made}");
        ask(&servers[0], "DELETE", "/api/v1/namespaces/default/configmaps/end", &Value::Null).await;
    };
    until.store(last, Ordering::SeqCst);
    let mut seen = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for event in watcher.await.unwrap() {
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        let count: u64 = event["object"]["data"]["count"].as_str().unwrap().parse().unwrap();
        // A write that was cut off may come true later, but never behind a later one of the same writer.
        assert!(name == "end" || counts.insert(name.clone(), count).is_none_or(|before| before < count), "{event}");
        seen.insert(version(&event["object"]), (name, count));
    }
    for (at, written) in &acknowledged {
        assert_eq!(seen.get(at), Some(written), "lost at {at}");
    }
    println!("{} acknowledged, {} seen", acknowledged.len(), seen.len());
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    replicas.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn while_etcd_is_away_the_cache_answers_and_nothing_is_lost() {
    if is_missing("while_etcd_is_away_the_cache_answers_and_nothing_is_lost") {
        return;
    }
    let mut replicas = Replicas::start(None).await;
    let [one, other] = replicas.servers.clone();
    let collection = "/api/v1/namespaces/default/configmaps";
    let (_, made) = ask(&one, "POST", collection, &json!({"metadata": {"name": "a"}})).await;
    let mut watch = Watch::open(&other, version(&made) - 1).await;
    assert_eq!(version(&watch.next(Duration::from_secs(10)).await.unwrap()["object"]), version(&made));
    assert_eq!(ask(&one, "GET", "/readyz", &Value::Null).await.0, 200);
    assert_eq!(ask(&one, "GET", "/readyz/etcd", &Value::Null).await.0, 200);

    replicas.etcd.kill(0);
    let (status, text) = ask(&one, "GET", "/readyz", &Value::Null).await;
    assert_eq!(status, 500);
    assert!(text.as_str().unwrap().contains("[-]etcd failed: reason withheld\n"), "{text}");
    assert_eq!(ask(&one, "GET", "/readyz?exclude=etcd", &Value::Null).await.0, 200);
    for (method, path, body) in [
        ("POST", collection.to_owned(), json!({"metadata": {"name": "b"}})),
        ("PUT", format!("{collection}/a"), json!({"metadata": {"name": "a"}, "data": {"k": "lost"}})),
        ("DELETE", format!("{collection}/a"), Value::Null),
        ("GET", collection.to_owned(), Value::Null),
    ] {
        let (status, answer) = ask(&one, method, &path, &body).await;
        assert!(status == 500 || status == 504, "{method} {status} {answer}");
        assert_eq!((&answer["kind"], answer["code"].as_u64().unwrap()), (&json!("Status"), u64::from(status)));
        assert!(answer["message"].as_str().unwrap().contains("the storage "), "{answer}");
    }
    // Any version will do for these.
    for path in [format!("{collection}?resourceVersion=0"), format!("{collection}/a?resourceVersion=0")] {
        assert_eq!(ask(&other, "GET", &path, &Value::Null).await.0, 200, "{path}");
    }

    replicas.etcd.run(0);
    let started = Instant::now();
    while ask(&one, "GET", "/readyz", &Value::Null).await.0 != 200 {
        assert!(started.elapsed() < Duration::from_secs(90), "etcd does not come back");
    }
    // What was cut off may have happened; what comes now must be seen once, after that.
    let (status, changed) =
        ask(&one, "POST", collection, &json!({"metadata": {"name": "c"}, "data": {"k": "new"}})).await;
    assert_eq!(status, 201, "{changed}");
    let mut reached = version(&made);
    loop {
        let event = watch.next(Duration::from_secs(20)).await.expect("the watch goes on");
        let at = version(&event["object"]);
        assert!(event["type"] == "BOOKMARK" || at > reached, "{event}");
        reached = at;
        if event["object"]["metadata"]["name"] == "c" {
            assert_eq!(at, version(&changed));
            break;
        }
    }
    replicas.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unavailable_versions_have_distinct_errors() {
    if is_missing("unavailable_versions_have_distinct_errors") {
        return;
    }
    let replicas = Replicas::start(Some(Duration::from_millis(200))).await;
    let [one, other] = replicas.servers.clone();
    let collection = "/api/v1/namespaces/default/configmaps";
    let (_, made) = ask(&one, "POST", collection, &json!({"metadata": {"name": "a"}})).await;
    // Far in the future: waited for, then refused.
    let future = format!("{collection}/a?resourceVersion={}", version(&made) + 1_000_000);
    let (status, answer) = ask(&other, "GET", &future, &Value::Null).await;
    assert_eq!(status, 504, "{answer}");
    assert!(answer["message"].as_str().unwrap().starts_with("Timeout: Too large resource version: "), "{answer}");
    assert_eq!(answer["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    // Compacted by any of the servers: both report it.
    let exact = format!("{collection}?resourceVersion={}&resourceVersionMatch=Exact", version(&made));
    let started = Instant::now();
    for server in [&one, &other] {
        loop {
            let (status, answer) = ask(server, "GET", &exact, &Value::Null).await;
            if status == 410 {
                assert_eq!(answer["reason"], "Expired");
                break;
            }
            assert_eq!(status, 200, "{answer}");
            assert!(started.elapsed() < Duration::from_secs(90), "nobody compacts");
            ask(
                &one,
                "PUT",
                &format!("{collection}/a"),
                &json!({"metadata": {"name": "a"}, "data": {"t": format!("{:?}", started.elapsed())}}),
            )
            .await;
        }
    }
    // While turns are taken nothing else is written: reads still know that they are as new as the store.
    for server in [&one, &other] {
        assert_eq!(ask(server, "GET", &format!("{collection}/a"), &Value::Null).await.0, 200);
    }
    // More than etcd takes.
    let pod = json!({"metadata": {"name": "big"}, "spec": {
        "containers": [{"name": "c", "image": "i", "args": ["x".repeat(2_000_000)]}]
    }});
    let (status, answer) = ask(&one, "POST", "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(status, 413, "{answer}");
    assert_eq!(answer["reason"], "RequestEntityTooLarge");
    assert!(answer["message"].as_str().unwrap().contains("request is too large"), "{answer}");
    replicas.stop().await;
}
