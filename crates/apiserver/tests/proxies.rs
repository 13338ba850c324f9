//! `proxy` of nodes, pods and services: paths, headers and redirects, upgrades, and addresses that are refused.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::Options;
use apiserver::identity::User;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::client::TlsStream;

use crate::cluster::{Cluster, admin, node, pod};
use crate::network::Network;

type ReceivedRequests = Arc<Mutex<Vec<String>>>;

/// A web server that answers with the request: method, path, body and some headers.
async fn web() -> (SocketAddr, ReceivedRequests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, received) = (listener.local_addr().unwrap(), ReceivedRequests::default());
    let seen = received.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(seen.clone(), request));
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    });
    (address, received)
}

async fn answer(seen: ReceivedRequests, mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().to_string();
    if request.headers().contains_key("upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0_u8; 4];
            stream.read_exact(&mut buffer).await.unwrap();
            stream.write_all(&buffer.to_ascii_uppercase()).await.unwrap();
        });
        let response = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "echo");
        return Ok(response.body(Full::default()).unwrap());
    }
    let names = ["accept", "authorization", "cookie", "x-forwarded-uri", "x-remote-user"];
    let headers: Vec<String> = names
        .iter()
        .filter_map(|name| Some(format!("{name}={}", request.headers().get(*name)?.to_str().ok()?)))
        .collect();
    let method = request.method().clone();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let text = format!("{method} {path} {} {}", headers.join(","), String::from_utf8_lossy(&body));
    seen.lock().unwrap().push(text.trim_end().to_owned());
    let response = match path.as_str() {
        "/away" => Response::builder().status(302).header("location", "/login?x=1"),
        "/far" => Response::builder().status(302).header("location", "https://elsewhere.example.com/"),
        _ => Response::builder().header("content-type", "text/html").header("set-cookie", "a=b"),
    };
    Ok(response.body(Full::from("<b>hello</b>")).unwrap())
}

fn mapped(address: SocketAddr) -> Options {
    let key = ("ns".to_owned(), "web".to_owned(), 80);
    Options { backends: HashMap::from([(key, address.to_string())]), ..Options::default() }
}

#[tokio::test]
async fn service_requests_reach_mapped_process() {
    let (address, received) = web().await;
    let cluster = Cluster::with(mapped(address)).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}});
    cluster.make("/api/v1/namespaces/ns/services", service).await;
    let root = "/api/v1/namespaces/ns/services/web:http/proxy";
    let headers = [
        ("accept", "text/html"),
        ("cookie", "c=d"),
        ("x-remote-user", "evil"),
        ("impersonate-user", "admin"),
        ("impersonate-group", "system:masters"),
    ];
    let path = format!("{root}/a/../../b%20c/?q=1&p=2");
    let (code, head, body) = cluster.raw("POST", &path, &headers, json!({"n": 1})).await;
    assert_eq!((code, &body[..]), (200, &b"<b>hello</b>"[..]));
    assert_eq!((head["content-type"].to_str().unwrap(), head["set-cookie"].to_str().unwrap()), ("text/html", "a=b"));
    let uri = format!("{root}/a/../../b%20c/");
    let expected = format!("POST /b%20c/?q=1&p=2 accept=text/html,cookie=c=d,x-forwarded-uri={uri} {{\"n\":1}}");
    assert_eq!(received.lock().unwrap().pop(), Some(expected));
    // Kubernetes: the root has a slash.
    let (code, head, _) = cluster.raw("GET", &format!("{root}?a=b"), &[], Value::Null).await;
    assert_eq!((code, head["location"].to_str().unwrap()), (301, &*format!("{root}/?a=b")));
    // Kubernetes: other methods are passed on to the root.
    for query in ["", "?a=b"] {
        let (code, ..) = cluster.raw("DELETE", &format!("{root}{query}"), &[], Value::Null).await;
        assert_eq!(code, 200, "{query}");
        let line = received.lock().unwrap().pop().unwrap();
        assert!(line.starts_with(&format!("DELETE /{query} ")), "{line}");
    }
    // Redirects lead through the proxy, those to others do not.
    let (code, head, _) = cluster.raw("GET", &format!("{root}/away"), &[], Value::Null).await;
    assert_eq!((code, head["location"].to_str().unwrap()), (302, &*format!("{root}/login?x=1")));
    let (_, head, _) = cluster.raw("GET", &format!("{root}/far"), &[], Value::Null).await;
    assert_eq!(head["location"], "https://elsewhere.example.com/");
}

