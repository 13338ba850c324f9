//! A server all of whose threads for long work are taken.

use http_body_util::Full;
use serde_json::json;

use super::*;

async fn ask(server: &Arc<Server>, method: &str, path: &str, body: String) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).body(Full::new(Bytes::from(body))).unwrap();
    server.handle(request, Some(&User::authenticated("admin", &["system:masters"]))).await
}

#[tokio::test]
async fn who_asks_something_short_does_not_wait_for_long_work() {
    let store = Arc::new(store::Embedded::in_memory(store::Options::default()).unwrap());
    let server = Server::start(store, Options::default()).await.unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    for number in 0..60 {
        let body = json!({"metadata": {"name": format!("m-{number}")}}).to_string();
        assert_eq!(ask(&server, "POST", maps, body).await.status(), 201);
    }
    // All threads for long work wait for us, and so does what comes after.
    let (started, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let mut releases = Vec::new();
    for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
        let (release, released) = std::sync::mpsc::channel::<()>();
        releases.push(release);
        let (server, started) = (server.clone(), started.clone());
        tokio::spawn(async move {
            server
                .threads()
                .run(move || {
                    started.send(()).unwrap();
                    // It ends when the other side is dropped.
                    let _ = released.recv();
                })
                .await
        });
        begun.recv().await.unwrap();
    }
    let long = json!({"metadata": {"name": "long"}, "data": {"k": "v".repeat(HEAVY_BODY)}}).to_string();
    let posted = tokio::spawn({
        let server = server.clone();
        async move { ask(&server, "POST", maps, long).await }
    });
    let table = |server: Arc<Server>| async move {
        let request = Request::builder().uri(maps).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let user = User::authenticated("admin", &["system:masters"]);
        server.handle(request, Some(&user)).await.into_body().collect().await.unwrap().to_bytes()
    };
    let listed = tokio::spawn(table(server.clone()));
    for path in ["/livez", "/readyz", "/healthz", &format!("{maps}/m-7"), &format!("{maps}?limit=20")] {
        assert_eq!(ask(&server, "GET", path, String::new()).await.status(), 200, "{path}");
    }
    assert!(!posted.is_finished() && !listed.is_finished());
    drop(releases);
    assert_eq!(posted.await.unwrap().status(), 201);
    let listed: serde_json::Value = serde_json::from_slice(&listed.await.unwrap()).unwrap();
    assert!(listed["rows"].as_array().unwrap().len() >= 60);
}
