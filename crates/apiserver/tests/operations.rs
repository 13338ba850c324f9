//! Operation: full disks, expiry of events, backups, and the audit log.

use std::sync::Arc;
use std::time::Duration;

use apiserver::audit::Audit;
use apiserver::audit::log::{Log, Rotation};
use apiserver::audit::policy::Policy;
use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

use crate::cluster::{Cluster, admin};

async fn get(server: &Arc<Server>, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let response = server.handle(request, Some(&admin())).await;
    let status = response.status().as_u16();
    (status, String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned())
}

#[tokio::test]
async fn a_server_on_a_full_disk_serves_reads_and_says_why_it_takes_no_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let open = |free_bytes_min| {
        let options = store::Options { free_bytes_min, ..store::Options::default() };
        Arc::new(EmbeddedStore::open(&path, options).unwrap())
    };
    let server = Server::start(open(0), Options::without_controllers()).await.unwrap();
    assert_eq!(get(&server, "/readyz").await.0, 200);
    assert!(get(&server, "/readyz?verbose").await.1.contains("[+]store-writable ok\n"));
    server.stop().await.unwrap();

    let cluster = Cluster(Server::start(open(1 << 60), Options::without_controllers()).await.unwrap());
    let (code, list) = cluster.ask(&admin(), "GET", "/api/v1/namespaces", Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 4));
    let (code, text) = get(&cluster.0, "/readyz").await;
    assert_eq!(code, 500);
    assert!(text.contains("[-]store-writable failed: the disk is full: "), "{text}");
    assert!(text.contains(" MiB are free, and the last 1099511627776 MiB are kept in reserve"), "{text}");
    assert!(get(&cluster.0, "/readyz/store-writable").await.1.contains("kept in reserve"));
    // A restart would not help, and reads work.
    assert_eq!(get(&cluster.0, "/livez").await.0, 200);
    assert_eq!(get(&cluster.0, "/readyz?exclude=store-writable").await.0, 200);
    let (code, refused) = cluster.ask(&admin(), "POST", "/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await;
    assert_eq!(code, 500);
    assert!(refused["message"].as_str().unwrap().contains("kept in reserve"), "{refused}");
    cluster.0.stop().await.unwrap();
}

/// Concurrent deletions share the syncs of the disk.
#[tokio::test]
async fn a_collection_is_deleted_many_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path().join("store"), store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(store.clone(), Options::without_controllers()).await.unwrap());
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = (0..300).map(|number| {
        let labels = if number < 256 { json!({"doomed": "yes"}) } else { json!({}) };
        cluster.make(maps, json!({"metadata": {"name": format!("m-{number}"), "labels": labels}}))
    });
    futures::future::join_all(made).await;
    let before = store::Store::durable_commits(&*store);
    let doomed = format!("{maps}?labelSelector=doomed%3Dyes");
    assert_eq!(cluster.ask(&admin(), "DELETE", &doomed, Value::Null).await.0, 200);
    let commits = store::Store::durable_commits(&*store) - before;
    let (_, left) = cluster.ask(&admin(), "GET", maps, Value::Null).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 44);
    assert!(commits <= 64, "{commits}");
    cluster.0.stop().await.unwrap();
}

fn event(name: &str, reason: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns"},
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
        "reason": reason, "message": "m", "type": "Normal"
    })
}

const EVENTS: &str = "/api/v1/namespaces/ns/events";

