//! Aggregated APIs: recorded requests against a whole server and the aggregated API server of the recording, then what
//! passes through, upgrades, and servers that do not answer as they should.
//!
//! The cases are in `tests/data/aggregation/aggregation.jsonl`. Answers are compared, and the requests that the aggregated
//! server received. A case that differs is listed in `aggregation/known_gaps.txt`; one that is listed and agrees fails as
//! well. Waits are replaced by repetition, and delays are shortened.

mod backend;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::admission::SimulatedBackends;
use apiserver::audit::Peer;
use apiserver::certificates::front_proxy::FrontProxy;
use apiserver::identity::User;
use apiserver::serving::presence::Presence;
use apiserver::{Options, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::backend::Backend;
use crate::network::Network;

/// Stands for the recorded address of a pod: a multicast address, to which connections fail before anything is sent.
const UNREACHABLE: &str = "239.192.2.10";

/// Repetitions of a request until its answer is as wanted, and the time between them.
const REPEATS_MAX: usize = 3000;
const PAUSE: Duration = Duration::from_millis(20);

struct Answer {
    code: u64,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| match self.body.is_empty() {
            true => Value::Null,
            false => String::from_utf8_lossy(&self.body).into_owned().into(),
        })
    }
}

async fn ask(server: &Arc<Server>, request: &Value) -> Answer {
    let text = match &request["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    let token = request["identity"]["user"].as_str().unwrap_or("admin");
    let mut built = http::Request::builder();
    built = built.method(request["verb"].as_str().unwrap_or("GET")).uri(request["path"].as_str().unwrap());
    built = built.header("authorization", format!("Bearer {token}")).header("accept-encoding", "identity");
    built = built.header("user-agent", "recorder").extension(Peer(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    if let Some(kind) = request["contentType"].as_str() {
        built = built.header("content-type", kind);
    }
    let headers = request["headers"].as_object();
    for (name, value) in headers.into_iter().flatten() {
        built = built.header(name, value.as_str().unwrap().as_bytes());
    }
    if headers.is_none_or(|it| !it.contains_key("accept")) {
        built = built.header("accept", "application/json");
    }
    let response = server.handle(built.body(Full::new(Bytes::from(text))).unwrap(), None).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { code: u64::from(parts.status.as_u16()), headers: parts.headers, body }
}

/// JSON with a space after colons and commas.
fn spaced(value: &Value) -> String {
    let (mut out, mut is_text, mut is_escaped) = (String::new(), false, false);
    for letter in value.to_string().chars() {
        out.push(letter);
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            ':' | ',' if !is_text => out.push(' '),
            _ => {}
        }
    }
    out
}

fn mask(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            if key == "metadata" {
                for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                    fields.remove(field);
                }
            }
            if key == "details" {
                fields.remove("uid");
            }
            fields.iter_mut().for_each(|(key, value)| match key.as_str() {
                "lastTransitionTime" => *value = "<time>".into(),
                "client-ca-file" | "requestheader-client-ca-file" => *value = "<certificate>\n".into(),
                _ => mask(value, key),
            });
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, key)),
        _ => {}
    }
}

