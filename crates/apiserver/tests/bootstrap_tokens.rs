//! Bootstrap tokens: accepted while their secret is valid, for certificate requests only; `cluster-info` is public.

use apiserver::Options;
use apiserver::serving::presence::Presence;
use serde_json::{Value, json};

use crate::cluster::{Cluster, admin};

#[tokio::test]
async fn bootstrap_tokens_only_request_certificates() {
    let cluster = Cluster::with(Options { bootstrap_tokens: true, ..Options::default() }).await;
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = request.body(http_body_util::Full::new(bytes::Bytes::from(body))).unwrap();
        cluster.0.handle(request, None).await.status().as_u16()
    };
    let token = "abcdef.0123456789abcdef";
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    assert_eq!(ask(token, "GET", requests, Value::Null).await, 401);
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true"}});
    cluster.make("/api/v1/namespaces/kube-system/secrets", secret).await;
    assert_eq!(ask(token, "GET", requests, Value::Null).await, 200);
    for (method, path) in [
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef"),
        ("GET", "/api/v1/namespaces/kube-system/configmaps"),
        ("DELETE", requests),
    ] {
        assert_eq!(ask(token, method, path, Value::Null).await, 403, "{method} {path}");
    }
    assert_eq!(ask("abcdef.0123456789abcdeg", "GET", requests, Value::Null).await, 401);
    // A token that ends, or is deleted, is refused.
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    // 2020-01-01T00:00:00Z
    let ended = json!({"data": {"expiration": "MjAyMC0wMS0wMVQwMDowMDowMFo="}});
    assert_eq!(cluster.ask(&admin(), "PATCH", path, ended).await.0, 200);
    cluster.0.settle().await.unwrap();
    assert_eq!(ask(token, "GET", requests, Value::Null).await, 401);
    // Without the setting they mean nothing.
    let other = Cluster::start().await;
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true"}});
    other.make("/api/v1/namespaces/kube-system/secrets", secret).await;
    let request = http::Request::get(requests).header("authorization", format!("Bearer {token}"));
    let request = request.body(http_body_util::Full::new(bytes::Bytes::new())).unwrap();
    assert_eq!(other.0.handle(request, None).await.status(), 401);
}

#[tokio::test]
async fn cluster_info_is_published_and_public() {
    let cluster = Cluster::with(Options { bootstrap_tokens: true, ..Options::default() }).await;
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let old = json!({"metadata": {"name": "cluster-info"}, "data": {
        "kubeconfig": "certificate-authority-data: b2xk", "jws-kubeconfig-abcdef": "signature"}});
    cluster.make("/api/v1/namespaces/kube-public/configmaps", old).await;
    let kubeconfig =
        "clusters:\n- cluster:\n    certificate-authority-data: YQ==\n    server: https://192.0.2.1:6443\n";
    let _announced = cluster.0.announce(Presence {
        address: "192.0.2.1:6443".parse().unwrap(),
        hostname: "vm".to_owned(),
        client_authorities: String::new(),
        cluster_info: Some(kubeconfig.to_owned()),
    });
    let read = async || {
        let request = http::Request::get(path).body(http_body_util::Full::new(bytes::Bytes::new())).unwrap();
        let response = cluster.0.handle(request, None).await;
        assert_eq!(response.status(), 200);
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&body).unwrap()["data"].clone()
    };
    let published = async {
        loop {
            let data = read().await;
            if data["kubeconfig"] == kubeconfig {
                return data;
            }
            tokio::task::yield_now().await;
        }
    };
    let data = tokio::time::timeout(std::time::Duration::from_secs(60), published).await.unwrap();
    assert_eq!(data["jws-kubeconfig-abcdef"], "signature");
    cluster.0.stop().await.unwrap();
}