#[tokio::test]
async fn upgrades_pass_through_service_proxy() {
    let (address, _) = web().await;
    let network = Network::start_with(store::Options::default(), mapped(address)).await;
    let mut stream = network.stream_http1().await;
    let head = "GET /api/v1/namespaces/ns/services/web:80/proxy/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"ping").await.unwrap();
    let mut answer = [0_u8; 4];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"PING");
    drop(stream);
    network.end().await;
}

/// Opens a connection and upgrades it; none if the server closes it.
async fn upgraded(network: &Network) -> Option<TlsStream<TcpStream>> {
    let mut stream = network.try_stream_http1().await.ok()?;
    let head = "GET /api/v1/namespaces/ns/services/web:80/proxy/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    Some(stream)
}

#[tokio::test]
async fn upgraded_connections_count_until_they_end() {
    let (address, _) = web().await;
    // One address may have three of four connections.
    let options = Options { connections_max: 4, ..mapped(address) };
    let network = Network::start_with(store::Options::default(), options).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(upgraded(&network).await.unwrap());
    }
    assert!(upgraded(&network).await.is_none());
    open.pop();
    let free = async {
        while upgraded(&network).await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free).await.unwrap();
    drop(open);
    network.end().await;
}

/// A server that accepts connections, sends these bytes, and then nothing.
async fn silent(begin: &'static [u8]) -> (SocketAddr, Arc<Semaphore>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, accepted) = (listener.local_addr().unwrap(), Arc::new(Semaphore::new(0)));
    let counted = accepted.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(begin).await.unwrap();
            open.push(stream);
            counted.add_permits(1);
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn endless_answers_are_counted_by_user() {
    let (address, _) = silent(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegin").await;
    // Each exchange counts as 256 KiB.
    let options = Options { answer_bytes_max: 4 << 20, ..mapped(address) };
    let network = Network::start_with(store::Options::default(), options).await;
    let mut admin = network.connect().await;
    let path = "/api/v1/namespaces/ns/services/web:80/proxy/endless";
    let mut answers = Vec::new();
    for number in 0..16 {
        let answer = admin.send("GET", path, &[], &Value::Null).await;
        assert_eq!(answer.status(), 200, "{number}");
        answers.push(answer);
    }
    assert_eq!(admin.send("GET", path, &[], &Value::Null).await.status(), 429);
    assert_eq!(admin.ask("GET", "/api/v1/namespaces/ns/configmaps", &Value::Null).await.0, 200);
    drop(answers);
    let again = async {
        while admin.send("GET", path, &[], &Value::Null).await.status() == 429 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();
    network.end().await;
}

#[tokio::test]
async fn silent_servers_hold_no_seats() {
    let (address, accepted) = silent(b"").await;
    let options = Options { reads_max: 10, writes_max: 10, ..mapped(address) };
    let cluster = Arc::new(Cluster::with(options).await);
    let binding = json!({
        "metadata": {"name": "jane"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    cluster.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let jane = User::authenticated("jane", &["system:authenticated"]);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (cluster, jane) = (cluster.clone(), jane.clone());
        waiting.spawn(async move {
            cluster.ask(&jane, "GET", "/api/v1/namespaces/ns/services/web:80/proxy/silent", Value::Null).await
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(10), accepted.acquire_many(40)).await;
    assert!(all.is_ok(), "only {} requests reached the server", accepted.available_permits());
    assert_eq!(cluster.ask(&jane, "GET", "/api/v1/namespaces/ns/configmaps", Value::Null).await.0, 200);
}

#[tokio::test]
async fn endpoints_are_examined_within_a_limit() {
    let cluster = Cluster::start().await;
    let simulated = json!({"metadata": {"name": "sim"}, "status": {"nodeInfo": {"kernelVersion": "simulated"}}});
    cluster.make("/api/v1/nodes", simulated).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}});
    cluster.make("/api/v1/namespaces/ns/services", service).await;
    cluster.make("/api/v1/namespaces/ns/pods", pod("p", "sim")).await;
    let status = json!({"status": {"podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}});
    let (code, _) = cluster.ask(&admin(), "PATCH", "/api/v1/namespaces/ns/pods/p/status", status).await;
    assert_eq!(code, 200);
    let slice = |name: String, endpoints: Value| {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "endpoints": endpoints,
        })
    };
    let path = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
    let target = json!({"kind": "Pod", "namespace": "ns", "name": "p"});
    let ready = json!([{"addresses": ["10.1.0.1"], "conditions": {"ready": true}, "targetRef": target}]);
    cluster.make(path, slice("z".to_owned(), ready)).await;
    let (_, message) = refusal(&cluster, &admin(), "namespaces/ns/services/web:http/proxy/").await;
    assert!(message.contains("are simulated"), "{message}");
    for number in 0..10 {
        let endpoint =
            |it: usize| json!({"addresses": [format!("10.2.{number}.{}", it % 250)], "conditions": {"ready": false}});
        let endpoints: Vec<Value> = (0..1000).map(endpoint).collect();
        cluster.make(path, slice(format!("a{number}"), Value::from(endpoints))).await;
    }
    let (_, message) = refusal(&cluster, &admin(), "namespaces/ns/services/web:http/proxy/").await;
    assert_eq!(message, "no endpoints available for service \"web\"");
}

async fn refusal(cluster: &Cluster, user: &User, path: &str) -> (u16, String) {
    let (code, body) = cluster.ask(user, "GET", &format!("/api/v1/{path}"), Value::Null).await;
    (code, body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn unsafe_and_unknown_places_are_refused() {
    let cluster = Cluster::start().await;
    let simulated = json!({"metadata": {"name": "sim"}, "status": {"nodeInfo": {"kernelVersion": "simulated"}}});
    cluster.make("/api/v1/nodes", simulated).await;
    cluster.make("/api/v1/nodes", json!({"metadata": {"name": "real"}})).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}});
    cluster.make("/api/v1/namespaces/ns/services", service).await;
    for (name, on, address) in [
        ("loop", "real", "127.0.0.1"),
        ("metadata", "real", "169.254.169.254"),
        ("none", "real", ""),
        ("sim", "sim", "10.1.2.3"),
    ] {
        cluster.make("/api/v1/namespaces/ns/pods", pod(name, on)).await;
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        if !address.is_empty() {
            let path = format!("/api/v1/namespaces/ns/pods/{name}/status");
            let (code, answer) = cluster.ask(&node(on), "PATCH", &path, status).await;
            assert_eq!(code, 200, "{answer}");
        }
    }
    // An EndpointSlice that names an address which is not that of its pod.
    let slice = json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 80}], "endpoints": [
            {"addresses": ["10.9.9.9"], "targetRef": {"kind": "Pod", "namespace": "ns", "name": "sim"}},
            {"addresses": ["10.1.2.3"]}]});
    cluster.make("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices", slice).await;
    let simulated = "containers of node sim are simulated, not run: there is nothing to connect to";
    for (path, code, message) in [
        ("namespaces/ns/pods/loop/proxy/", 400, "address not allowed"),
        ("namespaces/ns/pods/https:metadata:80/proxy/latest", 400, "address not allowed"),
        ("namespaces/ns/pods/none:80/proxy/", 400, "address not allowed"),
        ("namespaces/ns/pods/sim:80/proxy/", 400, simulated),
        ("namespaces/ns/pods/gone/proxy/", 404, "pods \"gone\" not found"),
        ("namespaces/ns/pods/ftp:loop:21/proxy/", 400, "invalid pod request \"ftp:loop:21\""),
        ("namespaces/ns/services/gone:80/proxy/", 404, "services \"gone\" not found"),
        ("namespaces/ns/services/gone/proxy/", 503, "no endpoints available for service \"gone\""),
        ("namespaces/ns/services/web:81/proxy/", 503, "no service port 81 found for service \"web\""),
        ("namespaces/ns/services/web:http/proxy/", 503, "no endpoints available for service \"web\""),
        ("namespaces/ns/services/a:b:c:d/proxy/", 400, "invalid service request \"a:b:c:d\""),
        ("nodes/gone/proxy/metrics", 404, "nodes \"gone\" not found"),
        ("nodes/sim/proxy/metrics", 400, simulated),
        (
            "nodes/real/proxy/metrics",
            500,
            "Internal error occurred: the kubelet of node real cannot be reached from this server",
        ),
        ("nodes/http:real:9100/proxy/metrics", 400, "address not allowed"),
    ] {
        let (given, text) = refusal(&cluster, &admin(), path).await;
        assert_eq!((given, text.as_str()), (code, message), "{path}");
    }
    let somebody = User::authenticated("jane", &[]);
    let (code, text) = refusal(&cluster, &somebody, "nodes/real/proxy/metrics").await;
    let expected = "nodes \"real\" is forbidden: User \"jane\" cannot get resource \"nodes/proxy\" in API group \"\" at the cluster scope";
    assert_eq!((code, text.as_str()), (403, expected));
}
