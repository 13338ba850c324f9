//! A whole server without a network, and who asks it.

use std::sync::Arc;

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::Embedded;

pub(crate) struct Cluster(pub(crate) Arc<Server>);

pub(crate) fn admin() -> User {
    User::authenticated("admin", &["system:masters"])
}

pub(crate) fn node(name: &str) -> User {
    User::authenticated(format!("system:node:{name}"), &["system:nodes"])
}

impl Cluster {
    /// A server with a namespace `ns`.
    pub(crate) async fn start() -> Self {
        let store = Arc::new(Embedded::in_memory(store::Options::default()).unwrap());
        let cluster = Self(Server::start(store, Options { node_fleet: true, ..Options::default() }).await.unwrap());
        cluster.make("/api/v1/namespaces", json!({"metadata": {"name": "ns"}})).await;
        cluster
    }

    /// Asks as a user. A method may name the form of the body: `PATCH` is a merge patch.
    pub(crate) async fn ask(&self, user: &User, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask_with(user, method, path, &[], body).await
    }

    pub(crate) async fn ask_with(
        &self,
        user: &User,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if method == "PATCH" {
            request = request.header("content-type", "application/merge-patch+json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.0.handle(request.body(Full::new(body)).unwrap(), Some(user)).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Makes an object as the administrator.
    #[track_caller]
    pub(crate) fn make(&self, path: &str, body: Value) -> impl Future<Output = Value> {
        let path = path.to_owned();
        async move {
            let (status, answer) = self.ask(&admin(), "POST", &path, body).await;
            assert_eq!(status, 201, "{path}: {answer}");
            answer
        }
    }
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}
