//! Attacks that cause much work with little input: unread responses, aliases of YAML, wide and costly columns.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use apiserver::server::{Kubelets, Logs, LogsFailure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use super::Siege;
use super::attacks::{MALLORY, NOBODY};
use crate::network::Connection;

const LOG: &str = "/api/v1/namespaces/large/pods/p/log";
const LARGE: &str = "/api/v1/namespaces/large/configmaps";
const THINGS: &str = "/apis/siege.example/v1/namespaces/large/things";
const GRIDS: &str = "/apis/siege.example/v1/namespaces/large/grids";
const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");

/// The rights that these attacks need beside those of all.
pub(super) fn rules() -> [Value; 2] {
    [
        json!({"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}),
        json!({"apiGroups": ["siege.example"], "resources": ["things", "grids"], "verbs": ["list"]}),
    ]
}

/// A node agent whose containers have written 250 kB each.
pub(super) struct Agent;

impl Kubelets for Agent {
    fn logs(&self, _: Logs) -> Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>> {
        Box::pin(async { Ok("a line of a log\n".repeat(16_000).into()) })
    }
}

/// Large objects, a pod with a log, and resources with wide columns.
pub(super) async fn prepare(admin: &mut Connection) {
    let mut create = async |path: &str, body: Value| {
        let (status, answer) = admin.ask("POST", path, &body).await;
        assert!(matches!(status, 201 | 409), "{answer}");
    };
    create("/api/v1/namespaces", json!({"metadata": {"name": "large"}})).await;
    for index in 0..10 {
        create(LARGE, json!({"metadata": {"name": format!("m{index}")}, "data": {"k": "v".repeat(900_000)}})).await;
    }
    create("/api/v1/namespaces/large/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let spec = json!({"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]});
    // A node of another process has its log from here.
    let metadata = json!({"name": "p", "annotations": {"sim.celplane.dev/log": "a line of a log\n".repeat(15_000)}});
    create("/api/v1/namespaces/large/pods", json!({"metadata": metadata, "spec": spec})).await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "integer"}}, "s": {"type": "string"}}}}});
    let column = json!({"name": "A", "type": "string", "jsonPath": ".spec.s"});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": vec![column; 8]}]);
    let names = json!({"plural": "things", "kind": "Thing"});
    let spec = json!({"group": "siege.example", "scope": "Namespaced", "names": names, "versions": versions});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(definitions, json!({"metadata": {"name": "things.siege.example"}, "spec": spec})).await;
    for index in 0..20 {
        let thing = json!({"apiVersion": "siege.example/v1", "kind": "Thing",
            "metadata": {"name": format!("t{index}")}, "spec": {"s": "x".repeat(200_000)}});
        let created = async {
            while admin.ask("POST", THINGS, &thing).await.0 == 404 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), created).await.unwrap();
    }
    prepare_grids(admin).await;
    let log = async {
        while admin.send("GET", LOG, &[], &Value::Null).await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), log).await.unwrap();
}

/// Resources with two columns whose expressions use up the cost budget of a table: 632,104 for each of 40 cells.
async fn prepare_grids(admin: &mut Connection) {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "integer"}}}}}});
    let expression = |limit: &str| format!("self.spec.l.all(x, self.spec.l.all(y, x + y >= {limit})) ? 'a' : 'b'");
    let columns = json!([{"name": "A", "type": "string", "expression": expression("0")},
        {"name": "B", "type": "string", "expression": expression("-1")}]);
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns}]);
    let names = json!({"plural": "grids", "kind": "Grid"});
    let spec = json!({"group": "siege.example", "scope": "Namespaced", "names": names, "versions": versions});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"metadata": {"name": "grids.siege.example"}, "spec": spec});
    let (status, answer) = admin.ask("POST", definitions, &definition).await;
    assert_eq!(status, 201, "{answer}");
    for index in 0..20 {
        let grid = json!({"apiVersion": "siege.example/v1", "kind": "Grid",
            "metadata": {"name": format!("g{index}")}, "spec": {"l": (0..300).collect::<Vec<u32>>()}});
        let created = async {
            while admin.ask("POST", GRIDS, &grid).await.0 == 404 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), created).await.unwrap();
    }
    let table = admin.send("GET", GRIDS, &[TABLE], &Value::Null).await;
    let warning = table.headers().get("warning").map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
    assert!(warning.contains("exceeded the cost budget of this request"), "{} {warning}", table.status());
    table.into_body().collect().await.unwrap();
}

impl Siege {
    /// A connection whose client takes no byte of any answer.
    async fn closed_window(&self) -> Option<Connection> {
        let stream = TokioIo::new(self.place.stream_with(None).await.ok()?);
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let (sender, connection) = builder.handshake::<_, Full<Bytes>>(stream).await.ok()?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Some(Connection(sender))
    }

    /// Repeats a request without reading.
    async fn leave_unread(&self, kind: usize, path: &str) {
        while self.attack(kind).await {
            let Some(mut connection) = self.closed_window().await else { continue };
            let mut held = Vec::new();
            while self.goes_on(kind) && held.len() < 100 {
                let answer = connection.try_send("GET", path, &[MALLORY], &Value::Null);
                match tokio::time::timeout(Duration::from_millis(500), answer).await {
                    Ok(Ok(answer)) => {
                        assert!(matches!(answer.status().as_u16(), 200 | 429), "{path}: {}", answer.status());
                        held.push(answer);
                    }
                    // Refused, or one that waits: the next one does, too.
                    Ok(Err(_)) => break,
                    Err(_) => {}
                }
            }
        }
    }

    /// Large lists with a closed window.
    pub(super) async fn closed_windows(&self, kind: usize) {
        self.leave_unread(kind, LARGE).await;
    }

    /// Logs that are followed with a closed window.
    pub(super) async fn followers(&self, kind: usize) {
        self.leave_unread(kind, &format!("{LOG}?follow=true")).await;
    }

    /// YAML whose aliases would become 60 GB, of a user without rights.
    pub(super) async fn aliases(&self, kind: usize) {
        let body = format!("z: &a \"{}\"\ny: [{}]\n", "x".repeat(100_000), vec!["*a"; 60_000].join(","));
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            while self.goes_on(kind) {
                let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
                let request = http::Request::post(format!("https://localhost{path}"))
                    .header(NOBODY.0, NOBODY.1)
                    .header("content-type", "application/yaml")
                    .body(Full::new(Bytes::from(body.clone())));
                if connection.0.ready().await.is_err() {
                    break;
                }
                let Ok(answer) = connection.0.send_request(request.unwrap()).await else { break };
                assert!(matches!(answer.status().as_u16(), 400 | 429), "{}", answer.status());
                let _ = answer.into_body().collect().await;
            }
        }
    }

    /// Tables whose cells are larger than their objects.
    pub(super) async fn wide_columns(&self, kind: usize) {
        self.tables(kind, THINGS).await;
    }

    /// Tables that use up the cost budget of a request.
    pub(super) async fn costly_columns(&self, kind: usize) {
        self.tables(kind, GRIDS).await;
    }

    async fn tables(&self, kind: usize, path: &str) {
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            while self.goes_on(kind) {
                let Ok(answer) = connection.try_send("GET", path, &[MALLORY, TABLE], &Value::Null).await else {
                    break;
                };
                let status = answer.status();
                assert!(status == 429 || !status.is_client_error(), "{path}: {status}");
                let _ = answer.into_body().collect().await;
            }
        }
    }
}
