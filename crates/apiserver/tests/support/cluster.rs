//! A whole server without a network, and its clients.

use std::sync::Arc;

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

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
        Self::with(Options { node_fleet: true, ..Options::without_controllers() }).await
    }

    /// The same with options.
    pub(crate) async fn with(options: Options) -> Self {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let cluster = Self(Server::start(store, options).await.unwrap());
        cluster.make("/api/v1/namespaces", json!({"metadata": {"name": "ns"}})).await;
        cluster
    }

    /// Sends a request as a user. The method determines the form of the body: `PATCH` is a merge patch.
    pub(crate) async fn ask(&self, user: &User, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask_with(user, method, path, &[], body).await
    }

    /// Like [`Cluster::ask`], with all headers given.
    pub(crate) async fn ask_as(
        &self,
        user: &User,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.0.handle(request.body(Full::new(body)).unwrap(), Some(user)).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn ask_with(
        &self,
        user: &User,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, Value) {
        let form = [("content-type", "application/merge-patch+json")];
        let form = form.into_iter().filter(|_| method == "PATCH");
        let headers: Vec<(&str, &str)> = form.chain(headers.iter().copied()).collect();
        self.ask_as(user, method, path, &headers, body).await
    }

    /// Sends a request as the administrator: returns code, headers and body unchanged.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, http::HeaderMap, Bytes) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.0.handle(request.body(Full::new(body)).unwrap(), Some(&admin())).await;
        let (parts, body) = response.into_parts();
        (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
    }

    /// Returns the warnings for the administrator.
    pub(crate) async fn warnings(&self, method: &str, path: &str, body: Value) -> Vec<String> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let (code, headers, _) = self.raw(method, path, &[("content-type", kind)], body).await;
        assert!((200..300).contains(&code), "{path}: {code}");
        headers.get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect()
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