/// The lines of a watch until there are enough.
async fn watch(server: &Arc<Server>, path: String, count: usize) -> Vec<Value> {
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let mut body = server.handle(request, Some(&admin())).await.into_body();
    let mut text = Vec::new();
    let read = async {
        while text.iter().filter(|byte| **byte == b'\n').count() < count {
            text.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn events_are_read_selected_and_watched_as_before() {
    let cluster = Cluster::start().await;
    for n in 0..5 {
        cluster.make(EVENTS, event(&format!("e{n}"), if n % 2 == 0 { "Even" } else { "Odd" })).await;
    }
    assert_eq!(cluster.ask(&admin(), "GET", &format!("{EVENTS}/e3"), Value::Null).await.1["reason"], "Odd");
    assert_eq!(cluster.ask(&admin(), "GET", &format!("{EVENTS}/e9"), Value::Null).await.0, 404);
    let (_, list) = cluster.ask(&admin(), "GET", EVENTS, Value::Null).await;
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&list), ["e0", "e1", "e2", "e3", "e4"]);
    let (_, odd) = cluster.ask(&admin(), "GET", &format!("{EVENTS}?fieldSelector=reason=Odd"), Value::Null).await;
    assert_eq!(names(&odd), ["e1", "e3"]);
    let (_, page) = cluster.ask(&admin(), "GET", "/api/v1/events?limit=2", Value::Null).await;
    assert_eq!((names(&page), &page["metadata"]["remainingItemCount"]), (vec!["e0".into(), "e1".into()], &json!(3)));
    let next = format!("/api/v1/events?limit=2&continue={}", page["metadata"]["continue"].as_str().unwrap());
    assert_eq!(names(&cluster.ask(&admin(), "GET", &next, Value::Null).await.1), ["e2", "e3"]);
    let (_, new) = cluster.ask(&admin(), "GET", "/apis/events.k8s.io/v1/namespaces/ns/events/e1", Value::Null).await;
    assert_eq!(new["regarding"]["name"], "p");

    // What `kubectl get events -w` does: a list, then a watch from there. And one that begins with what exists.
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let from_list = watch(&cluster.0, format!("{EVENTS}?watch=true&resourceVersion={version}"), 3);
    let initial = watch(&cluster.0, format!("{EVENTS}?watch=true&fieldSelector=reason=Odd"), 4);
    let work = async {
        let patch = json!({"count": 2});
        assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{EVENTS}/e1"), patch).await.0, 200);
        cluster.make(EVENTS, event("e5", "Odd")).await;
        assert_eq!(cluster.ask(&admin(), "DELETE", &format!("{EVENTS}/e0"), Value::Null).await.0, 200);
    };
    let (from_list, initial, ()) = tokio::join!(from_list, initial, work);
    let short = |events: Vec<Value>| -> Vec<String> {
        let one = |it: &Value| {
            format!("{} {}", it["type"].as_str().unwrap(), it["object"]["metadata"]["name"].as_str().unwrap())
        };
        events.iter().map(one).collect()
    };
    assert_eq!(short(from_list), ["MODIFIED e1", "ADDED e5", "DELETED e0"]);
    let initial = short(initial);
    assert_eq!(initial[..2], ["ADDED e1", "ADDED e3"]);
    assert!(initial.contains(&"ADDED e5".to_owned()), "{initial:?}");

    assert_eq!(
        cluster.ask(&admin(), "DELETE", &format!("{EVENTS}?fieldSelector=reason=Odd"), Value::Null).await.0,
        200
    );
    assert_eq!(names(&cluster.ask(&admin(), "GET", EVENTS, Value::Null).await.1), ["e2", "e4"]);
}

#[tokio::test]
async fn a_backup_is_for_administrators_and_holds_everything() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path().join("store"), store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(store.clone(), Options::without_controllers()).await.unwrap());
    cluster.make("/api/v1/namespaces", json!({"metadata": {"name": "ns"}})).await;
    let alice = User::authenticated("alice", &[]);
    assert_eq!(cluster.ask(&alice, "GET", "/store/backup", Value::Null).await.0, 403);
    assert_eq!(cluster.ask(&admin(), "POST", "/store/backup", Value::Null).await.0, 405);
    let request = Request::get("/store/backup").body(Full::new(Bytes::new())).unwrap();
    let response = cluster.0.handle(request, Some(&admin())).await;
    assert_eq!(response.status().as_u16(), 200);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let entries: Vec<_> = store::backup::Reader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len() as u64, store.statistics().keys);
    assert!(entries.iter().any(|entry| &*entry.key == "/registry/core/namespaces/ns"));
    cluster.0.stop().await.unwrap();
    let (code, refused) = Cluster::start().await.ask(&admin(), "GET", "/store/backup", Value::Null).await;
    assert_eq!(
        (code, &refused["message"]),
        (501, &json!("there is no backup of this store: the store is in memory only"))
    );
}

