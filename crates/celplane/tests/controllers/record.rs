//! Every write of a cluster, in order, by any client: a service in front of the server.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use apiserver::Body;
use apiserver::server::listen::Connection;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;

/// One write and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) who: Arc<str>,
    pub(crate) verb: &'static str,
    /// `plural.group`, or the plural alone in core.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) code: u16,
    pub(crate) answer: Value,
}

/// All writes so far. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Log {
    writes: Arc<Mutex<Vec<Write>>>,
    /// Time of the last write in a namespace, or of a name outside of the scenarios' namespaces.
    last: Arc<Mutex<std::collections::HashMap<(String, String), Instant>>>,
}

/// Whether something of this namespace and name belongs to the scenario that is played in `own`: its namespace and the
/// one beside it, and what has its name elsewhere.
fn belongs(own: &str, namespace: &str, name: &str) -> bool {
    let elsewhere = matches!(namespace, "" | "default" | "kube-system");
    namespace == own || namespace.strip_suffix('x') == Some(own) || (elsewhere && name.contains(own))
}

impl Log {
    /// The writes of a scenario, from a point in the log.
    pub(crate) fn of(&self, own: &str, from: usize) -> Vec<Write> {
        let writes = self.writes.lock().unwrap();
        writes.iter().skip(from).filter(|write| belongs(own, &write.namespace, &write.name)).cloned().collect()
    }

    /// The point that the log has reached.
    pub(crate) fn len(&self) -> usize {
        self.writes.lock().unwrap().len()
    }

    pub(crate) fn quiet_for(&self, own: &str) -> std::time::Duration {
        let last = self.last.lock().unwrap();
        let newest = last.iter().filter(|((namespace, name), _)| belongs(own, namespace, name)).map(|(_, at)| at).max();
        newest.map_or(std::time::Duration::MAX, Instant::elapsed)
    }

    fn add(&self, write: Write) {
        // Events and leases come late and often, and are not awaited.
        let counts =
            !matches!(write.resource.as_str(), "events" | "events.events.k8s.io" | "leases.coordination.k8s.io");
        if counts {
            let elsewhere = matches!(write.namespace.as_str(), "" | "default" | "kube-system");
            let name = if elsewhere { write.name.clone() } else { String::new() };
            self.last.lock().unwrap().insert((write.namespace.clone(), name), Instant::now());
            self.writes.lock().unwrap().push(write);
        }
    }
}

/// The server as one user sees it, with every write noted.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) connection: Connection,
    pub(crate) who: Arc<str>,
    pub(crate) log: Log,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<B> tower_service::Service<Request<B>> for Recording
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        let write = target(request.method(), request.uri().path());
        let answer = self.connection.call(request);
        let (who, log) = (self.who.clone(), self.log.clone());
        Box::pin(async move {
            let response = answer.await?;
            let Some((verb, resource, subresource, namespace, mut name)) = write else { return Ok(response) };
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            if name.is_empty() && verb == "create" {
                name = answer["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            }
            let verb = if verb == "delete" && name.is_empty() { "deletecollection" } else { verb };
            let namespace = if resource == "namespaces" { name.clone() } else { namespace };
            let code = head.status.as_u16();
            log.add(Write { who, verb, resource, subresource, namespace, name, code, answer });
            Ok(Response::from_parts(head, Body::Full(bytes)))
        })
    }
}

type Target = (&'static str, String, String, String, String);

/// Returns the target of a write request.
fn target(method: &Method, path: &str) -> Option<Target> {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let group = if parts[0] == "apis" { parts[1].to_owned() } else { String::new() };
    parts.drain(..if group.is_empty() { 2 } else { 3 });
    let mut namespace = String::new();
    if parts.len() > 2 && parts[0] == "namespaces" && !matches!(parts[2], "finalize" | "status") {
        namespace = parts[1].to_owned();
        parts.drain(..2);
    }
    let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    let resource = if group.is_empty() { part(0) } else { format!("{}.{group}", part(0)) };
    Some((verb, resource, part(2), namespace, part(1)))
}
