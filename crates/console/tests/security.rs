//! Requests as an attacker would send them, over a real connection.

use std::sync::{Arc, Mutex};

use api::json::Value;
use bytes::Bytes;
use celplane_console::{Answer, Cluster, Console, Engine, Failure, NodeView, Topic};
use client::Client;
use http::{Request, Response};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An engine that repeats the question.
struct Echo;

impl Engine for Echo {
    fn answer(&self, _topic: Topic, question: Value, _nodes: Vec<Arc<NodeView>>) -> Answer {
        Box::pin(async move {
            match question.str_at(&["fail"]) {
                Some(message) => Err(Failure::invalid(message)),
                None => Ok(api::json::to_string(&question)),
            }
        })
    }
}

/// A cluster that records requests and has one Secret.
#[derive(Clone, Default)]
struct FakeCluster(Arc<Mutex<Vec<String>>>);

impl tower_service::Service<Request<Full<Bytes>>> for FakeCluster {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        self.0.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        let (code, body) = match request.uri().path() {
            "/version" => (200, r#"{"gitVersion":"v1.38.0"}"#),
            "/api/v1/namespaces/a/secrets/s" => (
                200,
                r#"{"kind":"Secret","metadata":{"name":"s","annotations":{"last":"hunter2"}},"data":{"password":"hunter2"}}"#,
            ),
            "/api/v1/secrets" => (200, r#"{"kind":"SecretList","items":[{"data":{"password":"hunter2"}}]}"#),
            "/api/v1/nodes" => {
                (403, r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"nodes is forbidden"}"#)
            }
            "/api/v1/services" => {
                (401, r#"{"kind":"Status","code":401,"reason":"Unauthorized","message":"Unauthorized"}"#)
            }
            "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
                (201, r#"{"status":{"userInfo":{"username":"eve"}}}"#)
            }
            _ => (200, r#"{"kind":"PodList","items":[]}"#),
        };
        let response = Response::builder().status(code).body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap();
        std::future::ready(Ok(response))
    }
}

/// A console with a client that speaks plain HTTP to it.
struct Setup {
    port: u16,
    urls: Arc<Mutex<Vec<String>>>,
    cluster: FakeCluster,
    served: tokio::task::JoinHandle<()>,
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.served.abort();
    }
}

struct Reply {
    code: u16,
    head: String,
    body: String,
}

impl Setup {
    async fn start() -> Self {
        let fake = FakeCluster::default();
        let cluster = Cluster {
            client: Client::in_process(fake.clone(), "test"),
            server: "https://127.0.0.1:6443".to_owned(),
            namespace: "default".to_owned(),
            version: "0".to_owned(),
        };
        let urls = Arc::new(Mutex::new(Vec::new()));
        let seen = urls.clone();
        let on_url = move |url: &str| seen.lock().unwrap().push(url.to_owned());
        let console = Console::bind(0, cluster, Arc::new(Echo), on_url).await.unwrap();
        let port = console.port();
        Self { port, urls, cluster: fake, served: tokio::spawn(console.serve()) }
    }

    async fn send(&self, text: &str) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let text = text.replace("HOST", &format!("127.0.0.1:{}", self.port));
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { code, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    async fn get(&self, path: &str, headers: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n{headers}\r\n")).await
    }

    async fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        let length = body.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ))
        .await
    }

    fn code(&self) -> String {
        self.urls.lock().unwrap().last().unwrap().split_once("#code=").unwrap().1.to_owned()
    }