#[tokio::test]
async fn audit_log_follows_the_policy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let policy = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  resources: [{group: \"\", resources: [services]}]
- level: RequestResponse
  omitManagedFields: true
  omitStages: [RequestReceived]
  resources: [{group: \"\", resources: [configmaps]}]
- level: Metadata
  resources: [{group: \"\", resources: [pods, secrets]}]
";
    let rotation = Rotation { file_bytes_max: 0, files_max: 0, age_max: Duration::ZERO };
    let log = Log::open(&path, rotation).unwrap();
    let options =
        Options { audit: Some(Audit::new(Policy::parse(policy).unwrap(), log)), ..Options::without_controllers() };
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(store, options).await.unwrap());
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    cluster.ask(&admin(), "GET", "/api/v1/services", Value::Null).await;
    cluster.ask(&admin(), "GET", "/version", Value::Null).await;
    let headers = [("user-agent", "me/1"), ("audit-id", "mine"), ("impersonate-user", "jane")];
    let (code, _) = cluster.ask_with(&admin(), "POST", maps, &headers, map.clone()).await;
    assert_eq!(code, 403);
    cluster.make(&format!("{maps}?fieldManager=x"), map).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hidden"}});
    cluster.make("/api/v1/namespaces/default/secrets", secret).await;
    watch(&cluster.0, "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=1".to_owned(), 1).await;
    cluster.0.stop().await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hidden") && !text.contains("managedFields\":"), "{text}");
    let mut events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        for time in ["requestReceivedTimestamp", "stageTimestamp"] {
            assert_eq!(event[time].as_str().unwrap().len(), "2026-01-02T03:04:05.000006Z".len(), "{event}");
        }
    }
    let stages: Vec<String> = events
        .iter()
        .map(|it| {
            format!(
                "{} {} {}",
                it["verb"].as_str().unwrap(),
                it["objectRef"]["resource"].as_str().unwrap(),
                it["stage"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        stages[..6],
        [
            "create configmaps ResponseComplete",
            "create configmaps ResponseComplete",
            "create secrets RequestReceived",
            "create secrets ResponseComplete",
            "watch pods RequestReceived",
            "watch pods ResponseStarted",
        ]
    );
    let refused = events.remove(0);
    assert_eq!((&refused["auditID"], &refused["userAgent"]), (&json!("mine"), &json!("me/1")));
    assert_eq!((&refused["kind"], &refused["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
    assert_eq!(refused["level"], "RequestResponse");
    assert_eq!(refused["user"], json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]}));
    assert_eq!(refused["impersonatedUser"]["username"], "jane");
    assert_eq!(
        (&refused["responseStatus"]["code"], &refused["responseStatus"]["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    let made = events.remove(0);
    let reference = json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
    assert_eq!(made["objectRef"], reference);
    assert_eq!(made["requestURI"], format!("{maps}?fieldManager=x"));
    assert_eq!(made["requestObject"]["data"], json!({"k": "v"}));
    assert_eq!(made["responseObject"]["metadata"]["name"], "a");
    assert_eq!(made["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_ne!(made["auditID"], "");
    assert!(made.get("impersonatedUser").is_none());
}

/// For every form and notation of a body, the log names the created object.
#[tokio::test]
async fn audit_log_names_generated_objects() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let policy = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: \"\", resources: [secrets]}]
- level: Request
";
    let rotation = Rotation { file_bytes_max: 0, files_max: 0, age_max: Duration::ZERO };
    let log = Log::open(&path, rotation).unwrap();
    let options =
        Options { audit: Some(Audit::new(Policy::parse(policy).unwrap(), log)), ..Options::without_controllers() };
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(store, options).await.unwrap());
    // Metadata with a name, in an envelope.
    let mut protobuf = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x07\x0a\x05\x0a\x03sec".to_vec();
    protobuf.extend_from_slice(b"\x1a\0\"\0");
    let secrets = "/api/v1/namespaces/default/secrets";
    let maps = "/api/v1/namespaces/default/configmaps";
    for (path, form, body) in [
        (secrets, "application/json", b"{ \"metadata\": {\"name\" : \"spaced\"} }".to_vec()),
        (secrets, "application/json", b"{\"metadata\":{\"name\":\"decoy\"},\"metadata\":{\"name\":\"real\"}}".to_vec()),
        (secrets, "application/json", b"{\"metadata\":{\"na\\u006de\":\"escaped\"}}".to_vec()),
        (secrets, "application/yaml", b"metadata: {name: yaml}\nstringData: {password: hidden}".to_vec()),
        (secrets, "application/vnd.kubernetes.protobuf", protobuf),
        (maps, "application/yaml", b"metadata: {name: map}\ndata: {k: v}".to_vec()),
    ] {
        let request = http::Request::post(path).header("content-type", form);
        let body = http_body_util::Full::new(bytes::Bytes::from(body));
        let answer = cluster.0.handle(request.body(body).unwrap(), Some(&admin())).await;
        assert_eq!(answer.status(), 201, "{form}");
    }
    cluster.0.stop().await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hidden") && !text.contains("decoy"), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let made: Vec<&Value> =
        events.iter().filter(|it| it["verb"] == "create" && it["user"]["username"] == "admin").collect();
    let names: Vec<&str> = made.iter().filter_map(|it| it["objectRef"]["name"].as_str()).collect();
    assert_eq!(names, ["spaced", "real", "escaped", "yaml", "sec", "map"]);
    assert_eq!(made[5]["requestObject"]["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn a_request_that_is_dropped_does_not_stay_in_flight() {
    let cluster = Cluster::start().await;
    // A client that sends an endless body, and disconnects.
    for _ in 0..3 {
        let (sender, body) = futures::channel::mpsc::unbounded::<Result<http_body::Frame<Bytes>, std::io::Error>>();
        let request = Request::post("/api/v1/namespaces").body(http_body_util::StreamBody::new(body)).unwrap();
        let user = admin();
        let handled = cluster.0.handle(request, Some(&user));
        assert!(tokio::time::timeout(Duration::from_millis(50), handled).await.is_err());
        drop(sender);
    }
    let (_, metrics) = get(&cluster.0, "/metrics").await;
    let in_flight: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("apiserver_current_inflight_requests{")).collect();
    assert!(
        in_flight.iter().all(|line| line.ends_with(" 0") || line.contains("readOnly") && line.ends_with(" 1")),
        "{in_flight:?}"
    );
}

#[tokio::test]
async fn disconnected_client_is_in_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let policy =
        "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Metadata}]}";
    let log = Log::open(&path, Rotation { file_bytes_max: 0, files_max: 0, age_max: Duration::ZERO }).unwrap();
    let options =
        Options { audit: Some(Audit::new(Policy::parse(policy).unwrap(), log)), ..Options::without_controllers() };
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(store, options).await.unwrap());
    let (sender, body) = futures::channel::mpsc::unbounded::<Result<http_body::Frame<Bytes>, std::io::Error>>();
    let request = Request::post("/api/v1/namespaces").body(http_body_util::StreamBody::new(body)).unwrap();
    let user = admin();
    assert!(tokio::time::timeout(Duration::from_millis(50), cluster.0.handle(request, Some(&user))).await.is_err());
    drop(sender);
    cluster.ask(&admin(), "GET", "/api/v1/services", Value::Null).await;
    cluster.0.stop().await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes: Vec<_> = events.iter().map(|it| (it["verb"].as_str().unwrap(), &it["responseStatus"]["code"])).collect();
    assert_eq!(codes, [("create", &json!(500)), ("list", &json!(200))], "each once: {text}");
    assert_eq!(events[0]["user"]["username"], "admin");
    assert!(events[0]["responseStatus"]["message"].as_str().unwrap().starts_with("the client went away"), "{text}");
}

#[tokio::test]
async fn protobuf_is_sent_on_request_with_json_fallback() {
    let cluster = Cluster::start().await;
    for n in 0..3 {
        cluster
            .make(
                "/api/v1/namespaces/ns/configmaps",
                json!({"metadata": {"name": format!("c{n}")}, "data": {"k": "v"}}),
            )
            .await;
    }
    let ask = async |path: &str| {
        let accept = "application/vnd.kubernetes.protobuf,application/json";
        let request = Request::get(path).header("accept", accept).body(Full::new(Bytes::new())).unwrap();
        let response = cluster.0.handle(request, Some(&admin())).await;
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        (content_type, response.into_body().collect().await.unwrap().to_bytes())
    };
    for (path, kind) in [
        ("/api/v1/namespaces/ns/configmaps", "ConfigMapList"),
        ("/api/v1/namespaces/ns/configmaps/c1", "ConfigMap"),
        ("/api/v1/namespaces/ns/configmaps/none", "Status"),
    ] {
        let (content_type, body) = ask(path).await;
        assert_eq!(content_type, "application/vnd.kubernetes.protobuf", "{path}");
        let envelope = api::types::protobuf::Envelope::read(&body).unwrap();
        assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", kind));
        if kind == "ConfigMapList" {
            let of = api::types::by_kind("", "v1", kind).unwrap();
            let list = api::types::protobuf::read(of, envelope.raw).unwrap();
            let json = api::json::to_string(&list);
            assert_eq!(json.matches("\"k\":\"v\"").count(), 3, "{json}");
        }
    }
    assert_eq!(ask("/version").await.0, "application/json");
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]
        }
    });
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    assert_eq!(ask("/apis/example.com/v1/things").await.0, "application/json");
}

#[tokio::test]
async fn times_in_objects_and_audit_events_come_from_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    let rotation = Rotation { file_bytes_max: 0, files_max: 0, age_max: Duration::ZERO };
    let log = Log::open(&path, rotation).unwrap();
    let options = Options {
        audit: Some(Audit::new(Policy::parse(policy).unwrap(), log)),
        clock: clock::Clock::starting_at(api::time::Timestamp::parse("2031-02-03T04:05:06Z").unwrap()),
        ..Options::without_controllers()
    };
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(store, options).await.unwrap());
    let announced = cluster.0.announce(apiserver::serving::presence::Presence {
        address: "192.0.2.1:6443".parse().unwrap(),
        hostname: "vm".to_owned(),
        client_authorities: String::new(),
        cluster_info: None,
    });
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    cluster.make("/api/v1/namespaces/default/services", service).await;
    let schema = json!({
        "metadata": {"name": "dangling"},
        "spec": {"priorityLevelConfiguration": {"name": "none"}, "matchingPrecedence": 500}
    });
    cluster.make("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema).await;
    for (path, list) in [
        ("/api/v1/namespaces", "creationTimestamp"),
        ("/apis/networking.k8s.io/v1/ipaddresses", "creationTimestamp"),
        ("/apis/networking.k8s.io/v1/servicecidrs", "lastTransitionTime"),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "lastTransitionTime"),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/dangling", "lastTransitionTime"),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", "renewTime"),
    ] {
        let field = format!("\"{list}\":\"");
        // Leases and conditions are written in the background.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let text = loop {
            let text = get(&cluster.0, path).await.1;
            if text.contains(&field) {
                break text;
            }
            assert!(tokio::time::Instant::now() < deadline, "{path}: {text}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        let times: Vec<&str> = text.split(&field).skip(1).map(|rest| &rest[..10]).collect();
        assert!(times.iter().all(|time| *time == "2031-02-03"), "{path}: {times:?}");
    }
    cluster.0.stop().await.unwrap();
    announced.gone().await;
    let text = std::fs::read_to_string(&path).unwrap();
    for field in ["requestReceivedTimestamp", "stageTimestamp"] {
        let field = format!("\"{field}\":\"");
        assert!(text.split(&field).skip(1).all(|rest| rest.starts_with("2031-02-03T04:")), "{text}");
    }
    assert!(text.contains("2031-02-03T04:05:"), "{text}");
}