/// The part of a document that a case is about.
fn picked(body: &Value, pick: &str) -> Value {
    if let Some(entry) = body["paths"].get(pick) {
        let text = spaced(entry);
        let (before, after) = text.split_once("?hash=").unwrap();
        let after = &after[after.find('"').unwrap()..];
        return json!({"picked": format!("{before}?hash=<hash>{after}")});
    }
    let part = |field: &str| -> serde_json::Map<String, Value> {
        let all = body[field].as_object().into_iter().flatten();
        let own = all.filter(|(name, value)| name.contains(pick) || value.to_string().contains(pick));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    json!({"definitions": part("definitions"), "paths": part("paths")})
}

fn difference(answer: &Answer, step: &Value) -> Option<String> {
    let expected = &step["expect"];
    let mut body = answer.json();
    if Some(answer.code) != expected["code"].as_u64() {
        return Some(format!("code {} instead of {}: {body}", answer.code, expected["code"]));
    }
    for (name, value) in expected["headers"].as_object().into_iter().flatten() {
        let given = answer.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let is_same = if name == "Audit-Id" { given.len() == 36 } else { *value == given };
        if !is_same {
            return Some(format!("{name}: {given} instead of {value}"));
        }
    }
    let warnings: Vec<&str> = answer.headers.get_all("warning").iter().map(|it| it.to_str().unwrap()).collect();
    let wanted: Vec<&str> = expected["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if warnings != wanted {
        return Some(format!("warnings {warnings:?}"));
    }
    if let Some(pick) = step["pick"].as_str() {
        body = picked(&body, pick);
    }
    let mut wanted = expected["body"].clone();
    mask(&mut body, "");
    mask(&mut wanted, "");
    if body["kind"] == "Status" {
        let kept = ["status", "message", "reason", "details", "code"];
        for body in [&mut body, &mut wanted] {
            body.as_object_mut().unwrap().retain(|key, _| kept.contains(&key.as_str()));
        }
    }
    // A stream of documents is a text.
    let text = String::from_utf8_lossy(&answer.body);
    (body != wanted && wanted.as_str() != Some(&text)).then(|| format!("body {body} instead of {wanted}"))
}

/// A request in a form that can be compared.
fn comparable(request: &Value, ignored: &[&str]) -> Value {
    let mut request = request.clone();
    if let Some(body) = request["body"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        request["body"] = body;
    }
    let headers = request["headers"].as_array_mut().unwrap();
    for header in headers.iter_mut() {
        let name = header[0].as_str().unwrap().to_lowercase();
        if name == "audit-id" {
            header[1] = "<uid>".into();
        }
        header[0] = name.into();
    }
    headers.retain(|it| !["content-length", "transfer-encoding"].contains(&it[0].as_str().unwrap()));
    headers.retain(|it| !ignored.contains(&it[0].as_str().unwrap()));
    headers.sort_by_key(ToString::to_string);
    request
}

fn difference_of_received(received: &[Value], expected: &Value) -> Option<String> {
    let list = |all: &[Value]| {
        let mut all: Vec<Value> = all.iter().map(|it| comparable(it, &[])).collect();
        // Kubernetes repeats a request on each of its idle connections.
        all.dedup();
        all
    };
    let (received, expected) = (list(received), list(expected.as_array()?));
    (received != expected).then(|| format!("received {} instead of {}", json!(received), json!(expected)))
}

struct World {
    server: Arc<Server>,
    backend: Backend,
    /// Addresses of services, and the places that stand for them.
    services: Vec<(String, String)>,
}

fn tokens() -> HashMap<String, User> {
    let user = |name: &str, uid: &str, groups: &[&str]| {
        (name.to_owned(), User { uid: uid.to_owned(), ..User::authenticated(name, groups) })
    };
    HashMap::from([
        user("admin", "admin", &["system:masters"]),
        user("alice", "1001", &["dev", "ops"]),
        // A line of a token file with an empty list of groups.
        user("bob", "", &[""]),
    ])
}

fn post(path: &str, body: Value) -> Value {
    json!({"verb": "POST", "path": path, "contentType": "application/json", "body": body})
}

impl World {
    async fn start() -> Self {
        Self::with(SimulatedBackends::Fail).await
    }

    async fn with(simulated_backends: SimulatedBackends) -> Self {
        let front_proxy = Arc::new(FrontProxy::generate().unwrap());
        let backend = Backend::start(&front_proxy).await;
        let mapped = |(name, address): (&&str, &std::net::SocketAddr)| {
            (("svcs".to_owned(), (*name).to_owned(), 443), address.to_string())
        };
        let options = Options {
            tokens: tokens(),
            disabled_admission_plugins: vec!["ServiceAccount".to_owned()],
            backends: backend.addresses.iter().map(mapped).collect(),
            simulated_backends,
            front_proxy: Some(front_proxy),
            service_addresses: "127.96.0.0/16".parse().unwrap(),
            ..Options::default()
        };
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let server = Server::start(store, options).await.unwrap();
        let mut world = Self { server, backend, services: Vec::new() };
        world.make("/api/v1/namespaces", json!({"metadata": {"name": "svcs"}})).await;
        let binding = json!({"metadata": {"name": "dev"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}]});
        world.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        for name in ["api", "wrongname", "unknownca", "refused", "noeps", "notready", "wrongportname", "headless"] {
            world.add_service(name).await;
        }
        world
    }

    async fn make(&self, path: &str, body: Value) -> Value {
        let answer = ask(&self.server, &post(path, body)).await;
        assert_eq!(answer.code, 201, "{}", answer.json());
        answer.json()
    }

    async fn add_service(&mut self, name: &str) {
        let mut spec = json!({"ports": [{"name": "https", "port": 443}]});
        if name == "headless" {
            spec["clusterIP"] = "None".into();
        }
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let service = self.make("/api/v1/namespaces/svcs/services", service).await;
        self.services.push((name.to_owned(), service["spec"]["clusterIP"].as_str().unwrap().to_owned()));
        if name == "noeps" {
            return;
        }
        let port = if name == "wrongportname" { "other" } else { "https" };
        self.add_slice("svcs", name, json!({"ready": name != "notready"}), port).await;
    }

    async fn add_slice(&self, namespace: &str, name: &str, conditions: Value, port: &str) {
        let slice = json!({"metadata": {"name": format!("{name}-1"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.10"], "conditions": conditions}],
            "ports": [{"name": port, "port": 443}]});
        self.make(&format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"), slice).await;
    }

    /// A case with the addresses of this run in place of the recorded ones, and less to wait for.
    fn here(&self, case: &str) -> Value {
        let mut text = case.replace("{{ca}}", &STANDARD.encode(&self.backend.authority));
        text = text.replace("192.0.2.10", UNREACHABLE);
        for (name, address) in &self.services {
            text = text.replace(&format!("{{{{ip:{name}}}}}"), address);
        }
        text = text.replace("<n> bytes", &format!("{} bytes", self.backend.authority.len()));
        serde_json::from_str(&text.replace("timeout=2s", "timeout=150ms")).unwrap()
    }

    /// Repeats a request until its answer is as wanted.
    async fn until(&self, request: &Value, mut is_wanted: impl FnMut(&Answer) -> bool) -> Answer {
        for _ in 0..REPEATS_MAX {
            let answer = ask(&self.server, request).await;
            if is_wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let answer = ask(&self.server, request).await;
        panic!("{request}: {} {}", answer.code, answer.json());
    }

    async fn wait_for_reason(&self, name: &str, reason: &str) -> Value {
        let request = json!({"path": format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}")});
        let found = format!("\"reason\":\"{reason}\"");
        self.until(&request, |it| String::from_utf8_lossy(&it.body).contains(&found)).await.json()
    }

    async fn add_api(&self, group: &str, service: &str) -> Value {
        let spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true, "service": {"namespace": "svcs", "name": service}});
        let object = json!({"metadata": {"name": format!("v1.{group}")}, "spec": spec});
        self.make("/apis/apiregistration.k8s.io/v1/apiservices", object).await
    }

    async fn play(&self, case: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        let mut behavior = case["server"].clone();
        let setup = case["setup"].as_array().cloned().unwrap_or_default();
        let group = setup.iter().find_map(|it| it["body"]["spec"]["group"].as_str()).unwrap_or_default();
        behavior["group"] = group.into();
        self.backend.script.set(&behavior);
        for request in &setup {
            let answer = ask(&self.server, request).await;
            if answer.code != 201 {
                differences.push(format!("set-up: {}", answer.json()));
            }
        }
        for step in case["steps"].as_array().unwrap() {
            differences.extend(self.step(step).await);
        }
        for request in setup.iter().filter(|it| it["body"]["kind"] == "APIService") {
            let name = request["body"]["metadata"]["name"].as_str().unwrap();
            let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
            ask(&self.server, &json!({"verb": "DELETE", "path": path})).await;
        }
        differences
    }

    async fn step(&self, step: &Value) -> Vec<String> {
        let script = &self.backend.script;
        if let Some(until) = step.get("until") {
            let (code, text) = (until["code"].as_u64(), until["contains"].as_str().unwrap());
            let is_wanted = |it: &Answer| code.is_none_or(|code| it.code == code) && spaced(&it.json()).contains(text);
            self.until(&until["request"], is_wanted).await;
            return Vec::new();
        }
        if step.get("seen").is_some() {
            return self.seen(step).await;
        }
        if let Some(watch) = step.get("watch") {
            let answer = ask(&self.server, &json!({"path": watch["path"]})).await;
            let lines = String::from_utf8_lossy(&answer.body).into_owned();
            let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let is_same = Value::Array(events) == step["expect"]["events"];
            return if is_same { Vec::new() } else { vec![format!("events {lines}")] };
        }
        let Some(request) = step.get("request") else { return Vec::new() };
        script.take(false);
        let mut answer = ask(&self.server, request).await;
        let mut received = script.take(false);
        let is_own = step["received"].as_array().is_some_and(Vec::is_empty) && request["verb"] == "GET";
        for _ in 0..if is_own { REPEATS_MAX } else { 0 } {
            // Documents are read after the condition is written.
            if difference(&answer, step).is_none() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            answer = ask(&self.server, request).await;
            received = script.take(false);
        }
        let differences = [difference(&answer, step), difference_of_received(&received, &step["received"])];
        differences.into_iter().flatten().collect()
    }

    /// The requests of the aggregator itself.
    async fn seen(&self, step: &Value) -> Vec<String> {
        let ignored = ["accept-encoding"];
        let mut seen: Vec<Value> = Vec::new();
        let wanted = step["distinctRequests"].as_array().unwrap();
        for _ in 0..REPEATS_MAX {
            seen.extend(self.backend.script.take(true).iter().map(|it| comparable(it, &ignored)));
            if wanted.iter().all(|it| seen.contains(&comparable(it, &ignored))) {
                return Vec::new();
            }
            tokio::time::sleep(PAUSE).await;
        }
        vec![format!("seen {}", json!(seen))]
    }
}

#[tokio::test]
async fn aggregated_apis_answer_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let text = std::fs::read_to_string(root.join("data/aggregation/aggregation.jsonl")).unwrap();
    let gaps = std::fs::read_to_string(root.join("aggregation/known_gaps.txt")).unwrap();
    let gaps: BTreeSet<&str> = gaps.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let world = World::start().await;
    let presence = Presence {
        address: "192.0.2.1:6443".parse().unwrap(),
        hostname: "vm".to_owned(),
        cluster_info: None,
        client_authorities: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".to_owned(),
    };
    let _announced = world.server.announce(presence);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in text.lines() {
        let case = world.here(line);
        let id = case["id"].as_str().unwrap();
        count += 1;
        let refused = world.backend.addresses["refused"].to_string();
        let address = &world.services.iter().find(|(name, _)| name == "refused").unwrap().1;
        // The text names the address that was dialed.
        let case: Value = serde_json::from_str(
            &case.to_string().replace(&format!("dial tcp {address}:443"), &format!("dial tcp {refused}")),
        )
        .unwrap();
        let differences = world.play(&case).await;
        match (gaps.contains(id), differences.is_empty()) {
            (true, true) => wrong.push(format!("{id}: agrees now, take it off the list")),
            (false, false) => wrong.extend(differences.iter().map(|it| format!("{id}: {it}"))),
            _ => {}
        }
    }
    world.server.stop().await.unwrap();
    assert!(count >= 60);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// The versions of a group in discovery in one document.
async fn discovered(world: &World, group: &str) -> Value {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let list = ask(&world.server, &json!({"path": "/apis", "headers": {"accept": accept}})).await.json();
    let groups = list["items"].as_array().unwrap();
    groups.iter().find(|it| it["metadata"]["name"] == group).map(|it| it["versions"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn discovery_contains_resources_of_aggregated_servers() {
    let world = World::start().await;
    world.backend.script.set(&json!({}));
    world.add_api("a.example.net", "api").await;
    world.wait_for_reason("v1.a.example.net", "Passed").await;
    let request = json!({"path": "/apis", "headers": {
        "accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}});
    world.until(&request, |it| String::from_utf8_lossy(&it.body).contains("\"things\"")).await;
    let expected = json!([{"version": "v1", "freshness": "Current", "resources": [{
        "resource": "things", "responseKind": {"group": "a.example.net", "version": "v1", "kind": "Thing"},
        "scope": "Namespaced", "singularResource": "thing", "shortNames": ["th"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]}]);
    assert_eq!(discovered(&world, "a.example.net").await, expected);
    let list = ask(&world.server, &json!({"path": "/apis"})).await.json();
    assert!(list["groups"].as_array().unwrap().iter().any(|it| it["name"] == "a.example.net"));
    let metrics = ask(&world.server, &json!({"path": "/metrics"})).await.body;
    assert!(
        String::from_utf8_lossy(&metrics).contains("aggregator_unavailable_apiservice{name=\"v1.a.example.net\"} 0")
    );
}

#[tokio::test]
async fn unreachable_servers_are_reported_and_stale() {
    let world = World::start().await;
    world.backend.script.set(&json!({}));
    for (number, (service, reason, message)) in [
        ("none", "ServiceNotFound", "service/none in \"svcs\" is not present"),
        ("noeps", "EndpointsNotFound", "cannot find endpointslices for service/noeps in \"svcs\""),
        (
            "wrongportname",
            "MissingEndpoints",
            "endpointslices for service/wrongportname in \"svcs\" have no addresses with port name \"https\"",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let group = format!("g{number}.example.net");
        world.add_api(&group, service).await;
        let object = world.wait_for_reason(&format!("v1.{group}"), reason).await;
        assert_eq!(object["status"]["conditions"][0]["message"], message);
        let answer = ask(&world.server, &json!({"path": format!("/apis/{group}/v1/things")})).await;
        assert_eq!((answer.code, &answer.body[..]), (503, &b"service unavailable\n"[..]));
        assert_eq!(discovered(&world, &group).await, json!([{"version": "v1", "freshness": "Stale", "resources": []}]));
    }
    // A service that comes later is found without a wait for the next check.
    let service = json!({"metadata": {"name": "none"}, "spec": {"ports": [{"name": "https", "port": 444}]}});
    world.make("/api/v1/namespaces/svcs/services", service).await;
    let object = world.wait_for_reason("v1.g0.example.net", "ServicePortError").await;
    let message = "service/none in \"svcs\" is not listening on port 443";
    assert_eq!(object["status"]["conditions"][0]["message"], message);
    assert_eq!(crate::webhooks::records::compare_metrics(&world.server, "aggregator_discovery_").await, 1);
}

#[tokio::test]
async fn simulated_servers_do_not_block_discovery() {
    let world = World::with(SimulatedBackends::Skip).await;
    let node = json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {"kernelVersion": "simulated"}}});
    world.make("/api/v1/nodes", node).await;
    let service = json!({"metadata": {"name": "sim"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    world.make("/api/v1/namespaces/svcs/services", service).await;
    let slice = json!({"metadata": {"name": "sim-1", "labels": {"kubernetes.io/service-name": "sim"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.10"], "nodeName": "n"}],
        "ports": [{"name": "https", "port": 443}]});
    world.make("/apis/discovery.k8s.io/v1/namespaces/svcs/endpointslices", slice).await;
    world.add_api("sim.example.net", "sim").await;
    world.wait_for_reason("v1.sim.example.net", "SimulatedBackend").await;
    assert_eq!(discovered(&world, "sim.example.net").await[0]["freshness"], "Current");
    let list = ask(&world.server, &json!({"path": "/apis/sim.example.net/v1"})).await;
    assert_eq!((list.code, &list.json()["resources"]), (200, &json!([])));
    let answer = ask(&world.server, &json!({"path": "/apis/sim.example.net/v1/things"})).await;
    assert_eq!(answer.code, 503);
    assert!(answer.json().as_str().unwrap().contains("are simulated"));
}

#[tokio::test]
async fn long_answers_pass_and_broken_ones_are_cut() {
    let world = World::start().await;
    let paths = json!({"long": {"do": "http", "pieces": 160}, "broken": {"do": "http", "pieces": 2, "broken": true}});
    world.backend.script.set(&json!({"paths": paths}));
    world.add_api("b.example.net", "api").await;
    world.wait_for_reason("v1.b.example.net", "Passed").await;
    let answer = ask(&world.server, &json!({"path": "/apis/b.example.net/v1/things/long"})).await;
    assert_eq!((answer.code, answer.body.len()), (200, 160 << 16));
    let request = http::Request::get("/apis/b.example.net/v1/things/broken").header("authorization", "Bearer admin");
    let response = world.server.handle(request.body(Full::new(Bytes::new())).unwrap(), None).await;
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());
    // A body that is larger than what is kept in memory of it.
    let body = "y".repeat(5 << 20);
    let request = json!({"verb": "POST", "path": "/apis/b.example.net/v1/things", "body": body});
    assert_eq!(ask(&world.server, &request).await.code, 200);
    let received = world.backend.script.take(false);
    assert_eq!(received.last().unwrap()["body"].as_str().map(str::len), Some(5 << 20));
}

#[tokio::test]
async fn upgrades_pass_both_ways() {
    let front_proxy = Arc::new(FrontProxy::generate().unwrap());
    let backend = Backend::start(&front_proxy).await;
    backend.script.set(&json!({"paths": {"no": {"do": "http", "code": 403, "body": "no"}}}));
    let mapped = (("svcs".to_owned(), "api".to_owned(), 443), backend.addresses["api"].to_string());
    let options = Options { backends: HashMap::from([mapped]), front_proxy: Some(front_proxy), ..Options::default() };
    let network = Network::start_with(store::Options::default(), options).await;
    let spec = json!({"group": "u.example.net", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "caBundle": STANDARD.encode(&backend.authority), "service": {"namespace": "svcs", "name": "api"}});
    let object = json!({"metadata": {"name": "v1.u.example.net"}, "spec": spec});
    let mut client = network.connect().await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    assert_eq!(client.send("POST", path, &[], &object).await.status(), 201);
    let mut is_available = false;
    for _ in 0..REPEATS_MAX {
        let answer = client.send("GET", &format!("{path}/v1.u.example.net"), &[], &Value::Null).await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        is_available = String::from_utf8_lossy(&body).contains("\"Passed\"");
        if is_available {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert!(is_available);
    let mut stream = network.stream_http1().await;
    let head = "GET /apis/u.example.net/v1/things/a/exec?x=1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("x-user: kubernetes-admin"), "{head}");
    for word in ["hello", "again"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut answer = [0_u8; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer.as_slice(), word.to_uppercase().as_bytes());
    }
    drop(stream);
    // A server that does not change the protocol.
    for (last, code) in [("no", "403"), ("other", "503")] {
        let mut stream = network.stream_http1().await;
        let head = format!(
            "GET /apis/u.example.net/v1/things/{last} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
    }
    network.end().await;
}

async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}