    /// Opens a session and returns its header.
    async fn open(&self) -> String {
        let reply = self.post("/c/session", "", &format!(r#"{{"code":"{}"}}"#, self.code())).await;
        assert_eq!(reply.code, 200, "{}", reply.body);
        let key = api::json::parse(reply.body.as_bytes()).unwrap().str_at(&["key"]).unwrap().to_owned();
        format!("X-Celplane-Session: {key}\r\n")
    }
}

#[tokio::test]
async fn nothing_is_read_without_a_session() {
    let setup = Setup::start().await;
    for path in ["/k/api/v1/pods", "/c/info", "/c/why", "/k/api/v1/namespaces/a/secrets/s"] {
        assert_eq!(setup.get(path, "").await.code, 401, "{path}");
        assert_eq!(
            setup.get(path, "Cookie: celplane-session=1\r\nX-Celplane-Session: 0\r\n").await.code,
            401,
            "{path}"
        );
    }
    assert_eq!(setup.post("/c/why", "", "{}").await.code, 401);
    assert!(setup.cluster.0.lock().unwrap().is_empty(), "the cluster was asked");
    assert_eq!(setup.get("/", "").await.code, 200);
    assert_eq!(setup.get("/main.js", "").await.code, 200);
    assert_eq!(setup.get("/other", "").await.code, 404);
}

#[tokio::test]
async fn code_opens_one_session() {
    let setup = Setup::start().await;
    assert_eq!(setup.post("/c/session", "", r#"{"code":"0000"}"#).await.code, 401);
    assert_eq!(setup.post("/c/session", "", "not json").await.code, 400);
    let first = setup.code();
    let session = setup.open().await;
    assert_eq!(setup.get("/k/api/v1/pods", &session).await.code, 200);
    let again = setup.post("/c/session", "", &format!(r#"{{"code":"{first}"}}"#)).await;
    assert_eq!(again.code, 401);
    assert_ne!(setup.code(), first, "a fresh code is announced");
    let other = setup.open().await;
    assert_ne!(other, session);
    assert_eq!(setup.post("/c/end", &session, "{}").await.code, 200);
    assert_eq!(setup.get("/k/api/v1/pods", &session).await.code, 401);
    assert_eq!(setup.get("/k/api/v1/pods", &other).await.code, 200);
}

#[tokio::test]
async fn other_hosts_and_origins_are_rejected() {
    let setup = Setup::start().await;
    let session = setup.open().await;
    let get = |headers: &str| format!("GET /k/api/v1/pods HTTP/1.1\r\nConnection: close\r\n{headers}{session}\r\n");
    assert_eq!(setup.send(&get("Host: rebind.example.com\r\n")).await.code, 421);
    assert_eq!(setup.send(&get("Host: HOST\r\nOrigin: http://evil.example.com\r\n")).await.code, 403);
    assert_eq!(setup.send(&get("Host: HOST\r\nSec-Fetch-Site: cross-site\r\n")).await.code, 403);
    let before = setup.cluster.0.lock().unwrap().len();
    let foreign = "POST /c/session HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example.com\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(setup.send(foreign).await.code, 403);
    assert_eq!(setup.cluster.0.lock().unwrap().len(), before);
    // A preflight is answered without permission.
    let preflight =
        "OPTIONS /c/why HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example.com\r\nConnection: close\r\n\r\n";
    let reply = setup.send(preflight).await;
    assert_eq!(reply.code, 403);
    assert!(!reply.head.contains("access-control"), "{}", reply.head);
}

#[tokio::test]
async fn only_reads_reach_the_cluster() {
    let setup = Setup::start().await;
    let session = setup.open().await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let reply = setup
            .send(&format!(
                "{method} /k/api/v1/pods HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nConnection: close\r\nContent-Length: 0\r\n{session}\r\n"
            ))
            .await;
        assert_eq!(reply.code, 405, "{method}");
    }
    for path in [
        "/k/api/v1/namespaces/a/pods/b/exec?command=sh",
        "/k/api/v1/nodes/a/proxy/",
        "/k/metrics",
        "/k/api/v1/%73ecrets",
    ] {
        assert_eq!(setup.get(path, &session).await.code, 403, "{path}");
    }
    assert!(setup.cluster.0.lock().unwrap().is_empty());
    assert_eq!(setup.get("/k/api/v1/pods?limit=5", &session).await.code, 200);
    assert_eq!(*setup.cluster.0.lock().unwrap(), ["GET /api/v1/pods?limit=5"]);
    let info = setup.get("/c/info", &session).await;
    assert!(info.body.contains(r#""user":"eve""#), "{}", info.body);
}

#[tokio::test]
async fn values_of_secrets_are_not_sent() {
    let setup = Setup::start().await;
    let session = setup.open().await;
    for path in ["/k/api/v1/namespaces/a/secrets/s", "/k/api/v1/secrets"] {
        let reply = setup.get(path, &session).await;
        assert_eq!(reply.code, 200);
        assert!(reply.body.contains("password") && !reply.body.contains("hunter2"), "{}", reply.body);
    }
    assert_eq!(setup.get("/k/api/v1/secrets?watch=1", &session).await.code, 403);
}

#[tokio::test]
async fn refusals_of_the_cluster_are_passed_on() {
    let setup = Setup::start().await;
    let session = setup.open().await;
    let reply = setup.get("/k/api/v1/nodes", &session).await;
    assert_eq!(reply.code, 403);
    assert!(reply.body.contains("nodes is forbidden"), "{}", reply.body);
    // The page takes a 401 for the end of its own session.
    assert_eq!(setup.get("/k/api/v1/services", &session).await.code, 502);
}

#[tokio::test]
async fn questions_are_bounded() {
    let setup = Setup::start().await;
    let session = setup.open().await;
    assert_eq!(setup.post("/c/why", &session, r#"{"name":"a"}"#).await.body, r#"{"name":"a"}"#);
    let failed = setup.post("/c/why", &session, r#"{"fail":"no such pod"}"#).await;
    assert!(failed.code == 422 && failed.body.contains("no such pod"), "{}", failed.body);
    let large = format!(r#"{{"name":"{}"}}"#, "a".repeat(1 << 20));
    assert_eq!(setup.post("/c/why", &session, &large).await.code, 400);
    assert_eq!(setup.post("/c/other", &session, "{}").await.code, 404);
}

#[tokio::test]
async fn responses_have_a_strict_policy() {
    let setup = Setup::start().await;
    for path in ["/", "/style.css", "/c/info", "/nowhere"] {
        let head = setup.get(path, "").await.head;
        for expected in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "nosniff",
            "no-referrer",
        ] {
            assert!(head.contains(expected), "{path}: {expected}: {head}");
        }
        assert!(!head.contains("unsafe") && !head.contains("set-cookie"), "{head}");
    }
}
